#include "daemon/jobs/program_ends.h"

#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/process_table.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

ProgramEndState End(const std::string& launch, int exit_status = 0, int signal = 0) {
  ProgramEndState end;
  end.set_launch(launch);
  end.set_exit_status(exit_status);
  end.set_signal(signal);
  return end;
}

// The last process of a rank.
struct LastProcess {
  std::string launch;
  bool lost = false;
  bool failed = false;
};

JobEnd Judge(const ProgramEnds& ends, const std::vector<LastProcess>& last) {
  ProcessTable processes;
  for (const LastProcess& each : last) {
    const auto rank = static_cast<int32_t>(processes.size());
    auto process =
        std::make_unique<Process>(ProcessRow{.process_id = rank + 1,
                                             .rank = rank,
                                             .text = absl::StrCat("launch=", each.launch, "\n"),
                                             .end_ns = 1,
                                             .lost = each.lost});
    process->state.set_ended_well(!each.lost && !each.failed);
    process->state.set_iterations(1);
    processes.Add(std::move(process));
  }
  return ends.EndOf(processes);
}

TEST(ProgramEnds, WhatIsToldOfAProgramStandsAboveWhatItsProcessesSaid) {
  ProgramEnds ends;
  EXPECT_EQ(Judge(ends, {{.launch = "a"}}).state, v1::JOB_STATE_ENDED);
  EXPECT_EQ(Judge(ends, {{.launch = "a", .lost = true}}).state, v1::JOB_STATE_LOST);
  EXPECT_EQ(Judge(ends, {{.launch = "a", .failed = true}}).state, v1::JOB_STATE_FAILED);
  EXPECT_FALSE(Judge(ends, {{.launch = "a", .failed = true}}).program.has_value());
  EXPECT_TRUE(ends.Add(End("a")));
  EXPECT_FALSE(ends.Add(End("a", 1)));
  EXPECT_EQ(Judge(ends, {{.launch = "a", .lost = true}}).state, v1::JOB_STATE_ENDED);
  EXPECT_EQ(Judge(ends, {{.launch = "a", .failed = true}}).program->exit_status(), 0);
  EXPECT_EQ(Judge(ends, {{.launch = "a"}, {.launch = "b", .lost = true}}).state,
            v1::JOB_STATE_LOST);
}

TEST(ProgramEnds, AProgramThatFailsIsTheOneThatIsNamed) {
  ProgramEnds ends;
  ends.Add(End("bad", 3));
  ends.Add(End("good"));
  const JobEnd bad = Judge(ends, {{.launch = "good"}, {.launch = "bad"}});
  EXPECT_EQ(bad.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(EndText(*bad.program), "exit status 3");
  ends.Add(End("crashed", 0, SIGSEGV));
  const JobEnd crashed = Judge(ends, {{.launch = "crashed", .lost = true}});
  EXPECT_EQ(crashed.state, v1::JOB_STATE_FAILED);
  EXPECT_EQ(EndText(*crashed.program), "signal 11 (Segmentation fault)");
  ends.Add(End("stopped", 0, SIGINT));
  EXPECT_EQ(Judge(ends, {{.launch = "stopped", .lost = true}}).state, v1::JOB_STATE_LOST);
  // A launcher answers Ctrl-C with a status of its own.
  ends.Add(End("launcher", 1, SIGINT));
  EXPECT_EQ(Judge(ends, {{.launch = "launcher", .failed = true}}).state, v1::JOB_STATE_LOST);
}

TEST(ProgramEnds, AProgramOfWhichNoProcessTrainedEndsTheJob) {
  ProgramEnds ends;
  ends.Add(End("a", 3));
  EXPECT_EQ(Judge(ends, {}).state, v1::JOB_STATE_FAILED);
}

TEST(ProgramEnds, ARestartForgetsNothing) {
  ProgramEnds ends;
  ends.Add(End("a", 3));
  ends.Add(End("b", 0, SIGABRT));
  ProgramEnds restored;
  restored.Load(ends.list());
  EXPECT_EQ(restored.Find("a")->exit_status(), 3);
  EXPECT_EQ(restored.Find("b")->signal(), SIGABRT);
  EXPECT_FALSE(restored.Add(End("b")));
}

}  // namespace
}  // namespace seqpoint::jobs
