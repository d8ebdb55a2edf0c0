#include "daemon/trace_questions.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/trace_import.h"
#include "daemon/recorded_run.h"
#include "daemon/stored_windows.h"
#include "daemon/what_if.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/recording.h"
#include "daemon/whatif/replay.h"

namespace seqpoint {
namespace {

using whatif::Outcome;

// Of replays that miss what was measured by more, nothing follows for a change. Those of recorded
// traces miss it by less than 1 %, published ones by 3 to 14 % (docs/using/whatif-accuracy.md).
constexpr double kMostReplayError = 0.10;

struct ReplayErrors {
  double mean = 0;      // of the sums
  double worst = 0;     // of an iteration
  double absolute = 0;  // of all iterations, whatever their signs
};
ReplayErrors ErrorsOf(const RecordedRun& run, const std::vector<Outcome>& outcomes) {
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

// FailedPrecondition where the replay of what was not changed is too far off.
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

}  // namespace

TraceQuestions::TraceQuestions(Store* store) : store_(store) {}
TraceQuestions::~TraceQuestions() = default;

absl::StatusOr<std::shared_ptr<const RecordedRun>> TraceQuestions::Read(
    const jobs::Answers& answers, Cancelled cancelled) {
  const jobs::Answers::Facts& job = answers.facts();
  const auto pieces = store_->ListTraces(job.job_id);
  if (!pieces.ok()) return pieces.status();
  {
    absl::MutexLock lock(&mutex_);
    if (kept_ && kept_->job_id == job.job_id && kept_->pieces == *pieces) return kept_;
    kept_ = nullptr;
  }
  absl::StatusOr<RecordedRun> read = ReadRecordedRun(*store_, answers, *pieces, cancelled);
  if (!read.ok()) return read.status();
  auto run = std::make_shared<const RecordedRun>(*std::move(read));
  if (run->tasks <= kKeptTasks) {
    absl::MutexLock lock(&mutex_);
    kept_ = run;
  }
  return run;
}

absl::StatusOr<v1::ReplayReply> TraceQuestions::Replay(const jobs::Answers& answers,
                                                       Cancelled cancelled) {
  const auto run = Read(answers, cancelled);
  if (!run.ok()) return run.status();
  const auto replayed = RunAll(**run, cancelled);
  if (!replayed.ok()) return replayed.status();
  const std::vector<Outcome>& outcomes = *replayed;
  const jobs::Answers::Facts& job = answers.facts();
  v1::ReplayReply reply;
  Spent spent;
  uint64_t not_run = 0;
  absl::flat_hash_map<std::string, double> calls_ns;
  for (size_t s = 0; s < outcomes.size(); ++s) {
    const Stretch& stretch = (*run)->stretches[s];
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
  const ReplayErrors errors = ErrorsOf(**run, outcomes);
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
  reply.set_tasks((*run)->tasks);
  for (const std::string& sentence : (*run)->left_out) reply.add_sentences(sentence);
  if (not_run > 0) {
    reply.add_sentences(absl::StrCat(not_run,
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
trace::Trace Replayed(const trace::Trace& trace, const Stretch& stretch, const whatif::Graph& graph,
                      const whatif::RankTimeline& timeline, int64_t first_number) {
  const size_t turn = stretch.window ? kCountedTurn : 0;
  std::vector<int64_t> begins_ns(static_cast<size_t>(graph.iterations), INT64_MAX);
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    const whatif::CpuTask& task = graph.cpu[i];
    if (task.call == trace::kNone || task.iteration < 0) continue;
    if (timeline.cpu_begin_ns[i] == whatif::kNotRun) continue;
    int64_t& begin_ns = begins_ns[static_cast<size_t>(task.iteration)];
    begin_ns = std::min(begin_ns, timeline.cpu_begin_ns[i]);
  }
  int64_t shift_ns = graph.begin_ns;
  if (stretch.window) {
    int64_t first_ns = INT64_MAX;
    for (const trace::Call& call : trace.calls) first_ns = std::min(first_ns, call.begin_ns);
    shift_ns = first_ns - begins_ns[turn];
  }
  trace::Trace replayed = trace;
  replayed.calls.clear();
  replayed.works.clear();
  replayed.spans.clear();
  replayed.waits.clear();
  replayed.flows.clear();
  const auto take = [&](const auto& from, uint32_t index, int64_t task_begin_ns,
                        int64_t task_end_ns, auto begin, auto end, auto* to) {
    // Turn by turn, see Repeat.
    if (index == trace::kNone || task_begin_ns == whatif::kNotRun || index / from.size() != turn) {
      return;
    }
    to->push_back(from[index % from.size()]);
    to->back().*begin = task_begin_ns + shift_ns;
    to->back().*end = task_end_ns + shift_ns;
  };
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    take(trace.calls, graph.cpu[i].call, timeline.cpu_begin_ns[i], timeline.cpu_end_ns[i],
         &trace::Call::begin_ns, &trace::Call::end_ns, &replayed.calls);
  }
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    take(trace.works, graph.gpu[i].work, timeline.gpu_begin_ns[i], timeline.gpu_end_ns[i],
         &trace::Work::start_ns, &trace::Work::end_ns, &replayed.works);
  }
  const uint32_t row = AnnotationRow(&replayed);
  for (size_t i = turn; i < (stretch.window ? turn + 1 : begins_ns.size()); ++i) {
    if (begins_ns[i] == INT64_MAX) continue;
    const int64_t end_ns = i + 1 < begins_ns.size() && begins_ns[i + 1] != INT64_MAX
                               ? begins_ns[i + 1]
                               : timeline.end_ns;
    replayed.spans.push_back({.begin_ns = begins_ns[i] + shift_ns,
                              .end_ns = end_ns + shift_ns,
                              .name = static_cast<uint32_t>(replayed.names.size()),
                              .thread = row,
                              .kind = trace::SpanKind::kAnnotation});
    replayed.names.push_back(
        absl::StrCat("iteration ", first_number + static_cast<int64_t>(i - turn)));
  }
  return replayed;
}

}  // namespace

absl::Status TraceQuestions::WriteReplay(const jobs::Answers& answers,
                                         traces::WriteFunction write) {
  const auto cancelled = [&write] { return !write({}); };
  const auto read = Read(answers, cancelled);
  if (!read.ok()) return read.status();
  const std::shared_ptr<const RecordedRun>& run = *read;
  const jobs::Answers::Facts& job = answers.facts();
  const bool by_rank = run->pieces.front().first != run->pieces.back().first;
  StoredWindows windows(store_, StoredWindows::Names::kDemangled);
  std::optional<traces::ChromeWriter> writer;
  for (const Stretch& stretch : run->stretches) {
    if (absl::Status status = CheckAsked(cancelled); !status.ok()) return status;
    std::vector<const whatif::Graph*> graphs;
    for (const whatif::Graph& graph : stretch.recording.graphs) graphs.push_back(&graph);
    const whatif::Timeline timeline = whatif::Replay(graphs);
    for (size_t r = 0; r < graphs.size(); ++r) {
      const auto [rank, number] = stretch.pieces[r];
      trace::Trace trace;
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
        if (trace.calls.size() != stretch.calls || trace.works.size() != stretch.works) {
          return absl::UnavailableError(
              absl::StrCat("the trace of iteration ", number,
                           " was removed meanwhile, as the store was full; ask again"));
        }
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
      const trace::Trace replayed =
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
                                                       const v1::WhatIfRequest& request,
                                                       Cancelled cancelled) {
  std::vector<NamedChange> changes;
  for (const v1::WhatIfChange& asked : request.changes()) {
    absl::StatusOr<NamedChange> change = Understand(asked);
    if (!change.ok()) return change.status();
    changes.push_back(*std::move(change));
  }
  const auto run = Read(answers, cancelled);
  if (!run.ok()) return run.status();
  const jobs::Answers::Facts& job = answers.facts();
  const auto unchanged = RunUnchanged(**run, cancelled);
  if (!unchanged.ok()) return unchanged.status();
  const Unchanged& before = *unchanged;
  const whatif::Bounds bounds = BoundsOf(roofline);
  v1::WhatIfReply reply;
  const ReplayErrors errors = ErrorsOf(**run, before.outcomes);
  if (absl::Status status = CheckReplay(**run, errors, job.name); !status.ok()) return status;
  reply.set_replay_error(errors.mean);
  reply.set_confidence(request.confidence());
  const WhatIfOptions options = {request.confidence(), errors.mean, !request.list()};
  for (const Stretch& stretch : (*run)->stretches) {
    reply.set_traces(reply.traces() + static_cast<int32_t>(stretch.steps.size()));
  }
  const auto answer = [&](const std::vector<NamedChange>& together) -> absl::Status {
    absl::StatusOr<v1::WhatIfAnswer> one =
        Answer(together, **run, before, bounds, answers, options, cancelled, &reply);
    if (one.ok()) *reply.add_answers() = *std::move(one);
    return one.status();
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
