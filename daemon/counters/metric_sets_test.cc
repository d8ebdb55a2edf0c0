#include "daemon/counters/metric_sets.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

using testing::HasSubstr;

const std::vector<Backend> kBackends = {Backend::kRange, Backend::kPm};

TEST(MetricSets, UnknownNameListsTheKnownOnes) {
  EXPECT_TRUE(FindMetricSet(kDefaultMetricSet, "GH100", Backend::kRange).ok());
  const absl::Status status = FindMetricSet("everything", "GH100", Backend::kRange).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"everything\""));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("utilisation, flops, memory, tensor, cache, links, speed-of-light"));
}

TEST(MetricSets, ConfigIdsAreUniqueAndRatiosHaveTheirParts) {
  std::vector<std::string> chips = KnownChips();
  chips.push_back("XX999");
  for (const std::string& chip : chips) {
    for (const Backend backend : kBackends) {
      std::set<uint16_t> ids;
      for (const MetricSet& set : MetricSets(chip, backend)) {
        EXPECT_TRUE(!set.configs.empty() || !set.missing.empty()) << set.name << chip;
        EXPECT_LE(set.configs.size(), kMaxConfigsOfJob);
        std::set<std::string> names;
        for (const OnePassConfig& config : set.configs) {
          EXPECT_TRUE(ids.insert(config.config_id).second) << set.name << config.config_id;
          EXPECT_GE(config.config_id, 2);  // 0 is none, 1 the kernel trace
          EXPECT_LT(config.config_id, kFirstOwnConfigId);
          size_t bytes = 0;
          for (const Metric& metric : config.metrics) {
            names.insert(metric.name);
            bytes += metric.name.size() + 1;
            EXPECT_TRUE(OwnMetric(metric.name).ok()) << metric.name;
            EXPECT_EQ(*OwnMetric(metric.name), metric) << metric.name;
          }
          EXPECT_LE(bytes, kMaxNameBytes);
        }
        for (const Ratio& ratio : set.ratios) {
          for (const auto* terms : {&ratio.numerator, &ratio.denominator}) {
            for (const Term& term : *terms) {
              EXPECT_TRUE(names.contains(term.metric)) << ratio.name << ": " << term.metric;
            }
          }
        }
      }
    }
  }
}

TEST(MetricSets, OperationsAreWeightedAsNsightComputeDoes) {
  const MetricSet flops = FindMetricSet("flops", "GH100", Backend::kRange).value();
  const auto weight = [&](std::string_view ratio, std::string_view metric) {
    for (const Ratio& one : flops.ratios) {
      for (const Term& term : one.numerator) {
        if (one.name == ratio && term.metric == metric) return term.weight;
      }
    }
    return 0.0;
  };
  const auto of = [](std::string_view operation) {
    return "sm__sass_thread_inst_executed_op_" + std::string(operation) + "_pred_on.sum";
  };
  EXPECT_EQ(weight("FP32 operations, CUDA cores", of("ffma")), 2);
  EXPECT_EQ(weight("FP32 operations, CUDA cores", of("fadd")), 1);
  EXPECT_EQ(weight("FP64 operations, CUDA cores", of("dfma")), 2);
  // An FP16 instruction is one of a packed pair.
  for (const char* ratio : {"FP16 operations, CUDA cores", "floating point operations"}) {
    EXPECT_EQ(weight(ratio, of("hfma")), 4) << ratio;
    EXPECT_EQ(weight(ratio, of("hadd")), 2) << ratio;
    EXPECT_EQ(weight(ratio, of("hmul")), 2) << ratio;
  }
}

TEST(MetricSets, DifferByChipAndBackend) {
  const auto metrics = [](const char* set, const char* chip, Backend backend) {
    std::set<std::string> names;
    const MetricSet found = FindMetricSet(set, chip, backend).value();
    for (const OnePassConfig& config : found.configs) {
      for (const Metric& metric : config.metrics) names.insert(metric.name);
    }
    return names;
  };
  EXPECT_TRUE(metrics("memory", "GH100", Backend::kRange).contains("dram__bytes_read.sum"));
  EXPECT_TRUE(metrics("memory", "GB203", Backend::kRange).contains("dram__bytes_op_read.sum"));
  EXPECT_TRUE(metrics("flops", "GA100", Backend::kPm).empty());
  EXPECT_THAT(FindMetricSet("flops", "GA100", Backend::kPm)->missing, HasSubstr("range backend"));
  EXPECT_THAT(FindMetricSet("links", "GB10B", Backend::kRange)->missing, HasSubstr("no counters"));
  EXPECT_THAT(FindMetricSet("utilisation", "GV100", Backend::kPm)->missing,
              HasSubstr("no PM sampling"));
}

TEST(MetricSets, SeveralTogetherKeepTheirConfigurations) {
  const auto combine = [](const std::vector<std::string>& names) {
    return CombineMetricSets(names, {}, "GH100", Backend::kRange);
  };
  const auto both = combine({"cache", "utilisation", "cache"});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->name, "cache,utilisation");
  ASSERT_EQ(both->configs.size(), 3u);
  EXPECT_EQ(both->configs[2].config_id, 2);
  EXPECT_THAT(std::string(combine({"cache", "everything"}).status().message()),
              HasSubstr("\"everything\""));
  EXPECT_THAT(
      std::string(
          combine({"flops", "speed-of-light", "tensor", "cache", "links"}).status().message()),
      HasSubstr("have 13 configurations"));
}

}  // namespace
}  // namespace seqpoint::counters
