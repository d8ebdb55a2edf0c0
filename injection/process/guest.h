// Everything the library has in a process, in one object placed into the pool. There are no other
// globals with state, so a process that never touches CUDA has nothing but a null pointer.
// Threading: each part says its own. Ownership: never destroyed, because CUPTI may call back while
// the process is being torn down; a forked child forgets it.
#ifndef SEQPOINT_INJECTION_PROCESS_GUEST_H_
#define SEQPOINT_INJECTION_PROCESS_GUEST_H_

#include <cuda.h>
#include <sys/types.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/graph_names.h"
#include "injection/base/launch_names.h"
#include "injection/base/names.h"
#include "injection/base/pool.h"
#include "injection/base/system.h"
#include "injection/counters/counters.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/callbacks.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/loader.h"
#include "injection/iterations/call_stream.h"
#include "injection/process/helper.h"
#include "injection/process/identity.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

struct Guest {
  Pool pool;
  injection::RingWriter ring;
  Features features;
  Names names;
  GraphNames graphs;
  Cupti cupti = {};
  CudaDriver driver = {};
  CallWatch call_watch;
  Clock clock;
  Callbacks callbacks;
  Activity activity;
  Counters counters;
  CallStream stream{&ring};
  Helper helper;
  LaunchNames launch_names;
  HelloText hello_text;
  char socket_path[128] = {};
  pid_t owner = 0;
  bool has_cupti = false;      // it was found and can be used
  bool reads_records = false;  // and its records are known
  bool measuring = false;      // StartMeasuring ran
  // Modules were unloaded, and CUPTI's records may name their kernels since.
  std::atomic<bool> modules_went{false};
  std::atomic<bool> nvtx_patched{false};
  std::atomic<bool> host_only{false};  // attached without CUDA: there is nothing to leave
  // The same, also when CUDA began later: the time of an iteration is that between two marks.
  std::atomic<bool> host_times{false};

  // Buffers and counters, once CUPTI is ours for the first time.
  void StartMeasuring();

  void AddContext(CUcontext context);
  void RemoveContext(CUcontext context);
  // CUPTI was not ours for a while: which contexts are left is not known. They are added again as
  // they are met.
  void ForgetContexts();
  bool knows_contexts() const { return __atomic_load_n(&context_count_, __ATOMIC_RELAXED) != 0; }
  CUcontext AnyContext();
  // The one that is known; null: there is none, or there are several.
  CUcontext OnlyContext();
  // `context`, else the calling thread's current one, else any.
  CUcontext ContextOf(CUcontext context);
  // Tells the daemon which GPU `device` is; `chip` may be null. For the helper thread.
  void ReportDevice(uint32_t device, const char* chip);
  bool has_new_contexts() const {
    return __atomic_load_n(&contexts_seen_, __ATOMIC_RELAXED) != reported_contexts_;
  }
  // The same, once for each device that has a context.
  void ReportNewDevices();

 private:
  static constexpr int kMaxContexts = 64;
  SpinLock contexts_lock_;
  CUcontext contexts_[kMaxContexts] = {};
  int context_count_ = 0;
  int contexts_seen_ = 0;          // contexts that ever were
  int reported_contexts_ = 0;      // helper thread: value of contexts_seen_ at the last look
  uint64_t reported_devices_ = 0;  // helper thread: bit per device
};

// Null until the process uses CUDA or NVTX, and in a forked child.
extern Guest* g_guest;

// Makes the guest; null when memory is short. Does not touch CUDA.
Guest* EnsureGuest();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_GUEST_H_
