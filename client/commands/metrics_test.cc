#include "client/commands/metrics.h"
#include "absl/strings/str_cat.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Written(const std::string& text) {
  // Tests run beside each other.
  const std::string path =
      absl::StrCat(testing::TempDir(), "/metrics_test_", static_cast<int>(getpid()), "_own.txt");
  std::ofstream(path) << text;
  return path;
}

TEST(MetricsTest, ListsSetsWithTheirPasses) {
  const auto text = DescribeMetrics({.chip = "GH100"}, /*json=*/false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("utilisation     1 pass      1 pass"),
                           HasSubstr("flops           5 x 1 pass  -"), HasSubstr("speed-of-light"),
                           HasSubstr("GA100")));
}

TEST(MetricsTest, OneSetHasMetricsUnitsAndWhatItLacks) {
  const auto text = DescribeMetrics({.set = "cache", .chip = "GA100"}, /*json=*/false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("range on GA100: 2 x 1 pass"),
                           HasSubstr("lts__t_sectors_lookup_hit.sum (sectors)"),
                           HasSubstr("L2 hits (%):\n      100 * lts__t_sectors_lookup_hit.sum / "
                                     "(lts__t_sectors_lookup_hit.sum +"),
                           HasSubstr("pm on GA100: 1 pass; without L2 hits")));
  EXPECT_THAT(std::string(DescribeMetrics({.set = "x", .chip = "GA100"}, false).status().message()),
              HasSubstr("no metric set \"x\"; there are: utilisation"));
}

TEST(MetricsTest, JsonHasTheSame) {
  const auto text = DescribeMetrics({.set = "links", .chip = "GB10B"}, /*json=*/true);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("\"chip\": \"GB10B\""), HasSubstr("offers no counters"),
                           Not(HasSubstr("nvlrx"))));
}

TEST(MetricsTest, ChipsAreTakenInSmallLetters) {
  EXPECT_EQ(DescribeMetrics({.chip = "gh100"}, false), DescribeMetrics({.chip = "GH100"}, false));
}

TEST(MetricsTest, OwnSetsComeFirstAndTheirPassesAreAsked) {
  const std::string path = Written(
      "[mine]\nsentence = what I want\nconfig = gpu__time_duration.sum, "
      "lts__t_sectors_lookup_hit.sum, lts__t_sectors_lookup_miss.sum\n");
  const auto text = DescribeMetrics({.set = "mine", .chip = "GH100", .file = path}, false);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("mine: what I want\n"));
  // With CUPTI's host library its count, else the reason why there is none.
  EXPECT_THAT(*text, testing::AnyOf(HasSubstr("2 passes: one iteration gives one, split"),
                                    HasSubstr("libcupti.so.13 was not found"),
                                    HasSubstr("no CUPTI headers")));
  // The list of all sets says it, too.
  const auto list = DescribeMetrics({.chip = "GH100", .file = path}, false);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(*list, HasSubstr("! mine, configuration 1, range: "));
}

TEST(MetricsTest, AFileThatCannotBeUsedSaysWhy) {
  const auto why = [](const std::string& path) {
    return std::string(ReadMetricFile(path).status().message());
  };
  EXPECT_THAT(why("/nowhere/own.txt"), HasSubstr("\"/nowhere/own.txt\" cannot be read"));
  EXPECT_THAT(why("/dev/zero"), HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(why("/tmp"), HasSubstr("\"/tmp\" cannot be read"));
  EXPECT_THAT(why(Written("[a]\nconfig = x\n")), HasSubstr("own.txt:2: metric \"x\""));
}

TEST(MetricsTest, OwnSetsCrossAsTheyAre) {
  const auto sets = ReadMetricFile(
      Written("[a]\nsentence = s\nconfig = x.sum, y.sum\nratio = r (%): 100 * x.sum / y.sum\n"));
  ASSERT_TRUE(sets.ok()) << sets.status();
  const v1::MetricSet set = ToProto((*sets)[0]);
  EXPECT_EQ(set.name(), "a");
  EXPECT_EQ(set.configurations(0).metrics(1), "y.sum");
  EXPECT_EQ(set.ratios(0).numerator(0).weight(), 100);
  EXPECT_EQ(set.ratios(0).denominator(0).metric(), "y.sum");
}

}  // namespace
}  // namespace seqpoint::client
