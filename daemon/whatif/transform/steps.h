// The steps of a what-if that change more than the times of tasks. Each has a file of its own.
//
// Threading: free functions. Ownership: the graph is the caller's.
#ifndef DAEMON_WHATIF_TRANSFORM_STEPS_H_
#define DAEMON_WHATIF_TRANSFORM_STEPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/transform/step_amount.h"

namespace seqpoint::whatif {

// Adds work next to each selected task, in the same lane and call, or time of the CPU to its call.
// `most_tasks`: that the graph may have then. InvalidArgument: it would have more, or an amount
// needs bytes that the trace does not have.
absl::Status InsertNextTo(bool gpu, const std::vector<uint32_t>& selected, const Step& step,
                          const StepAmount& amount, size_t most_tasks, Graph* graph);
// Adds a task for each transfer of the selected tasks to a lane of its own. `needed_by`: the tasks
// that wait for it.
absl::Status InsertIntoLane(const std::vector<uint32_t>& selected,
                            const std::vector<uint32_t>& needed_by, const Step& step,
                            const Parameters& parameters, const StepAmount& amount,
                            size_t most_tasks, Graph* graph);

// Kernel fusion: the selected tasks of each iteration and lane, or of each chain in one, become one
// task in place of the last. The times that each took beyond its start add up, or the longest
// counts. The launches of the others are not made, and neither is what the thread did from one to
// the next.
void Fuse(const std::vector<uint32_t>& selected, const Step& step, Graph* graph);

// CUDA graphs: in each iteration, selected launches that follow each other on a thread, with
// nothing between them that waits for the GPU, become one graph launch. The thread no longer does
// what it did from one to the next, except for allocations: leaving these out is a change of the
// program, which a step of its own asks for (remove calls where name ~ "Malloc|Free").
// Returns the CPU time that is gone, in ns.
int64_t Capture(const std::vector<uint32_t>& selected, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_STEPS_H_
