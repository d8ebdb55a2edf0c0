#include "daemon/jobs/program_ends.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

TEST(ProgramEnds, WhatIsToldOfAProgramStandsAboveWhatItsProcessesSaid) {
  ProgramEnds ends;
  EXPECT_EQ(ends.Judge({{.launch = "a"}}).state, v1::JOB_STATE_ENDED);
  EXPECT_EQ(ends.Judge({{.launch = "a", .lost = true}}).state, v1::JOB_STATE_LOST);
  EXPECT_EQ(ends.Judge({{.launch = "a", .failed = true}}).state, v1::JOB_STATE_FAILED);
  EXPECT_FALSE(ends.Judge({{.launch = "a", .failed = true}}).program.has_value());
  EXPECT_TRUE(ends.Add({.launch = "a"}));
  EXPECT_FALSE(ends.Add({.launch = "a", .exit_status = 1}));
  EXPECT_EQ(ends.Judge({{.launch = "a", .lost = true}}).state, v1::JOB_STATE_ENDED);
  EXPECT_EQ(ends.Judge({{.launch = "a", .failed = true}}).program->exit_status, 0);
  EXPECT_EQ(ends.Judge({{.launch = "a"}, {.launch = "b", .lost = true}}).state, v1::JOB_STATE_LOST);
}

TEST(ProgramEnds, AProgramThatFailsIsTheOneThatIsNamed) {
  ProgramEnds ends;
  ends.Add({.launch = "good"});
  ends.Add({.launch = "bad", .exit_status = 3});
  ends.Add({.launch = "crashed", .signal = SIGSEGV});
  ends.Add({.launch = "stopped", .signal = SIGINT});
  const JobEnd bad = ends.Judge({{.launch = "good"}, {.launch = "bad"}});
  EXPECT_EQ(bad.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(EndText(*bad.program), "exit status 3");
  const JobEnd crashed = ends.Judge({{.launch = "crashed", .lost = true}});
  EXPECT_EQ(crashed.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(EndText(*crashed.program), "signal 11 (Segmentation fault)");
  EXPECT_EQ(ends.Judge({{.launch = "stopped", .lost = true}}).state, v1::JOB_STATE_LOST);
}

TEST(ProgramEnds, ARestartForgetsNothing) {
  ProgramEnds ends;
  ends.Add({.launch = "a", .exit_status = 3});
  ends.Add({.launch = "b", .signal = SIGABRT});
  JobState state;
  ends.Save(&state);
  ProgramEnds restored;
  restored.Restore(state);
  EXPECT_EQ(restored.Find("a")->exit_status, 3);
  EXPECT_EQ(restored.latest()->signal, SIGABRT);
  EXPECT_FALSE(restored.Add({.launch = "b"}));
}

}  // namespace
}  // namespace seqpoint::jobs
