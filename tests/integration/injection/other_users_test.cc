// Programs that use CUPTI themselves, in all of its ways, before and after us, without telling:
// what they get is complete, and a sentence says why they are not profiled.
// docs/internals/injected-library.md has the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using abi::Feature;
using ::testing::HasSubstr;

struct Use {
  const char* name;
  const char* message;
};
constexpr Use kActivity = {"activity", "records CUPTI activities"};
constexpr Use kUses[] = {kActivity,
                         {"callbacks", "watches CUPTI callbacks"},
                         {"clock", "sets CUPTI's clock"},
                         {"range", "uses CUPTI's range profiler"},
                         {"pm", "uses CUPTI's PM sampling"},
                         {"pc", "uses CUPTI's PC sampling"}};

class OtherUsersTest : public InjectTest {
 protected:
  static std::string ToolLine(const std::string& output) {
    const size_t begin = output.find("tool ");
    return begin == std::string::npos ? "" : output.substr(begin, output.find('\n', begin) - begin);
  }
  // All that can be under way when the other user comes: traces of one length, counters of the
  // other.
  void SendEverything(abi::CounterBackend backend) {
    abi::Control control = MarkControl(CopyRule(1));
    control.counter_backend = static_cast<uint8_t>(backend);
    AddConfig(&control, 2, "gpu__time_duration.sum");
    AddEntry(&control, 100, 16, 2, 1000);
    AddEntry(&control, 101, 32, abi::kConfigTrace, 1000);
    daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  }
  // The program gets the same results as without the library.
  void Compare(const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    daemon_.Start();
    profiled_ = RunProgram(arguments, Environment(true));
    daemon_.Stop();
    arguments.push_back("sleep_us=0");
    const ProgramResult alone = RunProgram(arguments, Environment(false));
    EXPECT_EQ(profiled_.exit_status, 0) << profiled_.output;
    EXPECT_EQ(profiled_.Value("digest"), alone.Value("digest")) << profiled_.output;
    ASSERT_THAT(alone.output, HasSubstr("tool 0"));
    EXPECT_EQ(ToolLine(profiled_.output), ToolLine(alone.output));
    ASSERT_EQ(daemon_.process_count(), 1u) << profiled_.output;
  }
  bool Said(const std::string& words) {
    for (const FeatureResult& feature : process().features) {
      if (feature.message.find(words) != std::string::npos) return true;
    }
    return false;
  }

  ProgramResult profiled_;
};

// --- Before us ---

class BeforeTest : public OtherUsersTest,
                   public ::testing::WithParamInterface<std::tuple<Use, const char*>> {};

TEST_P(BeforeTest, WhatItGetsIsComplete) {
  const auto& [use, program] = GetParam();
  Compare(program, {std::string("uses=") + use.name, "from=-1", "iterations=300", "sleep_us=300"});
  EXPECT_TRUE(process().records.empty());
  // Calls that are bound one by one tell the use; otherwise it may have been any.
  const bool bound = program == std::string(SEQPOINT_CUPTI_USER_LAZY);
  if (bound && std::string(use.name) == "callbacks") {
    EXPECT_TRUE(Said("CUPTI is held by"));
  } else {
    EXPECT_THAT(process().Message(Feature::kCallbacks), HasSubstr("standing down for"));
    ASSERT_EQ(process().stand_downs.size(), 1u);
    const bool pm = std::string(use.name) == "pm";
    EXPECT_THAT(process().stand_downs[0].holder,
                HasSubstr(!bound ? "the program, which may use CUPTI itself"
                          : pm   ? use.message
                                 : kActivity.message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BeforeTest,
    // The others need a context.
    ::testing::Combine(::testing::Values(kUses[0], kUses[1], kUses[2], kUses[4]),
                       ::testing::Values(SEQPOINT_CUPTI_USER_LAZY, SEQPOINT_CUPTI_USER_NOW,
                                         SEQPOINT_CUPTI_USER_LOOKUP)),
    [](const auto& info) {
      const std::string program = std::get<1>(info.param);
      return std::string(std::get<0>(info.param).name) + "_" +
             program.substr(program.rfind('_') + 1);
    });

// A program that is linked with CUPTI and does not use it is profiled, where that can be told.
TEST_F(OtherUsersTest, AProgramThatOnlyCouldIsProfiled) {
  Compare(SEQPOINT_CUPTI_USER_LAZY, {"uses=range", "from=250", "iterations=300", "sleep_us=300"});
  EXPECT_GT(process().calls.size(), 100u * 6);
}

// The search for users does not touch pages that the program has made unreadable.
TEST_F(OtherUsersTest, PagesThatNobodyMayReadAreLeftAlone) {
  for (const char* program : {SEQPOINT_CUPTI_USER_LAZY, SEQPOINT_CUPTI_USER_NOW}) {
    SCOPED_TRACE(program);
    const TempFolder directory;
    extra_ = {{"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    daemon.Start();
    const ProgramResult profiled = RunProgram(
        {program, "uses=range", "from=20", "iterations=30", "guard=1"}, Environment(true));
    daemon.Stop();
    EXPECT_EQ(profiled.signal, 0) << profiled.output;
    EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
    EXPECT_EQ(daemon.process_count(), 1u);
  }
}

// The search has an end, and what it did not reach may be anything.
TEST_F(OtherUsersTest, AProgramTooLargeToBeSearchedIsLeftAlone) {
  Compare(SEQPOINT_CUPTI_USER_LAZY,
          {"uses=range", "from=20", "iterations=30", "data_mb=600", "sleep_us=300"});
  EXPECT_TRUE(Said("standing down for a program too large to be searched for uses of CUPTI"));
}

// --- After us ---

class AfterTest : public OtherUsersTest,
                  public ::testing::WithParamInterface<std::tuple<Use, abi::CounterBackend>> {};

TEST_P(AfterTest, WhatItGetsIsComplete) {
  const auto& [use, backend] = GetParam();
  SendEverything(backend);
  Compare(SEQPOINT_CUPTI_USER_LAZY, {std::string("uses=") + use.name, "from=300", "until=500",
                                     "iterations=900", "sleep_us=500"});
  EXPECT_TRUE(Said(std::string("standing down for a tool in this process that ") + use.message));
  EXPECT_GT(process().steps.size(), 150u);  // until it came
  // It has left when it gives its subscription back; other ways have no end that can be told.
  const bool left = std::string(use.name) == "callbacks";
  ASSERT_EQ(process().stand_downs.size(), left ? 2u : 1u);
}

INSTANTIATE_TEST_SUITE_P(All, AfterTest,
                         ::testing::Combine(::testing::ValuesIn(kUses),
                                            ::testing::Values(abi::CounterBackend::kRange,
                                                              abi::CounterBackend::kPm)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == abi::CounterBackend::kPm ? "_samples"
                                                                                       : "_ranges");
                         });

// One that subscribes and records, and one that records and then subscribes for a moment: the end
// of the subscription is not the end of the tool.
TEST_F(OtherUsersTest, ASubscriptionThatEndsLeavesTheRecords) {
  for (const char* uses : {"uses=both", "uses=between"}) {
    for (const char* from : {"from=-1", "from=60"}) {
      SCOPED_TRACE(std::string(uses) + " " + from);
      const TempFolder directory;
      extra_ = {{"SEQPOINT_DIR", directory.path().string()}};
      PuppetDaemon daemon(directory.path().string());
      daemon.Start();
      const std::vector<std::string> arguments = {SEQPOINT_CUPTI_USER_LAZY, uses, from, "until=120",
                                                  "iterations=600"};
      std::vector<std::string> slower = arguments;
      slower.push_back("sleep_us=1000");  // the helper thread has time to come back
      const ProgramResult profiled = RunProgram(slower, Environment(true));
      daemon.Stop();
      EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
      const std::string alone = ToolLine(RunProgram(arguments, Environment(false)).output);
      EXPECT_THAT(alone, HasSubstr("of kind 10"));
      EXPECT_EQ(ToolLine(profiled.output), alone);
      ASSERT_EQ(daemon.process_count(), 1u);
      EXPECT_EQ(daemon.process(0).stand_downs.size(), 1u);
    }
  }
}

// --- In a library ---

// It has looked CUPTI's functions up before us. Whether it used them then cannot be told.
class LibraryToolTest : public OtherUsersTest {
 protected:
  void RunBoth(const std::vector<std::string>& arguments) {
    auto environment = Environment(false);
    environment["LD_PRELOAD"] = SEQPOINT_CUPTI_TOOL;
    const ProgramResult alone = RunProgram(arguments, environment);
    environment = Environment(true);
    environment["LD_PRELOAD"] = SEQPOINT_INJECT_LIBRARY ":" SEQPOINT_CUPTI_TOOL;
    daemon_.Start();
    profiled_ = RunProgram(arguments, environment);
    daemon_.Stop();
    EXPECT_EQ(alone.exit_status, 0) << alone.output;
    EXPECT_EQ(profiled_.exit_status, 0) << profiled_.output;
    EXPECT_EQ(profiled_.signal, 0) << profiled_.output;
    EXPECT_EQ(ToolLine(profiled_.output), ToolLine(alone.output));
    ASSERT_EQ(daemon_.process_count(), 1u);
  }
};

TEST_F(LibraryToolTest, WhatItGetsIsComplete) {
  RunBoth({SEQPOINT_CUPTI_USER_LAZY, "uses=library", "from=100", "iterations=300", "sleep_us=500"});
  EXPECT_THAT(process().Message(Feature::kCallbacks),
              HasSubstr("libcupti_tool.so, which may use CUPTI itself"));
}

TEST_F(LibraryToolTest, WhatItGetsIsCompleteWhereItWasFirst) {
  RunBoth({SEQPOINT_CUPTI_USER_LAZY, "uses=library", "from=-1", "iterations=300", "sleep_us=500"});
  EXPECT_THAT(process().Message(Feature::kCallbacks),
              HasSubstr("libcupti_tool.so, which may use CUPTI itself"));
}

// Nobody can be noticed where pointers cannot be changed: then nothing is recorded.
TEST_F(LibraryToolTest, WhereNobodyCanBeNoticedNothingIsRecorded) {
  extra_ = {{"NO_PROC_MEM", "1"}};
  RunBoth({SEQPOINT_CUPTI_USER_LAZY, "uses=library", "from=100", "iterations=300", "sleep_us=500"});
  EXPECT_THAT(process().Message(Feature::kActivity), HasSubstr("/proc/self/mem"));
  EXPECT_TRUE(process().records.empty());
  EXPECT_GT(process().calls.size(), 300u * 6);
}

TEST_F(OtherUsersTest, WhileCallsAreLearned) {
  for (const Use& use : kUses) {
    SCOPED_TRACE(use.name);
    const TempFolder directory;
    extra_ = {{"SEQPOINT_DIR", directory.path().string()}};
    PuppetDaemon daemon(directory.path().string());
    daemon.Start();
    const std::vector<std::string> arguments = {SEQPOINT_CUPTI_USER_LAZY,
                                                std::string("uses=") + use.name, "from=20",
                                                "until=40", "iterations=60"};
    const ProgramResult profiled = RunProgram(arguments, Environment(true));
    daemon.Stop();
    EXPECT_EQ(ToolLine(profiled.output),
              ToolLine(RunProgram(arguments, Environment(false)).output));
  }
}

}  // namespace
}  // namespace seqpoint
