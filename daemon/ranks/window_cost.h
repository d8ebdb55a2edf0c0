// What a slow rank costs the job: how much earlier its iterations would end if it worked as its
// peers do.
//
// In one iteration that is what the others wait for it: the least exposed wait of the other ranks
// wherever they meet it. It is at most the rank's excess, its work beyond what its peers, or its
// own earlier iterations, say for its lengths.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_COST_H_
#define DAEMON_RANKS_WINDOW_COST_H_

#include "daemon/ranks/rank_question.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::ranks {

// As a share of the run: 0.05 is 5 % of all GPU hours of the job. The interval is that of the mean
// of few values (Student); with one iteration it is from 0 to the least exposed wait. All 0: there
// is nothing to compare with.
Estimate CostShare(const RankQuestion& question, double confidence);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_COST_H_
