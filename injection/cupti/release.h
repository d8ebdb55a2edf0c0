// The faults and differences of releases of CUPTI that change what we do, by the number that
// cuptiGetVersion gives. RN: the release notes of CUPTI, UG: its user guide, both in the
// documentation of CUDA 13.4 Update 1. Threading: pure functions.
#ifndef SEQPOINT_INJECTION_CUPTI_RELEASE_H_
#define SEQPOINT_INJECTION_CUPTI_RELEASE_H_

#include <stdint.h>

namespace seqpoint::inject {

enum CuptiTrait : uint32_t {
  // Disabling CONCURRENT_KERNEL may deadlock, and long traces of graphs may crash.
  kHangsAfterKernels = 1,
  // Kernel records have no start once a timestamp callback is registered.
  kLosesKernelStarts = 2,
  // Graph launches and their kernels have wrong correlation ids in all sessions but the first.
  kMixesUpGraphLaunches = 4,
  // Kernel records may have the name of a kernel of an unloaded module.
  kKeepsNamesOfUnloadedModules = 8,
  // It crashes when it is given no buffer.
  kNeedsBuffers = 16,
  // cuptiSubscribe_v2 and the activity functions that we call exclude each other.
  kSeparatesSubscribeV2 = 32,
  // Its records may be others than those that this code was written for.
  kHasUnknownRecords = 64,
};

struct CuptiRelease {
  uint32_t first, last;  // versions, inclusive
  uint32_t trait;
};
// A fault whose beginning is unknown is taken to be in every release before the one that mends it.
inline constexpr CuptiRelease kCuptiReleases[] = {
    // RN 13.0 Update 1: "potential deadlock ... cuptiActivityDisable", "segmentation fault ... CUDA
    // graphs". Notes of earlier releases do not have it.
    {130000, 130000, kHangsAfterKernels},
    // 12.6 Update 2 to 13.0: RN 13.1, pytorch/pytorch#192021.
    {24, 130099, kLosesKernelStarts},
    // RN 13.1 Update 1.
    {0, 130100, kMixesUpGraphLaunches},
    // RN 13.4 Update 1.
    {0, 130400, kKeepsNamesOfUnloadedModules},
    // RN 12.9: "Fixed a crash when the client fails to provide a buffer".
    {0, 26, kNeedsBuffers},
    // UG 13.4, 2.4.3 and 2.4.8; guides up to 13.1 know of no second activity API.
    {130200, UINT32_MAX, kSeparatesSubscribeV2},
    // CUDA 14 and later.
    {140000, UINT32_MAX, kHasUnknownRecords},
};

constexpr uint32_t CuptiTraits(uint32_t version) {
  uint32_t traits = 0;
  for (const CuptiRelease& release : kCuptiReleases) {
    if (version >= release.first && version <= release.last) traits |= release.trait;
  }
  return traits;
}

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_CUPTI_RELEASE_H_
