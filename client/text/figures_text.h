// Figures of a job as tables for people.
// Threading: pure functions.
#ifndef CLIENT_TEXT_FIGURES_TEXT_H_
#define CLIENT_TEXT_FIGURES_TEXT_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

std::string SeqPointsText(const v1::GetSeqPointsReply& reply);
// `width`: of the terminal; 0: unlimited. `job`: whose figures they are, for its notes; an empty
// one has none.
std::string CountersText(const v1::GetCountersReply& reply, const v1::Job& job, int width,
                         bool list_measured = false);
std::string KernelsText(const v1::GetKernelsReply& reply, const v1::Job& job, int width);
std::string RooflineText(const v1::GetRooflineReply& reply, int width);
// `all`: none between two of them was left out.
std::string IterationsText(const google::protobuf::RepeatedPtrField<v1::Iteration>& iterations,
                           bool all);

}  // namespace seqpoint::client

#endif  // CLIENT_TEXT_FIGURES_TEXT_H_
