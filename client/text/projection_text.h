// Projections as text for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_PROJECTION_TEXT_H_
#define CLIENT_TEXT_PROJECTION_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Total, so far, remaining, per 1,000 iterations, basis. Without a horizon there is no total, and a
// line that says how to get one. `job`: whose figures they are, for its notes; an empty one has
// none. `part`: of the run, that it is of; empty: of all.
std::string ProjectionText(const v1::Projection& projection, const v1::Job& job,
                           const std::string& part = "");
std::string ProjectText(const v1::ProjectReply& reply, const v1::Job& job);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_PROJECTION_TEXT_H_
