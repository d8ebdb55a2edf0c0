#include "daemon/queries/run_part.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kJob = 1;

// A run of one length, of which every iteration takes 5 ms, as the store and the engine have it.
class RunPartTest : public ::testing::Test {
 protected:
  RunPartTest() : store_(*Store::Open((folder_.path() / "db").string(), {})) {
    facts_.job_id = kJob;
    facts_.name = "run";
    facts_.dimensions = 1;
    facts_.ranks = {0};
  }

  static IterationRow Row(int32_t rank, int64_t number, int64_t duration_ns, uint32_t flags = 0) {
    return {.job_id = kJob,
            .rank = rank,
            .number = number,
            .length_count = 1,
            .length = {20, 0},
            .duration_ns = duration_ns,
            .flags = flags};
  }
  void Count(int64_t number, int64_t duration_ns) {
    facts_.engine.current().AddIteration({.iteration = static_cast<uint64_t>(number),
                                          .key = {duration_ns > 0 ? 20 : 0, 0},
                                          .time_ns = duration_ns});
  }
  absl::StatusOr<v1::ProjectReply> Ask(int64_t first = 0,
                                       int64_t last = std::numeric_limits<int64_t>::max()) {
    WriteBatch batch;
    batch.iterations = rows_;
    EXPECT_TRUE(store_->Write(batch).ok());
    if (!answers_) answers_.emplace(std::move(facts_));
    return ProjectPart(*answers_, {.first = first, .last = last, .words = "the part"}, 0.95,
                       *store_);
  }

  const TempFolder folder_;
  std::unique_ptr<Store> store_;
  jobs::Answers::Facts facts_;  // until the first question
  std::optional<jobs::Answers> answers_;
  std::vector<IterationRow> rows_;
};

TEST_F(RunPartTest, OfSeveralRanksThePartsAreSumsOfSteps) {
  facts_.ranks = {0, 1};
  for (int64_t i = 0; i < 300; ++i) {
    // The second rank came when the first one had done 50. They take turns in being slow.
    rows_.push_back(Row(0, i, i < 50 ? 5'000'000 : i % 2 == 0 ? 3'000'000 : 7'000'000));
    if (i < 200) {
      rows_.push_back(Row(1, i, i % 2 == 0 ? 7'000'000 : 3'000'000, i < 50 ? kIterationLate : 0u));
    }
    if (i >= 50) rows_.push_back(Row(kStepsRank, i, 5'000'000));
    Count(i, 5'000'000);
  }
  const auto whole = Ask();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->projection().iterations_total(), 300);
  EXPECT_DOUBLE_EQ(whole->projection().total().value(), 300 * 5e6);
  EXPECT_EQ(whole->projection().basis(), "the sum of 300 times");
  const auto part = Ask(40, 249);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->projection().iterations_total(), 210);
  EXPECT_DOUBLE_EQ(part->projection().total().value(), 210 * 5e6);
}

TEST_F(RunPartTest, WhatRanBesideAnotherProcessIsInNoPart) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000));
    IterationRow beside = Row(0, 2 * i, 9'000'000, kIterationBeside);
    beside.incarnation = 1;
    rows_.push_back(beside);
    Count(i, 5'000'000);
  }
  const auto whole = Ask();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->projection().iterations_total(), 100);
  EXPECT_DOUBLE_EQ(whole->projection().total().value(), 100 * 5e6);
}

TEST_F(RunPartTest, IterationsWhoseRecordsWereLostAreNotForgotten) {
  for (int64_t i = 0; i < 100; ++i) {
    if (i < 60 || i >= 70) rows_.push_back(Row(0, i, 5'000'000));
    Count(i, i < 60 || i >= 70 ? 5'000'000 : 0);
  }
  const auto before = Ask(0, 59);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_DOUBLE_EQ(before->projection().total().value(), 60 * 5e6);
  for (const int64_t first : {0, 50, 65}) {
    const auto lossy = Ask(first, 99);
    ASSERT_FALSE(lossy.ok()) << first;
    EXPECT_THAT(std::string(lossy.status().message()), HasSubstr("no usable time"));
  }
}

TEST_F(RunPartTest, WhereIterationsAreUncountedAPartHasNoUpperEnd) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000));
    Count(i, 5'000'000);
  }
  facts_.uncounted = "rank 0: process 7 ended while no daemon read it";
  const auto part = Ask(0, 199);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE(std::isinf(part->projection().total().high()));
  EXPECT_THAT(part->projection().basis(), HasSubstr("process 7 ended while"));
  EXPECT_THAT(part->projection().basis(), HasSubstr("no iteration beyond 99"));
}

TEST_F(RunPartTest, AnIterationOfALengthThatWasNeverTimedMayTakeAnything) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000 + i % 3));
    Count(i, 5'000'000 + i % 3);
  }
  rows_.push_back(Row(0, 100, 0));
  const auto usual = Ask();
  rows_.back().length[0] = 3;
  const auto strange = Ask();
  ASSERT_TRUE(usual.ok() && strange.ok()) << usual.status() << strange.status();
  const auto reach = [](const v1::ProjectReply& reply) {
    return reply.projection().total().high() - reply.projection().total().value();
  };
  EXPECT_LT(reach(*usual), 1e5);
  EXPECT_GT(reach(*strange), 5e6);
}

}  // namespace
}  // namespace seqpoint
