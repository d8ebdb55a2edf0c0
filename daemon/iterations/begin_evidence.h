// Where in the cyclic order of a loop's calls an iteration begins. A cyclic order has no first
// member; the begin is the place with the most evidence. A file in begin_evidence/ judges by each
// kind of evidence.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_BEGIN_EVIDENCE_H_
#define DAEMON_ITERATIONS_BEGIN_EVIDENCE_H_

#include <string>
#include <vector>

#include "daemon/iterations/common_subsequence.h"
#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/log_window.h"

namespace seqpoint::iterations {

// For a place of the subsequence to be the begin.
struct Evidence {
  double score = 0;
  std::vector<std::string> words;
};

// Of each place, from all kinds. `step`: the loop, `inner`: the finer one in it, or the same.
std::vector<Evidence> JudgeBegins(const LogWindow& window, const CommonSubsequence& subsequence,
                                  const KernelGroup& step, const KernelGroup& inner);

// Adds to `places`, one for each place of the subsequence.
//
// The members' first launches ever, in order: the process itself began at the begin.
void JudgeFirstEver(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places);
// A gap that now and then holds far more calls than usual: evaluation runs between iterations.
void JudgePauses(const LogWindow& window, const CommonSubsequence& subsequence,
                 std::vector<Evidence>* places);
// The calls directly before the launch: the batch's copy, a wait for it, the host's long pause.
void JudgeRareCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    std::vector<Evidence>* places);
// Optimiser launches keep their geometry whatever the length; the forward pass follows the length.
// Loop iterations of different length are compared backwards and forwards from each place.
void JudgeGeometry(const LogWindow& window, const CommonSubsequence& subsequence,
                   std::vector<Evidence>* places);
// Where launching goes over from one thread to another, the backward pass begins or ends; and a
// thread that copies no batch and waits for nothing runs the backward pass alone.
void JudgeThreads(const LogWindow& window, const CommonSubsequence& subsequence,
                  std::vector<Evidence>* places);
// With micro-steps the begin follows the launches that only the step has.
void JudgeStepCalls(const LogWindow& window, const CommonSubsequence& subsequence,
                    const KernelGroup& step, const KernelGroup& inner,
                    std::vector<Evidence>* places);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_BEGIN_EVIDENCE_H_
