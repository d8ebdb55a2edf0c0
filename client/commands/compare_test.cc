#include "client/commands/compare.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void Set(double low, double value, double high, v1::Estimate* to) {
  to->set_low(low);
  to->set_value(value);
  to->set_high(high);
}

v1::CompareReply TwoRuns() {
  v1::CompareReply reply;
  reply.set_confidence(0.95);
  reply.mutable_base()->set_name("a@1");
  reply.mutable_base()->set_iterations(1000);
  Set(40e9, 40e9, 40e9, reply.mutable_base()->mutable_duration_ns());
  reply.mutable_other()->set_name("b@1");
  reply.mutable_other()->set_iterations(2000);
  reply.mutable_other()->set_batch(16);
  Set(44e9, 44e9, 44e9, reply.mutable_other()->mutable_duration_ns());
  return reply;
}

TEST(CompareTextTest, WithoutTimesItIsNotKnownAndWhy) {
  v1::CompareReply reply = TwoRuns();
  reply.mutable_base()->clear_duration_ns();
  reply.set_not_known("no iteration of a@1 has a time");
  EXPECT_EQ(CompareText(reply, 0),
            "first:      a@1, 1,000 iterations\n"
            "second:     b@1, 2,000 iterations of batch 16, 44 s\n"
            "difference: not known, because no iteration of a@1 has a time\n");
}

TEST(CompareTextTest, ADifferenceWithinChanceIsNone) {
  v1::CompareReply reply = TwoRuns();
  Set(-1e9, 4e9, 9e9, reply.mutable_difference_ns());
  v1::DifferencePart& part = *reply.add_parts();
  part.set_name("lengths");
  Set(-1e9, 3e9, 7e9, part.mutable_duration_ns());
  EXPECT_THAT(CompareText(reply, 0),
              AllOf(HasSubstr("no difference proven"), HasSubstr("-1 s to +9 s"),
                    HasSubstr("not proven"), Not(HasSubstr("cause:")), Not(HasSubstr("75 %"))));
}

TEST(CompareTextTest, TheCauseHasItsShare) {
  v1::CompareReply reply = TwoRuns();
  Set(3.9e9, 4e9, 4.1e9, reply.mutable_difference_ns());
  v1::DifferencePart& cause = *reply.mutable_main_cause();
  cause.set_cause(v1::DIFFERENCE_CAUSE_BATCH);
  cause.set_name("batch size");
  cause.set_proven(true);
  Set(3.8e9, 3.9e9, 4e9, cause.mutable_duration_ns());
  Set(0.95, 0.975, 1, cause.mutable_share());
  reply.set_not_comparable("one has lengths");
  EXPECT_THAT(
      CompareText(reply, 0),
      AllOf(HasSubstr("difference: b@1 took 4 s (10.00 %) longer\n"),
            HasSubstr("cause:      batch size: +3.900 s, 98 % of the difference (95 % to 100 %)"),
            HasSubstr("note: lengths and cost are not told apart, because one has lengths")));
}

TEST(CompareTextTest, WhatDoublesRoundOffIsNoDifference) {
  v1::CompareReply reply = TwoRuns();
  Set(3.8e-5, 3.8e-5, 3.8e-5, reply.mutable_difference_ns());
  v1::DifferencePart& part = *reply.add_parts();
  part.set_name("lengths");
  part.set_proven(true);
  Set(-7.6e-6, -7.6e-6, -7.6e-6, part.mutable_duration_ns());
  Set(1, 1, 1, part.mutable_share());
  *reply.mutable_main_cause() = part;
  const std::string text = CompareText(reply, 0);
  EXPECT_THAT(text, AllOf(HasSubstr("difference: 0 ns, +0.00 %; no difference proven"),
                          HasSubstr("0 ns  exact"), Not(HasSubstr("0.0000")),
                          Not(HasSubstr("took")), Not(HasSubstr("100"))));
}

TEST(CompareTextTest, ATimeThatIsABoundSaysSo) {
  v1::CompareReply reply = TwoRuns();
  reply.mutable_other()->mutable_duration_ns()->set_high(std::numeric_limits<double>::infinity());
  EXPECT_THAT(CompareText(reply, 0), HasSubstr("2,000 iterations of batch 16, 44 s or more\n"));
}

}  // namespace
}  // namespace seqpoint::client
