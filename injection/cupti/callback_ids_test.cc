#include "injection/cupti/callback_ids.h"

#include <cupti.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace seqpoint::inject {
namespace {

TEST(CallbackIdsTest, FindsEachWatchedCallByItsNumber) {
  std::set<uint32_t> seen;
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    const WatchedCall& call = kWatchedCalls[i];
    EXPECT_TRUE(seen.insert(call.cbid).second) << call.name;
    EXPECT_EQ(FindWatchedCall(call.cbid), &call) << call.name;
  }
  EXPECT_EQ(FindWatchedCall(CUPTI_DRIVER_TRACE_CBID_cuStreamQuery), nullptr);
  EXPECT_EQ(FindWatchedCall(UINT32_MAX), nullptr);
}

// Every launch, copy, memset, graph launch and synchronisation of the driver is in the table, or is
// known to be of no use to training.
TEST(CallbackIdsTest, NothingThatReachesTheGpuIsForgotten) {
  void* cupti = dlopen("/usr/local/cuda/lib64/libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  if (cupti == nullptr) GTEST_SKIP() << dlerror() << ": install CUDA 13";
  const auto name_of =
      reinterpret_cast<decltype(&cuptiGetCallbackName)>(dlsym(cupti, "cuptiGetCallbackName"));
  ASSERT_NE(name_of, nullptr);

  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    const char* name = nullptr;
    ASSERT_EQ(name_of(CUPTI_CB_DOMAIN_DRIVER_API, kWatchedCalls[i].cbid, &name), CUPTI_SUCCESS);
    EXPECT_STREQ(name, kWatchedCalls[i].name);
  }

  const auto begins = [](const std::string& name, const char* prefix) {
    return name.rfind(prefix, 0) == 0;
  };
  for (uint32_t cbid = 1; cbid < CUPTI_DRIVER_TRACE_CBID_SIZE; ++cbid) {
    const char* text = nullptr;
    if (name_of(CUPTI_CB_DOMAIN_DRIVER_API, cbid, &text) != CUPTI_SUCCESS || text == nullptr) {
      continue;
    }
    const std::string name = text;
    const bool work = begins(name, "cuLaunch") || begins(name, "cuGraphLaunch") ||
                      begins(name, "cuMemcpy") || begins(name, "cuMemset") ||
                      name.find("Synchronize") != std::string::npos;
    if (!work || FindWatchedCall(cbid) != nullptr) continue;
    const bool array =
        name.find("toA") != std::string::npos || name.find("Ato") != std::string::npos;
    const bool before_cuda4 = name == "cuLaunch" || name == "cuLaunchGrid" ||
                              name == "cuLaunchGridAsync" || name.find("_v2") == std::string::npos;
    const bool peer_3d = begins(name, "cuMemcpy3DPeer") || begins(name, "cuMemcpy3DBatch");
    const bool host = begins(name, "cuLaunchHostFunc");
    const bool no_function = name == "cuMemcpy_v2";  // an id without a function in cuda.h
    EXPECT_TRUE(array || before_cuda4 || peer_3d || host || no_function)
        << name << " (" << cbid << ")";
  }
}

}  // namespace
}  // namespace seqpoint::inject
