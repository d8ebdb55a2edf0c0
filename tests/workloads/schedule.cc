#include "tests/workloads/schedule.h"

#include <algorithm>
#include <utility>

#include "tests/workloads/random.h"

namespace seqpoint::workload {
namespace {

constexpr uint64_t kEvaluationSeed = 0x65766121;
// Examples of the evaluation set are other ones than those trained on.
constexpr uint64_t kEvaluationIds = uint64_t{1} << 40;

std::vector<Batch> BatchesOf(const std::vector<Batch>& all, size_t accumulate, const Ranks& ranks) {
  const size_t group = accumulate * static_cast<size_t>(ranks.count);
  std::vector<Batch> own;
  for (size_t begin = 0; begin + group <= all.size(); begin += group) {
    const auto first =
        all.begin() + static_cast<ptrdiff_t>(begin + accumulate * static_cast<size_t>(ranks.rank));
    own.insert(own.end(), first, first + static_cast<ptrdiff_t>(accumulate));
  }
  return own;
}

}  // namespace

Schedule MakeSchedule(const Options& options, const LengthTable& table, const Ranks& ranks) {
  Schedule schedule;
  Random random(Mix(options.model.seed) + 1);
  const auto limit = static_cast<size_t>(options.max_iterations);
  const auto accumulate = static_cast<size_t>(options.accumulate);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    if (limit > 0 && schedule.iterations.size() >= limit) break;
    std::vector<Batch> batches = MakeEpoch(table, options.model.batch, options.order,
                                           options.pad_multiple, options.drop_last, 0, &random);
    if (options.own_lengths && ranks.count > 1) batches = BatchesOf(batches, accumulate, ranks);
    for (size_t begin = 0; begin < batches.size(); begin += accumulate) {
      const size_t count = std::min(accumulate, batches.size() - begin);
      schedule.iterations.push_back({schedule.batches.size() + begin, count, epoch});
    }
    std::move(batches.begin(), batches.end(), std::back_inserter(schedule.batches));
  }
  if (limit > 0 && schedule.iterations.size() > limit) {
    schedule.iterations.resize(limit);
    const Schedule::Iteration& last = schedule.iterations.back();
    schedule.batches.resize(last.first + last.count);
  }
  if (options.eval_every > 0) {
    Random evaluation(Mix(options.model.seed) ^ kEvaluationSeed);
    LengthTable held_out;
    for (int i = 0; i < options.eval_batches * options.model.batch; ++i) {
      held_out.push_back(table[evaluation.Below(table.size())]);
    }
    schedule.evaluation = MakeEpoch(held_out, options.model.batch, Order::kSorted,
                                    options.pad_multiple, false, kEvaluationIds, &evaluation);
  }
  return schedule;
}

}  // namespace seqpoint::workload
