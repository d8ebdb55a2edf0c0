// Finished iterations and IterationBuilder's state, to and from its protobuf form, for the store.
// Threading: free functions.
#ifndef DAEMON_JOBS_STATE_CODEC_H_
#define DAEMON_JOBS_STATE_CODEC_H_

#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/state.pb.h"

namespace seqpoint::jobs {

void EncodeBuilder(const IterationBuilder::State& from, BuilderState* to);
IterationBuilder::State DecodeBuilder(const BuilderState& from);

void Encode(const FinishedIteration& from, FinishedState* to);
FinishedIteration Decode(const FinishedState& from);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STATE_CODEC_H_
