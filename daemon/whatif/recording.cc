#include "daemon/whatif/recording.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/whatif/graph/collectives.h"
#include "daemon/whatif/replay.h"

namespace seqpoint::whatif {
namespace {

// The durations of the iterations that have a next one, or of the only one.
std::vector<double> Whole(const std::vector<int64_t>& durations_ns, size_t count, bool any_behind) {
  const size_t whole = count > 1 && !any_behind ? count - 1 : count;
  std::vector<double> result;
  for (size_t i = 0; i < whole && i < durations_ns.size(); ++i) {
    result.push_back(static_cast<double>(durations_ns[i]));
  }
  return result;
}

std::string LeftOutInWords(const std::vector<Graph>& graphs, const MatchedCollectives& matched) {
  Figures sum;
  for (const Graph& graph : graphs) {
    sum.calls_left_out += graph.figures.calls_left_out;
    sum.works_before += graph.figures.works_before;
    sum.launches_lost += graph.figures.launches_lost;
    sum.waits_unknown += graph.figures.waits_unknown;
    sum.unexplained += graph.figures.unexplained;
    sum.unexplained_ns += graph.figures.unexplained_ns;
  }
  std::vector<std::string> notes;
  const auto say = [&](uint64_t count, const char* what) {
    if (count > 0) notes.push_back(absl::StrCat(count, what));
  };
  say(sum.calls_left_out, " launches whose work was not recorded");
  say(sum.works_before, " GPU tasks in flight when the trace began, replayed on their streams");
  say(sum.launches_lost, " GPU tasks whose launch was not recorded");
  say(sum.waits_unknown, " waits of streams for events that nothing explains");
  if (sum.unexplained > 0) {
    notes.push_back(absl::StrCat(sum.unexplained,
                                 " late starts that nothing explains, kept as they were (",
                                 sum.unexplained_ns / 1000, " us)"));
  }
  if (graphs.size() > 1) say(matched.alone, " collectives that only one rank has");
  return absl::StrJoin(notes, ", ");
}

std::vector<const Graph*> Pointers(const std::vector<Graph>& graphs) {
  std::vector<const Graph*> pointers;
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  return pointers;
}

std::vector<std::vector<double>> DurationsOf(const Recording& recording,
                                             const std::vector<Graph>& graphs,
                                             const Timeline& timeline) {
  std::vector<std::vector<double>> all;
  for (size_t r = 0; r < graphs.size(); ++r) {
    std::vector<double>& durations = all.emplace_back();
    for (const int64_t duration_ns : IterationDurations(graphs[r], timeline.ranks[r])) {
      if (durations.size() == recording.measured_ns[r].size()) break;
      durations.push_back(static_cast<double>(duration_ns));
    }
  }
  return all;
}

void TakeOff(double by_ns, PriceIn where, Graph* graph) {
  for (const std::vector<uint32_t>& order : graph->order) {
    bool behind_call = false;
    for (const uint32_t index : order) {
      CpuTask& task = graph->cpu[index];
      const bool call = task.call != kNone;
      if (where == PriceIn::kCalls ? call : !call && behind_call) {
        task.duration_ns = std::max<int64_t>(task.duration_ns - static_cast<int64_t>(by_ns), 0);
      }
      behind_call = call;
    }
  }
}
void TakeOff(double by_ns, PriceIn where, std::vector<Graph>* ranks) {
  for (Graph& graph : *ranks) TakeOff(by_ns, where, &graph);
}

}  // namespace

size_t Recording::iterations() const {
  size_t most = 0;
  for (const std::vector<double>& rank : measured_ns) most = std::max(most, rank.size());
  return most;
}

int64_t Recording::tasks() const {
  size_t sum = 0;
  for (const Graph& graph : graphs) sum += graph.cpu.size() + graph.gpu.size();
  return static_cast<int64_t>(sum);
}

Recording MakeRecording(std::vector<RecordedRank> ranks, const KnownCollectives* known) {
  Recording recording;
  for (const RecordedRank& rank : ranks) {
    recording.ranks.push_back(rank.trace.rank);
    recording.graphs.push_back(BuildGraph(rank.trace, {rank.iteration_starts_ns}));
  }
  std::vector<Graph*> graphs;
  std::vector<const Trace*> traces;
  for (size_t r = 0; r < ranks.size(); ++r) {
    graphs.push_back(&recording.graphs[r]);
    traces.push_back(&ranks[r].trace);
  }
  MatchedCollectives matched;
  if (known != nullptr) {
    SetCollectives(known->numbers, known->clock_behind_ns, graphs);
    matched.alone = known->alone;
  } else if (ranks.size() > 1) {
    matched = MatchCollectives(graphs, traces);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Graph& graph = recording.graphs[r];
    recording.measured_ns.push_back(
        Whole(IterationDurations(graph, Measured(ranks[r].trace, graph)), ranks[r].iterations,
              ranks[r].iteration_starts_ns.size() > ranks[r].iterations));
  }
  recording.left_out = LeftOutInWords(recording.graphs, matched);
  return recording;
}

Outcome RunAgain(const Recording& recording, const std::vector<Graph>& graphs) {
  const Timeline timeline = Replay(Pointers(graphs), {.causes = true});
  Outcome outcome;
  outcome.not_run = timeline.not_run;
  outcome.duration_ns = DurationsOf(recording, graphs, timeline);
  const size_t iterations = recording.iterations();
  outcome.critical_path.resize(iterations);
  outcome.idle.resize(iterations);
  outcome.kernels_ns.resize(iterations);
  std::vector<double> slowest(iterations, -1);
  for (size_t r = 0; r < graphs.size(); ++r) {
    const Graph& graph = graphs[r];
    const RankTimeline& rank = timeline.ranks[r];
    std::vector<int64_t> calls_ns;
    const std::vector<Shares> paths = IterationPaths(graph, rank, &calls_ns);
    const std::vector<Shares> idle = IterationIdle(graph, rank);
    for (size_t i = 0; i < outcome.duration_ns[r].size(); ++i) {
      if (outcome.duration_ns[r][i] <= slowest[i]) continue;
      slowest[i] = outcome.duration_ns[r][i];
      outcome.critical_path[i] = paths[i];
      outcome.idle[i] = idle[i];
    }
    for (size_t name = 0; name < calls_ns.size(); ++name) {
      if (calls_ns[name] > 0) {
        outcome.calls_ns[graph.names[name]] += static_cast<double>(calls_ns[name]);
      }
    }
    for (size_t i = 0; i < graph.gpu.size(); ++i) {
      const GpuTask& task = graph.gpu[i];
      const bool kernel = task.kind == WorkKind::kKernel || task.kind == WorkKind::kCollective ||
                          task.kind == WorkKind::kGraph;
      if (!kernel || task.call == kNone || rank.gpu_end_ns[i] == kNotRun) continue;
      const int32_t iteration = graph.cpu[task.call].iteration;
      if (iteration < 0 || static_cast<size_t>(iteration) >= iterations) continue;
      outcome.kernels_ns[static_cast<size_t>(iteration)][graph.names[task.name]] +=
          static_cast<double>(rank.gpu_end_ns[i] - rank.gpu_begin_ns[i]);
    }
  }
  return outcome;
}

std::vector<std::vector<double>> Durations(const Recording& recording,
                                           const std::vector<Graph>& graphs) {
  return DurationsOf(recording, graphs, Replay(Pointers(graphs)));
}

double TakeTracingOff(const std::vector<Untraced>& windows, PriceIn where) {
  double usual_ns = 0;
  for (const Untraced& window : windows) usual_ns += window.usual_ns;
  if (!(usual_ns > 0)) return 0;
  const auto excess = [&](double by_ns) {
    double sum_ns = 0;
    for (const Untraced& window : windows) {
      std::vector<Graph> graphs = window.recording->graphs;
      TakeOff(by_ns, where, &graphs);
      sum_ns += Steps(Durations(*window.recording, graphs))[window.iteration];
    }
    return sum_ns / usual_ns - 1;
  };
  // A smaller error is no worse than the replay's own.
  constexpr double kClose = 2e-4;
  constexpr double kMostNs = 5000;  // an activity record of a call takes less
  const double as_recorded = excess(0);
  if (as_recorded < kClose) return 0;
  const double least = excess(kMostNs);
  if (as_recorded - least < kClose) return 0;
  if (least > 0) return 0;  // something else makes the replays longer
  double low_ns = 0, high_ns = kMostNs;
  while (high_ns - low_ns > 1) {
    const double middle_ns = (low_ns + high_ns) / 2;
    (excess(middle_ns) > 0 ? low_ns : high_ns) = middle_ns;
  }
  for (const Untraced& window : windows) TakeOff(low_ns, where, &window.recording->graphs);
  return low_ns;
}

double TakeTracingOff(const std::vector<Untraced>& windows, const std::vector<Untraced>& others) {
  constexpr double kUsualPriceNs = 500;
  const double by_ns = TakeTracingOff(windows, PriceIn::kCalls);
  if (by_ns > 0) {
    TakeTracingOff(others, PriceIn::kGaps);
    return by_ns;
  }
  // It does not show in the time of what the GPU holds up; in that of a change it may.
  for (const Untraced& window : others) {
    TakeOff(kUsualPriceNs, PriceIn::kCalls, &window.recording->graphs);
  }
  return 0;
}

std::string TracingInWords(double by_ns) {
  return absl::StrFormat(
      "recording cost %.2f us for each call: that is taken off, so that the replays take as long "
      "as untraced iterations, all together",
      by_ns / 1000);
}

std::vector<double> Steps(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> steps;
  for (const std::vector<double>& rank : by_rank) {
    if (rank.size() > steps.size()) steps.resize(rank.size());
    for (size_t i = 0; i < rank.size(); ++i) steps[i] = std::max(steps[i], rank[i]);
  }
  return steps;
}

Trace Repeat(const Trace& trace, int times, int64_t period_ns) {
  Trace repeated = trace;
  uint64_t correlations = 0;
  for (const Call& call : trace.calls) correlations = std::max(correlations, call.correlation);
  for (const Work& work : trace.works) correlations = std::max(correlations, work.correlation);
  for (int turn = 1; turn < times; ++turn) {
    const int64_t shift_ns = turn * period_ns;
    const uint64_t more = static_cast<uint64_t>(turn) * (correlations + 1);
    const auto moved = [&](uint64_t correlation) {
      return correlation == 0 ? 0 : correlation + more;
    };
    for (Call call : trace.calls) {
      call.begin_ns += shift_ns;
      call.end_ns += shift_ns;
      call.correlation = moved(call.correlation);
      repeated.calls.push_back(call);
    }
    for (Work work : trace.works) {
      work.start_ns += shift_ns;
      work.end_ns += shift_ns;
      work.correlation = moved(work.correlation);
      repeated.works.push_back(work);
    }
    for (Span span : trace.spans) {
      span.begin_ns += shift_ns;
      span.end_ns += shift_ns;
      repeated.spans.push_back(span);
    }
    for (Wait wait : trace.waits) {
      wait.correlation = moved(wait.correlation);
      wait.record_correlation = moved(wait.record_correlation);
      repeated.waits.push_back(wait);
    }
  }
  return repeated;
}

}  // namespace seqpoint::whatif
