#include "daemon/iterations/rule_monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace seqpoint::iterations {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class RuleMonitorTest : public ::testing::Test {
 protected:
  // Trains with 20 lengths, 1 to 2 ms per unit, 3 % noise and slow iterations; true as long as the
  // monitor is content.
  bool Train(int iterations) {
    std::normal_distribution<double> noise(0, 0.03);
    for (int i = 0; i < iterations; ++i) {
      const auto length = static_cast<int64_t>(20 + random_() % 20);
      double duration_ns = 1e6 * slow_ * static_cast<double>(length) * std::exp(noise(random_));
      if (random_() % 100 == 0) duration_ns *= 1.3;
      for (uint32_t micro = 0; micro < candidates_; ++micro) monitor_.OnCandidate(now_ns_);
      now_ns_ += static_cast<uint64_t>(duration_ns);
      abi::StepEvent step{};
      step.api_ns = now_ns_;
      step.length[0] = length;
      step.valid = valid_;
      step.micro_batches = micro_batches_;
      monitor_.OnStep(step);
      if (timed_) monitor_.OnTime(step.length, static_cast<uint64_t>(duration_ns));
      if (Why() != "") return false;
    }
    return true;
  }
  bool Evaluate(int batches) {
    for (int i = 0; i < batches; ++i) {
      now_ns_ += 10'000'000;
      monitor_.OnCandidate(now_ns_);
      if (Why() != "") return false;
    }
    return true;
  }
  std::string Why() { return monitor_.Check(now_ns_).value_or(""); }

  RuleMonitor monitor_{/*micro_batches=*/1, /*length_count=*/1};
  std::mt19937 random_{1};
  uint64_t now_ns_ = kSecond;
  uint32_t micro_batches_ = 1, valid_ = 1, candidates_ = 1;
  double slow_ = 1;
  bool timed_ = true;
};

TEST_F(RuleMonitorTest, OrdinaryTrainingIsContent) {
  EXPECT_TRUE(Train(200));
  EXPECT_TRUE(Evaluate(2000));  // a first evaluation, much longer than training so far
  EXPECT_TRUE(Train(1000));
  now_ns_ += 600 * kSecond;  // a checkpoint
  EXPECT_TRUE(Train(100));
  now_ns_ += 3000 * kSecond;  // a debugger
  EXPECT_EQ(Why(), "");
  EXPECT_TRUE(Train(5000));
}

TEST_F(RuleMonitorTest, LastIterationOfAnEpochMayBeShort) {
  for (int epoch = 0; epoch < 20; ++epoch) {
    EXPECT_TRUE(Train(50));
    micro_batches_ = 3;
    EXPECT_TRUE(Train(1));
    micro_batches_ = 1;
  }
}

TEST_F(RuleMonitorTest, OtherMicroBatches) {
  EXPECT_TRUE(Train(100));
  micro_batches_ = 2;
  EXPECT_FALSE(Train(40));
  EXPECT_NE(Why().find("micro-batches"), std::string::npos) << Why();
}

// As in a stage of a pipeline of which the rule counts fewer micro-batches than of the last stage.
TEST_F(RuleMonitorTest, OtherMicroBatchesAreNoChangeWhileAnotherProcessHasThose) {
  RuleMonitor last(8, 1), first(8, 1);
  const auto run = [&](uint32_t of_last, uint32_t of_first) {
    for (uint64_t i = 0; i < 100; ++i) {
      last.OnStep({.iteration = i, .valid = 1, .micro_batches = of_last});
      first.OnStep({.iteration = i, .valid = 1, .micro_batches = of_first});
    }
    return first.Check(0, last.may_have_micro_batches()).value_or("");
  };
  EXPECT_TRUE(first.may_have_micro_batches()) << "before its first iterations";
  EXPECT_EQ(run(8, 5), "");
  EXPECT_FALSE(first.may_have_micro_batches());
  EXPECT_NE(run(4, 1).find("did not have 8 micro-batches"), std::string::npos);
}

TEST_F(RuleMonitorTest, MicroBatchesThatChangeAllTheTimeAreToldByTheFramework) {
  RuleMonitor told(1, 1, /*told=*/true);
  const auto run = [&](const std::vector<uint32_t>& micro_batches) {
    for (int i = 0; i < 100; ++i) {
      told.OnStep({.iteration = 1,
                   .valid = 1,
                   .micro_batches = micro_batches[static_cast<size_t>(i) % micro_batches.size()]});
    }
    return told.Check(0).value_or("");
  };
  EXPECT_EQ(run({1, 3, 2, 5, 4}), "");
  EXPECT_NE(run({4}).find("did not have 1 micro-batches"), std::string::npos);
}

TEST_F(RuleMonitorTest, MissingLengths) {
  EXPECT_TRUE(Train(100));
  valid_ = 0;
  EXPECT_FALSE(Train(40));
  EXPECT_NE(Why().find("could not be read"), std::string::npos) << Why();
}

TEST_F(RuleMonitorTest, TwoIterationsTakenForOne) {
  EXPECT_TRUE(Train(500));
  slow_ = 2;
  EXPECT_FALSE(Train(200));
  EXPECT_NE(Why().find("two are taken for one"), std::string::npos) << Why();
}

TEST_F(RuleMonitorTest, OneIterationTakenForTwo) {
  EXPECT_TRUE(Train(500));
  slow_ = 0.5;
  EXPECT_FALSE(Train(200));
  EXPECT_NE(Why().find("one is taken for two"), std::string::npos) << Why();
}

TEST_F(RuleMonitorTest, SlowerGpuIsNoFailure) {
  EXPECT_TRUE(Train(500));
  for (const double slow : {1.3, 1.6, 1.2, 0.8, 3.0}) {
    slow_ = slow;
    EXPECT_TRUE(Train(500)) << slow;
  }
}

TEST_F(RuleMonitorTest, WithoutGpuTimesSpeedIsNotJudged) {
  timed_ = false;
  EXPECT_TRUE(Train(500));
  slow_ = 2;
  EXPECT_TRUE(Train(500));
}

TEST_F(RuleMonitorTest, AnotherOptimiserStep) {
  EXPECT_TRUE(Train(100));
  EXPECT_FALSE(Evaluate(20000));
  EXPECT_NE(Why().find("optimiser step has changed"), std::string::npos) << Why();
}

TEST_F(RuleMonitorTest, NothingAnyMore) {
  EXPECT_TRUE(Train(100));
  now_ns_ += 4000 * kSecond;
  EXPECT_NE(Why().find("66 minutes"), std::string::npos) << Why();
}

// Stamps are of a clock that people set; silence is measured by one that nobody sets.
TEST_F(RuleMonitorTest, StampsOfAClockThatIsHoursOffAreNoSilence) {
  for (int i = 0; i < 200; ++i) {
    now_ns_ += kSecond / 100;
    monitor_.OnCandidate(now_ns_);
    abi::StepEvent step = {};
    step.api_ns = now_ns_;
    step.valid = 1;
    step.micro_batches = 1;
    monitor_.OnStep(step);
    EXPECT_EQ(monitor_.Check(now_ns_ + 7200 * kSecond).value_or(""), "");
  }
}

}  // namespace
}  // namespace seqpoint::iterations
