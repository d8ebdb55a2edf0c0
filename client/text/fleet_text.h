// All jobs together, for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_FLEET_TEXT_H_
#define CLIENT_TEXT_FLEET_TEXT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// The answer about a change for each job, by its id; empty: nobody asked.
using FleetWhatIf = std::map<std::string, absl::StatusOr<v1::WhatIfReply>>;

std::string FleetText(const v1::GetFleetReply& fleet, const FleetWhatIf& what_if);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_FLEET_TEXT_H_
