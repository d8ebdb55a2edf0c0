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
  {
    LockGuard guard(&lock_);
    if (configs_generation_ == 0 || incoming_.counter_backend != wanted_.counter_backend ||
        memcmp(incoming_.config, wanted_.config, sizeof(wanted_.config)) != 0) {
      ++configs_generation_;
    }
    memcpy(&wanted_, &incoming_, sizeof(wanted_));
  }
  flush_interval_ms_.store(
      wanted_.flush_interval_ms >= kShortestFlushMs ? wanted_.flush_interval_ms : kDefaultFlushMs,
      std::memory_order_relaxed);
  return true;
}

void ControlMirror::CopyConfigs(WantedConfigs* copy) {
  LockGuard guard(&lock_);
  memcpy(copy->configs, wanted_.config, sizeof(copy->configs));
  copy->backend = static_cast<abi::CounterBackend>(wanted_.counter_backend);
  copy->generation = configs_generation_;
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
