#include "daemon/trace_questions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/trace_import.h"
#include "daemon/stored_windows.h"
#include "daemon/traces/window_reader.h"
#include "daemon/whatif/marks.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/recording.h"
#include "daemon/whatif/replay.h"
#include "injection/abi/control.h"

namespace seqpoint {
namespace {

using whatif::Outcome;
using whatif::Recording;
using Window = traces::WindowReader::Window;
using Pieces = std::vector<std::pair<int32_t, int64_t>>;  // of the store: rank and number

// A window is replayed so many times in a row; the iteration before the last one counts, as the one
// before it may still show that the window began with an idle GPU, and the last one has no next.
constexpr int kTurns = 4;
constexpr size_t kCountedTurn = kTurns - 2;
constexpr int kMostKernels = 20;
constexpr double kFollowsRoof = 0.3;
// Iterations of a live job after which a window's records are all there.
constexpr int64_t kSettled = 16;
// Of recording a call and its work, where it cannot be told from the times.
constexpr double kUsualPriceNs = 500;

}  // namespace

// A stretch, and which of its iterations count.
struct Stretch {
  struct Step {
    size_t index = 0;  // in Outcome::duration_ns
    int64_t number = 0;
    Key key;
    double measured_ns = 0;  // 0: not known
  };
  Recording recording;
  // Of a window: what recording cost is taken off the calls in `recording`, off what the program
  // does between them in this one. The truth is in between. Where it cannot be told from the
  // times, nothing is taken off in `recording`, and the usual price in this one.
  Recording other;
  std::vector<int64_t> first_number;  // by rank, of an imported one
  std::vector<Step> steps;
  Pieces pieces;                 // in the store, by rank
  std::optional<Window> window;  // on the CPU; replayed kTurns times in a row
};

struct RecordedRun {
  int64_t job_id = 0;
  Pieces pieces;  // as the store lists them
  std::vector<Stretch> stretches;
  std::vector<std::string> left_out;
  int64_t tasks = 0;
};

namespace {

Key KeyOf(const IterationRow& row) {
  Key key;
  if (row.length_count > 0) key.first = row.length[0];
  if (row.length_count > 1) key.second = row.length[1];
  return key;
}

// Of one iteration, of which nothing behind it is recorded; nothing where it cannot be replayed.
std::optional<Stretch> WindowStretch(const whatif::Trace& trace, const Window& window,
                                     const jobs::Answers& answers, int64_t number, const Key& key) {
  const int64_t period_ns = window.end_ns - window.begin_ns;
  if (trace.calls.empty() || trace.works.empty() || period_ns <= 0) return std::nullopt;
  std::vector<int64_t> begins_ns;
  for (int turn = 0; turn < kTurns; ++turn) begins_ns.push_back(window.begin_ns + turn * period_ns);
  Stretch stretch;
  stretch.window = window;
  std::vector<whatif::RecordedRank> ranks;
  ranks.push_back({whatif::Repeat(trace, kTurns, period_ns), std::move(begins_ns), kTurns});
  stretch.recording = whatif::MakeRecording(std::move(ranks));
  if (stretch.recording.measured_ns[0].size() <= kCountedTurn) return std::nullopt;
  stretch.steps.push_back({kCountedTurn, number, key, answers.UsualTime(key)});
  return stretch;
}

// An imported one, as FindIterations has it.
bool IsWindow(const traces::RecordedTrace& recorded) {
  return recorded.iterations == 1 && recorded.iteration_begins_ns.size() == 2 &&
         whatif::FindHoles(recorded.trace).size() == 1;
}

// The imported traces that were recorded at the same time, one of each rank.
absl::StatusOr<std::vector<Stretch>> ReadImported(
    Store& store, const jobs::Answers& answers,
    const std::vector<std::pair<int32_t, int64_t>>& pieces) {
  const jobs::Answers::Facts& job = answers.facts();
  std::vector<std::vector<traces::RecordedTrace>> together;
  std::vector<Pieces> pieces_together;
  std::map<int32_t, size_t> next;  // by rank
  for (const auto& [rank, number] : pieces) {
    auto recorded = jobs::ReadRecordedTrace(store, job.job_id, rank, number);
    if (!recorded.ok()) return recorded.status();
    if (recorded->trace.calls.empty()) continue;
    const size_t at = next[rank]++;
    if (at >= together.size()) together.resize(at + 1), pieces_together.resize(at + 1);
    together[at].push_back(*std::move(recorded));
    pieces_together[at].emplace_back(rank, number);
  }
  std::vector<Stretch> stretches;
  for (size_t at = 0; at < together.size(); ++at) {
    std::vector<traces::RecordedTrace>& recorded = together[at];
    if (next.size() == 1 && IsWindow(recorded[0])) {
      const traces::RecordedTrace& window = recorded[0];
      const int64_t number = window.first_iteration;
      const auto rows = ReadRows(store, job.job_id, window.trace.rank, number, number);
      if (!rows.ok()) return rows.status();
      const auto row = rows->find(number);
      if (row == rows->end()) continue;
      std::optional<Stretch> stretch = WindowStretch(
          window.trace, {window.iteration_begins_ns[0], window.iteration_begins_ns[1]}, answers,
          number, KeyOf(row->second));
      if (!stretch) continue;
      stretch->pieces = pieces_together[at];
      stretches.push_back(*std::move(stretch));
      continue;
    }
    Stretch& stretch = stretches.emplace_back();
    stretch.pieces = pieces_together[at];
    std::vector<whatif::RecordedRank> ranks;
    std::map<int64_t, Stretch::Step> steps;  // by number
    for (traces::RecordedTrace& rank : recorded) {
      const auto rows = ReadRows(store, job.job_id, rank.trace.rank, rank.first_iteration,
                                 rank.first_iteration + static_cast<int64_t>(rank.iterations) - 1);
      if (!rows.ok()) return rows.status();
      for (const auto& [number, row] : *rows) {
        Stretch::Step& step = steps[number - rank.first_iteration];
        step.number = std::max(step.number, number);
        step.key.first = std::max(step.key.first, KeyOf(row).first);
        step.key.second = std::max(step.key.second, KeyOf(row).second);
      }
      stretch.first_number.push_back(rank.first_iteration);
      ranks.push_back(
          {std::move(rank.trace), std::move(rank.iteration_begins_ns), rank.iterations});
    }
    stretch.recording = whatif::MakeRecording(std::move(ranks));
    const std::vector<double> measured = whatif::Steps(stretch.recording.measured_ns);
    for (auto& [index, step] : steps) {
      step.index = static_cast<size_t>(index);
      if (step.index >= measured.size()) continue;
      step.measured_ns = measured[step.index];
      stretch.steps.push_back(step);
    }
  }
  return stretches;
}

// One of our own windows; nothing where it cannot be replayed.
absl::StatusOr<std::optional<Stretch>> ReadWindow(Store& store, const jobs::Answers& answers,
                                                  int32_t rank, int64_t number,
                                                  StoredWindows* windows) {
  const jobs::Answers::Facts& job = answers.facts();
  const auto rows = ReadRows(store, job.job_id, rank, number, number + kSettled);
  if (!rows.ok()) return rows.status();
  // The last records of a window may come after its iteration.
  if (job.live && !rows->contains(number + kSettled)) return std::nullopt;
  const auto row = rows->find(number), next = rows->find(number + 1);
  // A rule that was learned anew counts other lengths.
  if (row == rows->end() || next == rows->end() || row->second.config_id != abi::kConfigTrace ||
      row->second.incarnation != next->second.incarnation ||
      row->second.length_count != job.dimensions ||
      number < (job.work ? *job.work : job.engine).closed_iterations()) {
    return std::nullopt;
  }
  const int64_t end_ns = next->second.boundary_ns;
  const auto trace = windows->Read(job.job_id, rank, number, {{row->second.boundary_ns, end_ns}});
  if (!trace.ok()) return trace.status();
  std::optional<Stretch> stretch =
      WindowStretch(*trace, {windows->begin_ns(), end_ns}, answers, number, KeyOf(row->second));
  if (stretch) stretch->pieces = {{rank, number}};
  return stretch;
}

void TakeTracingOff(RecordedRun* run) {
  std::vector<whatif::Untraced> untraced, other;
  for (Stretch& stretch : run->stretches) {
    if (!stretch.window) continue;
    stretch.other = stretch.recording;
    untraced.push_back({&stretch.recording, kCountedTurn, stretch.steps[0].measured_ns});
    other.push_back({&stretch.other, kCountedTurn, stretch.steps[0].measured_ns});
  }
  const double by_ns = whatif::TakeTracingOff(untraced, whatif::PriceIn::kCalls);
  if (!(by_ns > 0)) {
    // It does not show in the time of what the GPU holds up; in that of the change it may.
    for (const whatif::Untraced& window : other) {
      whatif::TakeOff(kUsualPriceNs, whatif::PriceIn::kCalls, window.recording);
    }
    return;
  }
  whatif::TakeTracingOff(other, whatif::PriceIn::kGaps);
  run->left_out.push_back(
      absl::StrFormat("recording cost %.2f us for each call: that is taken off, so that the "
                      "replays take as long as "
                      "untraced iterations, all together",
                      by_ns / 1000));
}

std::vector<double> StepTimes(const Stretch& stretch,
                              const std::vector<std::vector<double>>& duration_ns) {
  const std::vector<double> all = whatif::Steps(duration_ns);
  std::vector<double> times;
  for (const Stretch::Step& step : stretch.steps) {
    times.push_back(step.index < all.size() ? all[step.index] : 0);
  }
  return times;
}

// Sums over stretches, of which each iteration counts the same.
struct Totals {
  std::vector<double> times_ns;  // of the steps
  double critical_path[static_cast<size_t>(whatif::Share::kCount)] = {};
  double idle[static_cast<size_t>(whatif::Share::kCount)] = {};
  double length_ns = 0;
  absl::flat_hash_map<std::string, double> kernels_ns;
  double iterations = 0;  // of all ranks
  uint64_t not_run = 0;

  void Add(const Stretch& stretch, const Outcome& outcome) {
    for (const double time : StepTimes(stretch, outcome.duration_ns)) times_ns.push_back(time);
    for (size_t i = 0; i < outcome.idle.size(); ++i) {
      critical_path[i] += static_cast<double>(outcome.critical_path[i]);
      idle[i] += static_cast<double>(outcome.idle[i]);
    }
    length_ns += outcome.length_ns;
    for (const auto& [name, ns] : outcome.kernels_ns) kernels_ns[name] += ns;
    for (const whatif::Graph& graph : stretch.recording.graphs) iterations += graph.iterations;
    not_run += outcome.not_run;
  }
};

void SetShares(const double (&shares)[static_cast<size_t>(whatif::Share::kCount)],
               const Totals& totals, google::protobuf::RepeatedPtrField<v1::TimeShare>* to) {
  for (size_t i = 0; i < std::size(shares); ++i) {
    if (!(shares[i] > 0)) continue;
    v1::TimeShare& share = *to->Add();
    share.set_what(whatif::ShareName(static_cast<whatif::Share>(i)));
    share.set_duration_ns(totals.iterations > 0 ? shares[i] / totals.iterations : 0);
    share.set_share(totals.length_ns > 0 ? shares[i] / totals.length_ns : 0);
  }
  std::stable_sort(to->begin(), to->end(), [](const v1::TimeShare& a, const v1::TimeShare& b) {
    return a.duration_ns() > b.duration_ns();
  });
}

whatif::Bounds BoundsOf(const v1::GetRooflineReply& roofline) {
  whatif::Bounds bounds;
  for (const v1::RooflineKernel& kernel : roofline.kernels()) {
    if (!kernel.complete()) continue;
    std::map<std::string, double>& counters = bounds.counters[kernel.name()];
    counters["operations_per_s"] = kernel.operations_per_s();
    counters["bytes_per_s"] = kernel.bytes_per_s();
    const auto set = [&](const char* name, bool known, double value) {
      if (known) counters[name] = value;
    };
    set("operations_per_byte", kernel.has_operations_per_byte(), kernel.operations_per_byte());
    set("compute_share", kernel.has_compute_share(), kernel.compute_share());
    set("memory_share", kernel.has_memory_share(), kernel.memory_share());
    set("roof_share", kernel.has_roof_share(), kernel.roof_share());
    if (kernel.bound() == v1::BOUND_MEMORY) bounds[kernel.name()] = whatif::Bound::kMemory;
    if (kernel.bound() == v1::BOUND_COMPUTE) bounds[kernel.name()] = whatif::Bound::kCompute;
    if (kernel.bound() == v1::BOUND_LATENCY) {
      // Below 60 % of both roofs. One that reaches half of that still follows the nearer roof.
      const bool far = kernel.roof_share() < kFollowsRoof;
      bounds[kernel.name()] = far ? whatif::Bound::kLatency
                              : kernel.compute_share() > kernel.memory_share()
                                  ? whatif::Bound::kCompute
                                  : whatif::Bound::kMemory;
    }
  }
  return bounds;
}

// A change, and the preset that it comes from.
struct NamedChange {
  whatif::Change change;
  std::optional<whatif::Preset> preset;
  std::string name;  // "amp,compute=4"
};

absl::StatusOr<NamedChange> Understand(const v1::WhatIfChange& asked) {
  NamedChange named;
  if (!asked.preset().empty()) {
    absl::StatusOr<whatif::Change> change = whatif::ParseChange(asked.preset());
    // NotFound is a job's.
    if (!change.ok()) {
      return absl::InvalidArgumentError(std::string(change.status().message()));
    }
    named.change = *std::move(change);
    named.preset = *whatif::FindPreset(named.change.name);
    named.name = asked.preset();
    return named;
  }
  const std::string name = asked.name().empty() ? "steps" : jobs::OneLine(asked.name());
  named.name = asked.parameters().empty() ? name : absl::StrCat(name, ",", asked.parameters());
  const bool preset = absl::StartsWith(asked.text(), "steps:") ||
                      asked.text().find("\nsteps:") != std::string::npos;
  if (!preset) {
    absl::StatusOr<whatif::Request> request = whatif::ParseRequest(asked.text());
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", std::string(request.status().message())));
    }
    if (!asked.parameters().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": parameters (\"", asked.parameters(), "\") are those of a preset, and this is a ",
          "list of steps; a preset has lines \"param NAME = VALUE: meaning\" and \"steps:\""));
    }
    named.change = {name, *std::move(request), {}, {}};
    return named;
  }
  absl::StatusOr<whatif::Preset> own = whatif::ParsePreset(name, asked.text());
  if (!own.ok()) return own.status();
  absl::StatusOr<whatif::Change> change = whatif::WithParameters(*own, asked.parameters());
  if (!change.ok()) return change.status();
  named.change = *std::move(change);
  named.preset = *std::move(own);
  return named;
}

// The replays of what was not changed.
struct Unchanged {
  std::vector<Outcome> outcomes;                         // by stretch
  std::vector<std::vector<std::vector<double>>> others;  // likewise, times alone
};

Unchanged RunAll(const RecordedRun& run) {
  Unchanged unchanged;
  for (const Stretch& stretch : run.stretches) {
    unchanged.outcomes.push_back(whatif::RunAgain(stretch.recording, stretch.recording.graphs));
    unchanged.others.push_back(stretch.window
                                   ? whatif::Durations(stretch.other, stretch.other.graphs)
                                   : std::vector<std::vector<double>>());
  }
  return unchanged;
}

// One answer: the changes applied to all stretches.
class Asked {
 public:
  Asked(const RecordedRun& run, const Unchanged& before, const whatif::Bounds& bounds)
      : run_(run), before_(before), bounds_(bounds) {}

  absl::Status Apply(const std::vector<NamedChange>& changes, v1::WhatIfAnswer* answer) {
    std::vector<std::string> names, titles, sources, assumptions;
    std::set<std::string> warnings;
    std::set<std::string> reasons;  // why presets do not apply
    bool applies = changes.empty();
    for (const NamedChange& named : changes) {
      names.push_back(named.name);
      if (named.preset) {
        titles.push_back(named.preset->title);
        if (!named.preset->source.empty()) sources.push_back(named.preset->source);
        if (!named.preset->assumption.empty()) assumptions.push_back(named.preset->assumption);
      }
      for (const whatif::Step& step : named.change.request.steps) {
        answer->add_steps()->set_text(
            std::string(absl::StripAsciiWhitespace(whatif::FormatRequest({{step}}))));
      }
    }
    for (size_t s = 0; s < run_.stretches.size(); ++s) {
      const Stretch& stretch = run_.stretches[s];
      std::vector<whatif::Graph> graphs = stretch.recording.graphs;
      for (whatif::Graph& graph : graphs) {
        int first_step = 0;
        iterations_ = 1;
        for (const NamedChange& named : changes) {
          whatif::Fit fit;
          if (named.preset) fit = whatif::FitOf(*named.preset, bounds_, graph, &named.change);
          applies |= fit.applies;
          if (!fit.warning.empty()) (fit.applies ? warnings : reasons).insert(fit.warning);
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
      const Outcome after = whatif::RunAgain(stretch.recording, graphs);
      totals_before_.Add(stretch, before_.outcomes[s]);
      totals_after_.Add(stretch, after);
      AddSteps(stretch, before_.outcomes[s].duration_ns, after.duration_ns, &steps_);
      if (stretch.window) {
        graphs = stretch.other.graphs;
        for (const NamedChange& named : changes) {
          whatif::Apply(named.change.request, named.change.parameters, bounds_, &graphs[0])
              .IgnoreError();  // as above
        }
        AddSteps(stretch, before_.others[s], whatif::Durations(stretch.other, graphs), &others_);
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
      if (step.tasks() == 0 && (own || (selected == 0 && reasons.empty()))) {
        warnings.insert(absl::StrCat("nothing is selected by \"", step.text(), "\""));
      }
    }
    if (!answer->applies()) {
      for (const std::string& reason : reasons) answer->add_warnings(reason);
    }
    for (const std::string& warning : warnings) answer->add_warnings(warning);
    if (totals_after_.not_run > totals_before_.not_run) {
      answer->add_warnings(absl::StrCat(totals_after_.not_run - totals_before_.not_run,
                                        " tasks were not reached in the changed replay"));
    }
    return absl::OkStatus();
  }

  absl::Status Project(const jobs::Answers& answers, double confidence, double replay_error,
                       v1::WhatIfAnswer* answer, v1::WhatIfReply* reply) const {
    absl::StatusOr<jobs::ChangedRun> run = answers.ProjectChange(steps_, confidence, replay_error);
    if (!run.ok()) return run.status();
    if (!others_.empty()) {
      const auto other = answers.ProjectChange(others_, confidence, replay_error);
      if (!other.ok()) return other.status();
      run->MeetHalfway(*other);
    }
    if (captured_ns_ > 0 && totals_before_.iterations > 0) {
      const double once_ns =
          captured_ns_ / totals_before_.iterations * static_cast<double>(run->lengths);
      run->AddOnce(once_ns);
      answer->add_warnings(absl::StrFormat(
          "each of %d lengths needs a graph of its own; to capture them takes about %.3g s in all, "
          "which is in the figure: pad to fewer lengths where that is much",
          run->lengths, once_ns / 1e9));
    }
    const auto set = [](const Estimate& from, v1::Estimate* to) {
      to->set_value(from.value);
      to->set_low(from.low);
      to->set_high(from.high);
    };
    set(run->before, answer->mutable_before());
    set(run->after, answer->mutable_after());
    set(run->saved, answer->mutable_saved());
    for (const jobs::ChangedPoint& point : run->points) {
      v1::WhatIfSeqPoint& to = *answer->add_seqpoints();
      for (const int64_t length : point.lengths) to.add_lengths(length);
      to.set_weight(point.weight);
      to.set_before_duration_ns(point.before_ns);
      to.set_after_duration_ns(point.after_ns);
      to.set_traces(point.traces);
    }
    SetKernels(*run, answer);
    SetShares(totals_before_.critical_path, totals_before_, answer->mutable_critical_path_before());
    SetShares(totals_after_.critical_path, totals_after_, answer->mutable_critical_path_after());
    reply->set_iterations(run->iterations);
    reply->set_whole_run(run->whole_run);
    reply->set_basis(run->basis);
    return absl::OkStatus();
  }

 private:
  void AddSteps(const Stretch& stretch, const std::vector<std::vector<double>>& before,
                const std::vector<std::vector<double>>& after,
                std::vector<jobs::ReplayedStep>* steps) const {
    const std::vector<double> before_ns = StepTimes(stretch, before);
    const std::vector<double> after_ns = StepTimes(stretch, after);
    for (size_t i = 0; i < stretch.steps.size(); ++i) {
      steps->push_back(
          {stretch.steps[i].number, stretch.steps[i].key, before_ns[i], after_ns[i] * iterations_});
    }
  }

  void SetKernels(const jobs::ChangedRun& run, v1::WhatIfAnswer* answer) const {
    // From the mean traced iteration to the run.
    const double scale = totals_before_.iterations > 0
                             ? static_cast<double>(run.iterations) / totals_before_.iterations
                             : 0;
    std::set<std::string> names;
    for (const auto& [name, ns] : totals_before_.kernels_ns) names.insert(name);
    for (const auto& [name, ns] : totals_after_.kernels_ns) names.insert(name);
    std::vector<v1::WhatIfKernel> kernels;
    const auto of = [&](const Totals& totals, const std::string& name) {
      const auto it = totals.kernels_ns.find(name);
      return it == totals.kernels_ns.end() ? 0 : it->second * scale;
    };
    for (const std::string& name : names) {
      v1::WhatIfKernel kernel;
      kernel.set_name(name);
      kernel.set_before_duration_ns(of(totals_before_, name));
      kernel.set_after_duration_ns(of(totals_after_, name) * iterations_);
      // Less than a millionth is what rounding did.
      if (std::abs(kernel.after_duration_ns() - kernel.before_duration_ns()) >
          1e-6 * kernel.before_duration_ns()) {
        kernels.push_back(std::move(kernel));
      }
    }
    const auto moved = [](const v1::WhatIfKernel& kernel) {
      return std::abs(kernel.after_duration_ns() - kernel.before_duration_ns());
    };
    std::stable_sort(kernels.begin(), kernels.end(),
                     [&](const auto& a, const auto& b) { return moved(a) > moved(b); });
    if (kernels.size() > kMostKernels) kernels.resize(kMostKernels);
    for (v1::WhatIfKernel& kernel : kernels) *answer->add_kernels() = std::move(kernel);
  }

  const RecordedRun& run_;
  const Unchanged& before_;
  const whatif::Bounds& bounds_;
  double iterations_ = 1;   // of the run, times those before
  double captured_ns_ = 0;  // see whatif::Applied, of all traces
  Totals totals_before_, totals_after_;
  std::vector<jobs::ReplayedStep> steps_, others_;  // others_: by Stretch::other
};

// Of the sums, and the worst one.
std::pair<double, double> ReplayErrors(const RecordedRun& run,
                                       const std::vector<Outcome>& outcomes) {
  double measured_ns = 0, replayed_ns = 0, worst = 0;
  for (size_t s = 0; s < run.stretches.size(); ++s) {
    const std::vector<double> times = StepTimes(run.stretches[s], outcomes[s].duration_ns);
    for (size_t i = 0; i < times.size(); ++i) {
      const double measured = run.stretches[s].steps[i].measured_ns;
      if (!(measured > 0)) continue;
      measured_ns += measured;
      replayed_ns += times[i];
      const double error = times[i] / measured - 1;
      if (std::abs(error) > std::abs(worst)) worst = error;
    }
  }
  return {measured_ns > 0 ? replayed_ns / measured_ns - 1 : 0, worst};
}

}  // namespace

TraceQuestions::TraceQuestions(Store* store) : store_(store) {}
TraceQuestions::~TraceQuestions() = default;

absl::StatusOr<std::shared_ptr<const RecordedRun>> TraceQuestions::Read(
    const jobs::Answers& answers) {
  const jobs::Answers::Facts& job = answers.facts();
  auto pieces = store_->ListTraces(job.job_id);
  if (!pieces.ok()) return pieces.status();
  if (kept_ && kept_->job_id == job.job_id && kept_->pieces == *pieces) return kept_;
  kept_ = nullptr;
  auto run = std::make_shared<RecordedRun>();
  run->job_id = job.job_id;
  run->pieces = *pieces;
  std::vector<std::pair<int32_t, int64_t>> imported;
  StoredWindows windows(store_, StoredWindows::Names::kAsRecorded);
  int64_t left_out = 0;
  for (const auto& [rank, number] : *pieces) {
    if (jobs::IsRecordedTrace(number)) imported.emplace_back(rank, number);
    if (number < 0) continue;  // that, or a learn log
    auto window = ReadWindow(*store_, answers, rank, number, &windows);
    if (!window.ok()) return window.status();
    if (*window) {
      run->stretches.push_back(**std::move(window));
    } else {
      ++left_out;
    }
  }
  auto stretches = ReadImported(*store_, answers, imported);
  if (!stretches.ok()) return stretches.status();
  for (Stretch& stretch : *stretches) run->stretches.push_back(std::move(stretch));
  TakeTracingOff(run.get());
  std::erase_if(run->stretches, [](const Stretch& stretch) { return stretch.steps.empty(); });
  if (run->stretches.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job.name, "\": ",
        !imported.empty() ? "its traces have no calls of the CPU, so nothing tells what waits for "
                            "what; record CPU activities, too"
        : job.traced()    ? "its traces were removed as the store was full; import them again"
        : job.imported    ? "it was made of a log; import traces for this (seqpoint import TRACE)"
        : left_out > 0    ? "no traced iteration can be replayed yet; ask again a little later"
                          : "no iteration was traced yet, or the traces were removed as the store "
                            "was full; `seqpoint seqpoints` shows what is measured"));
  }
  if (left_out > 0) {
    run->left_out.push_back(absl::StrCat(
        left_out, " traced iterations that have no next one, or another rule's lengths"));
  }
  std::set<std::string> said;
  for (const Stretch& stretch : run->stretches) {
    run->tasks += stretch.recording.tasks();
    if (!stretch.recording.left_out.empty() && said.size() < 4) {
      said.insert(stretch.recording.left_out);
    }
  }
  for (const std::string& sentence : said) run->left_out.push_back(sentence);
  if (run->tasks <= kKeptTasks) kept_ = run;
  return std::shared_ptr<const RecordedRun>(run);
}

absl::StatusOr<v1::ReplayReply> TraceQuestions::Replay(const jobs::Answers& answers) {
  absl::MutexLock lock(&mutex_);
  const auto run = Read(answers);
  if (!run.ok()) return run.status();
  const std::vector<Outcome> outcomes = RunAll(**run).outcomes;
  const jobs::Answers::Facts& job = answers.facts();
  v1::ReplayReply reply;
  Totals totals;
  for (size_t s = 0; s < outcomes.size(); ++s) {
    const Stretch& stretch = (*run)->stretches[s];
    totals.Add(stretch, outcomes[s]);
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
  const auto [mean, worst] = ReplayErrors(**run, outcomes);
  reply.set_mean_error(mean);
  reply.set_worst_error(worst);
  SetShares(totals.critical_path, totals, reply.mutable_critical_path());
  SetShares(totals.idle, totals, reply.mutable_idle());
  reply.set_tasks((*run)->tasks);
  for (const std::string& sentence : (*run)->left_out) reply.add_sentences(sentence);
  if (totals.not_run > 0) {
    reply.add_sentences(absl::StrCat(totals.not_run,
                                     " tasks were never reached: they wait for what "
                                     "another rank's trace does not have"));
  }
  if (!job.imported) {
    reply.add_sentences(
        "of our own windows measured is what an iteration of that length usually takes, untraced, "
        "and replayed a window several times in a row");
  }
  reply.set_job_id(absl::StrCat(job.job_id));
  *reply.mutable_losses() = job.losses;
  return reply;
}

namespace {

// What was replayed of a trace: the calls and works that ran, at their new times, and a mark of
// each iteration, the first of which is `first_number`. Of a window only the counted turn, from its
// begin on.
whatif::Trace Replayed(const whatif::Trace& trace, const Stretch& stretch,
                       const whatif::Graph& graph, const whatif::RankTimeline& timeline,
                       int64_t first_number) {
  const size_t turn = stretch.window ? kCountedTurn : 0;
  std::vector<int64_t> begins_ns(static_cast<size_t>(graph.iterations), INT64_MAX);
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    const whatif::CpuTask& task = graph.cpu[i];
    if (task.call == whatif::kNone || task.iteration < 0) continue;
    if (timeline.cpu_begin_ns[i] == whatif::kNotRun) continue;
    int64_t& begin_ns = begins_ns[static_cast<size_t>(task.iteration)];
    begin_ns = std::min(begin_ns, timeline.cpu_begin_ns[i]);
  }
  int64_t shift_ns = graph.begin_ns;
  if (stretch.window) {
    int64_t first_ns = INT64_MAX;
    for (const whatif::Call& call : trace.calls) first_ns = std::min(first_ns, call.begin_ns);
    shift_ns = first_ns - begins_ns[turn];
  }
  whatif::Trace replayed = trace;
  replayed.calls.clear();
  replayed.works.clear();
  replayed.spans.clear();
  replayed.waits.clear();
  const auto take = [&](const auto& from, uint32_t index, int64_t task_begin_ns,
                        int64_t task_end_ns, auto begin, auto end, auto* to) {
    // Turn by turn, see Repeat.
    if (index == whatif::kNone || task_begin_ns == whatif::kNotRun || index / from.size() != turn) {
      return;
    }
    to->push_back(from[index % from.size()]);
    to->back().*begin = task_begin_ns + shift_ns;
    to->back().*end = task_end_ns + shift_ns;
  };
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    take(trace.calls, graph.cpu[i].call, timeline.cpu_begin_ns[i], timeline.cpu_end_ns[i],
         &whatif::Call::begin_ns, &whatif::Call::end_ns, &replayed.calls);
  }
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    take(trace.works, graph.gpu[i].work, timeline.gpu_begin_ns[i], timeline.gpu_end_ns[i],
         &whatif::Work::start_ns, &whatif::Work::end_ns, &replayed.works);
  }
  for (size_t i = turn; i < (stretch.window ? turn + 1 : begins_ns.size()); ++i) {
    if (begins_ns[i] == INT64_MAX) continue;
    const int64_t end_ns = i + 1 < begins_ns.size() && begins_ns[i + 1] != INT64_MAX
                               ? begins_ns[i + 1]
                               : timeline.end_ns;
    AddAnnotation(absl::StrCat("iteration ", first_number + static_cast<int64_t>(i - turn)),
                  begins_ns[i] + shift_ns, end_ns + shift_ns, &replayed);
  }
  return replayed;
}

}  // namespace

absl::Status TraceQuestions::WriteReplay(const jobs::Answers& answers,
                                         traces::WriteFunction write) {
  std::shared_ptr<const RecordedRun> run;
  {
    absl::MutexLock lock(&mutex_);
    auto read = Read(answers);
    if (!read.ok()) return read.status();
    run = *std::move(read);
  }
  const jobs::Answers::Facts& job = answers.facts();
  const bool by_rank = run->pieces.front().first != run->pieces.back().first;
  StoredWindows windows(store_, StoredWindows::Names::kDemangled);
  std::optional<traces::ChromeWriter> writer;
  for (const Stretch& stretch : run->stretches) {
    std::vector<const whatif::Graph*> graphs;
    for (const whatif::Graph& graph : stretch.recording.graphs) graphs.push_back(&graph);
    const whatif::Timeline timeline = whatif::Replay(graphs);
    for (size_t r = 0; r < graphs.size(); ++r) {
      const auto [rank, number] = stretch.pieces[r];
      whatif::Trace trace;
      int64_t first_number = number;
      if (jobs::IsRecordedTrace(number)) {
        auto recorded = jobs::ReadRecordedTrace(*store_, job.job_id, rank, number);
        if (!recorded.ok()) return recorded.status();
        trace = std::move(recorded->trace);
        first_number = recorded->first_iteration;
      } else {
        auto read = windows.Read(job.job_id, rank, number, stretch.window);
        if (!read.ok()) return read.status();
        trace = *std::move(read);
        NameOwnRows(&trace);
        AddAnnotation(StepName(number, {}), stretch.window->begin_ns, stretch.window->end_ns,
                      &trace);
      }
      if (!writer) {
        writer.emplace(traces::ChromeFile{.name = job.name,
                                          .base_ns = std::max<int64_t>(graphs[r]->begin_ns, 0),
                                          .gpus = trace.gpus,
                                          .only_to_view = "it has a replay beside the trace"},
                       write);
      }
      const whatif::Trace replayed =
          Replayed(trace, stretch, *graphs[r], timeline.ranks[r], first_number);
      if (!writer->Add(trace, {.by_rank = by_rank}) ||
          !writer->Add(replayed, {.by_rank = by_rank, .replayed = true})) {
        return absl::CancelledError("the receiver of the replay went away");
      }
    }
  }
  return writer->Finish() ? absl::OkStatus()
                          : absl::CancelledError("the receiver of the replay went away");
}

absl::StatusOr<v1::WhatIfReply> TraceQuestions::WhatIf(const jobs::Answers& answers,
                                                       const v1::GetRooflineReply& roofline,
                                                       const v1::WhatIfRequest& request) {
  std::vector<NamedChange> changes;
  for (const v1::WhatIfChange& asked : request.changes()) {
    absl::StatusOr<NamedChange> change = Understand(asked);
    if (!change.ok()) return change.status();
    changes.push_back(*std::move(change));
  }
  absl::MutexLock lock(&mutex_);
  const auto run = Read(answers);
  if (!run.ok()) return run.status();
  const jobs::Answers::Facts& job = answers.facts();
  const Unchanged before = RunAll(**run);
  const whatif::Bounds bounds = BoundsOf(roofline);
  v1::WhatIfReply reply;
  const double error = ReplayErrors(**run, before.outcomes).first;
  reply.set_replay_error(error);
  reply.set_confidence(request.confidence());
  for (const Stretch& stretch : (*run)->stretches) {
    reply.set_traces(reply.traces() + static_cast<int32_t>(stretch.steps.size()));
  }
  const auto answer = [&](const std::vector<NamedChange>& together) -> absl::Status {
    v1::WhatIfAnswer one;
    Asked asked(**run, before, bounds);
    if (absl::Status status = asked.Apply(together, &one); !status.ok()) return status;
    absl::Status status = asked.Project(answers, request.confidence(), error, &one, &reply);
    if (status.ok()) *reply.add_answers() = std::move(one);
    return status;
  };
  if (!request.list()) {
    if (absl::Status status = answer(changes); !status.ok()) return status;
  } else {
    for (const whatif::Preset& preset : whatif::Presets()) {
      const absl::StatusOr<whatif::Change> change = whatif::WithParameters(preset, "");
      if (!change.ok()) continue;  // it needs a parameter that only the user knows
      if (absl::Status status = answer({{*change, preset, preset.name}}); !status.ok()) {
        return status;
      }
    }
    std::stable_sort(reply.mutable_answers()->begin(), reply.mutable_answers()->end(),
                     [](const v1::WhatIfAnswer& a, const v1::WhatIfAnswer& b) {
                       return std::pair(a.applies(), a.saved().value()) >
                              std::pair(b.applies(), b.saved().value());
                     });
  }
  reply.set_job_id(absl::StrCat(job.job_id));
  *reply.mutable_losses() = job.losses;
  reply.set_clock_kind(job.clock_kind);
  return reply;
}

}  // namespace seqpoint
