// The order in which NCCL tells its plugin what the program does, and under which bits of the
// plugin's mask. Follows the release that nccl.profiler_version stands for:
//
//   from 5 on  group API (start, state 23) ... collective or transfer API (start, stop) ...
//              (state 24), kernel launch (start, stop), group (start), collectives and transfers
//              (start, all; stop, all), group (stop), group API (stop)
//   up to 4    group, collectives and transfers
//
// All of this comes from the calling thread. Kernel channels come from NcclProgress.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_EVENTS_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_EVENTS_H_

#include "tests/softgpu/nccl_plan.h"

namespace seqpoint::softgpu {

// Before the group that each call opens for itself.
void NoteCall();
// A call was checked: fills the plugin's part of `task`. `api` is what the program asked for.
void NoteTask(NcclCommunicator& communicator, const NcclTask& api, bool captured, int group_depth,
              NcclTask* task);
// At each end of a group, and after the outermost has launched everything.
void NoteGroupEnd();
void NoteGroupEnded();
// Around the launch, and after it.
void NoteLaunch(NcclPlan* plan);
void NoteLaunched(NcclPlan* plan);
void NoteEnqueued(NcclPlan* plan);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_EVENTS_H_
