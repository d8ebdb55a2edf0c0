#include "daemon/queries/replay_export.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/stored_windows.h"
#include "daemon/queries/trace_import.h"
#include "daemon/trace/trace.h"
#include "daemon/whatif/replay.h"

namespace seqpoint::queries {
namespace {

// The replay of a trace: the calls and works that ran, at their new times, and a mark of each
// iteration, the first of which is `first_number`. Of a window it has the counted turn alone, from
// the start of the window on.
trace::Trace Replayed(const trace::Trace& trace, const Stretch& stretch, const whatif::Graph& graph,
                      const whatif::RankTimeline& timeline, int64_t first_number) {
  const size_t turn = stretch.window ? kCountedTurn : 0;
  std::vector<int64_t> starts_ns(static_cast<size_t>(graph.iterations), INT64_MAX);
  for (size_t i = 0; i < graph.cpu.size(); ++i) {
    const whatif::CpuTask& task = graph.cpu[i];
    if (task.call == trace::kNone || task.iteration < 0) continue;
    if (timeline.cpu_begin_ns[i] == whatif::kNotRun) continue;
    int64_t& begin_ns = starts_ns[static_cast<size_t>(task.iteration)];
    begin_ns = std::min(begin_ns, timeline.cpu_begin_ns[i]);
  }
  int64_t shift_ns = graph.begin_ns;
  if (stretch.window) {
    int64_t first_ns = INT64_MAX;
    for (const trace::Call& call : trace.calls) first_ns = std::min(first_ns, call.begin_ns);
    shift_ns = first_ns - starts_ns[turn];
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
  for (size_t i = turn; i < (stretch.window ? turn + 1 : starts_ns.size()); ++i) {
    if (starts_ns[i] == INT64_MAX) continue;
    const int64_t end_ns = i + 1 < starts_ns.size() && starts_ns[i + 1] != INT64_MAX
                               ? starts_ns[i + 1]
                               : timeline.end_ns;
    replayed.spans.push_back({.begin_ns = starts_ns[i] + shift_ns,
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

absl::Status ExportReplay(const jobs::SnapshotData& job, const RecordedRun& run, Store& store,
                          traces::WriteFunction write) {
  const auto cancelled = [&write] { return !write({}); };
  const absl::Status gone = absl::CancelledError("the receiver of the replay went away");
  const bool by_rank = run.pieces.front().first != run.pieces.back().first;
  StoredWindows windows(&store, StoredWindows::Names::kDemangled);
  std::optional<traces::ChromeWriter> writer;
  for (const Stretch& stretch : run.stretches) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    std::vector<const whatif::Graph*> graphs;
    for (const whatif::Graph& graph : stretch.recording.graphs) graphs.push_back(&graph);
    const whatif::Timeline timeline = whatif::Replay(graphs);
    for (size_t r = 0; r < graphs.size(); ++r) {
      const auto [rank, number] = stretch.pieces[r];
      trace::Trace trace;
      int64_t first_number = number;
      if (IsRecordedTrace(number)) {
        SEQPOINT_ASSIGN_OR_RETURN(auto recorded,
                                  ReadRecordedTrace(store, job.job_id, rank, number));
        trace = std::move(recorded.trace);
        first_number = recorded.first_iteration;
      } else {
        SEQPOINT_ASSIGN_OR_RETURN(trace, windows.Read(job.job_id, rank, number, stretch.window));
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
        return gone;
      }
    }
  }
  return writer->Finish() ? absl::OkStatus() : gone;
}

}  // namespace seqpoint::queries
