// Replay, pairs and collectives on recorded traces, with the limits that
// docs/using/whatif-accuracy.md states. The traces are not part of the repository:
// SEQPOINT_SHARED_DATA names the folder that holds traces/. `./dev bench whatif` says more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/preset.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/report.h"
#include "daemon/whatif/transform/transform.h"
#include "tests/support/shared_traces.h"
#include "tests/whatif/judge.h"

namespace seqpoint::whatif {
namespace {

std::string NotThere() {
  return SharedTraces() + " is not there; set SEQPOINT_SHARED_DATA to the folder with traces/";
}

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const std::string& file : SharedTraceFiles()) {
    if (absl::EndsWith(file, ".json.gz")) files.push_back(file);
  }
  return OrNone(std::move(files));
}

// A column of trace_stats.py's table, by file.
std::map<std::string, double> Stats(const std::string& column) {
  std::map<std::string, double> values;
  std::ifstream in(SharedTraces() + "/stats.tsv");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> head = absl::StrSplit(line, '\t');
  const auto at = static_cast<size_t>(std::find(head.begin(), head.end(), column) - head.begin());
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, '\t');
    if (at < cells.size()) values[cells[0]] = std::strtod(cells[at].c_str(), nullptr);
  }
  return values;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// A window that begins and ends in the middle of iterations, and a hundredth of the GPU work lost:
// as profilers leave traces.
Recorded PartOf(const Recorded& whole) {
  Recorded part = whole;
  const int64_t begin_ns = whole.marks.starts_ns.front(), end_ns = whole.marks.starts_ns.back();
  const int64_t first_ns = begin_ns + (end_ns - begin_ns) * 37 / 100;
  const int64_t last_ns = end_ns - (end_ns - begin_ns) / 10;
  const auto outside = [&](int64_t ns) { return ns < first_ns || ns > last_ns; };
  std::erase_if(part.trace.calls, [&](const Call& call) { return outside(call.begin_ns); });
  std::erase_if(part.trace.spans, [&](const Span& span) { return outside(span.begin_ns); });
  size_t works = 0;
  std::erase_if(part.trace.works,
                [&](const Work& work) { return outside(work.start_ns) || ++works % 97 == 50; });
  part.marks = trace::FindMarks(part.trace);
  part.graph = BuildGraph(part.trace, {part.marks.starts_ns});
  return part;
}

void ExpectReplayed(const Verdict& verdict) {
  EXPECT_LE(std::abs(verdict.error), kReplayWorst) << verdict.note;
  EXPECT_EQ(verdict.note.find("never reached"), std::string::npos) << verdict.note;
}

class WhatIfTraceTest : public ::testing::TestWithParam<std::string> {};

TEST_P(WhatIfTraceTest, ReplaysAsMeasured) {
  if (GetParam() == "none") GTEST_SKIP() << NotThere();
  const absl::StatusOr<Recorded> recorded = ReadRecorded(SharedTraces() + "/" + GetParam());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const Verdict verdict = JudgeReplay(*recorded);
  ExpectReplayed(verdict);
  if (!verdict.training()) return;
  // The other program that measures the same has tenths of microseconds in milliseconds.
  EXPECT_NEAR(verdict.measured_ms, Stats("gpu_ms")[GetParam()], 1e-4);
  EXPECT_NEAR(Mean(MarkPeriodsMs(recorded->marks)), Stats("s2s_ms")[GetParam()], 1e-4);
  if (recorded->marks.iterations() >= 3) ExpectReplayed(JudgeReplay(PartOf(*recorded)));
}

// Share of time that the last `count` whole iterations of a trace save on a GPU twice as fast.
double SavedByHalf(const Recorded& recorded, size_t count) {
  const auto sum_ms = [&](const Graph& graph) {
    const Graph* ranks[] = {&graph};
    const std::vector<int64_t> durations_ns = IterationDurations(graph, Replay(ranks).ranks[0]);
    const size_t whole = recorded.marks.iterations() - 1;
    double sum = 0;
    for (size_t i = whole - std::min(count, whole); i < whole; ++i) {
      sum += static_cast<double>(durations_ns[i]) / 1e6;
    }
    return sum;
  };
  Graph faster = recorded.graph;
  for (GpuTask& task : faster.gpu) task.duration_ns /= 2;
  return 1 - sum_ms(faster) / sum_ms(recorded.graph);
}

// As profilers leave traces that they begin while the GPU is behind: what it had to do then is in
// flight, and all iterations count, the first one, too. A change does what it does to the whole
// trace: what is in flight is not held where it was.
TEST_P(WhatIfTraceTest, ReplaysAsMeasuredWithTheFirstThirdCutOff) {
  if (GetParam() == "none") GTEST_SKIP() << NotThere();
  const absl::StatusOr<Recorded> recorded = ReadRecorded(SharedTraces() + "/" + GetParam());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  if (recorded->marks.iterations() < 4) GTEST_SKIP() << "too few iterations";
  for (const int64_t at_ns : CutsNs(*recorded)) {
    const Recorded cut = CutOff(*recorded, at_ns);
    if (cut.marks.iterations() < 2) continue;
    const Verdict verdict = JudgeReplay(cut);
    ExpectReplayed(verdict);
    EXPECT_LE(std::abs(verdict.worst_error), kReplayWorst) << verdict.note;
    const size_t count = cut.marks.iterations() - 1;
    EXPECT_NEAR(SavedByHalf(cut, count), SavedByHalf(*recorded, count), 0.03) << count;
  }
}

// Each fiftieth launch has no record, as where a profiler's buffer was full: its kernel stays in
// its place.
TEST_P(WhatIfTraceTest, ReplaysAsMeasuredWithLaunchesLost) {
  if (GetParam() == "none") GTEST_SKIP() << NotThere();
  absl::StatusOr<Recorded> recorded = ReadRecorded(SharedTraces() + "/" + GetParam());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  if (recorded->marks.iterations() < 2) GTEST_SKIP() << "too few iterations";
  size_t launches = 0;
  std::erase_if(recorded->trace.calls, [&](const Call& call) {
    return call.kind == CallKind::kLaunch && ++launches % 50 == 25;
  });
  recorded->graph = BuildGraph(recorded->trace, {recorded->marks.starts_ns});
  const Verdict verdict = JudgeReplay(*recorded);
  ExpectReplayed(verdict);
  EXPECT_LE(std::abs(verdict.worst_error), kReplayWorst) << verdict.note;
}

INSTANTIATE_TEST_SUITE_P(Recorded, WhatIfTraceTest, ::testing::ValuesIn(Files()),
                         [](const auto& info) { return TestNameOf(info.param); });

TEST(WhatIfPairTest, LoadingDataInOtherProcesses) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  for (const char* name : {"c1", "c2", "nomarker"}) {
    const std::string path = SharedTraces() + "/resnet50_v100_dataloader/" + name;
    const absl::StatusOr<Recorded> before = ReadRecorded(path + "_workers0.json.gz");
    const absl::StatusOr<Recorded> after = ReadRecorded(path + "_workers4.json.gz");
    ASSERT_TRUE(before.ok() && after.ok());
    const absl::StatusOr<Verdict> verdict = JudgePair(*before, *after, LoaderRequest(*before, {}));
    ASSERT_TRUE(verdict.ok()) << verdict.status();
    EXPECT_LE(std::abs(verdict->error), kPairWorst) << name << ": " << verdict->predicted_ms;
  }
}

TEST(WhatIfCollectivesTest, EndWhenTheyDidWhateverTheClock) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  const std::string folder = SharedTraces() + "/dlrm_v100x8_two_ranks/";
  const absl::StatusOr<Recorded> one = ReadRecorded(folder + "rank1.json.gz");
  absl::StatusOr<Recorded> six = ReadRecorded(folder + "rank6.json.gz");
  ASSERT_TRUE(one.ok() && six.ok());
  for (const int64_t ahead_ns : {int64_t{0}, int64_t{3'000'000'000}}) {
    for (Call& call : six->trace.calls) call.begin_ns += ahead_ns, call.end_ns += ahead_ns;
    for (Work& work : six->trace.works) work.start_ns += ahead_ns, work.end_ns += ahead_ns;
    for (int64_t& begin_ns : six->marks.starts_ns) begin_ns += ahead_ns;
    for (int64_t& end_ns : six->marks.ends_ns) end_ns += ahead_ns;
    six->graph = BuildGraph(six->trace, {six->marks.starts_ns});
    const Recorded* ranks[] = {&*one, &*six};
    const Verdict verdict = JudgeCollectives(ranks);
    EXPECT_LE(verdict.error, kCollectiveMean);
    EXPECT_LT(verdict.worst_us, 50);
    EXPECT_EQ(verdict.left_out, 0);
    EXPECT_EQ(verdict.note.substr(0, 21), "8 collectives matched");
  }
}

// Mean period after a change, milliseconds.
double PeriodMs(const Recorded& recorded, const std::string& steps) {
  const absl::StatusOr<Change> change = ParseChange(steps);
  Graph graph = recorded.graph;
  const absl::StatusOr<Request> request =
      change.ok() ? absl::StatusOr<Request>(change->request) : ParseRequest(steps);
  EXPECT_TRUE(request.ok()) << change.status() << request.status();
  if (!request.ok()) return NAN;
  const absl::StatusOr<Applied> applied = Apply(
      *request, change.ok() ? change->parameters : std::map<std::string, double>(), {}, &graph);
  EXPECT_TRUE(applied.ok()) << applied.status();
  const Graph* ranks[] = {&graph};
  const Timeline timeline = Replay(ranks);
  EXPECT_EQ(timeline.not_run, 0u);
  std::vector<double> periods_ms;
  for (const int64_t duration_ns : IterationDurations(graph, timeline.ranks[0])) {
    periods_ms.push_back(static_cast<double>(duration_ns) / 1e6);
  }
  periods_ms.pop_back();  // the last one has no next
  return Mean(periods_ms);
}

// 102 MB of gradients to one other worker: the network needs 102 MB / bandwidth of each iteration.
TEST(WhatIfDistributedTest, OneGpuBecomesTwo) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  const absl::StatusOr<Recorded> one =
      ReadRecorded(SharedTraces() + "/resnet50_v100_dataloader/c2_workers4.json.gz");
  ASSERT_TRUE(one.ok()) << one.status();
  const double alone_ms = PeriodMs(*one, "scale work by 1");
  const auto with = [&](const std::string& preset, const std::string& bandwidth) {
    return PeriodMs(*one, preset + ",bytes=102MB,bandwidth=" + bandwidth);
  };
  EXPECT_NEAR(with("data-parallel", "100000GB/s"), alone_ms, 0.002 * alone_ms);
  double slower_ms = alone_ms;
  for (const char* bandwidth : {"10GB/s", "3GB/s", "1GB/s", "0.5GB/s"}) {
    const double now_ms = with("data-parallel", bandwidth);
    EXPECT_GE(now_ms, slower_ms * 0.999) << bandwidth;
    EXPECT_LE(with("p3", bandwidth), now_ms) << bandwidth;
    slower_ms = now_ms;
  }
  EXPECT_GE(slower_ms, 204);  // 102 MB at 0.5 GB/s
  EXPECT_LE(slower_ms, 204 + alone_ms);
}

// Real collectives taken out and put back by the model.
TEST(WhatIfDistributedTest, ModelledAllReducesTakeThePlaceOfRealOnes) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  const std::string data_parallel =
      "remove collectives where name ~ \"AllReduce\"\n"
      "insert collective \"all_reduce\" of allreduce_ring(bytes, 2, 12GB/s, 5us) into \"network\" "
      "after kernels where phase = backward sharing 102.2MB in 25MB needed by kernels where phase "
      "= "
      "optimizer";
  for (const char* file :
       {"/ddp_resnet_a100x2_rank0.json.gz", "/ddp_compiled_v100x2_rank1.json.gz"}) {
    const absl::StatusOr<Recorded> recorded = ReadRecorded(SharedTraces() + file);
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    const double measured_ms = JudgeReplay(*recorded).measured_ms;
    EXPECT_NEAR(PeriodMs(*recorded, data_parallel), measured_ms, 0.02 * measured_ms) << file;
  }
}

// Annotations tell forward and backward; without them operators, or the threads alone, have to.
TEST(WhatIfPhasesTest, AreFoundWithoutAnnotations) {
  if (Files()[0] == "none") GTEST_SKIP() << NotThere();
  absl::StatusOr<Recorded> recorded =
      ReadRecorded(SharedTraces() + "/ddp_resnet_a100x2_rank0.json.gz");
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const Graph annotated = recorded->graph;
  Trace& trace = recorded->trace;
  const auto agreeing = [&] {
    const Graph graph = BuildGraph(trace, {recorded->marks.starts_ns});
    double same_ns = 0, all_ns = 0;
    for (size_t i = 0; i < graph.gpu.size(); ++i) {
      if (graph.gpu[i].call == kNone) continue;
      const auto ns = static_cast<double>(graph.gpu[i].duration_ns);
      all_ns += ns;
      const Phase phase = graph.cpu[graph.gpu[i].call].phase;
      if (phase == annotated.cpu[annotated.gpu[i].call].phase) same_ns += ns;
    }
    return same_ns / all_ns;
  };
  std::erase_if(trace.spans, [&](const Span& span) {
    const std::string& name = trace.names[span.name];
    return span.kind == SpanKind::kAnnotation &&
           (absl::StrContains(name, "forward") || absl::StrContains(name, "backward"));
  });
  EXPECT_GE(agreeing(), 0.99);
  for (std::string& thread : trace.threads) thread = "thread";
  EXPECT_GE(agreeing(), 0.99);
  std::erase_if(trace.spans, [](const Span& span) { return span.kind == SpanKind::kOperator; });
  EXPECT_GE(agreeing(), 0.99);
}

}  // namespace
}  // namespace seqpoint::whatif
