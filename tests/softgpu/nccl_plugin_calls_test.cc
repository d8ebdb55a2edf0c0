// Which calls the software NCCL makes of a profiler plugin: releases and versions of the interface,
// masks, errors, how a plugin is found.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/softgpu/nccl_ranks.h"

namespace seqpoint::softgpu {
namespace {

class Plugin : public testing::TestWithParam<int> {};

// The events that a release tells a plugin of all versions, of one lone call and one group.
TEST_P(Plugin, SeesTheEventsOfTheReleaseInTheirOrder) {
  const int version = GetParam();
  const std::string release = "nccl.profiler_version=" + std::to_string(version) + ",";
  // The plugin's events of the first call, its kernel included.
  static constexpr int kLines[] = {5, 5, 7, 8, 16, 16};
  Ranks ranks(
      2, kQuiet + release + "nccl.gpu_timer_offset_ns=5,",
      {"init_named", "allreduce:1000", "sync", "lines:" + std::to_string(kLines[version - 1]),
       "group", "0=send:1:10", "0=recv:1:20", "1=recv:0:10", "1=send:0:20", "end", "destroy"},
      {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN}});
  ranks.Finish();
  const std::vector<Truth> truth = ranks.TruthOf(0);
  const auto at = [](uint64_t ns) { return " at=" + std::to_string(ns + 5); };
  const std::string v = std::to_string(version);
  Strings expected;
  if (version <= 2) {
    const std::string type = version == 1 ? "7" : "ncclFloat32";
    const std::string traffic = " traffic=8000";
    expected = {
        "init version " + v,
        "start 1 in 0, communicator 1, rank 0: group",
        "start 2 in 1, communicator 1, rank 0: collective " +
            std::string(version == 1 ? "4" : "AllReduce") + " sequence=0 count=1000 root=0 type=" +
            type + " algorithm=" + (version == 1 ? "1" : "RING") +
            " protocol=" + (version == 1 ? "0" : "LL") + " channels=1" + traffic +
            (version == 1 ? " operation=0" : "") + " name=world hashed",
        "stop 2",
        "stop 1",
        "start 3 in 0, communicator 1, rank 0: group",
        "start 4 in 3, communicator 1, rank 0: transfer " +
            std::string(version == 1 ? "6" : "Send") + " count=10 peer=1 type=" + type +
            " name=world hashed",
        "start 5 in 3, communicator 1, rank 0: transfer " +
            std::string(version == 1 ? "7" : "Recv") + " count=20 peer=1 type=" + type +
            " name=world hashed",
        "stop 4",
        "stop 5",
        "stop 3",
        "finalize 1",
    };
  } else if (version <= 4) {
    const std::string named = version == 3 ? " name=world hashed" : "";
    const std::string channels = version == 3 ? "" : " channels=1";
    expected = {
        "init version " + v +
            (version == 4 ? " communicator world hashed nodes=1 ranks=2 rank=0 logger" : ""),
        "start 1 in 0, communicator 1, rank 0: group",
        "start 2 in 1, communicator 1, rank 0: collective AllReduce sequence=0 count=1000 root=0 "
        "type=ncclFloat32 algorithm=RING protocol=LL channels=1" +
            named,
        "stop 2",
        "stop 1",
        "start 3 in 2, communicator 1, rank 0: kernel_channel 0" +
            (version == 4 ? at(truth[0].arrival_ns) : "") + " (other thread)",
        version == 4 ? "state 3 22" + at(truth[0].end_ns) + " (other thread)" : "",
        "stop 3 (other thread)",
        "start 4 in 0, communicator 1, rank 0: group",
        "start 5 in 4, communicator 1, rank 0: transfer Send count=10 peer=1 type=ncclFloat32" +
            channels + named,
        "start 6 in 4, communicator 1, rank 0: transfer Recv count=20 peer=1 type=ncclFloat32" +
            channels + named,
        "stop 5",
        "stop 6",
        "stop 4",
    };
  } else {
    expected = {
        "init version " + v + " communicator world hashed nodes=1 ranks=2 rank=0 logger",
        "start 1 in 0, communicator 1, rank 0: group_api depth=1 captured=0",
        "state 1 23 without",
        "start 2 in 1, communicator 1, rank 0: collective_api AllReduce count=1000 "
        "type=ncclFloat32 stream captured=0 root=0",
        "stop 2",
        "state 1 24 without",
        "start 3 in 1, communicator 1, rank 0: launch stream",
        "stop 3",
        "start 4 in 0, communicator 1, rank 0: group",
        "start 5 in 2, communicator 1, rank 0: collective AllReduce sequence=0 count=1000 root=0 "
        "type=ncclFloat32 algorithm=RING protocol=LL channels=1 group=4",
        "stop 5",
        "stop 4",
        "stop 1",
        "start 6 in 5, communicator 1, rank 0: kernel_channel 0" + at(truth[0].arrival_ns) +
            " (other thread)",
        "state 6 22" + at(truth[0].end_ns) + " (other thread)",
        "stop 6 (other thread)",
        "start 7 in 0, communicator 1, rank 0: group_api depth=2 captured=0",
        "state 7 23 without",
        "start 8 in 7, communicator 1, rank 0: transfer_api Send count=10 type=ncclFloat32 stream "
        "captured=0",
        "stop 8",
        "start 9 in 7, communicator 1, rank 0: transfer_api Recv count=20 type=ncclFloat32 stream "
        "captured=0",
        "stop 9",
        "state 7 24 without",
        "start 10 in 7, communicator 1, rank 0: launch stream",
        "stop 10",
        "start 11 in 0, communicator 1, rank 0: group",
        "start 12 in 8, communicator 1, rank 0: transfer Send count=10 peer=1 type=ncclFloat32 "
        "channels=1 group=11",
        "start 13 in 9, communicator 1, rank 0: transfer Recv count=20 peer=1 type=ncclFloat32 "
        "channels=1 group=11",
        "stop 12",
        "stop 13",
        "stop 11",
        "stop 7",
    };
  }
  std::erase(expected, "");
  Strings seen = ranks.Recorded(0);
  if (version >= 3) {
    // The second kernel's channels come while the communicator ends.
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back(), "finalize 1");
    seen.pop_back();
    ASSERT_GE(seen.size(), expected.size());
    const Strings rest(seen.begin() + static_cast<ptrdiff_t>(expected.size()), seen.end());
    seen.resize(expected.size());
    EXPECT_EQ(rest.size(), version == 3 ? 4u : 6u);
    for (const std::string& line : rest) EXPECT_TRUE(line.ends_with("(other thread)")) << line;
  }
  EXPECT_EQ(seen, expected);
}

INSTANTIATE_TEST_SUITE_P(Versions, Plugin, testing::Range(1, 7),
                         [](const testing::TestParamInfo<int>& version) {
                           return "V" + std::to_string(version.param);
                         });

TEST(NcclPlugin, AnOlderOneGetsWhatItKnows) {
  // A plugin that has version 4 only, in the newest release.
  Ranks ranks(2, kQuiet, {"init_named", "allreduce:1000", "destroy"},
              {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN_V4}, {"RECORD_MASK", "4067"}});
  ranks.Finish();
  EXPECT_EQ(
      ranks.Recorded(0),
      (Strings{"init version 4 communicator world hashed nodes=1 ranks=2 rank=0 logger",
               "start 1 in 0, communicator 1, rank 0: group",
               "start 2 in 1, communicator 1, rank 0: collective AllReduce sequence=0 "
               "count=1000 root=0 type=ncclFloat32 algorithm=RING protocol=LL channels=1",
               "stop 2", "stop 1",
               "start 3 in 2, communicator 1, rank 0: kernel_channel 0 at=" +
                   std::to_string(ranks.TruthOf(0)[0].arrival_ns) + " (other thread)",
               "state 3 22 at=" + std::to_string(ranks.TruthOf(0)[0].end_ns) + " (other thread)",
               "stop 3 (other thread)", "finalize 1"}));
}

TEST(NcclPlugin, EveryChannelStartsBeforeOneStops) {
  Ranks ranks(2, kQuiet, {"init", "allreduce:300000", "sync", "destroy"},
              {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN}, {"RECORD_MASK", "64"}});
  ranks.Finish();
  // 1.2 MB on 9 channels. The plugin's events of group, call and collective come first.
  const Truth truth = ranks.TruthOf(1).at(0);
  Strings expected, told;
  for (int channel = 0; channel < 9; ++channel) {
    expected.push_back("start " + std::to_string(5 + channel) +
                       " in 4, communicator 1, rank 0: kernel_channel " + std::to_string(channel) +
                       " at=" + std::to_string(truth.arrival_ns) + " (other thread)");
  }
  for (int channel = 0; channel < 9; ++channel) {
    const std::string handle = std::to_string(5 + channel);
    expected.push_back("state " + handle + " 22 at=" + std::to_string(truth.end_ns) +
                       " (other thread)");
    expected.push_back("stop " + handle + " (other thread)");
  }
  for (const std::string& line : ranks.Recorded(1)) {
    if (line.ends_with("(other thread)")) told.push_back(line);
  }
  EXPECT_EQ(told, expected);
}

TEST(NcclPlugin, TheMaskIsLookedAtInEachCall) {
  // Only collectives; nothing more from the second started event on.
  Ranks ranks(2, kQuiet, {"init", "allreduce:10", "allreduce:10", "allreduce:10", "destroy"},
              {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN},
               {"RECORD_MASK", "512"},
               {"RECORD_MASK_AFTER", "4:0"}});
  ranks.Finish();
  const Strings seen = ranks.Recorded(0);
  EXPECT_EQ(Only(seen, "start").size(), 4u) << "group and collective API, twice";
  EXPECT_EQ(seen.back(), "finalize 1");
  // NCCL stops the API event of the last call that had one once more (nccl 2.30, profiler.cc).
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "stop 4"), 2);
}

TEST(NcclPlugin, AnErrorOfInitDisablesIt) {
  for (int version : {4, 6}) {
    Ranks ranks(2, std::string(kQuiet) + "nccl.profiler_version=" + std::to_string(version) + ",",
                {"init", "allreduce:10", "sync", "destroy"},
                {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN}, {"RECORD_INIT_RESULT", "3"}});
    ranks.Finish();
    EXPECT_EQ(ranks.Recorded(0), Strings{"init of version " + std::to_string(version) + " fails"});
  }
}

TEST(NcclPlugin, EveryCommunicatorHasAContext) {
  Ranks ranks(2, kQuiet, {"init", "split:0", "allreduce:10", "destroy", "use:0", "destroy"},
              {{"NCCL_PROFILER_PLUGIN", NCCL_TEST_PLUGIN}, {"RECORD_MASK", "2"}});
  ranks.Finish();
  const Strings seen = ranks.Recorded(1);
  EXPECT_EQ(Only(seen, "init").size(), 2u);
  EXPECT_EQ(Only(seen, "finalize"), (Strings{"finalize 2", "finalize 1"}));
  for (const std::string& line : Only(seen, "start")) {
    EXPECT_NE(line.find("communicator 2, rank"), std::string::npos) << line;
  }
}

TEST(NcclPlugin, IsFoundByItsNameAndProxyEventsByASetting) {
  const std::string folder = std::filesystem::path(NCCL_TEST_PLUGIN).parent_path();
  Ranks ranks(
      2, std::string(kQuiet) + "nccl.proxy=1,", {"init", "allreduce:10", "destroy"},
      {{"NCCL_PROFILER_PLUGIN", "recorder"}, {"LD_LIBRARY_PATH", folder}, {"RECORD_MASK", "26"}});
  ranks.Finish();
  Strings kinds;
  for (const std::string& line : Only(ranks.Recorded(0), "start")) {
    kinds.push_back(line.substr(line.rfind(": ") + 2));
  }
  kinds.erase(
      std::remove_if(kinds.begin(), kinds.end(),
                     [](const std::string& kind) { return kind.find("_api") != kind.npos; }),
      kinds.end());
  ASSERT_EQ(kinds.size(), 6u);
  EXPECT_EQ(kinds[0], "group");
  EXPECT_TRUE(kinds[1].starts_with("collective"));
  EXPECT_EQ(kinds[2], "proxy_op send (other thread)");
  EXPECT_EQ(kinds[3], "proxy_step 0 (other thread)");
  EXPECT_EQ(kinds[4], "proxy_op receive (other thread)");
  EXPECT_EQ(kinds[5], "proxy_step 0 (other thread)");
}

}  // namespace
}  // namespace seqpoint::softgpu
