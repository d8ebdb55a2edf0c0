// What a slow rank costs a job whose ranks do equal work in each iteration: how much earlier its
// iterations would end if it worked as its peers do. For a rank that is slow from the start, so
// that no earlier iteration tells (IterationTime::Cost).
//
// In one iteration that is what the others wait for it: the least exposed wait of the other ranks
// wherever they meet it. It is at most the rank's excess, its work beyond what its peers say.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_COST_H_
#define DAEMON_RANKS_WINDOW_COST_H_

#include <optional>

#include "daemon/ranks/rank_question.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::ranks {

// As a share of the iterations: 0.05 is 5 % of all GPU hours meanwhile. The interval is that of the
// mean of few values (Student). Nothing: the rank has no peers, lengths differ over ranks, or there
// are fewer than two iterations.
std::optional<Estimate> CostShare(const RankQuestion& question, double confidence);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_COST_H_
