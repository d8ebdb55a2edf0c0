// Everything the library has in a process, in one object: the one place that knows all parts and
// hands each what it needs. All memory of the library besides the ring and CUPTI's activity buffers
// is in it, tables included; pages that are never used cost nothing. There are no other globals
// with state but what must work without it, so a process that never touches CUDA has nothing but a
// null pointer.
// Threading: each part says its own. Ownership: never destroyed, because CUPTI may call back while
// the process is being torn down; a forked child forgets it.
#ifndef SEQPOINT_INJECTION_PROCESS_GUEST_H_
#define SEQPOINT_INJECTION_PROCESS_GUEST_H_

#include <sys/types.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/graph_names.h"
#include "injection/base/launch_names.h"
#include "injection/base/names.h"
#include "injection/base/system.h"
#include "injection/counters/counters.h"
#include "injection/cupti/activity.h"
#include "injection/cupti/call_watch.h"
#include "injection/cupti/callbacks.h"
#include "injection/cupti/captures.h"
#include "injection/cupti/clock.h"
#include "injection/cupti/contexts.h"
#include "injection/cupti/loader.h"
#include "injection/cupti/ownership.h"
#include "injection/cupti/switch_token.h"
#include "injection/iterations/call_router.h"
#include "injection/iterations/control_mirror.h"
#include "injection/iterations/handover.h"
#include "injection/iterations/iteration_events.h"
#include "injection/iterations/level_switch.h"
#include "injection/iterations/measurement_borders.h"
#include "injection/iterations/measurement_window.h"
#include "injection/iterations/state.h"
#include "injection/iterations/step_account.h"
#include "injection/iterations/watch_switch.h"
#include "injection/nccl/activation_masks.h"
#include "injection/nccl/communicators.h"
#include "injection/process/helper.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// CUPTI's callback, on the application's threads: hands what the application does to the parts that
// want to know.
void OnCuptiCallback(void* user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                     const void* data);

struct Guest {
  injection::RingWriter ring;
  Features features{&ring};
  Names names{&ring};
  GraphNames graphs{&names};
  LaunchNames launch_names;
  WakeWord helper_wake;

  Cupti cupti = {};
  CudaDriver driver = {};
  Clock clock{&cupti, &ring};
  CallWatch call_watch{&cupti, &features};
  Contexts contexts{&cupti, &driver, &ring};
  Captures captures{&clock, &helper_wake};
  Callbacks callbacks{&cupti, &features, &call_watch, &clock, &names, OnCuptiCallback};
  ActivityDecoder decoder{&names, &launch_names, &clock, &ring, &counters};
  Activity activity{
      {&cupti, &driver, &contexts, &captures, &clock, &call_watch, &decoder, &ring, &features}};
  Counters counters{
      {&cupti, &driver, &names, &contexts, &captures, &call_watch, &helper_wake, &ring, &features}};

  IterationState state;
  SwitchToken token{&state.lock, &features};
  CuptiOwnership ownership{
      {&callbacks, &activity, &clock, &contexts, &captures, &token, &features, &handover, &ring}};
  StepAccount steps{&state, &features};
  MeasurementWindow window{&state, &borders};
  WatchSwitch watch{{&state, &window, &steps, &ownership, &callbacks, &activity, &captures,
                     &launch_names, &clock, &ring}};
  MeasurementBorders borders{{&state, &window, &watch, &token, &ownership, &captures, &contexts,
                              &activity, &counters, &clock, &ring}};
  Handover handover{{&state, &window, &borders, &watch, &steps, &captures, &activity, &counters,
                     &launch_names, &cupti, &features}};
  ControlMirror control{&ring};
  LevelSwitch levels{{&state, &control, &token, &ownership, &window, &borders, &watch, &steps,
                      &captures, &clock, &helper_wake, &ring, &g_activation_masks}};
  IterationEvents events{{&state, &window, &watch, &steps, &control, &token, &captures, &activity,
                          &counters, &clock, &ring, &g_activation_masks}};
  CallRouter router{{&state, &events, &window, &steps, &levels, &control, &token, &names,
                     &launch_names, &contexts, &captures, &counters.kernels(), &call_watch, &ring}};
  Communicators communicators{
      {&g_communicator_table, &clock, &g_activation_masks, &ring, &features}};
  Helper helper{&helper_wake};
  char socket_path[128] = {};
  pid_t owner = 0;
  std::atomic<bool> nvtx_patched{false};
  // Attached without CUDA, also when that began later: the time of an iteration is that between two
  // marks.
  std::atomic<bool> host_times{false};

  // Stops watching, for good: orderly exit, end of CUPTI. Ends an open measurement as aborted.
  void Stop();
};

// Null until the process uses CUDA or NVTX, and in a forked child.
extern Guest* g_guest;

// Makes the guest; null when memory is short. Does not touch CUDA.
Guest* EnsureGuest();

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_GUEST_H_
