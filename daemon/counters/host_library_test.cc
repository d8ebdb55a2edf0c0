// Asks the real CUPTI host library, which needs no GPU, how many passes each shipped configuration
// takes. Skipped, with the reason, where the library is not there.
#include <cupti_profiler_host.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/counters/metric_sets.h"
#include "gtest/gtest.h"

namespace seqpoint::counters {
namespace {

template <typename Function>
Function* Symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

class HostLibrary : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const std::string& directory : Directories()) {
      // CUPTI opens libnvperf_host.so by its bare name: have it loaded already.
      dlopen((directory + "/libnvperf_host.so").c_str(), RTLD_NOW | RTLD_LOCAL);
      library_ = dlopen((directory + "/libcupti.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) return;
    }
    GTEST_SKIP() << "libcupti.so.13 not found in $CUDA_HOME or /usr/local/cuda";
  }

  static std::vector<std::string> Directories() {
    std::vector<std::string> roots = {"/usr/local/cuda"};
    if (const char* home = std::getenv("CUDA_HOME")) roots.insert(roots.begin(), home);
    std::vector<std::string> directories;
    for (const std::string& root : roots) {
      directories.push_back(root + "/extras/CUPTI/lib64");
      directories.push_back(root + "/lib64");
    }
    return directories;
  }

  // -1 and a test failure when a call fails.
  int Passes(const OnePassConfig& config) {
    CUpti_Profiler_Host_Initialize_Params init = {
        CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE};
    init.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    init.pChipName = GetParam();
    EXPECT_EQ(Symbol<decltype(cuptiProfilerHostInitialize)>(library_,
                                                            "cuptiProfilerHostInitialize")(&init),
              CUPTI_SUCCESS);
    std::vector<const char*> names;
    for (const Metric& metric : config.metrics) names.push_back(metric.name.c_str());
    // All in one call: metrics added by separate calls are scheduled in separate passes.
    CUpti_Profiler_Host_ConfigAddMetrics_Params add = {
        CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE};
    add.pHostObject = init.pHostObject;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    EXPECT_EQ(Symbol<decltype(cuptiProfilerHostConfigAddMetrics)>(
                  library_, "cuptiProfilerHostConfigAddMetrics")(&add),
              CUPTI_SUCCESS);
    CUpti_Profiler_Host_GetConfigImageSize_Params size = {
        CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE};
    size.pHostObject = init.pHostObject;
    EXPECT_EQ(Symbol<decltype(cuptiProfilerHostGetConfigImageSize)>(
                  library_, "cuptiProfilerHostGetConfigImageSize")(&size),
              CUPTI_SUCCESS);
    std::vector<uint8_t> image(size.configImageSize);
    CUpti_Profiler_Host_GetConfigImage_Params get = {
        CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE};
    get.pHostObject = init.pHostObject;
    get.pConfigImage = image.data();
    get.configImageSize = image.size();
    EXPECT_EQ(Symbol<decltype(cuptiProfilerHostGetConfigImage)>(
                  library_, "cuptiProfilerHostGetConfigImage")(&get),
              CUPTI_SUCCESS);
    CUpti_Profiler_Host_GetNumOfPasses_Params passes = {
        CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE};
    passes.pConfigImage = image.data();
    passes.configImageSize = image.size();
    EXPECT_EQ(Symbol<decltype(cuptiProfilerHostGetNumOfPasses)>(
                  library_, "cuptiProfilerHostGetNumOfPasses")(&passes),
              CUPTI_SUCCESS);
    CUpti_Profiler_Host_Deinitialize_Params end = {
        CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE};
    end.pHostObject = init.pHostObject;
    Symbol<decltype(cuptiProfilerHostDeinitialize)>(library_,
                                                    "cuptiProfilerHostDeinitialize")(&end);
    return static_cast<int>(passes.numOfPasses);
  }

  void* library_ = nullptr;
};

TEST_P(HostLibrary, EveryConfigurationIsOnePass) {
  for (const MetricSet& set : MetricSets()) {
    for (const OnePassConfig& config : set.configs) {
      EXPECT_EQ(Passes(config), 1) << set.name << " on " << GetParam();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, HostLibrary, testing::Values("GH100", "GA100"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace seqpoint::counters
