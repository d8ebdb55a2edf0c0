#include "daemon/jobs/run_schedule.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/horizon.h"
#include "daemon/jobs/cumulative_rounder.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

// Steps of an epoch of so many forward passes.
int64_t StepsOf(int64_t batches, int64_t micro_batches, int64_t data_parallel) {
  // The usual samplers give every rank the same number of batches, and some batches twice.
  return (batches + data_parallel - 1) / data_parallel / micro_batches;
}

int64_t BatchesOf(const v1::Horizon& horizon) {
  int64_t batches = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) batches += entry.count();
  return batches;
}

}  // namespace

int RunShape::dimensions() const { return rule == nullptr ? 0 : rule->rule.length_count; }

uint32_t RunShape::SummedMicroBatches() const {
  return rule != nullptr && abi::SumsLengths(rule->rule) ? rule->rule.micro_batches : 1;
}

uint32_t RunShape::SummedBatches() const {
  return batches == abi::kBatchEach ? SummedMicroBatches() : 1;
}

std::map<Lengths, int64_t> IterationLengths(const v1::Horizon& horizon, int64_t micro_batches,
                                            int64_t data_parallel) {
  constexpr int64_t kMostDrawn = 1 << 18;
  std::map<Lengths, int64_t> counts;
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    const int64_t second = entry.lengths_size() > 1 ? entry.lengths(1) : 0;
    counts[{entry.lengths(0), second}] += entry.count();
    total += entry.count();
  }
  // With fewer batches than ranks there is one step.
  data_parallel =
      std::clamp<int64_t>(data_parallel, 1, std::max<int64_t>(total / micro_batches, 1));
  const int64_t group = micro_batches * data_parallel;
  if (group <= 1) return counts;
  const double share = std::min(1.0, static_cast<double>(kMostDrawn) / std::max<int64_t>(total, 1));
  std::vector<Lengths> batches;
  for (const auto& [lengths, count] : counts) {
    const auto drawn = static_cast<size_t>(std::ceil(static_cast<double>(count) * share));
    batches.insert(batches.end(), drawn, lengths);
  }
  std::mt19937_64 random(1);
  if (!horizon.uniform_steps()) std::shuffle(batches.begin(), batches.end(), random);
  std::map<Lengths, int64_t> steps;
  int64_t drawn = 0;
  for (size_t i = 0; i + static_cast<size_t>(group) <= batches.size(); ++drawn) {
    Lengths most = {0, 0};
    for (int64_t rank = 0; rank < data_parallel; ++rank) {
      Lengths sum = {0, 0};
      for (int64_t step = 0; step < micro_batches; ++step, ++i) {
        for (int d = 0; d < 2; ++d) sum[d] = std::min(sum[d] + batches[i][d], kMaxLength + 1);
      }
      for (int d = 0; d < 2; ++d) most[d] = std::max(most[d], sum[d]);
    }
    ++steps[most];
  }
  const int64_t wanted = StepsOf(total, micro_batches, data_parallel);
  const double times =
      static_cast<double>(wanted) / static_cast<double>(std::max<int64_t>(drawn, 1));
  CumulativeRounder round;
  for (auto& [lengths, count] : steps) count = round.Next(static_cast<double>(count) * times);
  std::erase_if(steps, [](const auto& entry) { return entry.second == 0; });
  return steps;
}

Histogram1 Marginal(const std::map<Lengths, int64_t>& lengths, int dimension) {
  Histogram1 histogram;
  for (const auto& [pair, count] : lengths) histogram[pair[dimension]] += count;
  return histogram;
}

int GivenDimensions(const v1::Horizon& horizon) {
  return horizon.histogram_size() == 0 ? 0 : horizon.histogram(0).lengths_size();
}

absl::Status CheckJobHorizon(const v1::Horizon& horizon) {
  constexpr int kMostLengths = 1 << 18;  // that an engine can distinguish
  if (horizon.histogram_size() <= kMostLengths) return CheckHorizon(horizon);
  return absl::InvalidArgumentError(absl::StrCat(
      "horizon.histogram: ", horizon.histogram_size(), " different lengths, more than ",
      kMostLengths, "; pad them to a multiple (--pad-to), or give the number of iterations"));
}

int64_t DataParallel(const v1::Horizon& horizon, const RunShape& shape) {
  if (horizon.data_parallel() > 0) return horizon.data_parallel();
  return shape.imported ? 1 : shape.world_size;
}

int64_t RunIterations(const v1::Horizon& horizon, const RunShape& shape) {
  if (horizon.kind() == v1::Horizon::KIND_UNKNOWN) return 0;
  if (horizon.kind() == v1::Horizon::KIND_ITERATIONS) return horizon.iterations();
  if (shape.batches == abi::kBatchUnknown) return 0;
  const int64_t batches = BatchesOf(horizon), data_parallel = DataParallel(horizon, shape);
  const bool each = shape.batches == abi::kBatchEach;
  if (each && shape.micro_batches.vary()) {
    const int64_t forwards = StepsOf(batches, 1, data_parallel);
    return std::llround(static_cast<double>(forwards) * static_cast<double>(RepeatsOf(horizon)) /
                        shape.micro_batches.mean());
  }
  const int64_t micro_batches =
      shape.rule != nullptr && each ? std::max<int64_t>(shape.rule->rule.micro_batches, 1) : 1;
  return StepsOf(batches, micro_batches, data_parallel) * RepeatsOf(horizon);
}

}  // namespace seqpoint::jobs
