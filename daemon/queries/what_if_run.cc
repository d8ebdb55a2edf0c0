#include "daemon/queries/what_if_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/replayed_run.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/whatif/language/printer.h"

namespace seqpoint::queries {
namespace {

using whatif::Outcome;

constexpr int kMostListedKernels = 20;
// The error of changed runs' times that no other term of the interval tells, as judged
// (docs/using/whatif-accuracy.md): root mean square, of the time after.
constexpr double kUnexplained = 0.0028;

}  // namespace

absl::StatusOr<Unchanged> ReplayUnchanged(const RecordedRun& run, Cancelled cancelled) {
  SEQPOINT_ASSIGN_OR_RETURN(auto outcomes, ReplayAll(run, cancelled));
  Unchanged unchanged = {std::move(outcomes), {}};
  for (const Stretch& stretch : run.stretches) {
    unchanged.others.push_back(stretch.window
                                   ? whatif::Durations(stretch.other, stretch.other.graphs)
                                   : std::vector<std::vector<double>>());
  }
  return unchanged;
}

namespace {

// Kernels that take the same time at all lengths see the same shapes. `work_ns`: of iterations, a
// few of which may be slow.
bool ShapesVary(std::vector<double> work_ns) {
  if (work_ns.size() < 2) return true;  // nothing tells
  std::sort(work_ns.begin(), work_ns.end());
  const size_t tenth = work_ns.size() / 10;
  return work_ns[work_ns.size() - 1 - tenth] > 1.05 * work_ns[tenth];
}

// The changes, applied to all stretches.
class WhatIfRun {
 public:
  WhatIfRun(const RecordedRun& run, const Unchanged& before, const whatif::Bounds& bounds)
      : run_(run), before_(before), bounds_(bounds) {}

  absl::Status Apply(const std::vector<NamedChange>& changes, Cancelled cancelled,
                     v1::WhatIfAnswer* answer) {
    std::vector<std::string> names, titles, sources, assumptions;
    std::set<std::string> warnings, why_not;
    whatif::Doubts doubts;
    bool applies = changes.empty();
    for (const NamedChange& named : changes) {
      names.push_back(named.name);
      if (named.preset) {
        titles.push_back(named.preset->title);
        if (!named.preset->source.empty()) sources.push_back(named.preset->source);
        if (!named.preset->assumption.empty()) assumptions.push_back(named.preset->assumption);
        if (const double off_by = named.preset->off_by; off_by > 0) {
          off_by_ = std::hypot(off_by_, off_by);
          warnings.insert(absl::StrFormat(
              "judged answers to %s were off by %.3g %% of the time after (a standard deviation), "
              "which the interval holds",
              named.change.name, 100 * off_by));
        }
      }
      for (const whatif::Step& step : named.change.request.steps) {
        answer->add_steps()->set_text(
            std::string(absl::StripAsciiWhitespace(whatif::FormatRequest({{step}}))));
      }
    }
    for (size_t s = 0; s < run_.stretches.size(); ++s) {
      SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
      const Stretch& stretch = run_.stretches[s];
      std::vector<whatif::Graph> graphs = stretch.recording.graphs;
      for (whatif::Graph& graph : graphs) {
        int first_step = 0;
        iterations_ = 1;
        for (const NamedChange& named : changes) {
          whatif::Fit fit;
          if (named.preset) fit = whatif::FitOf(*named.preset, bounds_, graph, &named.change);
          applies |= fit.applies;
          doubts.Add(fit);
          if (!fit.applies) why_not.insert(fit.why_not);
          const auto applied =
              whatif::Apply(named.change.request, named.change.parameters, bounds_, &graph);
          if (!applied.ok()) {
            return absl::InvalidArgumentError(
                absl::StrCat(named.name, ": ", std::string(applied.status().message())));
          }
          for (size_t i = 0; i < applied->tasks.size(); ++i) {
            v1::WhatIfStep& step = *answer->mutable_steps(first_step + static_cast<int>(i));
            step.set_tasks(step.tasks() + static_cast<int64_t>(applied->tasks[i]));
          }
          first_step += static_cast<int>(applied->tasks.size());
          iterations_ *= applied->iterations;
          captured_ns_ += static_cast<double>(applied->captured_ns);
          answer->set_measured_bounds(answer->measured_bounds() +
                                      static_cast<int64_t>(applied->measured_bounds));
          answer->set_guessed_bounds(answer->guessed_bounds() +
                                     static_cast<int64_t>(applied->guessed_bounds));
        }
      }
      const std::vector<double> before_ns = StepTimes(stretch, before_.outcomes[s].duration_ns);
      replayed_ns_ += std::accumulate(before_ns.begin(), before_ns.end(), 0.0);
      for (size_t r = 0; r < graphs.size(); ++r) {
        replayed_iterations_ += graphs[r].iterations;
        const auto ranks_iterations = static_cast<double>(graphs.size()) * graphs[r].iterations;
        const int64_t changed_ns = whatif::ChangedNs(stretch.recording.graphs[r], graphs[r]);
        changed_ns_ += static_cast<double>(changed_ns) / std::max(ranks_iterations, 1.0) *
                       static_cast<double>(before_ns.size());
      }
      outcomes_.push_back(whatif::RunAgain(stretch.recording, graphs));
      for (const Stretch::Step& step : stretch.steps) {
        work_ns_.push_back(0);
        for (const auto& [name, ns] : before_.outcomes[s].kernels_ns[step.index]) {
          work_ns_.back() += ns;
        }
      }
      AddSteps(stretch, before_ns, outcomes_.back().duration_ns, &steps_);
      if (stretch.window) {
        graphs = stretch.other.graphs;
        for (const NamedChange& named : changes) {
          whatif::Apply(named.change.request, named.change.parameters, bounds_, &graphs[0])
              .IgnoreError();  // as above
        }
        AddSteps(stretch, StepTimes(stretch, before_.others[s]),
                 whatif::Durations(stretch.other, graphs), &others_);
      }
    }
    int64_t selected = 0;
    for (const v1::WhatIfStep& step : answer->steps()) selected += step.tasks();
    answer->set_applies(applies && selected > 0);
    answer->set_name(absl::StrJoin(names, " + "));
    answer->set_title(absl::StrJoin(titles, " + "));
    answer->set_source(absl::StrJoin(sources, "; "));
    answer->set_assumption(absl::StrJoin(assumptions, "; "));
    // A preset may have a step for what only some traces have.
    const bool own = std::any_of(changes.begin(), changes.end(),
                                 [](const NamedChange& named) { return !named.preset; });
    for (const v1::WhatIfStep& step : answer->steps()) {
      if (step.tasks() == 0 && (own || selected == 0)) {
        warnings.insert(absl::StrCat("nothing is selected by \"", step.text(), "\""));
      }
    }
    for (const std::string& doubt : doubts.InWords()) warnings.insert(doubt);
    // Where it fits some traces, that it does not fit others is no news.
    if (!applies) {
      for (const std::string& why : why_not) answer->add_warnings(why);
    }
    for (const std::string& warning : warnings) answer->add_warnings(warning);
    uint64_t not_run = 0;
    for (size_t s = 0; s < outcomes_.size(); ++s) {
      not_run += outcomes_[s].not_run - std::min(outcomes_[s].not_run, before_.outcomes[s].not_run);
    }
    if (not_run > 0) {
      answer->add_warnings(absl::StrCat(not_run, " tasks were not reached in the changed replay"));
    }
    return absl::OkStatus();
  }

  absl::Status Project(const jobs::Snapshot& snapshot, const WhatIfOptions& options,
                       v1::WhatIfAnswer* answer, v1::WhatIfReply* reply) {
    const std::vector<std::string> kernels =
        options.whole ? AddParts() : std::vector<std::string>();
    SEQPOINT_ASSIGN_OR_RETURN(
        auto run, ProjectChange(snapshot, steps_, options.confidence, options.replay_error));
    if (!others_.empty()) {
      SEQPOINT_ASSIGN_OR_RETURN(
          const auto other,
          ProjectChange(snapshot, others_, options.confidence, options.replay_error));
      run.MeetHalfway(other);
    }
    // No more than the change changes at all.
    const double changed = iterations_ == 1 && replayed_ns_ > 0 ? changed_ns_ / replayed_ns_ : 1;
    run.Widen(std::min(NormalQuantile(options.confidence) * off_by_ * run.after.value,
                       changed * run.before.value));
    if (captured_ns_ > 0 && replayed_iterations_ > 0) {
      const double once_ns = captured_ns_ / replayed_iterations_;
      const double each_ns = once_ns * static_cast<double>(run.lengths);
      if (run.lengths == 1) {
        run.AddOnce(once_ns);
      } else if (ShapesVary(work_ns_)) {
        run.AddOnce(each_ns);
        answer->add_warnings(absl::StrFormat(
            "each of %d lengths needs a graph of its own; to capture them takes about %.3g s in "
            "all, which is in the figure: pad to fewer lengths where that is much",
            run.lengths, each_ns / 1e9));
      } else {
        run.AddOnce(once_ns);
        run.MayCost(each_ns - once_ns);
        answer->add_warnings(absl::StrFormat(
            "kernels take the same time at all %d lengths, so one graph is in the figure; to "
            "capture one for each takes about %.3g s, which the interval holds",
            run.lengths, each_ns / 1e9));
      }
    }
    jobs::SetDifference(run.before, answer->mutable_before());
    jobs::SetDifference(run.after, answer->mutable_after());
    // No run takes less than no time.
    run.saved.high = std::min(run.saved.high, run.before.value);
    jobs::SetDifference(run.saved, answer->mutable_saved());
    for (const ChangedPoint& point : run.points) {
      v1::WhatIfSeqPoint& to = *answer->add_seqpoints();
      for (const int64_t length : point.lengths) to.add_lengths(length);
      to.set_weight(point.weight);
      to.set_before_duration_ns(point.before_ns);
      to.set_after_duration_ns(point.after_ns);
      to.set_traces(point.traces);
    }
    if (options.whole) SetParts(kernels, run, answer);
    reply->set_iterations(run.iterations);
    reply->set_whole_run(run.whole_run);
    reply->set_basis(run.basis);
    return absl::OkStatus();
  }

 private:
  // Nothing before the first iteration of a trace is replayed, so nothing of it is still under way:
  // where others of its length are there, they tell what it is in a run.
  static bool StandsForOthers(const Stretch& stretch, size_t i) {
    if (stretch.window || stretch.steps.size() < 3 || stretch.steps[i].index > 0) return true;
    return std::none_of(stretch.steps.begin(), stretch.steps.end(), [&](const auto& other) {
      return other.index > 0 && other.key == stretch.steps[i].key;
    });
  }

  void AddSteps(const Stretch& stretch, const std::vector<double>& before_ns,
                const std::vector<std::vector<double>>& after, std::vector<ReplayedStep>* steps) {
    const std::vector<double> after_ns = StepTimes(stretch, after);
    for (size_t i = 0; i < stretch.steps.size(); ++i) {
      const bool used = StandsForOthers(stretch, i);
      if (steps == &steps_) used_.push_back(used);
      if (!used) continue;
      const Stretch::Step& step = stretch.steps[i];
      steps->push_back({step.number, step.key, before_ns[i], after_ns[i] * iterations_, {}});
    }
  }

  // Gives each step what the kernels that change most take before and after, then the shares of its
  // critical path before and after; answers these kernels.
  std::vector<std::string> AddParts() {
    Spent before, after;
    for (size_t s = 0; s < outcomes_.size(); ++s) {
      before.Add(run_.stretches[s], before_.outcomes[s]);
      after.Add(run_.stretches[s], outcomes_[s]);
    }
    std::map<std::string, std::pair<double, double>> sums;
    for (size_t i = 0; i < before.kernels_ns.size(); ++i) {
      for (const auto& [name, ns] : *before.kernels_ns[i]) sums[name].first += ns;
      for (const auto& [name, ns] : *after.kernels_ns[i]) sums[name].second += ns * iterations_;
    }
    std::vector<std::pair<double, std::string>> moved;
    for (const auto& [name, sum] : sums) {
      const double by_ns = std::abs(sum.second - sum.first);
      // Less than a millionth is what rounding did.
      if (by_ns > 1e-6 * sum.first) moved.emplace_back(-by_ns, name);
    }
    std::sort(moved.begin(), moved.end());
    if (moved.size() > kMostListedKernels) moved.resize(kMostListedKernels);
    std::vector<std::string> kernels;
    for (const auto& [by_ns, name] : moved) kernels.push_back(name);
    size_t at = 0;  // of those of all stretches
    for (ReplayedStep& step : steps_) {
      while (!used_[at]) ++at;
      for (const std::string& name : kernels) {
        const auto of = [&](const absl::flat_hash_map<std::string, double>& ns) {
          const auto it = ns.find(name);
          return it == ns.end() ? 0 : it->second;
        };
        step.parts_ns.push_back(of(*before.kernels_ns[at]));
        step.parts_ns.push_back(of(*after.kernels_ns[at]) * iterations_);
      }
      for (const Spent* spent : {&before, &after}) {
        for (const int64_t ns : *spent->paths[at]) {
          step.parts_ns.push_back(static_cast<double>(ns));
        }
      }
      ++at;
    }
    return kernels;
  }

  void SetParts(const std::vector<std::string>& kernels, const ChangedRun& run,
                v1::WhatIfAnswer* answer) const {
    const double* part = run.parts_ns.data();
    for (const std::string& name : kernels) {
      v1::WhatIfKernel& kernel = *answer->add_kernels();
      kernel.set_name(name);
      kernel.set_before_duration_ns(*part++);
      kernel.set_after_duration_ns(*part++);
    }
    const auto iterations = static_cast<double>(run.iterations);
    const auto set = [&](const std::vector<Outcome>& outcomes, auto* to) {
      absl::flat_hash_map<std::string, double> calls_ns;
      for (const Outcome& outcome : outcomes) {
        for (const auto& [name, ns] : outcome.calls_ns) calls_ns[name] += ns;
      }
      double time_ns = 0;
      for (size_t i = 0; i < kShares; ++i) time_ns += part[i];
      SetShares(part, iterations, time_ns, calls_ns, to);
      part += kShares;
    };
    set(before_.outcomes, answer->mutable_critical_path_before());
    set(outcomes_, answer->mutable_critical_path_after());
  }

  const RecordedRun& run_;
  const Unchanged& before_;
  const whatif::Bounds& bounds_;
  double iterations_ = 1;                     // of the run, times those before
  double replayed_ns_ = 0, changed_ns_ = 0;   // of all steps: before; changed, a rank's mean
  double off_by_ = kUnexplained;              // of the time after, a standard deviation
  double captured_ns_ = 0;                    // see whatif::Applied, of all traces
  double replayed_iterations_ = 0;            // of all graphs
  std::vector<Outcome> outcomes_;             // by stretch
  std::vector<bool> used_;                    // of the steps of all stretches: is in `steps_`
  std::vector<double> work_ns_;               // of kernels, by step
  std::vector<ReplayedStep> steps_, others_;  // others_: by Stretch::other
};

}  // namespace

absl::StatusOr<v1::WhatIfAnswer> RunWhatIf(const std::vector<NamedChange>& changes,
                                           const RecordedRun& run, const Unchanged& before,
                                           const whatif::Bounds& bounds,
                                           const jobs::Snapshot& snapshot,
                                           const WhatIfOptions& options, Cancelled cancelled,
                                           v1::WhatIfReply* reply) {
  v1::WhatIfAnswer answer;
  WhatIfRun what_if(run, before, bounds);
  SEQPOINT_RETURN_IF_ERROR(what_if.Apply(changes, cancelled, &answer));
  SEQPOINT_RETURN_IF_ERROR(what_if.Project(snapshot, options, &answer, reply));
  return answer;
}

}  // namespace seqpoint::queries
