#include "daemon/seqpoint/cold_iterations.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace seqpoint {

bool ColdIterations::NoteLengths(const IterationSample& sample) {
  bool cold = false;
  const auto note = [&](int list, int64_t value) {
    if (first_seen[list].size() >= kMaxKeys) return first_seen[list].contains(value);
    cold |= first_seen[list].try_emplace(value, sample.iteration).second;
    return true;
  };
  if (!sample.combined) {
    note(0, sample.key.first);
    note(1, sample.key.second);
    return cold;
  }
  for (const MicroBatch& batch : sample.micro_batches) {
    if (!IsValid(batch.key)) continue;
    sums = true;
    for (int d = 0; d < 2; ++d) {
      const int64_t value = d == 0 ? batch.key.first : batch.key.second;
      const int list = LengthList(d, batch.kind);
      if (note(list, value)) ++micro_batches[list][value];
    }
  }
  return cold;
}

ColdIterations::Noted ColdIterations::Add(const IterationSample& sample, const SampleUse& use,
                                          KeyRecord& record) {
  const double time_ns = static_cast<double>(sample.time_ns);
  Noted noted;
  noted.cold = NoteLengths(sample);
  noted.recurrence = sample.cold && !noted.cold;
  count += noted.cold || noted.recurrence;
  if (noted.cold) by_iteration[sample.iteration] = {sample.key, use.timed ? time_ns : 0};
  if (!noted.recurrence) return noted;
  if (sample.measured && measured_recurrences.size() < kMaxNumbers) {
    measured_recurrences.insert(sample.iteration);
  }
  (use.timed ? recurrences_timed : recurrences_untimed) += use.counted ? 1 : 0;
  if (use.usable) {
    ++record.recurrences;
    recurrence_ns += time_ns;
  }
  return noted;
}

// The time of a stretch includes the warm-up cost of its iterations.
void ColdIterations::AddStretch(absl::Span<const StretchIteration> iterations) {
  for (const StretchIteration& i : iterations) {
    const auto cold = by_iteration.find(i.iteration);
    if (cold != by_iteration.end()) {
      cold->second.in_stretch = true;
    } else if (i.cold) {
      recurrences_untimed = std::max(0.0, recurrences_untimed - 1);
    }
  }
}

double ColdIterations::MicroBatchesOf(int list) const {
  double sum = 0;
  for (const auto& [length, times] : micro_batches[list]) sum += static_cast<double>(times);
  return sum;
}

LengthHistory ColdIterations::HistoryOf(int list) const {
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (const auto& [length, iteration] : first_seen[list]) order.push_back({iteration, length});
  std::sort(order.begin(), order.end());
  std::vector<int64_t> lengths;
  for (const auto& [iteration, length] : order) lengths.push_back(length);
  return LengthHistory::Of(lengths);
}

ColdIterations::Costs ColdIterations::CostsOf(const KeyTable& keys) const {
  uint64_t start = UINT64_MAX;
  for (const auto& seen : first_seen) {
    for (const auto& [length, iteration] : seen) start = std::min(start, iteration);
  }
  Costs costs;
  absl::flat_hash_map<uint64_t, BucketCounts> opened;  // by iterations with a usable time
  for (int list = 0; list < kLengthLists; ++list) {
    for (const auto& [length, counts] : HistoryOf(list).opened) {
      const uint64_t iteration = first_seen[list].at(length);
      const auto cold = by_iteration.find(iteration);
      const bool timed = cold != by_iteration.end() && cold->second.time_ns > 0;
      if (cold != by_iteration.end() && cold->second.in_stretch) continue;
      // Iterations of unknown length have length 0, which is no length.
      if (!timed && keys.LengthUnknown({length, 0})) continue;
      BucketCounts& to = timed ? opened[iteration] : costs.opened_untimed;
      for (int s = 0; s < kBucketSizes; ++s) to[s] += counts[s];
    }
  }
  for (const auto& [iteration, cold] : by_iteration) {
    if (!(cold.time_ns > 0) || keys.LengthUnknown(cold.key)) continue;
    costs.times.push_back(
        {{cold.key, cold.time_ns}, opened[iteration], iteration == start, iteration});
  }
  std::sort(costs.times.begin(), costs.times.end(), [](const ColdTime& a, const ColdTime& b) {
    return std::tie(a.time.key, a.iteration) < std::tie(b.time.key, b.iteration);
  });
  return costs;
}

double ColdIterations::RecurrenceShare(const KeyTable& keys, const TimeModel& model) const {
  constexpr double kMost = 1024;  // processes, about
  if (!(recurrence_ns > 0) || !model.known || !(model.warm_up_ns > 0)) return 0;
  double normal_ns = 0;
  for (const auto& [key, record] : keys.Sorted()) {
    if (record.recurrences > 0) normal_ns += record.recurrences * model.Expected(key);
  }
  return std::clamp((recurrence_ns - normal_ns) / model.warm_up_ns, 0.0, kMost);
}

}  // namespace seqpoint
