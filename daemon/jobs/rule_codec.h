// A learned rule as a message, for the store and for a hub.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_RULE_CODEC_H_
#define DAEMON_JOBS_RULE_CODEC_H_

#include <optional>

#include "daemon/iterations/learner.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::jobs {

// The learner's evidence is left out.
v1::LearnedRule EncodeRule(const iterations::LearnedRule& from);
// Nothing: damaged.
std::optional<iterations::LearnedRule> DecodeRule(const v1::LearnedRule& from);

// The same events, whatever generations they have.
bool SameEvents(const abi::Rule& a, const abi::Rule& b);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RULE_CODEC_H_
