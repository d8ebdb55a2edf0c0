#include "client/commands/metrics.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using testing::AllOf;
using testing::HasSubstr;

v1::ListMetricSetsReply Sets() {
  v1::ListMetricSetsReply reply;
  reply.set_chip("GA100");
  reply.add_known_chips("GA100");
  v1::OfferedMetricSet& set = *reply.add_sets();
  set.set_name("cache");
  set.set_description("L2 hits");
  v1::MetricSetOffer& range = *set.add_offers();
  range.set_backend(v1::COUNTER_BACKEND_RANGE);
  for (const int passes : {1, 2}) {
    v1::OfferedConfiguration& config = *range.add_configurations();
    config.set_passes(passes);
    config.set_problem(passes == 2 ? "2 passes: split" : "");
    v1::OfferedMetric& metric = *config.add_metrics();
    metric.set_name("hit.sum");
    metric.set_unit("sectors");
  }
  v1::MetricRatio& ratio = *range.add_ratios();
  ratio.set_name("L2 hits");
  ratio.set_unit("%");
  ratio.add_numerator()->set_metric("hit.sum");
  ratio.mutable_numerator(0)->set_weight(100);
  for (const char* metric : {"hit.sum", "miss.sum"}) {
    v1::MetricTerm& term = *ratio.add_denominator();
    term.set_metric(metric);
    term.set_weight(1);
  }
  v1::MetricSetOffer& pm = *set.add_offers();
  pm.set_backend(v1::COUNTER_BACKEND_PM);
  pm.set_missing("without L2 hits");
  return reply;
}

TEST(MetricsTest, ListsSetsWithTheirPasses) {
  EXPECT_THAT(MetricSetsText(Sets()),
              AllOf(HasSubstr("cache  1 + 2  -   L2 hits\n"),
                    HasSubstr("! cache, configuration 2, range: 2 passes: split\n"),
                    HasSubstr("on GA100 (--chip: GA100 and their families)")));
}

TEST(MetricsTest, OneSetHasMetricsUnitsAndWhatItLacks) {
  EXPECT_THAT(MetricSetText(Sets().sets(0), "GA100"),
              AllOf(HasSubstr("range on GA100: 1 + 2\n  configuration 1: 1 pass\n"),
                    HasSubstr("    hit.sum (sectors)\n"),
                    HasSubstr("L2 hits (%):\n      100 * hit.sum / (hit.sum + miss.sum)"),
                    HasSubstr("pm on GA100: -; without L2 hits\n")));
}

TEST(MetricsTest, AFileThatCannotBeUsedSaysWhy) {
  const TempFolder folder;
  const auto why = [](const std::string& path) {
    return std::string(ReadMetricFile(path).status().message());
  };
  EXPECT_THAT(why("/nowhere/own.txt"), HasSubstr("\"/nowhere/own.txt\" cannot be read"));
  EXPECT_THAT(why("/dev/zero"), HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(why("/tmp"), HasSubstr("\"/tmp\" cannot be read"));
  const std::string path = folder.path() / "own.txt";
  std::ofstream(path) << "[a]\n";
  const auto file = ReadMetricFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->text(), "[a]\n");
  EXPECT_EQ(file->name(), path);
}

}  // namespace
}  // namespace seqpoint::client
