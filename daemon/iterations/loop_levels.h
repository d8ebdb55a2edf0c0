// The loop among the groups of calls: the strongest group is the loop or a part of it (a layer,
// a micro-step, the forward pass that evaluation shares); the loop is what spans its parts.
//
// Threading: free functions over constant input. Ownership: results refer to their arguments.
#ifndef DAEMON_ITERATIONS_LOOP_LEVELS_H_
#define DAEMON_ITERATIONS_LOOP_LEVELS_H_

#include <cstdint>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {

// The groups of the part of the log that shows them best, best first, with their scores; the
// window begins where that part does.
std::vector<KernelGroup> StrongestGroups(LogWindow* window, size_t min_iterations);

// The strongest group, unless it only comes and goes with some lengths while another one goes on:
// then that one.
const KernelGroup* Base(const LogWindow& window, const std::vector<KernelGroup>& groups);

// The next loop outwards of which `from` is only a part; nullptr: there is none. `strongest`: the
// strength of the strongest loop found within so far.
const KernelGroup* ExtendToOuterLoop(const LogWindow& window, const KernelGroup& from,
                                     double strongest, const std::vector<KernelGroup>& groups);

// A launch that is known by what it is, not by what is around it.
bool IsOwnLaunch(const LogWindow& window, const Member& member);

// The group's calls only read back or wait, as where each tenth iteration logs its loss.
bool OnlyReadsBack(const LogWindow& window, const KernelGroup& group);

// The strongest group that takes turns with the batches; without one `own`, made of them alone.
const KernelGroup* AtBatches(const std::vector<uint32_t>& batches,
                             const std::vector<KernelGroup>& groups, KernelGroup* own);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LOOP_LEVELS_H_
