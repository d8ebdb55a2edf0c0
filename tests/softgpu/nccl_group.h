// The calling thread's group: calls that are under way until the outermost ncclGroupEnd.
//
// Communicators that are created in a group are created by a thread each, as all of them wait for
// one another. Kernels are launched in the order of their communicators' first calls; all have
// posted their arrival before the thread waits for other ranks, unless two use one stream.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_GROUP_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_GROUP_H_

#include <functional>
#include <memory>

#include "tests/softgpu/nccl_plan.h"

namespace seqpoint::softgpu {

void NcclGroupStart();
ncclResult_t NcclGroupEnd();

// Runs the job at the end of the group, or at once outside of one.
ncclResult_t NcclGroupRun(std::function<ncclResult_t()> job);

// One call of the interface, within a group of its own. `body` adds operations.
ncclResult_t NcclGroupCall(const std::function<ncclResult_t()>& body);

// Adds an operation to the communicator's kernel. `api` is the call that the program made, `task`
// what becomes of it.
ncclResult_t NcclGroupAdd(const std::shared_ptr<NcclCommunicator>& communicator,
                          const NcclTask& api, NcclTask task);

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_GROUP_H_
