// State of the software libcupti, shared by its API files: the link to the software driver, who is
// subscribed, what is enabled. One instance per process, never destroyed: callbacks come until the
// very end of the process. Thread-safe.
#ifndef SEQPOINT_TESTS_SOFTGPU_CUPTI_STATE_H_
#define SEQPOINT_TESTS_SOFTGPU_CUPTI_STATE_H_

#include <cuda.h>
#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tests/softgpu/config.h"
#include "tests/softgpu/hooks.h"

namespace seqpoint::softgpu {

struct Subscriber {
  CUpti_CallbackFunc callback;
  void* user;
};

inline constexpr uint32_t kSmallDomainIds = 64;

struct CuptiState {
  Hooks* hooks;
  const Config* config;

  std::mutex mutex;  // serialises changes of what is enabled
  std::atomic<Subscriber*> subscriber{nullptr};
  std::string subscriber_name;  // guarded by mutex
  std::atomic<bool> resource[kSmallDomainIds]{};
  std::atomic<bool> synchronize[kSmallDomainIds]{};
  std::atomic<bool> state[kSmallDomainIds]{};
  std::atomic<bool> forked{false};  // this is a child: no worker thread, unknown locks
  std::atomic<bool> failed{false};  // a fatal error was raised: nothing works any more

  std::atomic<uint64_t> kinds{0};   // bit per CUpti_ActivityKind
  std::atomic<uint64_t> ended = 0;  // of kinds: on, and without records all the same
  std::atomic<uint64_t> api_calls{0};
  // Single calls whose records are wanted, by domain; guarded by mutex.
  struct SingleCalls {
    int on = 0;
    bool settled = false;  // a context was there
    bool deaf = false;     // and none was wanted when it was created: none leaves a record
  };
  SingleCalls single_calls[3] = {};
  std::atomic<uint64_t> sessions{0};  // times that kinds were turned on after there was none
  std::atomic<uint64_t> kernels_disabled{0};  // times that CONCURRENT_KERNEL was
  std::mutex graph_mutex;
  uint32_t graph_launch = 0;  // ids of the last graph launches; guarded by graph_mutex
  uint32_t graph_launch_before = 0;
  std::atomic<uint32_t> thread_id_type{CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT};
  std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};
  std::atomic<bool> timestamp_registered{false};  // even if it is the system's clock
  std::atomic<uint64_t> timestamp_anchor{0};      // of the callback, at its registration ...
  std::atomic<uint64_t> timestamp_anchor_ns{0};   // ... and then by the GPU's clock

  // Which of the two activity APIs the process uses, where they exclude each other.
  enum class Api : uint8_t { kNone, kV1, kV2 };
  std::atomic<Api> api{Api::kNone};
  // False: the other one is in use.
  bool Uses(Api wanted);

  bool KindEnabled(CUpti_ActivityKind kind) const {
    return ((kinds.load(std::memory_order_relaxed) & ~ended.load(std::memory_order_relaxed)) >>
            kind) &
           1;
  }
  uint64_t NowNs() const;
};

// The state, or null when no software driver can be loaded: then most functions return
// CUPTI_ERROR_UNKNOWN, like the real library without a driver.
CuptiState* GetState();

// Brings the driver's interest fields in line with what is enabled. Call with `mutex` held.
void UpdateInterest(CuptiState* state);

// Activity records of API calls and operations; cupti_activity.cc.
void RecordApiCall(CuptiState* state, const ApiCall& call, uint64_t end_ns, uint32_t return_value);
void RecordOperation(const Operation& op);
// Hands over every buffer; `forced` includes those with unfinished records.
void FlushBuffers(bool forced);
void DisableAllActivity(CuptiState* state);
// For cuptiFinalize: drop the registered callbacks with their buffers, and the profilers' state.
void ForgetBuffers();
void ForgetProfilers();

uint64_t SystemNs();  // CLOCK_REALTIME
// Does not return for `ms`; 0: never.
void Hang(uint64_t ms);

// The result that the settings want of this call of `function`: cupti.fail, cupti.hang.
CUptiResult PlayedFailure(const char* function);
#define SWGPU_MAY_FAIL()                                \
  do {                                                  \
    const CUptiResult played = PlayedFailure(__func__); \
    if (played != CUPTI_SUCCESS) return played;         \
  } while (false)

// structSize ladders: a structure of another size than ours is refused, as the real library does.
#define SWGPU_CHECK_PARAMS(params, size)                         \
  do {                                                           \
    if ((params) == nullptr || (params)->structSize != (size)) { \
      return CUPTI_ERROR_INVALID_PARAMETER;                      \
    }                                                            \
  } while (false)

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_CUPTI_STATE_H_
