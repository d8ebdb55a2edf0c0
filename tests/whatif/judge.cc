#include "tests/whatif/judge.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/traces/gunzip.h"
#include "daemon/traces/trace_reader.h"
#include "daemon/whatif/graph/collectives.h"
#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/report.h"
#include "daemon/whatif/transform/transform.h"
#include "tests/iterations/marked_boundaries.h"
#include "tests/support/trace_file.h"

namespace seqpoint::whatif {
namespace {

namespace fs = std::filesystem;

double Ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? NAN : sum / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// The best of several times, as others use the machine too.
template <typename Run>
double Seconds(const Run& run) {
  constexpr int kRuns = 5;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    const double begin = ThreadSeconds();
    run();
    best = std::min(best, ThreadSeconds() - begin);
  }
  return best;
}

RankTimeline ReplayOne(const Graph& graph, uint64_t* not_run = nullptr) {
  const Graph* ranks[] = {&graph};
  Timeline timeline = Replay(ranks);
  if (not_run != nullptr) *not_run = timeline.not_run;
  return std::move(timeline.ranks[0]);
}

int64_t Tasks(const Graph& graph) {
  return static_cast<int64_t>(graph.cpu.size() + graph.gpu.size());
}

// Orders of threads and lanes, launches, cross-thread dependencies, waits, what GPU tasks depend
// on.
int64_t Edges(const Graph& graph) {
  auto edges = static_cast<int64_t>(graph.dependencies.size());
  for (const std::vector<uint32_t>& order : graph.order) {
    edges += std::max<int64_t>(0, static_cast<int64_t>(order.size()) - 1);
  }
  std::vector<bool> used(graph.lanes.size());
  for (const GpuTask& task : graph.gpu) {
    edges += (used[task.lane] ? 1 : 0) + (task.call != kNone ? 1 : 0);
    used[task.lane] = true;
  }
  for (const CpuTask& task : graph.cpu) {
    edges += task.after != kNone ? 1 : 0;
    edges +=
        task.kind != CpuKind::kGap && task.kind != CpuKind::kCall && task.kind != CpuKind::kRecord
            ? 1
            : 0;
  }
  return edges;
}

void Describe(const Recorded& recorded, uint64_t not_run, Verdict* verdict) {
  const Figures& figures = recorded.graph.figures;
  const trace::LeftOut& file = recorded.trace.left_out;
  verdict->tasks = Tasks(recorded.graph);
  verdict->edges = Edges(recorded.graph);
  verdict->left_out =
      static_cast<int64_t>(figures.calls_left_out + figures.waits_unknown + file.damaged + not_run);
  std::vector<std::string> notes;
  if (std::string words = traces::LeftOutInWords(file); !words.empty()) {
    notes.push_back(std::move(words));
  }
  const auto say = [&](uint64_t count, const char* what) {
    if (count > 0) notes.push_back(absl::StrCat(count, " ", what));
  };
  say(figures.calls_left_out, "launches without work");
  say(figures.works_before, "GPU tasks in flight at the begin");
  say(figures.launches_lost, "GPU tasks without a launch");
  say(figures.waits_unknown, "stream waits unexplained");
  say(not_run, "tasks never reached");
  if (figures.unexplained > 0) {
    notes.push_back(absl::StrFormat("%d late starts unexplained and kept (%.1f ms)",
                                    figures.unexplained, Ms(figures.unexplained_ns)));
  }
  verdict->note = absl::StrJoin(notes, "; ");
}

// From the first GPU start to the end of all.
double WholeMs(const Recorded& recorded, const RankTimeline* timeline) {
  const Graph& graph = recorded.graph;
  int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = -begin_ns;
  for (size_t i = 0; i < graph.gpu.size(); ++i) {
    const Work& work = recorded.trace.works[graph.gpu[i].work];
    if (timeline != nullptr && timeline->gpu_end_ns[i] == kNotRun) continue;
    begin_ns = std::min(begin_ns, timeline ? timeline->gpu_begin_ns[i] : work.start_ns);
    end_ns = std::max(end_ns, timeline ? timeline->gpu_end_ns[i] : work.end_ns);
  }
  return end_ns < begin_ns ? NAN : Ms(end_ns - begin_ns);
}

// Replayed periods; of iterations that have a next one.
std::vector<double> PeriodsMs(const Recorded& recorded, const Graph& graph,
                              const RankTimeline& timeline, bool measured) {
  std::vector<double> periods;
  const std::vector<int64_t> durations_ns =
      IterationDurations(graph, measured ? Measured(recorded.trace, graph) : timeline);
  for (size_t i = 0; i < durations_ns.size() && i + 1 < recorded.marks.iterations(); ++i) {
    periods.push_back(Ms(durations_ns[i]));
  }
  return periods;
}

std::string WholeFileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Begins of the training steps, from the table beside a trace.
std::vector<double> StepsMs(const std::string& path) {
  std::vector<double> begins_ms;
  std::ifstream in(path.substr(0, path.find(".csv")) + "_steps.tsv");
  std::string line;
  size_t kind = 0, start = 0;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (start == 0) {
      kind = static_cast<size_t>(std::find(cells.begin(), cells.end(), "kind") - cells.begin());
      start =
          static_cast<size_t>(std::find(cells.begin(), cells.end(), "start_ms") - cells.begin());
    } else if (std::max(kind, start) < cells.size() && cells[kind] == "train") {
      begins_ms.push_back(std::strtod(cells[start].c_str(), nullptr));
    }
  }
  return begins_ms;
}

// Median over the iterations.
double LoadingMs(const Recorded& recorded) {
  std::vector<double> loading_ms(recorded.marks.iterations());
  for (const CpuTask& task : recorded.graph.cpu) {
    const auto iteration = static_cast<size_t>(task.iteration);
    if (task.kind == CpuKind::kGap && task.iteration >= 0 && iteration < loading_ms.size() &&
        IsDataLoading(recorded.graph.names[task.label])) {
      loading_ms[iteration] += Ms(task.duration_ns);
    }
  }
  return Median(loading_ms);
}

}  // namespace

absl::StatusOr<Recorded> ReadRecorded(const std::string& path, const std::string& marker) {
  absl::StatusOr<Trace> trace = ReadTraceFile(path);
  if (!trace.ok()) return trace.status();
  Recorded recorded;
  recorded.file = path;
  recorded.trace = *std::move(trace);
  recorded.marks = trace::FindMarks(recorded.trace, marker);
  recorded.graph = BuildGraph(recorded.trace, {recorded.marks.starts_ns});
  return recorded;
}

Recorded CutOff(const Recorded& whole, int64_t at_ns, const std::string& marker) {
  Recorded cut = whole;
  std::erase_if(cut.trace.calls, [&](const Call& call) { return call.begin_ns < at_ns; });
  std::erase_if(cut.trace.spans, [&](const Span& span) { return span.begin_ns < at_ns; });
  std::erase_if(cut.trace.works, [&](const Work& work) { return work.start_ns < at_ns; });
  absl::flat_hash_set<uint64_t> called;
  for (const Call& call : cut.trace.calls) called.insert(call.correlation);
  std::erase_if(cut.trace.waits,
                [&](const Wait& wait) { return !called.contains(wait.correlation); });
  cut.marks = trace::FindMarks(cut.trace, marker);
  cut.graph = BuildGraph(cut.trace, {cut.marks.starts_ns});
  return cut;
}

std::vector<int64_t> CutsNs(const Recorded& whole) {
  const std::vector<int64_t>& starts_ns = whole.marks.starts_ns;
  const int64_t third_ns = starts_ns.front() + (starts_ns.back() - starts_ns.front()) / 3;
  return {third_ns, *std::upper_bound(starts_ns.begin(), starts_ns.end(), third_ns)};
}

std::vector<double> GpuPeriodsMs(const Recorded& recorded) {
  return PeriodsMs(recorded, recorded.graph, ReplayOne(recorded.graph), /*measured=*/true);
}

std::vector<double> MarkPeriodsMs(const trace::IterationMarks& marks) {
  std::vector<double> periods;
  for (size_t i = 1; i < marks.starts_ns.size(); ++i) {
    periods.push_back(Ms(marks.starts_ns[i] - marks.starts_ns[i - 1]));
  }
  return periods;
}

Verdict JudgeBoundaries(const std::string& path, const Recorded& recorded) {
  Verdict verdict;
  verdict.file = recorded.file;
  verdict.check = "boundaries";
  verdict.target = 0;
  // "ProfilerStep#3": what all have is the part before the number. A trace without marks has none
  // of this name.
  const std::string& first = recorded.marks.first;
  const std::string prefix = first.empty() ? "ProfilerStep#" : first.substr(0, first.find('#') + 1);
  const iterations::MarkedBoundaries marked =
      iterations::FindMarkedBoundaries(recorded.trace, prefix);
  const iterations::TraceBoundaries& found = marked.found;
  verdict.note = found.rule ? found.rule->boundary_words : "no loop found";
  verdict.iterations_true = static_cast<int64_t>(marked.per_step.size());
  verdict.iterations_detected =
      std::accumulate(marked.per_step.begin(), marked.per_step.end(), int64_t{marked.outside});
  bool good = marked.good();
  if (first.empty()) {
    const std::vector<double> steps_ms = StepsMs(path);
    verdict.iterations_detected = static_cast<int64_t>(found.starts_ns.size());
    if (steps_ms.empty()) {
      verdict.iterations_true = -1;
      return verdict;
    }
    // One boundary nearer to the begin of each step than to any other's.
    verdict.iterations_true = static_cast<int64_t>(steps_ms.size());
    std::vector<int> per_step(steps_ms.size());
    for (const uint64_t begin_ns : found.starts_ns) {
      const double begin_ms = Ms(static_cast<int64_t>(begin_ns));
      size_t nearest = 0;
      for (size_t i = 1; i < steps_ms.size(); ++i) {
        if (std::abs(steps_ms[i] - begin_ms) < std::abs(steps_ms[nearest] - begin_ms)) nearest = i;
      }
      ++per_step[nearest];
    }
    good = std::all_of(per_step.begin(), per_step.end(), [](int n) { return n == 1; });
  }
  verdict.error = good ? 0 : 1;
  return verdict;
}

Verdict JudgeReplay(const Recorded& recorded) {
  Verdict verdict;
  verdict.file = recorded.file;
  verdict.check = "replay";
  verdict.iterations_true = static_cast<int64_t>(recorded.marks.iterations());
  uint64_t not_run = 0;
  const RankTimeline timeline = ReplayOne(recorded.graph, &not_run);
  Describe(recorded, not_run, &verdict);
  if (verdict.training()) {
    const std::vector<double> measured = PeriodsMs(recorded, recorded.graph, timeline, true);
    const std::vector<double> replayed = PeriodsMs(recorded, recorded.graph, timeline, false);
    verdict.measured_ms = Mean(measured);
    verdict.predicted_ms = Mean(replayed);
    verdict.worst_error = 0;
    for (size_t i = 0; i < measured.size(); ++i) {
      const double error = replayed[i] / measured[i] - 1;
      if (std::abs(error) > std::abs(verdict.worst_error)) verdict.worst_error = error;
    }
    verdict.target = kReplayWorst;
  } else {
    verdict.measured_ms = WholeMs(recorded, nullptr);
    verdict.predicted_ms = WholeMs(recorded, &timeline);
  }
  verdict.error = verdict.predicted_ms / verdict.measured_ms - 1;
  std::vector<double> late_us;
  for (size_t i = 0; i < recorded.graph.gpu.size(); ++i) {
    if (timeline.gpu_begin_ns[i] == kNotRun) continue;
    const int64_t start_ns = recorded.trace.works[recorded.graph.gpu[i].work].start_ns;
    late_us.push_back(
        std::abs(Ms(timeline.gpu_begin_ns[i] - (start_ns - recorded.graph.begin_ns))) * 1e3);
  }
  if (!late_us.empty()) {
    verdict.mean_us = Mean(late_us);
    verdict.worst_us = *std::max_element(late_us.begin(), late_us.end());
  }
  return verdict;
}

std::string LoaderRequest(const Recorded& recorded, const LoaderModel& model) {
  const double loading_ms = LoadingMs(recorded);
  // Each batch keeps one process busy for that long, while the training goes on without it.
  const double rest_ms = Median(MarkPeriodsMs(recorded.marks)) - loading_ms;
  const double running = rest_ms > 0 ? std::min<double>(model.processes, loading_ms / rest_ms) : 0;
  const double busy = 1 + model.slower_per_process * running;
  return absl::StrFormat(
      "remove gaps where in ~ \"DataLoader\"; scale calls by %.4f; scale gaps by %.4f; "
      "insert call \"receive\" of %gms before copies where name ~ \"HtoD.*Pageable\" and bytes > "
      "8B; "
      "insert call \"free\" of bytes/%gGB/s before copies where name ~ \"HtoD.*Pageable\" and "
      "bytes > 8B; "
      "scale copies where name ~ \"HtoD.*Pageable\" by %.4f",
      busy, busy, model.receive_ms, model.free_gb_s, busy * model.first_read);
}

absl::StatusOr<Verdict> JudgePair(const Recorded& before, const Recorded& after,
                                  const std::string& request) {
  const absl::StatusOr<Request> parsed = ParseRequest(request);
  if (!parsed.ok()) return parsed.status();
  Graph changed = before.graph;
  const absl::StatusOr<Applied> applied = Apply(*parsed, {}, {}, &changed);
  if (!applied.ok()) return applied.status();
  Verdict verdict;
  verdict.file = absl::StrCat(before.file, " -> ", after.file);
  verdict.check = "pair";
  verdict.iterations_true = static_cast<int64_t>(before.marks.iterations());
  const RankTimeline timeline = ReplayOne(changed);
  verdict.measured_ms = Median(MarkPeriodsMs(after.marks));
  verdict.predicted_ms = Median(PeriodsMs(before, changed, timeline, false));
  verdict.error = verdict.predicted_ms / verdict.measured_ms - 1;
  verdict.target = kPairWorst;
  verdict.tasks = Tasks(before.graph);
  verdict.edges = Edges(before.graph);
  verdict.note =
      absl::StrFormat("before %.1f ms; %s", Median(MarkPeriodsMs(before.marks)), request);
  return verdict;
}

Verdict JudgeFusedAdam(const Recorded& recorded) {
  Verdict verdict;
  verdict.file = recorded.file;
  verdict.check = "pair";
  constexpr const char* kFuse = "fuse kernels where in ~ \"Optimizer.step\" into \"fused_adam\"";
  const absl::StatusOr<Request> request = ParseRequest(kFuse);
  Graph changed = recorded.graph;
  const absl::StatusOr<Applied> applied = Apply(*request, {}, {}, &changed);
  const auto kernels_ms = [](const Graph& graph, size_t* count) {
    int64_t sum_ns = 0;
    *count = 0;
    for (const GpuTask& task : graph.gpu) {
      if (task.call == kNone) continue;
      sum_ns += task.duration_ns;
      ++*count;
    }
    return Ms(sum_ns);
  };
  size_t before = 0, after = 0;
  const double before_ms = kernels_ms(recorded.graph, &before);
  verdict.predicted_ms = kernels_ms(changed, &after);
  verdict.tasks = Tasks(recorded.graph);
  verdict.edges = Edges(recorded.graph);
  verdict.note =
      absl::StrFormat("GPU time of %d kernels before %.3f ms, of %d after; %s; no after side here",
                      before, before_ms, after, kFuse);
  return verdict;
}

Verdict JudgeCollectives(absl::Span<const Recorded* const> ranks) {
  Verdict verdict;
  verdict.check = "collective";
  std::vector<std::string> files;
  std::vector<Graph*> graphs;
  std::vector<const Trace*> all;
  std::vector<Graph> copies;
  copies.reserve(ranks.size());
  verdict.tasks = verdict.edges = 0;
  for (const Recorded* rank : ranks) {
    files.push_back(rank->file);
    copies.push_back(rank->graph);
    graphs.push_back(&copies.back());
    all.push_back(&rank->trace);
    verdict.tasks += Tasks(rank->graph);
    verdict.edges += Edges(rank->graph);
  }
  verdict.file = absl::StrJoin(files, ", ");
  const MatchedCollectives matched = MatchCollectives(graphs, all);
  const std::vector<const Graph*> constant(graphs.begin(), graphs.end());
  const Timeline timeline = Replay(constant);
  std::vector<double> errors, us, measured_ms, predicted_ms;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Graph& graph = *graphs[r];
    const trace::IterationMarks& marks = ranks[r]->marks;
    const double step_ms = marks.starts_ns.size() > 1 ? Mean(MarkPeriodsMs(marks))
                           : marks.starts_ns.empty()  ? WholeMs(*ranks[r], nullptr)
                                                      : Ms(marks.ends_ns[0] - marks.starts_ns[0]);
    int64_t last_ns = kNotRun, last_replayed_ns = kNotRun;
    for (size_t i = 0; i < graph.gpu.size(); ++i) {
      if (graph.gpu[i].collective == kNone) continue;
      const int64_t replayed_ns = timeline.ranks[r].gpu_end_ns[i];
      if (replayed_ns == kNotRun) continue;
      const int64_t end_ns = ranks[r]->trace.works[graph.gpu[i].work].end_ns - graph.begin_ns;
      const double late_ms = std::abs(Ms(replayed_ns - end_ns));
      us.push_back(late_ms * 1e3);
      errors.push_back(late_ms / step_ms);
      last_ns = std::max(last_ns, end_ns);
      last_replayed_ns = std::max(last_replayed_ns, replayed_ns);
    }
    const int64_t begin_ns =
        *std::min_element(graph.thread_begin_ns.begin(), graph.thread_begin_ns.end());
    measured_ms.push_back(Ms(last_ns - begin_ns));
    predicted_ms.push_back(Ms(last_replayed_ns - begin_ns));
  }
  verdict.left_out = static_cast<int64_t>(matched.alone + timeline.not_run);
  verdict.note =
      absl::StrFormat("%d collectives matched, %d tasks alone, ends within %.0f us", matched.count,
                      matched.alone, static_cast<double>(matched.spread_ns) / 1e3);
  if (errors.empty()) return verdict;
  verdict.measured_ms = *std::max_element(measured_ms.begin(), measured_ms.end());
  verdict.predicted_ms = *std::max_element(predicted_ms.begin(), predicted_ms.end());
  verdict.error = Mean(errors);
  verdict.target = kCollectiveMean;
  verdict.mean_us = Mean(us);
  verdict.worst_us = *std::max_element(us.begin(), us.end());
  return verdict;
}

Verdict JudgeSpeed(const std::string& path, const Recorded& recorded) {
  constexpr size_t kPieceBytes = size_t{256} << 10;
  Verdict verdict;
  verdict.file = recorded.file;
  verdict.check = "speed";
  const std::string packed = WholeFileText(path);
  std::string text;
  if (absl::StartsWith(packed, "\x1f\x8b")) {
    traces::Gunzip gunzip;
    gunzip.Add(packed, [&](std::string_view piece) { text.append(piece); });
  }
  const auto read = [&](std::string_view bytes) {
    return Seconds([&] {
      traces::TraceReader reader({});
      for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
        if (!reader.Add(bytes.substr(at, kPieceBytes)).ok()) return;
      }
      (void)reader.Finish();
    });
  };
  const auto mb = static_cast<double>((text.empty() ? packed : text).size()) / 1e6;
  verdict.import_mb_s = mb / read(text.empty() ? packed : text);
  if (!text.empty()) verdict.import_gzip_mb_s = mb / read(packed);
  verdict.tasks = Tasks(recorded.graph);
  verdict.edges = Edges(recorded.graph);
  const auto tasks = static_cast<double>(verdict.tasks);
  const GraphOptions options{recorded.marks.starts_ns};
  verdict.graph_tasks_s = tasks / Seconds([&] { (void)BuildGraph(recorded.trace, options); });
  verdict.replay_tasks_s = tasks / Seconds([&] { (void)ReplayOne(recorded.graph); });
  verdict.note = absl::StrFormat("%.1f MB of text", mb);
  return verdict;
}

Graph SyntheticGraph(uint32_t tasks) {
  constexpr int kKernels = 500;  // of an iteration
  Trace trace;
  trace.names = {"", "cudaLaunchKernel", "cudaStreamSynchronize"};
  for (int k = 0; k < 20; ++k) trace.names.push_back(absl::StrCat("kernel_", k));
  trace.threads = {"main"};
  trace.streams = {{0, 7}};
  GraphOptions options;
  int64_t cpu_ns = 0, gpu_ns = 0;
  // A launch makes three tasks: the call, the gap behind it, the kernel.
  for (uint32_t i = 0; i < tasks / 3; ++i) {
    if (i % kKernels == 0) options.iteration_starts_ns.push_back(cpu_ns);
    trace.calls.push_back({cpu_ns, cpu_ns + 4000, i + 1, 1, 0, CallKind::kLaunch});
    Work work;
    work.start_ns = std::max(cpu_ns + 6000, gpu_ns + 1000);
    work.end_ns = gpu_ns = work.start_ns + 2000 + 997 * (i % 17);
    work.correlation = i + 1;
    work.name = 3 + i % 20;
    trace.works.push_back(work);
    cpu_ns += 9000;
    if (i % kKernels == kKernels - 1) {
      const int64_t end_ns = std::max(cpu_ns + 2000, gpu_ns + 3000);
      trace.calls.push_back({cpu_ns, end_ns, 0, 2, 0, CallKind::kStreamSync});
      cpu_ns = end_ns + 5000;
    }
  }
  return BuildGraph(trace, options);
}

}  // namespace seqpoint::whatif
