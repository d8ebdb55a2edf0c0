#include "client/text/figures_text.h"
#include "client/text/job_text.h"
#include "client/text/projection_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(IterationsTextTest, SaysWhatIsInNoFigureAndWhatWasLost) {
  v1::ListIterationsReply reply;
  for (const int number : {5, 6, 6, 9}) {
    v1::Iteration& iteration = *reply.add_iterations();
    iteration.set_number(number);
    iteration.set_duration_ns(1'000'000);
    iteration.set_beside(reply.iterations_size() == 3);
    iteration.set_rest_ns(reply.iterations_size() == 4 ? 30'000'000 : 0);
  }
  const std::string all = IterationsText(reply.iterations(), /*all=*/true);
  EXPECT_THAT(all, ContainsRegex("\n +6 +0 .*ran beside another process, in no figure\n"));
  EXPECT_THAT(all, ContainsRegex("\n +9 +0 .*its end is not known: up to 30 ms more, the records "
                                 "of 2 before it were lost\n"));
  EXPECT_THAT(IterationsText(reply.iterations(), /*all=*/false), Not(HasSubstr("lost")));
}

TEST(ProjectionTextTest, APartHasOneTotal) {
  v1::Projection projection;
  projection.set_unit("ns");
  projection.set_iterations_so_far(10);
  projection.set_iterations_total(10);
  for (v1::Estimate* estimate : {projection.mutable_total(), projection.mutable_so_far()}) {
    estimate->set_value(5e6);
    estimate->set_low(5e6);
    estimate->set_high(5e6);
  }
  const std::string text = ProjectionText(projection, {}, "iterations 0 to 9");
  EXPECT_THAT(text,
              AllOf(HasSubstr("iterations 0 to 9 (10 iterations)"), Not(HasSubstr("so far"))));
}

TEST(TextTest, APhaseWhoseTimeIsNotKnownTakesNotZero) {
  v1::Job job;
  v1::PhaseSummary& phase = *job.add_phases();
  phase.set_name("evaluation");
  phase.set_iterations(12);
  EXPECT_THAT(ApartText(job),
              HasSubstr("evaluation or rollouts of 12 batches, whose time is not known"));
  phase.set_duration_ns(30'000'000);
  EXPECT_THAT(ApartText(job), HasSubstr("evaluation or rollouts 30 ms;"));
}

}  // namespace
}  // namespace seqpoint::client
