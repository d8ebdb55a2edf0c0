#include "daemon/queries/fleet.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::queries {
namespace {

using ::testing::HasSubstr;

constexpr double kHour = 3.6e12;  // ns

v1::Estimate Range(double value, double half) {
  v1::Estimate estimate;
  estimate.set_value(value);
  estimate.set_low(value - half);
  estimate.set_high(value + half);
  return estimate;
}

// Eight ranks for two hours, and one more to come.
v1::Job EightRanks() {
  v1::Job job;
  job.set_name("bert");
  job.set_working_ranks(8);
  job.set_clock_kind(v1::CLOCK_KIND_REAL);
  *job.mutable_time()->mutable_so_far() = Range(2 * kHour, 0);
  *job.mutable_time()->mutable_remaining() = Range(kHour, 0.3 * kHour);
  *job.mutable_rank_losses()->mutable_slow_ranks() = Range(0.1, 0.03);
  job.mutable_rank_losses()->set_message("lengths are not known");
  return job;
}

TEST(FleetTest, TimesAreThoseOfAllRanksAndErrorsAreIndependent) {
  v1::GetFleetReply fleet;
  AddToFleet(EightRanks(), &fleet);
  AddToFleet(EightRanks(), &fleet);
  EXPECT_DOUBLE_EQ(fleet.jobs(0).gpu_ns().so_far().value(), 16 * kHour);
  EXPECT_DOUBLE_EQ(fleet.jobs(0).gpu_ns().slow_ranks().value(), 1.6 * kHour);
  EXPECT_FALSE(fleet.jobs(0).gpu_ns().has_unequal_lengths());
  EXPECT_EQ(fleet.jobs(0).message(), "lengths are not known");
  const v1::FleetTotal& total = fleet.total();
  EXPECT_EQ(total.jobs(), 2);
  EXPECT_EQ(total.without_unequal_lengths(), 2);
  EXPECT_DOUBLE_EQ(total.gpu_ns().so_far().value(), 32 * kHour);
  EXPECT_DOUBLE_EQ(total.gpu_ns().remaining().value(), 16 * kHour);
  EXPECT_NEAR(total.gpu_ns().remaining().high() / kHour, 16 + 2.4 * 1.41421, 0.001);
  EXPECT_NEAR(total.gpu_ns().slow_ranks().low() / kHour, 3.2 - 0.48 * 1.41421, 0.001);
}

TEST(FleetTest, ARankThatIsAloneWaitsForNone) {
  v1::Job job = EightRanks();
  job.set_working_ranks(1);
  job.clear_rank_losses();
  job.set_end_ns(5);
  job.mutable_time()->clear_remaining();
  v1::GetFleetReply fleet;
  AddToFleet(job, &fleet);
  EXPECT_TRUE(fleet.jobs(0).gpu_ns().has_slow_ranks());
  EXPECT_EQ(fleet.total().gpu_ns().slow_ranks().value(), 0);
  EXPECT_EQ(fleet.total().without_slow_ranks(), 0);
  EXPECT_EQ(fleet.total().live_jobs(), 0);
}

TEST(FleetTest, WhatIsNoGpuTimeIsInNoSum) {
  v1::GetFleetReply fleet;
  for (int i = 0; i < 4; ++i) {
    v1::Job job = EightRanks();
    if (i == 0) job.set_imported(true);
    if (i == 1) job.set_time_only("there is no GPU");
    if (i == 2) job.set_clock_kind(v1::CLOCK_KIND_FOREIGN);
    if (i == 3) job.set_working_ranks(0);
    AddToFleet(job, &fleet);
    EXPECT_FALSE(fleet.jobs(i).has_gpu_ns());
  }
  EXPECT_FALSE(fleet.has_total());
  EXPECT_THAT(fleet.jobs(1).message(), HasSubstr("no GPU"));
  EXPECT_THAT(fleet.jobs(3).message(), HasSubstr("same ranks"));
}

}  // namespace
}  // namespace seqpoint::queries
