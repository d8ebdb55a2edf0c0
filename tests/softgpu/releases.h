// How the releases of CUPTI differ, by the number that cuptiGetVersion gives (setting
// cupti.version). docs/internals/software-gpu.md has the packages that they are of.
//
// Sources: the user guide (UG) and release notes (RN) of CUPTI in the documentation of CUDA 13.4
// Update 1. A fault is present in every release before the one whose notes say that it was fixed;
// where its beginning is not told it is played back to the oldest release.
#ifndef SEQPOINT_TESTS_SOFTGPU_RELEASES_H_
#define SEQPOINT_TESTS_SOFTGPU_RELEASES_H_

#include <cstdint>

namespace seqpoint::softgpu::releases {

// Kernel records lose their start while a timestamp callback is registered: from 12.6 Update 2, RN
// 13.1.
inline bool LoseKernelStarts(uint64_t version) { return version >= 24 && version < 130100; }

// Buffers are those of threads, and not of contexts, unless an attribute says otherwise:
// cupti_activity.h of 13.0, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER.
inline bool HaveBuffersOfThreads(uint64_t version) { return version >= 130000; }

// A client that gives no buffer crashes CUPTI: RN 12.9.
inline bool CrashWithoutBuffer(uint64_t version) { return version < 27; }

// Disabling CONCURRENT_KERNEL may deadlock: RN 13.0 Update 1. Here it does the third time: not for
// a tool that records one session.
inline bool HangsInDisable(uint64_t version, uint64_t times) {
  return version == 130000 && times >= 3;
}

// Graph launches and their kernels have wrong correlation ids in each session after the first: RN
// 13.1 Update 1. The notes do not say which ids; here they are those of the graph launch before.
inline bool MixUpGraphLaunches(uint64_t version) { return version < 130101; }

// A graph that was instantiated while whole-graph records were off crashes CUPTI when it is
// launched while they are on: seen with 130001 (docs/measurements/2026-11-27-h200.md). No release
// is known to be without it.
inline bool CrashOnEarlyGraphs(uint64_t /*version*/) { return true; }

// Records of single calls (cuptiActivityEnableDriverApi) come only where one was wanted when the
// first context was created: seen with 130001 (docs/measurements/2026-11-27-h200-2.md). No release
// is known to be without that.
inline bool NeedACallBeforeTheContext(uint64_t /*version*/) { return true; }

// Functions of the first and of the second activity API exclude each other, and cuptiSubscribe_v2
// is one of the second: UG 2.4.3 and 2.4.8. The guides up to 13.1 know no second API.
inline bool SeparateV1AndV2(uint64_t version) { return version >= 130200; }

// Kernels of a module that took the place of an unloaded one have that one's names: RN 13.4 Update
// 1.
inline bool KeepNamesOfUnloadedModules(uint64_t version) { return version < 130401; }

}  // namespace seqpoint::softgpu::releases

#endif  // SEQPOINT_TESTS_SOFTGPU_RELEASES_H_
