// The place in the cyclic order of a loop's calls at which an iteration starts. A cyclic order has
// no first member; the start is the place with the most evidence: the group's first launch ever, a
// pause of the training calls (evaluation), the end of the calls that only the optimiser step has,
// the batch's copy, launches whose geometry never follows the length ending, the host's longest
// pause. Each kind of evidence has a file in start_evidence/.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_START_EVIDENCE_H_
#define DAEMON_ITERATIONS_START_EVIDENCE_H_

#include <string>
#include <vector>

#include "daemon/iterations/common_subsequence.h"
#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {

// The evidence for a place of the subsequence to be the start.
struct Evidence {
  double score = 0;
  std::vector<std::string> words;
};

// The evidence for each place, of all kinds. `step`: the loop; `inner`: the finer loop in it, or
// the same.
std::vector<Evidence> JudgeStarts(const LogWindow& window, const CommonSubsequence& subsequence,
                                  const KernelGroup& step, const KernelGroup& inner);

// Each of these adds to `places`, which has an entry for each place of the subsequence.
//
// The order of the members' first launches ever: the process itself started at the start of an
// iteration.
void JudgeFirstEver(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places);
// A gap that now and then holds far more calls than usual: evaluation runs between iterations.
void JudgePauses(const LogWindow& window, const CommonSubsequence& subsequence,
                 std::vector<Evidence>* places);
// The calls directly before the launch: the batch's copy, a wait for it, the host's long pause.
void JudgeRareCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places);
// Optimiser launches keep their geometry at any length; the forward pass follows the length. Loop
// iterations of different length are compared backwards and forwards from each place.
void JudgeGeometry(const LogWindow& window, const CommonSubsequence& subsequence,
                   std::vector<Evidence>* places);
// The backward pass starts or ends where launching changes from one thread to another. A thread
// that copies no batch and does not wait runs the backward pass alone.
void JudgeThreads(const LogWindow& window, const CommonSubsequence& subsequence,
                  std::vector<Evidence>* places);
// With micro-batches the start follows the launches that only the step has.
void JudgeStepCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    const KernelGroup& step, const KernelGroup& inner,
                    std::vector<Evidence>* places);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_START_EVIDENCE_H_
