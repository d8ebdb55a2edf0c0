#include "daemon/counters/metric_sets.h"

#include <set>

#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

TEST(MetricSets, UnknownNameListsTheKnownOnes) {
  EXPECT_TRUE(FindMetricSet(kDefaultMetricSet).ok());
  const absl::Status status = FindMetricSet("everything").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("\"everything\""), std::string::npos);
  EXPECT_NE(status.message().find("utilisation"), std::string::npos);
}

TEST(MetricSets, ConfigIdsAreUniqueAndRatiosHaveTheirParts) {
  std::set<uint16_t> ids;
  for (const MetricSet& set : MetricSets()) {
    std::set<std::string> names;
    for (const OnePassConfig& config : set.configs) {
      EXPECT_TRUE(ids.insert(config.config_id).second) << config.config_id;
      EXPECT_GE(config.config_id, 2);  // 0 is none, 1 the kernel trace
      for (const Metric& metric : config.metrics) names.insert(metric.name);
    }
    for (const Ratio& ratio : set.ratios) {
      EXPECT_TRUE(names.contains(ratio.numerator)) << ratio.name;
      EXPECT_TRUE(names.contains(ratio.denominator)) << ratio.name;
    }
  }
}

TEST(MetricSets, SeveralTogetherKeepTheirConfigurations) {
  const auto both = CombineMetricSets({"cache", "utilisation", "cache"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->name, "cache,utilisation");
  ASSERT_EQ(both->configs.size(), 2u);
  EXPECT_EQ(both->configs[0].config_id, (*FindMetricSet("cache"))->configs[0].config_id);
  const absl::Status status = CombineMetricSets({"cache", "everything"}).status();
  EXPECT_NE(status.message().find("\"everything\""), std::string::npos);
}

}  // namespace
}  // namespace seqpoint::counters
