// Windows of ranks joined on real traces of several ranks. Those are of one host, whose clock tells
// the truth; the join must find it when each rank has another clock.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/ranks/rank_recording.h"
#include "daemon/ranks/window_join.h"
#include "daemon/ranks/window_times.h"
#include "daemon/whatif/replay.h"
#include "tests/support/shared_traces.h"
#include "tests/support/trace_file.h"

namespace seqpoint::ranks {
namespace {

// Starts that differ by less may be in any order: stamps are whole microseconds.
constexpr int64_t kSameStartNs = 10'000;

std::vector<trace::Trace> ReadRanks() {
  std::vector<trace::Trace> traces;
  for (const char* file : {"rank1.json.gz", "rank6.json.gz"}) {
    absl::StatusOr<trace::Trace> trace =
        ReadTraceFile(SharedTraces() + "/dlrm_v100x8_two_ranks/" + file);
    if (!trace.ok()) return {};
    traces.push_back(*std::move(trace));
  }
  return traces;
}

RankWindow WindowOf(const trace::Trace& trace, int32_t rank) {
  RankWindow window = {rank, 0, {}, &trace, INT64_MAX, INT64_MIN, {}};
  for (const trace::Call& call : trace.calls) {
    window.begin_ns = std::min(window.begin_ns, call.begin_ns);
    window.end_ns = std::max(window.end_ns, call.end_ns);
  }
  return window;
}

TEST(RankTracesTest, TheRankThatStartsLastCameLastWhateverTheClocks) {
  std::vector<trace::Trace> traces = ReadRanks();
  if (traces.empty()) GTEST_SKIP() << "no traces of two ranks in " << SharedTraces();
  for (const int64_t ahead_ns : {int64_t{0}, int64_t{3'141'592'653}}) {
    for (trace::Call& call : traces[1].calls) call.begin_ns += ahead_ns, call.end_ns += ahead_ns;
    for (trace::Work& work : traces[1].works) work.start_ns += ahead_ns, work.end_ns += ahead_ns;
    const std::vector<RankWindow> windows = {WindowOf(traces[0], 1), WindowOf(traces[1], 6)};
    const WindowJoin join = JoinWindows(windows);
    EXPECT_EQ(join.collectives.size(), 8u);
    EXPECT_EQ(join.mismatches, std::vector<std::string>());
    EXPECT_EQ(join.alone, 0u);
    EXPECT_LE(join.spread_ns, 15'000);
    EXPECT_NEAR(static_cast<double>(join.clock_behind_ns[1]), static_cast<double>(-ahead_ns), 5000);
    for (const WindowCollective& collective : join.collectives) {
      int64_t start_ns[2];
      for (size_t i = 0; i < 2; ++i) {
        start_ns[i] = traces[i].works[collective.parts[i].work].start_ns - (i == 1 ? ahead_ns : 0);
      }
      if (std::abs(start_ns[0] - start_ns[1]) < kSameStartNs) continue;
      EXPECT_EQ(collective.last, start_ns[0] > start_ns[1] ? 0u : 1u);
    }
    // Rank 6 came last to every one, so the other one waited.
    const std::vector<RankTime> times = TimesOf(windows, join);
    EXPECT_GT(times[0][Spent::kWaiting], 5e6);
    EXPECT_LT(times[1][Spent::kWaiting], 1e5);
  }
}

// All tasks of both ranks, replayed together: collectives end when they did.
TEST(RankTracesTest, TheJoinedGraphsReplayAsMeasured) {
  const std::vector<trace::Trace> traces = ReadRanks();
  if (traces.empty()) GTEST_SKIP() << "no traces of two ranks in " << SharedTraces();
  const std::vector<RankWindow> windows = {WindowOf(traces[0], 1), WindowOf(traces[1], 6)};
  const RankRecording recorded = RecordRanks(windows, JoinWindows(windows), 1);
  const std::vector<whatif::Graph>& graphs = recorded.recording.graphs;
  const whatif::Timeline timeline = whatif::Replay({&graphs[0], &graphs[1]});
  EXPECT_EQ(timeline.not_run, 0u);
  for (size_t r = 0; r < 2; ++r) {
    const double iteration_ns = recorded.profiles[r].time.iteration_ns;
    for (size_t g = 0; g < graphs[r].gpu.size(); ++g) {
      const whatif::GpuTask& task = graphs[r].gpu[g];
      if (task.collective == whatif::kNone) continue;
      const auto error_ns = static_cast<double>(
          timeline.ranks[r].gpu_end_ns[g] + graphs[r].begin_ns - traces[r].works[task.work].end_ns);
      EXPECT_LE(std::abs(error_ns), 0.005 * iteration_ns);
    }
  }
}

}  // namespace
}  // namespace seqpoint::ranks
