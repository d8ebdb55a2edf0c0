// The profiler plugin of the process, as NCCL loads it: which library, which of its versions, how
// often it is referred to, and the translation of events for a plugin that is older than the
// release that nccl.profiler_version stands for.
//
// One instance. Loading is locked; events come from any thread while a communicator holds the
// plugin.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_PROFILER_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_PROFILER_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "injection/nccl/profiler_abi.h"
#include "tests/softgpu/config.h"
#include "tests/softgpu/nccl_law.h"

namespace seqpoint::softgpu {

// An event of the newest version, and what only older ones tell.
struct NcclEvent : nccl::EventV6 {
  NcclEvent() : nccl::EventV6{} {}

  const char* communicator_name = nullptr;
  uint64_t communicator_hash = 0;
  uint64_t traffic_bytes = 0;
  uint32_t operation = 0;
  NcclFunction function = NcclFunction::kBroadcast;
  ncclDataType_t datatype = ncclInt8;
  NcclAlgorithm algorithm = NcclAlgorithm::kRing;
  NcclProtocol protocol = NcclProtocol::kSimple;
};

class NcclProfiler {
 public:
  explicit NcclProfiler(const Config& config) : release_(config.nccl_profiler_version) {}

  // NCCL's version number of the release that is acted.
  static int VersionCode(uint64_t profiler_version);

  struct Communicator {
    uint64_t hash;
    const char* name;
    int nodes;
    int ranks;
    int rank;
  };
  // At the creation and the end of a communicator.
  void Init(const Communicator& communicator, void** context);
  void Finalize(void* context);

  uint64_t release() const { return release_; }
  bool loaded() const { return version_.load(std::memory_order_acquire) != 0; }
  // The events that the plugin wants; it may change them at any time.
  int mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED); }

  void Start(void* context, void** handle, NcclEvent* event);
  void Stop(void* handle);
  void Record(void* handle, nccl::EventState state, nccl::StateArgsV4* args);

 private:
  void Load();
  void Unload();
  void* Open() const;

  const uint64_t release_;
  std::mutex mutex_;
  bool failed_ = false;  // no plugin, for ever
  int references_ = 0;
  void* library_ = nullptr;
  const void* plugin_ = nullptr;      // a PluginV1 to PluginV6
  std::atomic<uint64_t> version_{0};  // of `plugin_`; 0: none
  int mask_ = 0;
};

// NCCL's log: to the standard output as far as NCCL_DEBUG (VERSION, WARN, INFO, TRACE) asks.
void NcclLog(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_PROFILER_H_
