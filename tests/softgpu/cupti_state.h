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

  std::atomic<uint64_t> kinds{0};  // bit per CUpti_ActivityKind
  std::atomic<uint64_t> api_calls{0};
  std::atomic<uint32_t> thread_id_type{CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT};
  std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};

  bool KindEnabled(CUpti_ActivityKind kind) const {
    return (kinds.load(std::memory_order_relaxed) >> kind) & 1;
  }
  uint64_t NowNs() const;
};

// The state, or null when no software driver can be loaded: then most functions return
// CUPTI_ERROR_UNKNOWN, like the real library without a driver.
CuptiState* GetState();

// Brings the driver's interest fields in line with what is enabled. Call with `mutex` held.
void UpdateInterest(CuptiState* state);

// What the API call hooks do for activity records; cupti_activity.cc.
void RecordApiCall(CuptiState* state, const ApiCall& call, uint64_t end_ns, uint32_t return_value);
void RecordOperation(const Operation& op);
// Hands over every buffer; `forced` includes those with unfinished records.
void FlushBuffers(bool forced);
void DisableAllActivity(CuptiState* state);

// The result that the settings want of this call of `function`: cupti.fail.
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
