#include "daemon/placement/split_json.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Forward operators 1 and 2, their backward operators 11 and 12, and 13 without a forward one.
Problem Training() {
  Problem problem;
  problem.accelerators = 2;
  problem.cpus = 1;
  problem.memory_bytes = 100;
  problem.operators = {{.id = 1, .accelerator_time = 1, .color = 1},
                       {.id = 2, .accelerator_time = 2, .color = 2},
                       {.id = 11, .backward = true, .accelerator_time = 1, .color = 1},
                       {.id = 12, .backward = true, .accelerator_time = 1, .color = 2},
                       {.id = 13, .backward = true, .accelerator_time = 1, .color = 3}};
  return problem;
}

std::string SplitError(const std::string& text) {
  const auto placement = ReadSplit(text, "split.json", Training());
  return placement.ok() ? "" : std::string(placement.status().message());
}

TEST(ReadSplitTest, BackwardOperatorsFollowTheirColor) {
  const auto placement = ReadSplit(
      R"({"fpgas": [{"load": -1, "nodes": [1]}, {"nodes": [2]}], "cpus": []})", "f", Training());
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_THAT(*placement, ElementsAre(0, 1, 0, 1, -1));
}

TEST(ReadSplitTest, AnExtraListIsNoFaultWhileItIsEmpty) {
  EXPECT_EQ(SplitError(R"({"fpgas": [], "cpus": [{"nodes": [1, 2]}, {"nodes": []}]})"), "");
  EXPECT_THAT(SplitError(R"({"fpgas": [], "cpus": [{"nodes": [1]}, {"nodes": [2]}]})"),
              HasSubstr("\"cpus\" uses 2 devices; there are 1"));
}

TEST(ReadSplitTest, NamesWhatIsWrong) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is no JSON"},
           {"3", "is no JSON object"},
           {"{}", R"(there is no field "fpgas")"},
           {R"({"fpgas": 1, "cpus": []})", R"("fpgas" is no list)"},
           {R"({"fpgas": [1], "cpus": []})", R"(entry 1 of "fpgas" has no list "nodes")"},
           {R"({"fpgas": [{"nodes": ["a"]}], "cpus": []})", R"("nodes" has "a", which is no id)"},
           {R"({"fpgas": [{"nodes": [99]}], "cpus": []})", "operator 99 is not in the problem"},
           {R"({"fpgas": [{"nodes": [1]}], "cpus": [{"nodes": [1]}]})",
            "operator 1 is there twice"},
       }) {
    EXPECT_THAT(SplitError(text), HasSubstr(message)) << text;
    EXPECT_THAT(SplitError(text), HasSubstr("split.json: "));
  }
}

TEST(WriteSplitTest, ReadsBackTheSame) {
  const Problem problem = Training();
  const Placement placement = {1, 2, 1, 2, 0};
  const std::string text = WriteSplit(problem, placement, Judge(problem, placement));
  EXPECT_THAT(text, HasSubstr("\"maxLoad\": 2"));
  const auto read = ReadSplit(text, "f", problem);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, placement);
}

}  // namespace
}  // namespace seqpoint::placement
