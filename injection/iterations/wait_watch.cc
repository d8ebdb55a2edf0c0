#include "injection/iterations/wait_watch.h"

namespace seqpoint::inject {

using abi::Op;

void WaitWatch::OnCall(Op op, uint64_t stream, uint64_t event) {
  if (op == Op::kEventRecord)
    events_[PlaceOf(event)] = {event, stream, boundaries_, KernelsOn(stream)};
  if (op != Op::kLaunch && op != Op::kGraphLaunch) return;
  size_t i = 0;
  while (i < stream_count_ && streams_[i].handle != stream) ++i;
  if (i == kStreams) return;
  if (i == stream_count_) streams_[stream_count_++] = {stream, 0};
  streams_[i].kernels += op == Op::kGraphLaunch ? kGraph : 1;
  if (busiest_ == nullptr || streams_[i].kernels > busiest_->kernels) busiest_ = &streams_[i];
}

uint64_t WaitWatch::KernelsOn(uint64_t stream) const {
  for (size_t i = 0; i < stream_count_; ++i) {
    if (streams_[i].handle == stream) return streams_[i].kernels;
  }
  return 0;
}

bool WaitWatch::Computes(uint64_t stream) const {
  if (has_step_) return stream == step_;
  return busiest_ != nullptr && stream == busiest_->handle;
}

bool WaitWatch::Covers(Op op, uint64_t stream, uint64_t event) const {
  if (op == Op::kContextSync) return true;
  if (op != Op::kEventSync) return Computes(stream);
  const Event& known = events_[PlaceOf(event)];
  if (stream_count_ == kStreams && KernelsOn(known.stream) == 0) return false;  // has no place
  return known.handle == event && Computes(known.stream) && known.boundaries == boundaries_ &&
         known.kernels == KernelsOn(known.stream);
}

}  // namespace seqpoint::inject
