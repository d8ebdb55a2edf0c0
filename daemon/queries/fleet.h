// All jobs of a daemon together: GPU time, and what is lost of it.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_QUERIES_FLEET_H_
#define DAEMON_QUERIES_FLEET_H_

#include "seqpoint/v1/fleet.pb.h"
#include "seqpoint/v1/job.pb.h"

namespace seqpoint::queries {

// Adds a job, as in a list of jobs, and what it adds to the total.
void AddToFleet(const v1::Job& job, v1::GetFleetReply* fleet);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_FLEET_H_
