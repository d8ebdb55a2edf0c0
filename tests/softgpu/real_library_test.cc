// The metric catalogue against the real host library, which needs no GPU: names, and passes on
// GH100 of every metric alone and of the sets that docs/internals/software-gpu.md lists. Skipped
// where the library is not installed.

#include <cupti_profiler_host.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "daemon/counters/metric_sets.h"
#include "injection/counters/metric_scope.h"
#include "tests/softgpu/metrics.h"

namespace seqpoint::softgpu {
namespace {

class RealLibrary : public testing::Test {
 protected:
  void SetUp() override {
    // CUPTI opens libnvperf_host.so by its bare name: have it loaded already.
    dlopen(REAL_LIBRARY_DIR "/libnvperf_host.so", RTLD_NOW | RTLD_LOCAL);
    library_ = dlopen(REAL_LIBRARY_DIR "/libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) GTEST_SKIP() << "no libcupti.so.13 in " REAL_LIBRARY_DIR;
  }

  template <typename Params>
  CUptiResult Call(const char* function, Params* params) {
    return reinterpret_cast<CUptiResult (*)(Params*)>(dlsym(library_, function))(params);
  }

  // Passes, or 0 when the library does not know a metric.
  uint32_t Passes(const std::vector<MetricGroup>& groups, const char* chip = "GH100",
                  CUpti_ProfilerType type = CUPTI_PROFILER_TYPE_RANGE_PROFILER) {
    CUpti_Profiler_Host_Initialize_Params init{
        CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE, nullptr, type, chip, nullptr, nullptr};
    EXPECT_EQ(Call("cuptiProfilerHostInitialize", &init), CUPTI_SUCCESS);
    for (const MetricGroup& group : groups) {
      std::vector<const char*> names;
      for (const std::string& name : group) names.push_back(name.c_str());
      CUpti_Profiler_Host_ConfigAddMetrics_Params add{
          CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE, nullptr, init.pHostObject,
          names.data(), names.size()};
      if (Call("cuptiProfilerHostConfigAddMetrics", &add) != CUPTI_SUCCESS) return 0;
    }
    CUpti_Profiler_Host_GetConfigImageSize_Params size{
        CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE, nullptr, init.pHostObject, 0};
    EXPECT_EQ(Call("cuptiProfilerHostGetConfigImageSize", &size), CUPTI_SUCCESS);
    std::vector<uint8_t> image(size.configImageSize);
    CUpti_Profiler_Host_GetConfigImage_Params get{
        CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE, nullptr, init.pHostObject,
        image.size(), image.data()};
    EXPECT_EQ(Call("cuptiProfilerHostGetConfigImage", &get), CUPTI_SUCCESS);
    CUpti_Profiler_Host_GetNumOfPasses_Params passes{
        CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE, nullptr, image.size(), image.data(),
        0};
    EXPECT_EQ(Call("cuptiProfilerHostGetNumOfPasses", &passes), CUPTI_SUCCESS);
    CUpti_Profiler_Host_Deinitialize_Params end{CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE,
                                                nullptr, init.pHostObject};
    Call("cuptiProfilerHostDeinitialize", &end);
    return static_cast<uint32_t>(passes.numOfPasses);
  }

  void* library_ = nullptr;
};

TEST_F(RealLibrary, KnowsEveryMetricOfTheCatalogueInAsManyPasses) {
  for (const BaseMetric* base : BaseMetrics("GH100")) {
    for (const std::string& suffix : Submetrics(base->kind)) {
      if (suffix.substr(0, 4) == ".min" || suffix.substr(0, 4) == ".max") continue;  // as .avg
      std::string name = base->name + suffix;
      EXPECT_EQ(Passes({{name}}), PlanPasses("GH100", {{name}}).passes) << name;
    }
  }
}

TEST_F(RealLibrary, SchedulesTheDocumentedSetsAlike) {
  const MetricGroup a = {"gpu__time_duration.sum",
                         "dram__bytes_read.sum",
                         "dram__bytes_write.sum",
                         "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                         "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
                         "sm__warps_active.avg.pct_of_peak_sustained_active"};
  MetricGroup b = a;
  b.insert(b.end(), {"lts__t_sectors.sum", "sm__inst_executed.sum", "gr__cycles_active.avg"});
  MetricGroup b_and_more = b;
  b_and_more.insert(b_and_more.end(), {"sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum",
                                       "gr__cycles_elapsed.avg.per_second"});
  const std::vector<std::vector<MetricGroup>> sets = {
      {a},
      {b},
      {b_and_more},
      {{"sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
        "sm__ops_path_tensor_src_fp8.sum", "sm__ops_path_tensor_src_fp64.sum"}},
      {{"lts__t_sectors.sum", "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct"}},
      {{"sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"}},
      {{"gpu__time_duration.sum", "lts__t_bytes.sum", "dram__bytes.sum"}},
      {{"nvlrx__bytes.sum", "nvltx__bytes.sum"}},
      {{"dram__bytes_read.sum"}, {"dram__bytes_write.sum"}},  // two calls, two passes
  };
  for (const auto& set : sets) {
    EXPECT_EQ(Passes(set), PlanPasses("GH100", set).passes) << set[0].back();
  }
}

// One metric of each unit beside one of the context, and one of the device: the library refuses
// those of the other scope.
TEST_F(RealLibrary, CountsForTheDeviceWhatTheInjectedLibraryThinks) {
  int of_device = 0;
  for (const char* chip : {"TU102", "GA100", "GH100", "AD102", "GB100"}) {
    const auto open = [&] {
      CUpti_Profiler_Host_Initialize_Params init{CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE,
                                                 nullptr,
                                                 CUPTI_PROFILER_TYPE_RANGE_PROFILER,
                                                 chip,
                                                 nullptr,
                                                 nullptr};
      EXPECT_EQ(Call("cuptiProfilerHostInitialize", &init), CUPTI_SUCCESS);
      return init.pHostObject;
    };
    const auto close = [&](CUpti_Profiler_Host_Object* host) {
      CUpti_Profiler_Host_Deinitialize_Params end{
          CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE, nullptr, host};
      Call("cuptiProfilerHostDeinitialize", &end);
    };
    std::map<std::string, std::string> metric_of_unit;
    CUpti_Profiler_Host_Object* host = open();
    CUpti_Profiler_Host_GetBaseMetrics_Params bases{
        CUpti_Profiler_Host_GetBaseMetrics_Params_STRUCT_SIZE,
        nullptr,
        host,
        CUPTI_METRIC_TYPE_COUNTER,
        nullptr,
        0};
    EXPECT_EQ(Call("cuptiProfilerHostGetBaseMetrics", &bases), CUPTI_SUCCESS);
    for (size_t i = 0; i < bases.numMetrics; ++i) {
      const std::string name = bases.ppMetricNames[i];
      metric_of_unit[name.substr(0, name.find("__"))] = name + ".sum";
    }
    close(host);
    EXPECT_GT(metric_of_unit.size(), 10u);
    metric_of_unit["the time"] = "gpu__time_duration.sum";
    for (const auto& unit : metric_of_unit) {
      const std::string& metric = unit.second;
      const auto refused_beside = [&](const char* other) {
        const char* names[] = {other, metric.c_str()};
        host = open();
        CUpti_Profiler_Host_ConfigAddMetrics_Params add{
            CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE, nullptr, host, names, 2};
        const CUptiResult result = Call("cuptiProfilerHostConfigAddMetrics", &add);
        close(host);
        return result == CUPTI_ERROR_NOT_SUPPORTED;
      };
      const inject::MetricScope scope = inject::ScopeOf(metric.c_str());
      EXPECT_EQ(refused_beside("sm__cycles_active.sum"), scope == inject::MetricScope::kDevice)
          << metric << " on " << chip;
      EXPECT_EQ(refused_beside("pcie__read_bytes.sum"), scope == inject::MetricScope::kContext)
          << metric << " on " << chip;
      of_device += scope == inject::MetricScope::kDevice ? 1 : 0;
    }
  }
  EXPECT_GT(of_device, 10);
}

TEST_F(RealLibrary, ChipsDifferAlike) {
  const MetricGroup throughput = {"sm__throughput.avg.pct_of_peak_sustained_elapsed"};
  for (const char* chip : Chips()) {
    if (std::string(chip) == "GV11B") continue;  // in the real list, but not installed
    EXPECT_EQ(Passes({throughput}, chip), PlanPasses(chip, {throughput}).passes) << chip;
    EXPECT_EQ(Passes({{"dram__bytes_read.sum"}}, chip) > 0,
              FindMetric(chip, "dram__bytes_read.sum") != nullptr)
        << chip;
    EXPECT_EQ(Passes({{"dram__bytes_op_read.sum"}}, chip) > 0,
              FindMetric(chip, "dram__bytes_op_read.sum") != nullptr)
        << chip;
  }
}

TEST_F(RealLibrary, OffersTheSameToPmSampling) {
  for (const BaseMetric* base : BaseMetrics("GH100")) {
    const char* rollup = base->kind == MetricKind::kCounter ? ".sum"
                         : base->kind == MetricKind::kThroughput
                             ? ".avg.pct_of_peak_sustained_elapsed"
                             : Submetrics(base->kind)[0].c_str();
    std::string name = base->name + std::string(rollup);
    if (base->kind == MetricKind::kRatio && name.find("average") != std::string::npos) {
      name = base->name + std::string(".ratio");
    }
    EXPECT_EQ(Passes({{name}}, "GH100", CUPTI_PROFILER_TYPE_PM_SAMPLING), PmPasses(*base)) << name;
  }
  for (const counters::MetricSet& set : counters::MetricSets("GH100", counters::Backend::kPm)) {
    for (const counters::OnePassConfig& config : set.configs) {
      MetricGroup group;
      for (const counters::Metric& metric : config.metrics) group.push_back(metric.name);
      EXPECT_EQ(PlanPmPasses("GH100", {group}), 1u) << set.name;
    }
  }
}

TEST_F(RealLibrary, SchedulesTheShippedMetricSetsAlike) {
  for (const char* chip : {"GH100", "GB203"}) {
    for (const counters::MetricSet& set : counters::MetricSets(chip, counters::Backend::kRange)) {
      // The tensor formats of other chips are not in the catalogue.
      if (set.name == "flops" && std::string_view(chip) != "GH100") continue;
      for (const counters::OnePassConfig& config : set.configs) {
        MetricGroup group;
        for (const counters::Metric& metric : config.metrics) group.push_back(metric.name);
        EXPECT_EQ(PlanPasses(chip, {group}).passes, 1u) << set.name << " on " << chip;
        EXPECT_EQ(Passes({group}, chip), 1u) << set.name << " on " << chip;
      }
    }
  }
  // Each backend's limits split the sets.
  const std::vector<MetricGroup> several = {
      {"lts__t_sectors_lookup_hit.sum", "lts__t_sectors_lookup_miss.sum"},
      {"gpu__time_duration.sum", "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"}};
  for (const MetricGroup& group : several) {
    EXPECT_EQ(Passes({group}), 2u) << group[0];
    EXPECT_EQ(PlanPasses("GH100", {group}).passes, 2u) << group[0];
  }
}

}  // namespace
}  // namespace seqpoint::softgpu
