// Finds the loop among the groups of calls. The strongest group is the loop or a part of it (a
// layer, a micro-batch, the forward pass that evaluation shares); the loop is the group that spans
// the parts.
//
// Threading: free functions over constant input. Ownership: results refer to their arguments.
#ifndef DAEMON_ITERATIONS_LOOP_LEVELS_H_
#define DAEMON_ITERATIONS_LOOP_LEVELS_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {

// The groups of the part of the log that shows them best, best first, with their scores. The window
// is set to start where that part does.
std::vector<KernelGroup> StrongestGroups(LogWindow* window, size_t min_iterations);

// The strongest group, or another one that goes on where the strongest comes and goes with some
// lengths.
const KernelGroup* Base(const LogWindow& window, const std::vector<KernelGroup>& groups);

// The next outer loop of which `from` is only a part; nullptr: there is none. `strongest`: the
// strength of the strongest loop found inside so far.
const KernelGroup* ExtendToOuterLoop(const LogWindow& window, const KernelGroup& from,
                                     double strongest, const std::vector<KernelGroup>& groups);

// A launch that is recognised by its kind or geometry, not by its neighbours.
bool IsOwnLaunch(const LogWindow& window, const Member& member);

// Whether the group's calls only read back or wait, as where every tenth iteration logs its loss.
bool OnlyReadsBack(const LogWindow& window, const KernelGroup& group);

// The strongest group that alternates with the batches; without one, `own`, which is made of the
// batches alone.
const KernelGroup* AtBatches(const std::vector<uint32_t>& batches,
                             const std::vector<KernelGroup>& groups, KernelGroup* own);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_LEVELS_H_
