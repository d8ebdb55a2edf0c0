// The verdicts on the ranks of a job (ranks::Verdicts), as the API and the store have them.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_RANK_VERDICTS_H_
#define DAEMON_JOBS_RANK_VERDICTS_H_

#include <string>

#include "daemon/ranks/verdict.h"
#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::jobs {

// Fills in the figures of the ranks, links and lengths; what else a reply has stays as it is.
void SetVerdicts(const ranks::Verdicts& from, v1::GetRanksReply* to);
// The figures that SetVerdicts wrote.
ranks::Verdicts VerdictsOf(const v1::GetRanksReply& from);

// One sentence, the gravest first: a job that stands still, a slow rank, a slow link, unequal
// lengths. Empty: none of these.
std::string SummaryOf(const v1::GetRanksReply& reply);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RANK_VERDICTS_H_
