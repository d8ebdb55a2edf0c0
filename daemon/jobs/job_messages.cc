// Messages of a job: what is missing, and why.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_descriptions.h"

namespace seqpoint::jobs {

// Single ones; those of stretches among them. One or two may still wait for what ends them.
bool Job::MostlyUntimed() const {
  constexpr uint64_t kSome = 8;
  const EngineTotals totals = engines_.steps().Totals();
  return !facts_.imported() && rule_ && rule_->rule.clock.op == 0 && totals.iterations >= kSome &&
         (totals.untimed + totals.together) * 2 >= totals.iterations;
}

std::string Job::WhyUntimed() const {
  if (!MostlyUntimed()) return "";
  const EngineTotals totals = engines_.steps().Totals();
  const std::string stamp =
      "a cudaMemsetAsync of a few bytes on the stream that computes, where an iteration begins, ";
  if (totals.together > 0) {
    return absl::StrCat("iterations are not timed one by one, but ",
                        totals.together / totals.stretches,
                        " at a time, where the host waits for the GPU; ", stamp, "times each");
  }
  return absl::StrCat(
      "the time of ",
      totals.untimed >= totals.iterations
          ? "its iterations"
          : absl::StrCat(totals.untimed, " of its ", totals.iterations, " iterations"),
      " is not known: the stream that computes does nothing where each of them begins that leaves "
      "a time stamp (a copy, a memset, a graph launch), and the host runs ahead of the GPU; ",
      stamp, "is enough");
}

// The first that applies, the gravest first.
std::string Job::Error() const {
  // With these, every figure is another.
  std::vector<std::string> missing;
  for (std::string message :
       {UncountedInWords(processes_, ranks_), OvercountedInWords(processes_),
        LostBatchesInWords(processes_, rule_.has_value()), facts_.store_damage()}) {
    if (!message.empty()) missing.push_back(std::move(message));
  }
  if (!missing.empty()) return absl::StrJoin(missing, "; ");
  for (const auto& [id, process] : processes_) {
    for (const auto& [number, feature] : process->features) {
      if (feature.state() == v1::FEATURE_STATE_FAILED) return feature.message();
    }
  }
  if (!refused_.empty()) return refused_;
  if (!metrics_.error().empty()) return metrics_.error();
  for (const auto& [id, process] : processes_) {
    if (process->state.stands_down_for().empty()) continue;
    return process->alive()
               ? absl::StrCat("rank ", process->row.rank, ": standing down while ",
                              process->state.stands_down_for(),
                              " has CUPTI; what NVTX ranges or marks do not tell is not seen")
               : absl::StrCat("rank ", process->row.rank, ": CUPTI was left to ",
                              process->state.stands_down_for(),
                              " until the process ended; what NVTX ranges or marks do not tell was "
                              "not seen");
  }
  for (const auto& [id, process] : processes_) {
    if (!process->state.concurrent()) continue;
    return absl::StrCat("rank ", process->row.rank, ": process ", process->row.pid,
                        " ran at the same time as another one of this rank: its iterations (",
                        process->state.iterations(),
                        ") are in the log and in no figure; trainings of their own need a --run-id "
                        "of their own");
  }
  if (!rule_) {
    if (std::string error = NoRuleError(); !error.empty()) return error;
  }
  constexpr uint64_t kLongEnough = 500;  // iterations of others
  for (const auto& [id, process] : processes_) {
    if (!rule_ || !process->learning || !process->alive()) continue;
    if (process->state.iterations() > 0 || engines_.steps().Totals().iterations < kLongEnough)
      continue;
    return absl::StrCat("rank ", process->row.rank,
                        ": what it does does not fit the rule learned from another process; it is "
                        "in no figure");
  }
  const std::set<int32_t> unheard = awaits_ranks_ ? UnheardRanks() : std::set<int32_t>();
  if (!unheard.empty() && engines_.builder().open_steps() > 0) {
    return absl::StrCat(unheard.size(), " of ", ranks_.world_size(),
                        " ranks were not heard yet, the first one is rank ", *unheard.begin(),
                        "; iterations wait for their nodes, until 90 s after the last rank that "
                        "came, because a step is as long as its slowest rank");
  }
  if (std::string why = UnmatchedInWords(processes_); !why.empty()) {
    return absl::StrCat("who waits for whom is not known, because ", why);
  }
  if (const int64_t dropped = SumLosses().ring_dropped(); dropped > 0) {
    return absl::StrCat(
        dropped, " records were dropped: the daemon did not keep up. Give it processor time, or a ",
        "larger ring to the program (SEQPOINT_RING_BYTES)",
        orders_.traces_everything() ? ", or do not trace everything (control JOB level auto)" : "");
  }
  if (const int64_t unstored = SumLosses().unstored_records(); unstored > 0) {
    return absl::StrCat(
        unstored,
        " records of traces were dropped, as the disk of a daemon's store was full; "
        "no iteration, time or kernel's sum is missing because of this");
  }
  return "";
}

// Why no rule was learned, where that is known.
std::string Job::NoRuleError() const {
  const auto ignored = [this](abi::Feature wanted) -> std::string {
    for (const auto& [id, process] : processes_) {
      const v1::Feature* const feature = process->FindFeature(wanted);
      const bool known = feature != nullptr && feature->state() == v1::FEATURE_STATE_IGNORED;
      if (known && !feature->message().empty()) return feature->message();
    }
    return "";
  };
  // The program can change its framework.
  if (std::string why = ignored(abi::Feature::kFramework); !why.empty()) return why;
  if (const std::string& why = former_rule_         ? facts_.relearned()
                               : processes_.empty() ? facts_.unused()
                                                    : matching_.message();
      !why.empty())
    return why;
  for (const auto& [id, process] : processes_) {
    if (!process->learning || process->learning->wants_calls()) continue;
    if (std::string why = process->learning->Explanation(); !why.empty()) return why;
  }
  // Where another tool has CUPTI there are no calls to learn from, however long the run is.
  if (std::string why = ignored(abi::Feature::kCallbacks); !why.empty()) return why;
  if (facts_.imported() || live() || processes_.empty()) return "";
  return absl::StrCat("the run ended before it was found where its iterations begin: ",
                      facts_.no_rule().empty() ? "there were too few" : facts_.no_rule());
}

}  // namespace seqpoint::jobs
