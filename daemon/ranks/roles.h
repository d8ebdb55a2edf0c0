// Roles: which ranks do the same work, so that one may be judged by the others.
//
// Two ranks are peers when they run a collective of one communicator, and equally many collectives
// and transfers of equal kinds in an iteration; a peer's peer is a peer. Ranks that only send to
// each other (pipeline stages) are none.
//
// Threading, ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_ROLES_H_
#define SEQPOINT_DAEMON_RANKS_ROLES_H_

#include <cstdint>
#include <map>

#include "daemon/ranks/collective_match.h"

namespace seqpoint::ranks {

class Roles {
 public:
  void Learn(const JoinedIteration& iteration);

  // The lowest of the rank's peers, itself included.
  int32_t RoleOf(int32_t rank) const;

  bool HasPeers(int32_t rank) const { return roles_.contains(rank); }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(roles_);
  }

 private:
  void Join(int32_t rank, int32_t peer);

  std::map<int32_t, int32_t> roles_;  // by rank
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_ROLES_H_
