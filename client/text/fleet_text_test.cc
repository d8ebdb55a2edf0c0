#include "client/text/fleet_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kHour = 3.6e12;  // ns

void Set(double value, v1::Estimate* estimate) {
  estimate->set_value(value);
  estimate->set_low(0.9 * value);
  estimate->set_high(1.1 * value);
}

v1::GetFleetReply Fleet() {
  v1::GetFleetReply fleet;
  v1::FleetJob& job = *fleet.add_jobs();
  job.set_job_id("7");
  job.set_name("bert");
  job.set_run_id("1");
  job.set_ranks(8);
  job.set_message("what unequal lengths cost is not known: lengths are not known");
  Set(20 * kHour, job.mutable_gpu_ns()->mutable_so_far());
  Set(2 * kHour, job.mutable_gpu_ns()->mutable_slow_ranks());
  fleet.mutable_total()->set_jobs(1);
  *fleet.mutable_total()->mutable_gpu_ns() = job.gpu_ns();
  fleet.mutable_total()->set_without_unequal_lengths(1);
  return fleet;
}

TEST(FleetTextTest, LossesHaveIntervalsAndWhatIsNotKnownIsSaid) {
  EXPECT_THAT(FleetText(Fleet(), {}),
              AllOf(HasSubstr("10.0 % (9.00 % to 11.0 %)"),
                    HasSubstr("lost to unequal lengths: -; of 1 job"),
                    HasSubstr("bert@1: what unequal lengths cost is not known")));
  EXPECT_THAT(FleetText(v1::GetFleetReply(), {}), HasSubstr("no jobs"));
}

TEST(FleetTextTest, AChangeSavesTheTimeOfAllRanks) {
  v1::WhatIfReply reply;
  Set(4 * kHour, reply.add_answers()->mutable_before());
  Set(kHour, reply.mutable_answers(0)->mutable_saved());
  EXPECT_THAT(FleetText(Fleet(), {{"7", reply}}),
              AllOf(HasSubstr("25.0 % (22.5 % to 27.5 %)"), HasSubstr("would save 8 h")));
  EXPECT_THAT(FleetText(Fleet(), {{"7", absl::NotFoundError("no iteration was traced")}}),
              AllOf(HasSubstr("bert@1: what the change would save is not known: no iteration"),
                    HasSubstr("of 1 job it is not known")));
}

}  // namespace
}  // namespace seqpoint::client
