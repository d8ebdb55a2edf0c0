#include "daemon/ranks/rank_recording.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "daemon/whatif/replay.h"
#include "tests/support/rank_windows.h"

namespace seqpoint::ranks {
namespace {

struct Named {
  const char* name;
  Programs programs;
};
std::vector<Named> Jobs() {
  std::vector<Named> jobs = {{"data", Programs(4, DataParallel({}))},
                             {"tensor", Programs(4, TensorParallel({}))},
                             {"pipeline", {}},
                             {"host", Programs(4, DataParallel({.kernel_us = 10, .host_us = 25}))},
                             {"loader", Programs(4, DataParallel({.loader_us = 20'000}))},
                             {"exposed", Programs(4, DataParallel({.link = 10}))}};
  // Hosts that wait for their GPUs wait for each other.
  for (Program& program : jobs[4].programs) program.push_back({Op::kSync});
  for (int r = 0; r < 4; ++r) jobs[2].programs.push_back(Pipeline({}, r, 4, 4));
  jobs.push_back(jobs[0]);
  jobs.back().name = "slow rank";
  jobs.back().programs[2] = DataParallel({.factor = 1.2});
  return jobs;
}

RankJob TestJob(bool events_told = true) {
  RankJob job(4);
  job.clock_us = {0, 1e6, -3e6, 77};
  job.noise = 0.02;
  job.events_told = events_told;
  return job;
}

// The time of an iteration within a run of many.
double SteadyUs(const Programs& programs) {
  RankJob job = TestJob();
  const auto run_us = [&](size_t count) {
    return job.Run(std::vector<Programs>(count, programs)).total_us;
  };
  return (run_us(40) - run_us(20)) / 20;
}

TEST(RankRecordingTest, TheReplayIsTheIterationThatWasRecorded) {
  for (const Named& named : Jobs())
    for (const bool told : {true, false}) {
      const SimulatedRun run = TestJob(told).Run({named.programs});
      const std::vector<RankWindow> windows = run.Windows(0, /*told=*/true);
      const RankRecording recorded = RecordRanks(windows, JoinWindows(windows), 1);
      std::vector<const whatif::Graph*> graphs;
      for (const whatif::Graph& graph : recorded.recording.graphs) graphs.push_back(&graph);
      const whatif::Timeline timeline = whatif::Replay(graphs);
      EXPECT_EQ(timeline.not_run, 0u) << named.name;
      for (size_t r = 0; r < graphs.size(); ++r) {
        for (size_t g = 0; g < graphs[r]->gpu.size(); ++g) {
          const int64_t end_ns = windows[r].trace->works[graphs[r]->gpu[g].work].end_ns;
          ASSERT_NEAR(static_cast<double>(timeline.ranks[r].gpu_end_ns[g] + graphs[r]->begin_ns),
                      static_cast<double>(end_ns), 0.002 * run.total_us * 1000)
              << named.name << told << ", rank " << r << ", "
              << graphs[r]->names[graphs[r]->gpu[g].name];
        }
      }
    }
}

// A window begins with idle GPUs; its repetition is the iteration of a run.
TEST(RankRecordingTest, ARepeatedWindowIsAnIterationOfTheRun) {
  for (const Named& named : Jobs())
    for (const bool told : {true, false}) {
      RankJob job = TestJob(told);
      job.idle_between = true;
      const SimulatedRun run = job.Run(std::vector<Programs>(9, named.programs));
      double sum_us = 0;
      for (size_t i = 1; i < 9; ++i) {
        const std::vector<RankWindow> windows = run.Windows(i);
        const RankRecording recorded = RecordRanks(windows, JoinWindows(windows));
        sum_us += recorded.IterationNs(recorded.recording.graphs) / 1000;
      }
      const double steady_us = SteadyUs(named.programs);
      EXPECT_NEAR(sum_us / 8, steady_us, 0.01 * steady_us) << named.name;
    }
}

}  // namespace
}  // namespace seqpoint::ranks
