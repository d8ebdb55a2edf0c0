#include "client/commands/options.h"

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Options, AConfidenceIsAPercentageOrAShare) {
  for (const char* text : {"95", "95%", "95 %", " 95 % ", "0.95", "95.0"}) {
    std::string value = text;
    EXPECT_EQ(Confidence()(value), "") << text;
    double share = 0;
    EXPECT_TRUE(absl::SimpleAtod(value, &share));
    EXPECT_DOUBLE_EQ(share, 0.95) << text;
  }
  for (const char* text : {"0", "1", "100", "100%", "-95", "95 95", "%", "", "nan", "inf", "x"}) {
    std::string value = text;
    EXPECT_THAT(Confidence()(value), HasSubstr("such as 95, 95% or 0.95")) << text;
  }
}

TEST(Options, APercentSignThatStandsAloneBelongsToItsNumber) {
  std::vector<std::string> arguments = {"project", "a", "--confidence", "95", "%", "--json"};
  JoinPercent(&arguments);
  EXPECT_THAT(arguments, ElementsAre("project", "a", "--confidence", "95%", "--json"));
  arguments = {"run", "awk", "5", "%"};
  JoinPercent(&arguments);
  EXPECT_THAT(arguments, ElementsAre("run", "awk", "5", "%"));
}

}  // namespace
}  // namespace seqpoint::client
