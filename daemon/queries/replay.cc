#include "daemon/queries/replay.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/replayed_run.h"

namespace seqpoint::queries {
absl::StatusOr<v1::ReplayReply> Replay(const jobs::SnapshotData& job, const RecordedRun& run,
                                       Cancelled cancelled) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto outcomes, ReplayAll(run, cancelled));
  v1::ReplayReply reply;
  Spent spent;
  uint64_t not_run = 0;
  absl::flat_hash_map<std::string, double> calls_ns;
  for (size_t s = 0; s < outcomes.size(); ++s) {
    const Stretch& stretch = run.stretches[s];
    spent.Add(stretch, outcomes[s]);
    not_run += outcomes[s].not_run;
    for (const auto& [name, ns] : outcomes[s].calls_ns) calls_ns[name] += ns;
    const auto add = [&](const Stretch::Step& step, size_t r, int64_t number, double measured,
                         double replayed) {
      v1::ReplayedIteration& to = *reply.add_iterations();
      to.set_number(number);
      to.set_rank(stretch.recording.ranks[r]);
      const int64_t length[2] = {step.key.first, step.key.second};
      for (const int64_t value : job.units.Of(length, job.dimensions)) to.add_lengths(value);
      to.set_measured_duration_ns(measured);
      to.set_replayed_duration_ns(replayed);
    };
    for (const Stretch::Step& step : stretch.steps) {
      if (stretch.window) {
        add(step, 0, step.number, step.measured_ns, outcomes[s].duration_ns[0][step.index]);
        continue;
      }
      for (size_t r = 0; r < stretch.recording.ranks.size(); ++r) {
        if (step.index >= outcomes[s].duration_ns[r].size()) continue;
        add(step, r, stretch.first_number[r] + static_cast<int64_t>(step.index),
            stretch.recording.measured_ns[r][step.index], outcomes[s].duration_ns[r][step.index]);
      }
    }
  }
  std::stable_sort(reply.mutable_iterations()->begin(), reply.mutable_iterations()->end(),
                   [](const v1::ReplayedIteration& a, const v1::ReplayedIteration& b) {
                     return std::pair(a.number(), a.rank()) < std::pair(b.number(), b.rank());
                   });
  const ReplayErrors errors = ErrorsOf(run, outcomes);
  reply.set_mean_error(errors.mean);
  reply.set_worst_error(errors.worst);
  double path_ns[kShares] = {}, idle_ns[kShares] = {}, time_ns = 0;
  for (size_t i = 0; i < spent.times_ns.size(); ++i) {
    time_ns += spent.times_ns[i];
    for (size_t share = 0; share < kShares; ++share) {
      path_ns[share] += static_cast<double>((*spent.paths[i])[share]);
      idle_ns[share] += static_cast<double>((*spent.idle[i])[share]);
    }
  }
  const auto steps = static_cast<double>(spent.times_ns.size());
  SetShares(path_ns, steps, time_ns, calls_ns, reply.mutable_critical_path());
  SetShares(idle_ns, steps, time_ns, {}, reply.mutable_idle());
  reply.set_tasks(run.tasks);
  for (const std::string& message : run.left_out) reply.add_messages(message);
  if (not_run > 0) {
    reply.add_messages(absl::StrCat(not_run,
                                    " tasks were never reached: they wait for what "
                                    "another rank's trace does not have"));
  }
  if (!job.imported) {
    reply.add_messages(
        "of our own windows measured is what an iteration of that length usually takes, untraced, "
        "and replayed a window several times in a row");
  }
  reply.set_job_id(absl::StrCat(job.job_id));
  *reply.mutable_losses() = job.losses;
  return reply;
}

}  // namespace seqpoint::queries
