// The parts of injection/iterations/ put together without CUPTI and without a GPU: callbacks count
// as ours, and nobody calls back.
#ifndef SEQPOINT_TESTS_SUPPORT_ITERATION_PARTS_H_
#define SEQPOINT_TESTS_SUPPORT_ITERATION_PARTS_H_

#include "injection/iterations/call_router.h"
#include "injection/iterations/handover.h"
#include "tests/support/test_ring.h"

namespace seqpoint::inject {

struct IterationParts {
  IterationParts() {
    clock.Decide();
    ownership.Pretend(CuptiOwnership::Share::kAll);
    levels.Start();
  }

  TestRing ring;
  injection::RingWriter* writer = &ring.writer;
  Names names{writer};
  LaunchNames launch_names;
  WakeWord helper;
  Cupti cupti = {};
  CudaDriver driver = {};
  Clock clock{&cupti, writer};
  Features features{writer};
  CallWatch call_watch{&cupti, &features};
  Contexts contexts{&cupti, &driver, writer};
  Captures captures{&clock, &helper};
  Callbacks callbacks{&cupti, &features, &call_watch, &clock, &names, nullptr};
  ActivityDecoder decoder{&names, &launch_names, &clock, writer, &counters};
  Activity activity{
      {&cupti, &driver, &contexts, &captures, &clock, &call_watch, &decoder, writer, &features}};
  Counters counters{
      {&cupti, &driver, &names, &contexts, &captures, &call_watch, &helper, writer, &features}};
  IterationState state;
  SwitchToken token{&state.lock, &features};
  CuptiOwnership ownership{
      {&callbacks, &activity, &clock, &contexts, &captures, &token, &features, &handover, writer}};
  StepAccount steps{&state, &features};
  MeasurementWindow window{&state, &borders};
  WatchSwitch watch{{&state, &window, &steps, &ownership, &callbacks, &activity, &captures,
                     &launch_names, &clock, writer}};
  MeasurementBorders borders{{&state, &window, &watch, &token, &ownership, &captures, &contexts,
                              &activity, &counters, &clock, writer}};
  Handover handover{{&state, &window, &borders, &watch, &steps, &captures, &activity, &counters,
                     &launch_names, &cupti, &features}};
  ControlMirror control{writer};
  ActivationMasks masks;
  LevelSwitch levels{{&state, &control, &token, &ownership, &window, &borders, &watch, &steps,
                      &captures, &clock, &helper, writer, &masks}};
  IterationEvents events{{&state, &window, &watch, &steps, &control, &token, &captures, &activity,
                          &counters, &clock, writer, &masks}};
  CallRouter router{{&state, &events, &window, &steps, &levels, &control, &token, &names,
                     &launch_names, &contexts, &captures, &counters.kernels(), &call_watch,
                     writer}};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_TESTS_SUPPORT_ITERATION_PARTS_H_
