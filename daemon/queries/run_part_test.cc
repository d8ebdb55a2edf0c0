#include "daemon/queries/run_part.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/jobs/job.h"
#include "daemon/queries/compare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::queries {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kJob = 1;

// A run of one length, of which every iteration takes 5 ms, as the store and the engine have it.
class RunPartTest : public ::testing::Test {
 protected:
  RunPartTest() : store_(*Store::Open((folder_.path() / "db").string(), {})) {
    data_.job_id = kJob;
    data_.name = "run";
    data_.dimensions = 1;
    data_.ranks = {0};
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
    data_.engine.current().AddIteration({.iteration = static_cast<uint64_t>(number),
                                         .key = {duration_ns > 0 ? 20 : 0, 0},
                                         .time_ns = duration_ns});
  }
  absl::StatusOr<v1::ProjectReply> Ask(int64_t first = 0,
                                       int64_t last = std::numeric_limits<int64_t>::max()) {
    WriteBatch batch;
    batch.iterations = rows_;
    EXPECT_TRUE(store_->Write(batch).ok());
    if (!snapshot_) snapshot_.emplace(std::move(data_));
    return ProjectPart(*snapshot_, {.first = first, .last = last, .words = "the part"}, 0.95,
                       *store_);
  }

  const TempFolder folder_;
  std::unique_ptr<Store> store_;
  jobs::SnapshotData data_;  // until the first question
  std::optional<jobs::Snapshot> snapshot_;
  std::vector<IterationRow> rows_;
};

TEST_F(RunPartTest, OfSeveralRanksThePartsAreSumsOfSteps) {
  data_.ranks = {0, 1};
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
  EXPECT_EQ(whole->projection().iterations_so_far(), 300);
  EXPECT_EQ(whole->projection().horizon_kind(), v1::Horizon::KIND_UNKNOWN);  // a part has none
  EXPECT_DOUBLE_EQ(whole->projection().total().value(), 300 * 5e6);
  EXPECT_EQ(whole->projection().basis(), "the sum of 300 times");
  const auto part = Ask(40, 249);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->projection().iterations_total(), 210);
  EXPECT_DOUBLE_EQ(part->projection().total().value(), 210 * 5e6);
}

TEST_F(RunPartTest, AStepWithoutATimeTakesWhatStepsTake) {
  data_.ranks = {0, 1};
  data_.work.emplace();
  for (int64_t i = 0; i < 300; ++i) {
    for (int32_t rank : {0, 1, kStepsRank}) {
      rows_.push_back(Row(rank, i, 5'000'000, i % 10 == 0 ? kIterationDistorted : 0u));
    }
    Count(i, 5'000'000);
    data_.work->current().AddIteration(
        {.iteration = static_cast<uint64_t>(i), .key = {20, 0}, .time_ns = 4'000'000});
  }
  const auto whole = Ask();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_NEAR(whole->projection().total().value(), 300 * 5e6, 1e6);
}

TEST_F(RunPartTest, WhatRanBesideAnotherProcessIsInNoPart) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000));
    IterationRow concurrent = Row(0, 2 * i, 9'000'000, kIterationConcurrent);
    concurrent.incarnation = 1;
    rows_.push_back(concurrent);
    Count(i, 5'000'000);
  }
  const auto whole = Ask();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->projection().iterations_total(), 100);
  EXPECT_DOUBLE_EQ(whole->projection().total().value(), 100 * 5e6);
}

// Iterations 60 to 69 of 100 are lost.
TEST_F(RunPartTest, IterationsWhoseRecordsWereLostCountWithWhatAsManyTake) {
  double truth = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t duration_ns = 4'000'000 + 100'000 * (i * 7 % 20);
    truth += static_cast<double>(duration_ns);
    if (i < 60 || i >= 70) rows_.push_back(Row(0, i, duration_ns));
    Count(i, i < 60 || i >= 70 ? duration_ns : 0);
  }
  const auto before = Ask(0, 59);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->projection().total().low(), before->projection().total().high());
  const auto lossy = Ask();
  ASSERT_TRUE(lossy.ok()) << lossy.status();
  const v1::Estimate& total = lossy->projection().total();
  EXPECT_EQ(lossy->projection().iterations_total(), 100);
  EXPECT_LE(total.low(), truth);
  EXPECT_GE(total.high(), truth);
  EXPECT_LT(total.high() - total.low(), 0.1 * truth);
  EXPECT_THAT(lossy->projection().basis(),
              HasSubstr("10 iterations with neither a time nor a length count"));
}

TEST_F(RunPartTest, ManySingleLostIterationsAreAsFewLongRowsOfThem) {
  double truth = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t duration_ns = 4'000'000 + 100'000 * (i * 7 % 20);
    truth += static_cast<double>(duration_ns);
    if (i % 3 != 1) rows_.push_back(Row(0, i, duration_ns));
    Count(i, i % 3 != 1 ? duration_ns : 0);
  }
  const auto lossy = Ask();
  ASSERT_TRUE(lossy.ok()) << lossy.status();
  EXPECT_THAT(lossy->projection().basis(), HasSubstr("100 iterations with neither"));
  const v1::Estimate& total = lossy->projection().total();
  EXPECT_LE(total.low(), truth);
  EXPECT_GE(total.high(), truth);
  EXPECT_LT(total.high() - total.low(), 0.05 * truth);
}

TEST_F(RunPartTest, WhereTimesRunTogetherLostIterationsMayAllBeLong) {
  double truth = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t duration_ns = 1'000'000 * (i + 1);  // sorted lengths
    truth += static_cast<double>(duration_ns);
    if (i < 85 || i >= 95) rows_.push_back(Row(0, i, duration_ns));
    Count(i, i < 85 || i >= 95 ? duration_ns : 0);
  }
  const auto lossy = Ask();
  ASSERT_TRUE(lossy.ok()) << lossy.status();
  EXPECT_GE(lossy->projection().total().high(), truth);
}

TEST_F(RunPartTest, WhereMostRecordsWereLostTheTimeIsNotKnown) {
  for (int64_t i = 0; i < 100; ++i) {
    if (i < 10 || i >= 70) rows_.push_back(Row(0, i, 5'000'000));
    Count(i, i < 10 || i >= 70 ? 5'000'000 : 0);
  }
  const auto lossy = Ask();
  ASSERT_FALSE(lossy.ok());
  EXPECT_THAT(std::string(lossy.status().message()),
              HasSubstr("60 of them have neither a time nor a length"));
}

TEST_F(RunPartTest, NoPartReachesWhereIterationsMayBeMissing) {
  v1::Part part;
  part.set_from(20);
  EXPECT_TRUE(CountedRangeOf(part, data_).ok());
  data_.uncounted = "rank 0: process 7 lost 24 calls";
  data_.counted_to = 60;
  EXPECT_FALSE(CountedRangeOf(part, data_).ok()) << "to its end";
  part.set_to(60);
  const absl::Status beyond = CountedRangeOf(part, data_).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(beyond.message()),
              AllOf(HasSubstr("process 7 lost 24 calls"), HasSubstr("--to 59")));
  part.set_to(59);
  EXPECT_TRUE(CountedRangeOf(part, data_).ok());
  data_.overcounted = "rank 0: some iterations may be evaluation";
  data_.counted_to = 0;
  EXPECT_THAT(std::string(CountedRangeOf(part, data_).status().message()),
              AllOf(HasSubstr("may be evaluation"), Not(HasSubstr("--to"))));
}

TEST_F(RunPartTest, RunsWithUncountedIterationsAreNotComparedBeyondThem) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000 + i % 3));
    Count(i, 5'000'000 + i % 3);
  }
  WriteBatch batch;
  batch.iterations = rows_;
  for (IterationRow& row : rows_) {
    row.job_id = kJob + 1;
    batch.iterations.push_back(row);
  }
  ASSERT_TRUE(store_->Write(batch).ok());
  jobs::SnapshotData lossy;
  lossy.job_id = kJob + 1;
  lossy.name = "lossy";
  lossy.dimensions = 1;
  lossy.ranks = {0};
  lossy.uncounted = "rank 0: process 7 lost 24 calls";
  lossy.counted_to = 60;
  lossy.engine = data_.engine.Copy();
  const jobs::Snapshot base(std::move(data_)), other(std::move(lossy));
  v1::CompareRequest request;
  request.set_confidence(0.95);
  const auto whole = Compare(base, other, request, *store_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(whole->not_known(), AllOf(HasSubstr("lost 24 calls"), HasSubstr("--to 59")));
  request.mutable_part()->set_from(0);
  EXPECT_FALSE(Compare(base, other, request, *store_).ok());
  request.mutable_part()->set_to(80);
  EXPECT_FALSE(Compare(base, other, request, *store_).ok());
  request.mutable_part()->set_to(59);
  const auto part = Compare(base, other, request, *store_);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->other().iterations(), 60);
}

// What a log or a trace was recorded with is not known, and of most it is a machine.
TEST_F(RunPartTest, TimesOfASoftwareGpuAreComparedWithTheirLikeAlone) {
  const auto why = [&](v1::ClockKind base, v1::ClockKind other) {
    jobs::SnapshotData facts[2];
    for (jobs::SnapshotData& of : facts) {
      const bool is_base = &of == facts;
      of.job_id = is_base ? kJob : kJob + 1;
      of.name = is_base ? "base" : "other";
      of.ranks = {0};
      of.dimensions = 1;
      of.clock_kind = is_base ? base : other;
      of.imported = of.clock_kind == v1::CLOCK_KIND_UNSPECIFIED;
    }
    const auto reply = Compare(jobs::Snapshot(std::move(facts[0])),
                               jobs::Snapshot(std::move(facts[1])), {}, *store_);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->not_known() : "";
  };
  EXPECT_THAT(
      why(v1::CLOCK_KIND_FOREIGN, v1::CLOCK_KIND_REAL),
      AllOf(HasSubstr("those of base@ are a software GPU's"), HasSubstr("other@ are real")));
  EXPECT_THAT(why(v1::CLOCK_KIND_UNSPECIFIED, v1::CLOCK_KIND_FOREIGN),
              AllOf(HasSubstr("whether the times are of one clock is not known"),
                    HasSubstr("those of other@ are a software GPU's"),
                    HasSubstr("what base@ was made of does not say"), Not(HasSubstr("real"))));
  EXPECT_THAT(why(v1::CLOCK_KIND_UNSPECIFIED, v1::CLOCK_KIND_REAL), Not(HasSubstr("clock")));
}

TEST_F(RunPartTest, OfImportedTracesTheTimesAreUsable) {
  data_.imported = true;
  for (int64_t i = 0; i < 32; ++i) {
    rows_.push_back(Row(0, i, 5'000'000));
    rows_.back().config_id = jobs::kKernelTimeSet;
    Count(i, 5'000'000);
  }
  const auto part = Ask(0, 9);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->projection().total().value(), 10 * 5e6);
  EXPECT_EQ(part->projection().total().high(), 10 * 5e6);
}

TEST_F(RunPartTest, AnEndThatIsNotKnownIsInTheInterval) {
  for (int64_t i = 0; i < 100; ++i) {
    rows_.push_back(Row(0, i, 5'000'000));
    Count(i, 5'000'000);
  }
  rows_.back().duration_ns = 3'000'000;
  rows_.back().rest_ns = 9'000'000;
  const auto whole = Ask();
  ASSERT_TRUE(whole.ok()) << whole.status();
  const v1::Estimate& total = whole->projection().total();
  EXPECT_DOUBLE_EQ(total.value(), 99 * 5e6 + 3e6);
  EXPECT_DOUBLE_EQ(total.low(), total.value());
  EXPECT_DOUBLE_EQ(total.high(), total.value() + 9e6);
  EXPECT_THAT(whole->projection().basis(), HasSubstr("the last one's end is not known"));
  const auto before = Ask(0, 98);
  EXPECT_EQ(before->projection().total().high(), before->projection().total().value());
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
}  // namespace seqpoint::queries
