#include "daemon/queries/replayed_run.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::queries {
namespace {

// A replay that misses the measured time by more tells nothing about a change. Replays of recorded
// traces miss it by less than 1 %, published ones by 3 to 14 % (docs/using/whatif-accuracy.md).
constexpr double kMostReplayError = 0.10;

}  // namespace

absl::StatusOr<std::vector<whatif::Outcome>> ReplayAll(const RecordedRun& run,
                                                       Cancelled cancelled) {
  std::vector<whatif::Outcome> outcomes;
  for (const Stretch& stretch : run.stretches) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    outcomes.push_back(whatif::RunAgain(stretch.recording, stretch.recording.graphs));
  }
  return outcomes;
}

ReplayErrors ErrorsOf(const RecordedRun& run, const std::vector<whatif::Outcome>& outcomes) {
  double measured_ns = 0, replayed_ns = 0, missed_ns = 0;
  ReplayErrors errors;
  for (size_t s = 0; s < run.stretches.size(); ++s) {
    const std::vector<double> times = StepTimes(run.stretches[s], outcomes[s].duration_ns);
    for (size_t i = 0; i < times.size(); ++i) {
      const double measured = run.stretches[s].steps[i].measured_ns;
      if (!(measured > 0)) continue;
      measured_ns += measured;
      replayed_ns += times[i];
      missed_ns += std::abs(times[i] - measured);
      const double error = times[i] / measured - 1;
      if (std::abs(error) > std::abs(errors.worst)) errors.worst = error;
    }
  }
  if (!(measured_ns > 0)) return errors;
  errors.mean = replayed_ns / measured_ns - 1;
  errors.absolute = missed_ns / measured_ns;
  return errors;
}

absl::Status CheckReplay(const RecordedRun& run, const ReplayErrors& errors,
                         const std::string& job) {
  if (errors.absolute <= kMostReplayError) return absl::OkStatus();
  size_t iterations = 0;
  for (const Stretch& stretch : run.stretches) iterations += stretch.steps.size();
  std::string why = absl::StrJoin(run.left_out, "; ");
  return absl::FailedPreconditionError(absl::StrFormat(
      "job \"%s\": the replay of its %d traced iterations misses their measured time by %.0f %% "
      "(%+.0f %% in all, and %.0f %% is the most allowed), so what a change would save is not "
      "known%s; `seqpoint replay` shows each iteration. Record it again while the machine does "
      "nothing else",
      job, iterations, 100 * errors.absolute, 100 * errors.mean, 100 * kMostReplayError,
      why.empty() ? "" : absl::StrCat(": ", why)));
}

void Spent::Add(const Stretch& stretch, const whatif::Outcome& outcome) {
  for (const double time_ns : StepTimes(stretch, outcome.duration_ns)) {
    times_ns.push_back(time_ns);
  }
  for (const Stretch::Step& step : stretch.steps) {
    paths.push_back(&outcome.critical_path[step.index]);
    idle.push_back(&outcome.idle[step.index]);
    kernels_ns.push_back(&outcome.kernels_ns[step.index]);
  }
}

void SetShares(const double* shares_ns, double iterations, double time_ns,
               const absl::flat_hash_map<std::string, double>& calls_ns,
               google::protobuf::RepeatedPtrField<v1::TimeShare>* to) {
  const auto most = std::max_element(calls_ns.begin(), calls_ns.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  for (size_t i = 0; i < kShares; ++i) {
    if (!(shares_ns[i] > 0)) continue;
    v1::TimeShare& share = *to->Add();
    share.set_category(whatif::ShareName(static_cast<whatif::Share>(i)));
    if (i == static_cast<size_t>(whatif::Share::kCall) && most != calls_ns.end()) {
      share.mutable_category()->append(absl::StrCat(", most of it ", most->first));
    }
    share.set_duration_ns(iterations > 0 ? shares_ns[i] / iterations : 0);
    share.set_share(time_ns > 0 ? shares_ns[i] / time_ns : 0);
  }
  std::stable_sort(to->begin(), to->end(), [](const v1::TimeShare& a, const v1::TimeShare& b) {
    return a.duration_ns() > b.duration_ns();
  });
}

}  // namespace seqpoint::queries
