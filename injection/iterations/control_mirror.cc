#include "injection/iterations/control_mirror.h"

#include <string.h>

namespace seqpoint::inject {
namespace {

constexpr uint64_t kOrphanedAfterNs = 2'000'000'000;
constexpr uint32_t kShortestFlushMs = 10;

}  // namespace

bool ControlMirror::Update() {
  // A torn copy is not used: the daemon is writing, or was killed while it did.
  if (!reader_.Changed() || !reader_.Copy(&incoming_)) return false;
  memcpy(&wanted_, &incoming_, sizeof(wanted_));
  flush_interval_ms_.store(
      wanted_.flush_interval_ms >= kShortestFlushMs ? wanted_.flush_interval_ms : kDefaultFlushMs,
      std::memory_order_relaxed);
  configs_->Set(wanted_);
  return true;
}

bool ControlMirror::LooksOrphaned(uint64_t now_ns, uint64_t start_ns) const {
  return reader_.HeartbeatAgeNs() > kOrphanedAfterNs && now_ns - start_ns > kOrphanedAfterNs;
}

abi::Level ControlMirror::WantedLevel() const {
  const auto level = static_cast<abi::Level>(wanted_.level);
  switch (level) {
    case abi::Level::kLearn:
    case abi::Level::kTrace:
      return orphaned_ ? abi::Level::kMark : level;  // nobody reads what they write
    case abi::Level::kMark:
    case abi::Level::kReleased:
      return level;
    default:
      return abi::Level::kPaused;
  }
}

}  // namespace seqpoint::inject
