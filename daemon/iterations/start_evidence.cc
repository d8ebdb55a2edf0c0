#include "daemon/iterations/start_evidence.h"

namespace seqpoint::iterations {

std::vector<Evidence> JudgeStarts(const LogWindow& window, const CommonSubsequence& subsequence,
                                  const KernelGroup& step, const KernelGroup& inner) {
  std::vector<Evidence> places(subsequence.size());
  JudgeFirstEver(window, subsequence, &places);
  JudgePauses(window, subsequence, &places);
  JudgeRareCalls(window, subsequence, &places);
  JudgeGeometry(window, subsequence, &places);
  JudgeThreads(window, subsequence, &places);
  JudgeStepCalls(window, subsequence, step, inner, &places);
  return places;
}

}  // namespace seqpoint::iterations
