#include "client/commands/analyze.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void Set(v1::Estimate* e, double value, double share) {
  e->set_value(value);
  e->set_low(value * (1 - share));
  e->set_high(value * (1 + share));
}

class AnalysisTextTest : public ::testing::Test {
 protected:
  AnalysisTextTest() {
    options_.log.path = "steps.csv";
    analysis_.log.key_columns = {"length"};
    analysis_.log.time_column = "time_ms";
    analysis_.log.time_unit_ns = 1e6;
    v1::AnalyzeReply& reply = analysis_.reply;
    reply.set_iterations(5'000);
    reply.set_unique_lengths(73);
    reply.set_total(200e9);
    reply.set_verdict(v1::VERDICT_EXPLAINED);
    reply.set_explained_share(0.987);
    reply.set_confidence(0.95);
    AddPoint(12, 3'000.25, 1, 30e6);
    AddPoint(1'037, 1'999.75, 3, 55e6);
    Set(reply.mutable_projection(), 200e9, 0.0042);
    Set(reply.mutable_random(), 200e9, 0.08);
    reply.set_random_measurements(4);
    reply.add_paper_points();
    reply.set_paper_error(0.0031);
  }

  void AddPoint(int64_t length, double weight, int measurements, double time) {
    v1::AnalyzedPoint& point = *analysis_.reply.add_points();
    point.add_lengths(length);
    point.set_weight(weight);
    point.set_measurements(measurements);
    point.set_expected(time);
    point.set_noise(0.02 * time);
  }
  std::string Text() const { return AnalysisText(analysis_, options_); }

  Analysis analysis_;
  AnalyzeOptions options_;
};

TEST_F(AnalysisTextTest, PointsAndWhatTheyTell) {
  EXPECT_EQ(Text(),
            R"(steps.csv: 5,000 iterations of 73 lengths (length), 3 min 20.0 s in all
length:     explains 98.7 % of the variance of time

2 SeqPoints, 4 measurements: the total to +-0.42 % (95 % interval), 1/1,250 of the iterations
LENGTH  MEASURE  ITERATIONS   SHARE   TIME   NOISE
    12       1x      3000.2  60.0 %  30 ms  2.00 %
 1,037       3x      1999.8  40.0 %  55 ms  2.00 %
as many iterations at random: +-8 %; the paper's rule would choose 1 length
)");
}

TEST_F(AnalysisTextTest, PrecisionBeyondTheValueAndOfNothing) {
  v1::Estimate& random = *analysis_.reply.mutable_random();
  random.set_low(0);
  random.set_high(3.5 * random.value());
  Set(analysis_.reply.mutable_projection(), 200e9, 1e-16);
  EXPECT_THAT(Text(), AllOf(HasSubstr("at random: +-250 %;"), HasSubstr("total to +-0 % (")));
}

TEST_F(AnalysisTextTest, TheShareOfTheIterationsIsSaidHoweverManyAreMeasured) {
  for (const auto& [iterations, share] :
       {std::pair(9, "1/2 of the iterations\n"), std::pair(6, "66.7 % of the iterations\n"),
        std::pair(4, "interval), all iterations\n")}) {
    analysis_.reply.set_iterations(iterations);
    EXPECT_THAT(Text(), HasSubstr(share));
  }
}

TEST_F(AnalysisTextTest, ATimeColumnWithoutAUnitHasNone) {
  analysis_.log.time_column = "took";
  analysis_.log.time_unit_ns = 0;
  analysis_.reply.set_total(12'500);
  analysis_.reply.set_start_up_iterations(1);
  analysis_.reply.set_start_up_duration(8.25);
  EXPECT_THAT(Text(), AllOf(HasSubstr("(length), 12.50 k took in all"),
                            HasSubstr("1 first iteration left out, which took 8.250\n"),
                            Not(HasSubstr(" ns")), Not(HasSubstr(" s "))));
}

TEST_F(AnalysisTextTest, StartUpMessagesAndTwoDimensions) {
  analysis_.log.key_columns = {"src", "dst"};
  analysis_.reply.mutable_points(0)->add_lengths(9);
  analysis_.reply.mutable_points(1)->add_lengths(8);
  analysis_.reply.set_start_up_iterations(2);
  analysis_.reply.set_start_up_duration(3e9);
  analysis_.reply.add_messages("something that a person should know");
  EXPECT_THAT(Text(), AllOf(HasSubstr("73 lengths (src x dst)"), HasSubstr("1,037 x 8"),
                            HasSubstr("start-up:   2 first iterations left out, which took 3 s"),
                            HasSubstr("note:       something that a person should know\n")));
}

TEST_F(AnalysisTextTest, WithoutPointsOnlyTheMessageSpeaks) {
  analysis_.reply.clear_points();
  analysis_.reply.clear_projection();
  analysis_.reply.set_verdict(v1::VERDICT_NOT_EXPLAINED);
  analysis_.reply.add_messages("the length does not explain the time");
  EXPECT_THAT(Text(),
              AllOf(HasSubstr("note:       the length does not"), Not(HasSubstr("SeqPoint")),
                    Not(HasSubstr("explains")), Not(HasSubstr("at random"))));
}

TEST_F(AnalysisTextTest, Speedup) {
  EXPECT_THAT(Text(), Not(HasSubstr("speedup")));
  options_.against = "new.csv";
  v1::AnalyzeReply& reply = analysis_.reply;
  reply.set_against_iterations(4'000);
  reply.set_against_total(100e9);
  reply.set_speedup_means(1.61803);
  Set(reply.mutable_speedup(), 1.5, 0.01);
  Set(reply.mutable_speedup_all(), 1.5123, 0.0004);
  EXPECT_THAT(Text(), ::testing::EndsWith(R"(
new.csv: 4,000 iterations, 100 s
speedup:    1.500 x (1.485 to 1.515) from the SeqPoints alone
            1.51230 x (1.51170 to 1.51290) from all iterations, at equal lengths
            1.618 x is the quotient of the mean times, whatever their lengths
)"));
  reply.set_against_unknown_lengths(3);
  EXPECT_THAT(Text(), HasSubstr("3 lengths not in the other log: taken to change as the nearest"));
  // Without SeqPoints there is no figure of theirs, but still a heading.
  reply.clear_speedup();
  EXPECT_THAT(Text(), AllOf(HasSubstr("speedup:    1.51230 x"), Not(HasSubstr("alone"))));
}

TEST_F(AnalysisTextTest, AnExactSpeedupHasDigitsToo) {
  options_.against = "new.csv";
  Set(analysis_.reply.mutable_speedup_all(), 2, 0);
  EXPECT_THAT(Text(), HasSubstr("2.0000 x (2.0000 to 2.0000) from all"));
}

TEST_F(AnalysisTextTest, AnotherRun) {
  options_.horizon.set_source("lengths.csv, 3 epochs");
  analysis_.reply.set_horizon_iterations(12'000);
  Set(analysis_.reply.mutable_horizon_projection(), 480e9, 0.005);
  EXPECT_THAT(
      Text(),
      HasSubstr("\nlengths.csv, 3 epochs: 12,000 iterations, 8 min 0.0 s (7 min 57.6 s to "));
  options_.horizon.clear_source();
  EXPECT_THAT(Text(), HasSubstr("\nanother run: 12,000 iterations, "));
}

}  // namespace
}  // namespace seqpoint::client
