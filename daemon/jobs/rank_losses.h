// The share of a run that its ranks lose by waiting for each other.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_RANK_LOSSES_H_
#define DAEMON_JOBS_RANK_LOSSES_H_

#include <cstdint>

#include "seqpoint/v1/job.pb.h"
#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::jobs {

// `iterations`: of the run so far. An episode counts by its share of them; its cost is a share of
// its iterations' time, and iterations of an episode take about as long as others.
v1::RankLosses LossesOf(const v1::GetRanksReply& ranks, int64_t iterations);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RANK_LOSSES_H_
