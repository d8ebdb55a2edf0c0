#include "daemon/ranks/roles.h"

#include <algorithm>

namespace seqpoint::ranks {

void Roles::Learn(const JoinedIteration& iteration) {
  std::map<int32_t, uint64_t> signatures;
  for (const RankPart& part : iteration.ranks)
    if (part.observed() && part.missed == 0) signatures[part.rank] = part.signature;
  for (const auto& [hash, ranks] : iteration.communicators) {
    std::map<uint64_t, int32_t> first;  // rank with the signature
    for (const int32_t rank : ranks) {
      const auto signature = signatures.find(rank);
      if (signature == signatures.end()) continue;
      Join(rank, first.try_emplace(signature->second, rank).first->second);
    }
  }
}

int32_t Roles::RoleOf(int32_t rank) const {
  const auto at = roles_.find(rank);
  return at == roles_.end() ? rank : at->second;
}

void Roles::Join(int32_t rank, int32_t peer) {
  const int32_t a = RoleOf(rank), b = RoleOf(peer);
  if (a == b) return;
  roles_.try_emplace(rank, rank);
  roles_.try_emplace(peer, peer);
  for (auto& [member, role] : roles_)
    if (role == a || role == b) role = std::min(a, b);
}

}  // namespace seqpoint::ranks
