#include "daemon/ranks/rank_agreement.h"

#include <algorithm>

#include "absl/hash/hash.h"

namespace seqpoint::ranks {

void RankAgreement::Add(const RankIteration& report) {
  std::map<uint64_t, Latest>& latest = ranks_[report.rank];
  for (const Collective& collective : report.collectives) {
    if (collective.is_transfer()) continue;
    Latest& of = latest[collective.communicator];
    if (of.iteration != report.number) of = {.iteration = report.number, .collectives = 0};
    of.collectives += absl::HashOf(collective.kind, collective.sequence);
  }
  while (latest.size() > kMostCommunicators) {
    latest.erase(std::min_element(latest.begin(), latest.end(), [](const auto& a, const auto& b) {
      return a.second.iteration < b.second.iteration;
    }));
  }
}

bool RankAgreement::Agree(int32_t rank, int32_t other) const {
  const auto one = ranks_.find(rank), two = ranks_.find(other);
  if (one == ranks_.end() || two == ranks_.end()) return true;
  return std::all_of(one->second.begin(), one->second.end(), [&](const auto& entry) {
    const auto same = two->second.find(entry.first);
    return same == two->second.end() || same->second == entry.second;
  });
}

}  // namespace seqpoint::ranks
