// A profiler plugin of the user's, which the injected library calls: it sees what it sees alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/injection/nccl_plugin_fixture.h"

namespace seqpoint {
namespace {

class ChainedPlugin : public NcclPluginTest, public ::testing::WithParamInterface<int> {};

// With and without ours in front.
TEST_P(ChainedPlugin, SeesWhatItSeesAlone) {
  const int version = GetParam();
  const Strings steps = {
      "init_named",  "compute:1000",  "allreduce:1000",   "finalize",    "compute:1000", "group",
      "0=send:1:10", "0=recv:1:20",   "1=recv:0:10",      "1=send:0:20", "end",          "finalize",
      "split:0:0",   "allgather:100", "allreduce:400000", "destroy",     "use:0",        "destroy"};
  struct Case {
    const char* plugin;
    std::map<std::string, std::string> settings;
  };
  std::vector<Case> cases = {
      {NCCL_TEST_PLUGIN, {}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "64"}, {"RECORD_NO_CONTEXT", "1"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "4"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "0"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "512"}, {"RECORD_MASK_AFTER", "4:0"}}},
      {NCCL_TEST_PLUGIN, {{"RECORD_MASK", "32767"}, {"RECORD_MASK_AFTER", "6:2"}}},
      {NCCL_TEST_PLUGIN_V4, {{"RECORD_MASK", "4067"}}}};
  // Versions 2 and 5 have the code of their neighbours.
  if (version == 2 || version == 5) cases.resize(2);
  const std::string settings =
      "nccl.proxy=1,nccl.profiler_version=" + std::to_string(version) + ",";
  // Threads of NCCL and of the program take turns as they like, so handles are numbered again in
  // each thread's order of lines.
  const auto split = [](const Strings& lines) {
    std::pair<std::string, std::string> parts;
    std::map<std::string, std::string> numbers[2];
    static const std::regex handle(
        "^(start|stop|state) (\\d+)( in (\\d+))?(.*?)(group=(\\d+))?( .other thread.)?$");
    for (const std::string& line : lines) {
      const bool other = line.ends_with("(other thread)");
      std::smatch match;
      std::string text = line;
      if (std::regex_match(line, match, handle)) {
        auto& names = numbers[other ? 1 : 0];
        const auto name = [&](const std::string& number) {
          if (number.empty() || number == "0") return number;
          return names.try_emplace(number, std::to_string(names.size() + 1)).first->second;
        };
        std::string rest = std::regex_replace(match[5].str(), std::regex(" at=\\d+"), " at");
        text =
            match[1].str() + " " + name(match[2]) + " in " + name(match[4]) + rest + name(match[7]);
      }
      (other ? parts.second : parts.first) += text + "\n";
    }
    return parts;
  };
  for (const Case& one : cases) {
    std::string name = one.plugin;
    for (const auto& [key, value] : one.settings) name += " " + key + "=" + value;
    SCOPED_TRACE(name);
    Strings alone[2], with[2];
    for (const bool ours : {false, true}) {
      extra_ = one.settings;
      extra_["NCCL_PROFILER_PLUGIN"] = ours ? SEQPOINT_INJECT_LIBRARY : one.plugin;
      if (ours) extra_["SEQPOINT_NCCL_PLUGIN"] = one.plugin;
      ranks_.clear();
      for (int rank = 0; rank < 2; ++rank) {
        std::filesystem::remove(shared_.path() / ("record." + std::to_string(rank)));
      }
      std::filesystem::remove(shared_.path() / "id");
      Run(settings, Control(1, 0), steps);
      ExpectSuccess();
      for (int rank = 0; rank < 2; ++rank) (ours ? with : alone)[rank] = Recorded(rank);
    }
    for (int rank = 0; rank < 2; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      EXPECT_EQ(split(with[rank]).first, split(alone[rank]).first);
      EXPECT_EQ(split(with[rank]).second, split(alone[rank]).second);
      // Ours sees all the same.
      EXPECT_EQ(Arrivals(process(ranks_[static_cast<size_t>(rank)])).size(), 5u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, ChainedPlugin, ::testing::Range(1, 7),
                         [](const ::testing::TestParamInfo<int>& version) {
                           return "V" + std::to_string(version.param);
                         });

// Also where the plugin has no context, and where there is no room for a communicator.
TEST_F(NcclPluginTest, AUsersPluginIsUnloadedWithTheLastCommunicator) {
  extra_["SEQPOINT_NCCL_PLUGIN"] = NCCL_TEST_PLUGIN;
  extra_["RECORD_NO_CONTEXT"] = "1";
  extra_["RECORD_UNLOAD"] = "1";
  Strings steps = {"init"};
  for (int i = 0; i < 257; ++i) steps.insert(steps.end(), {"use:0", "split:0:0"});
  for (int i = 0; i <= 257; ++i) {
    steps.insert(steps.end(), {"use:" + std::to_string(i), "destroy"});
  }
  steps.insert(steps.end(), {"init:again", "allreduce:10", "destroy"});
  Run("", Control(), steps);
  ExpectSuccess();
  for (int rank = 0; rank < 2; ++rank) {
    const Strings lines = Recorded(rank);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "unloaded"), 2);
  }
}

}  // namespace
}  // namespace seqpoint
