#include "daemon/ranks/first_time_scores.h"

#include <cmath>
#include <utility>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {

std::vector<Score> FirstTimeScores::Add(const JoinedIteration& iteration, const Roles& roles,
                                        const RankScores& outside) {
  std::map<int32_t, std::vector<const RankPart*>> peers;  // by role
  for (const RankPart& part : iteration.ranks) {
    const bool tells = part.observed() && part.missed == 0 && part.new_length && !part.distorted;
    if (tells && part.outside_ns > 0 && roles.HasPeers(part.rank))
      peers[roles.RoleOf(part.rank)].push_back(&part);
  }
  std::vector<Score> scores;
  for (const auto& [number, parts] : peers) {
    Role& role = roles_[number];
    for (const RankPart* part : parts) {
      const auto time_ns = static_cast<double>(part->outside_ns);
      if (HaveEqualLengths(parts)) {
        std::vector<double> others;
        for (const RankPart* other : parts)
          if (other != part) others.push_back(static_cast<double>(other->outside_ns));
        const double excess = std::log(time_ns / MiddleOf(std::move(others)));
        scores.push_back({.rank = part->rank,
                          .excess = excess,
                          .deviation = role.alike.deviation(),
                          .penalties = role.alike.penalties()});
        role.alike.Add(part->rank, excess);
      } else if (const double expected = outside.ExpectSurely(number, part->lengths);
                 expected > 0) {
        scores.push_back(role.others.Add(part->rank, time_ns / expected));
      }
    }
  }
  return scores;
}

}  // namespace seqpoint::ranks
