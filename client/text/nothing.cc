#include "client/text/nothing.h"

#include "absl/strings/str_cat.h"
#include "client/text/format.h"

namespace seqpoint::client {

std::string NothingIn(const v1::GetSeqPointsReply& reply) {
  if (reply.seqpoints_size() > 0) return "";
  return absl::StrCat("no SeqPoints yet: ", FormatCount(reply.iterations(), "iteration"),
                      " so far; ask again later");
}

std::string NothingIn(const v1::GetCountersReply& reply) {
  std::string why;
  for (const v1::Counter& counter : reply.counters()) {
    if (counter.has_per_iteration()) return "";
    if (why.empty()) why = counter.message();
  }
  if (why.empty()) why = reply.message();
  return absl::StrCat("no counter was measured", why.empty() ? "" : ": ", why);
}

std::string NothingIn(const v1::GetKernelsReply& reply) {
  return reply.kernels_size() > 0 ? "" : "no iteration was traced";
}

std::string NothingIn(const v1::GetRooflineReply& reply) {
  return reply.kernels_size() > 0 ? "" : "no kernel was measured by itself";
}

std::string NothingIn(const v1::GetRanksReply& reply) {
  return reply.ranks_size() > 1 ? "" : "the job has one rank: nobody waits for it";
}

std::string NothingIn(const v1::ReplayReply& reply) {
  return reply.iterations_size() > 0 ? "" : "no iteration was traced";
}

}  // namespace seqpoint::client
