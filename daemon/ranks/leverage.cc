#include "daemon/ranks/leverage.h"

#include <algorithm>

namespace seqpoint::ranks {
namespace {

constexpr double kEnough = 16, kMemory = 2048;  // iterations
// A wait beyond this many times the mean is that for a stall, which is waited for once.
constexpr double kStallWait = 2.5;

}  // namespace

void Leverage::Add(double time, double wait) {
  if (count_ >= kEnough) wait = std::min(wait, kStallWait * wait_);
  if (count_ >= kMemory) {
    count_ /= 2;
    square_ /= 2;
    product_ /= 2;
  }
  count_ += 1;
  const double from_mean = wait - wait_;
  wait_ += from_mean / count_;
  time_ += (time - time_) / count_;
  square_ += from_mean * (wait - wait_);
  product_ += from_mean * (time - time_);
}

double Leverage::value() const {
  if (count_ < kEnough || !(square_ > 0)) return 1;
  return std::clamp(product_ / square_, 0.0, 1.0);
}

}  // namespace seqpoint::ranks
