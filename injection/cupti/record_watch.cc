#include "injection/cupti/record_watch.h"

namespace seqpoint::inject {

void RecordWatch::CheckTimes(bool clock_changed) {
  const ActivityDecoder::Seen now = decoder_->seen();
  if (2 * (now.untimed_kernels - timed_.untimed_kernels) > now.kernels - timed_.kernels) {
    features_->Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        clock_changed
            ? "CUPTI delivers kernels without times; it does so from CUDA 12.6 to 13.0 when "
              "another profiler (torch.profiler) sets its clock: stop that profiler, or use a "
              "later CUDA"
            : "CUPTI delivers kernels without times, as it does when its buffers on the GPU have "
              "run out, after millions of kernels: traced iterations are given up");
  } else if (decoder_->foreign() > 0) {
    features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
                      "CUPTI delivers records with times of another clock, which another profiler "
                      "in this process has set: such records are left out; stop that profiler");
  }
  timed_ = now;
}

bool RecordWatch::CheckSupply(uint64_t awaited, bool recording) {
  constexpr int kStarvedChecks = 3;
  const uint64_t records = decoder_->seen().records;
  const bool starved = recording && awaited > awaited_ && records == records_;
  starved_checks_ = starved ? starved_checks_ + 1 : 0;
  awaited_ = awaited;
  records_ = records;
  if (starved_checks_ < kStarvedChecks) return true;
  features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
                    "another profiler in this process (torch.profiler?) took CUPTI's buffers: GPU "
                    "times are lost until the process is restarted without it");
  return false;
}

}  // namespace seqpoint::inject
