// Which jobs a list has.
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_JOB_FILTER_H_
#define DAEMON_QUERIES_JOB_FILTER_H_

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// By its state, when it started, and its tags.
bool IsWanted(const v1::Job& job, const v1::ListJobsRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_JOB_FILTER_H_
