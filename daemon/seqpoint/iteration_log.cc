#include "daemon/seqpoint/iteration_log.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace seqpoint {

bool IterationLog::Accepts(const IterationSample& sample) {
  if (IsValid(sample.key) && sample.time_ns >= 0 && sample.time_ns <= kMaxTimeNs) return true;
  ++rejected;
  return false;
}

void IterationLog::AddOther(const IterationSample& sample) {
  ++other_iterations;
  other_time_ns += static_cast<double>(sample.time_ns);
}

KeyRecord* IterationLog::Add(const IterationSample& sample, const SampleUse& use) {
  const double time = static_cast<double>(sample.time_ns);
  observed_time_ns += time;
  untimed += sample.time_ns == 0;
  distorted += sample.distorted;
  measured += sample.measured;
  redone += sample.redone;
  newest = std::max(newest, sample.iteration);
  if (use.counted) {
    ++iterations;
    if (use.timed) exact_time_ns += time;
    if (use.timed && !use.usable) {
      rest_ns += static_cast<double>(std::min(sample.rest_ns, kMaxTimeNs));
    }
  }
  KeyRecord* record = keys.Insert(sample.key);
  if (record == nullptr) {
    ++rejected;
    if (use.counted && !use.timed) ++overflow_untimed;
    return nullptr;
  }
  two_dimensional |= sample.key.second != 0;
  if (use.counted) {
    ++record->iterations;
    if (!use.timed) ++record->untimed;
  }
  return record;
}

absl::Status IterationLog::CheckStretch(absl::Span<const StretchIteration> iterations,
                                        int64_t time_ns) const {
  const size_t count = iterations.size();
  if (count == 0 || count > kMaxStretch || time_ns <= 0 || time_ns > kMaxTimeNs) {
    return absl::InvalidArgumentError(absl::StrCat(count, " iterations took ", time_ns,
                                                   " ns together: give 1 to ", kMaxStretch,
                                                   " of them, and a time"));
  }
  absl::flat_hash_map<Key, int64_t> wanted;
  for (const StretchIteration& i : iterations) ++wanted[i.key];
  for (const auto& [key, times] : wanted) {
    const KeyRecord* record = keys.Find(key);
    if (record != nullptr && record->untimed >= times) continue;
    return absl::InvalidArgumentError(absl::StrCat("fewer than ", times, " iterations of length (",
                                                   key.first, ", ", key.second,
                                                   ") wait for a time; add them first"));
  }
  return absl::OkStatus();
}

void IterationLog::AddStretch(absl::Span<const StretchIteration> stretch, double time_ns) {
  for (const StretchIteration& i : stretch) --keys.At(i.key).untimed;
  untimed -= std::min<uint64_t>(untimed, stretch.size());
  observed_time_ns += time_ns;
  exact_time_ns += time_ns;
}

}  // namespace seqpoint
