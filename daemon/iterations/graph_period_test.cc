#include "daemon/iterations/graph_period.h"

#include <gtest/gtest.h>

#include <random>

namespace seqpoint::iterations {
namespace {

struct Job {
  uint32_t micro_batches = 1;
  int iterations = 200;
  int shapes = 40;
  uint32_t buffers = 1;     // that batches are prefetched into
  int read_back_every = 0;  // 0: never
};

GraphLaunches Launch(const Job& job) {
  std::mt19937 random(7);
  GraphLaunches launches{.from_start = true, .prefetched = job.buffers > 1};
  for (int i = 0; i < job.iterations; ++i) {
    for (uint32_t micro = 0; micro < job.micro_batches; ++micro) {
      const auto number = static_cast<uint32_t>(launches.graphs.size());
      const uint32_t shape = random() % static_cast<uint32_t>(job.shapes);
      const uint32_t kind = (micro == 0) + 2 * (micro + 1 == job.micro_batches);
      launches.graphs.push_back((shape * 4 + kind) * 2 + number % job.buffers);
    }
    if (job.read_back_every > 0 && (i + 1) % job.read_back_every == 0) {
      launches.waits.push_back(static_cast<uint32_t>(launches.graphs.size()));
    }
  }
  return launches;
}

TEST(GraphPeriodTest, FindsMicroBatches) {
  for (uint32_t micro_batches : {1, 2, 3, 4, 5, 8, 16, 32}) {
    const GraphPeriod found = FindGraphPeriod(Launch({.micro_batches = micro_batches}));
    EXPECT_EQ(found.period, micro_batches);
    EXPECT_FALSE(found.unsure) << micro_batches;
    for (uint32_t r = 1; r < found.period; ++r) {
      EXPECT_GT(found.start_scores[0], found.start_scores[r]) << micro_batches << ", " << r;
    }
  }
}

TEST(GraphPeriodTest, TwoBuffersAreNotMicroBatches) {
  for (uint32_t micro_batches : {1, 3, 4, 5, 8, 16, 32}) {
    EXPECT_EQ(FindGraphPeriod(Launch({.micro_batches = micro_batches, .buffers = 2})).period,
              micro_batches);
  }
  // Two micro-batches in two buffers are told by the wait for the loss alone.
  EXPECT_EQ(
      FindGraphPeriod(Launch({.micro_batches = 2, .buffers = 2, .read_back_every = 1})).period, 2u);
}

TEST(GraphPeriodTest, ReadingTheLossNowAndThenIsNoMicroBatch) {
  EXPECT_EQ(FindGraphPeriod(Launch({.read_back_every = 10})).period, 1u);
}

TEST(GraphPeriodTest, FewLaunchesAreNotEnough) {
  for (uint32_t micro_batches : {1, 4, 32}) {
    const GraphPeriod found =
        FindGraphPeriod(Launch({.micro_batches = micro_batches, .iterations = 2, .shapes = 200}));
    EXPECT_EQ(found.period, 1u);
    EXPECT_TRUE(found.unsure) << micro_batches;
  }
}

}  // namespace
}  // namespace seqpoint::iterations
