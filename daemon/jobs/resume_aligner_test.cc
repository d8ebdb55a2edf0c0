#include "daemon/jobs/resume_aligner.h"

#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

std::vector<KnownLengths> RandomLog(size_t count, int lengths, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<KnownLengths> log;
  for (size_t i = 0; i < count; ++i)
    log.push_back(std::pair<int64_t, int64_t>(random() % lengths, 0));
  return log;
}

// Feeds `next` until it is decided; how many iterations that took.
size_t Feed(ResumeAligner& aligner, const std::vector<KnownLengths>& next) {
  size_t fed = 0;
  while (!aligner.decided() && fed < next.size()) aligner.Add(next[fed++]);
  return fed;
}

TEST(ResumeAlignerTest, FindsTheCheckpoint) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<KnownLengths> all = RandomLog(2000, 60, seed);
    ResumeAligner aligner(0, {all.begin(), all.begin() + 1000});
    const size_t fed = Feed(aligner, {all.begin() + 900, all.end()});
    EXPECT_EQ(aligner.first_number(), 900) << seed;
    EXPECT_LT(fed, 10u) << seed;
  }
}

TEST(ResumeAlignerTest, FindsACheckpointJustBeforeTheEnd) {
  std::vector<KnownLengths> all = RandomLog(2000, 500, 1);
  ResumeAligner aligner(0, {all.begin(), all.begin() + 1000});
  Feed(aligner, {all.begin() + 996, all.end()});
  EXPECT_EQ(aligner.first_number(), 996);
}

TEST(ResumeAlignerTest, AnotherOrderRepeatsNothing) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    ResumeAligner aligner(0, RandomLog(1000, 60, seed));
    Feed(aligner, RandomLog(1000, 60, seed + 1000));
    EXPECT_TRUE(aligner.decided());
    EXPECT_EQ(aligner.first_number(), std::nullopt) << seed;
  }
}

TEST(ResumeAlignerTest, GoesOnAtTheEnd) {
  std::vector<KnownLengths> all = RandomLog(2000, 60, 3);
  ResumeAligner aligner(0, {all.begin(), all.begin() + 1000});
  Feed(aligner, {all.begin() + 1000, all.end()});
  EXPECT_EQ(aligner.first_number(), std::nullopt);
}

TEST(ResumeAlignerTest, KnowsOnlyTheEndOfTheLog) {
  std::vector<KnownLengths> all = RandomLog(2000, 60, 3);
  ResumeAligner aligner(500, {all.begin() + 500, all.begin() + 1000});
  Feed(aligner, {all.begin() + 800, all.end()});
  EXPECT_EQ(aligner.first_number(), 800);
}

TEST(ResumeAlignerTest, FromTheStartAgain) {
  std::vector<KnownLengths> all = RandomLog(1000, 60, 4);
  ResumeAligner aligner(0, all);
  Feed(aligner, all);
  EXPECT_EQ(aligner.first_number(), 0);
}

TEST(ResumeAlignerTest, SameOrderInEachEpochTakesTheLast) {
  const std::vector<KnownLengths> epoch = RandomLog(100, 60, 5);
  std::vector<KnownLengths> log;
  for (int i = 0; i < 5; ++i) log.insert(log.end(), epoch.begin(), epoch.end());
  log.resize(450);
  ResumeAligner aligner(0, log);
  std::vector<KnownLengths> next(epoch.begin() + 20, epoch.end());
  next.insert(next.end(), epoch.begin(), epoch.end());
  Feed(aligner, next);
  EXPECT_EQ(aligner.first_number(), 420);
}

TEST(ResumeAlignerTest, OneLengthTellsNothing) {
  ResumeAligner aligner(0, std::vector<KnownLengths>(1000, std::pair<int64_t, int64_t>(7, 0)));
  EXPECT_TRUE(aligner.decided());
  EXPECT_EQ(aligner.first_number(), std::nullopt);
}

TEST(ResumeAlignerTest, UnknownLengthsAreSkipped) {
  std::vector<KnownLengths> all = RandomLog(2000, 60, 6);
  std::vector<KnownLengths> log(all.begin(), all.begin() + 1000);
  log[903] = std::nullopt;
  std::vector<KnownLengths> next(all.begin() + 900, all.end());
  next[1] = std::nullopt;
  ResumeAligner aligner(0, log);
  Feed(aligner, next);
  EXPECT_EQ(aligner.first_number(), 900);
}

TEST(ResumeAlignerTest, AnEmptyLogRepeatsNothing) {
  ResumeAligner aligner(0, {});
  EXPECT_TRUE(aligner.decided());
  EXPECT_EQ(aligner.first_number(), std::nullopt);
}

}  // namespace
}  // namespace seqpoint::jobs
