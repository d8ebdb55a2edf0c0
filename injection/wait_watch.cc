#include "injection/wait_watch.h"

namespace seqpoint::inject {

using abi::Op;

const WaitWatch::Stream* WaitWatch::Find(uint64_t handle) const {
  for (size_t i = 0; i < stream_count_; ++i) {
    if (streams_[i].handle == handle) return &streams_[i];
  }
  return nullptr;
}

WaitWatch::Stream* WaitWatch::Get(uint64_t handle) {
  if (const Stream* known = Find(handle)) return &streams_[known - streams_];
  if (stream_count_ == kStreams) return nullptr;
  streams_[stream_count_] = {.handle = handle};
  return &streams_[stream_count_++];
}

bool WaitWatch::Covers(const Stream* stream) const {
  if (stream == nullptr || !stream->brings || stream->fetches) return true;
  return most_kernels_ > 0 && 2 * stream->kernels >= most_kernels_;
}

void WaitWatch::OnCall(Op op, uint64_t stream, uint64_t event) {
  switch (op) {
    case Op::kCopyH2D:
      if (Stream* found = Get(stream)) found->brings = true;
      break;
    case Op::kCopyD2H:
      if (Stream* found = Get(stream)) found->fetches = true;
      break;
    case Op::kLaunch:
    case Op::kGraphLaunch:
      if (Stream* found = Get(stream)) {
        found->kernels += op == Op::kGraphLaunch ? kGraph : 1;
        if (found->kernels > most_kernels_) most_kernels_ = found->kernels;
      }
      break;
    case Op::kEventRecord:
      events_[PlaceOf(event)] = {event, Covers(Find(stream))};
      break;
    case Op::kStreamSync:
      if (Stream* found = Get(stream)) found->fetches = false;
      break;
    default:
      break;
  }
}

bool WaitWatch::Covers(Op op, uint64_t stream, uint64_t event) const {
  if (op == Op::kStreamSync) return Covers(Find(stream));
  if (op == Op::kEventSync) {
    const Event& known = events_[PlaceOf(event)];
    return known.handle == event && known.covers;
  }
  return true;
}

}  // namespace seqpoint::inject
