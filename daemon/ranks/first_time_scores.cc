#include "daemon/ranks/first_time_scores.h"

#include <cmath>

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
    std::vector<double> times;
    for (const RankPart* part : parts) times.push_back(static_cast<double>(part->outside_ns));
    const bool alike = HaveEqualLengths(parts);
    const std::vector<double> others = MiddlesOfOthers(times);
    for (size_t i = 0; i < parts.size(); ++i) {
      const int32_t rank = parts[i]->rank;
      const double expected = alike ? others[i] : outside.ExpectSurely(number, parts[i]->lengths);
      if (!(expected > 0)) continue;
      if (!alike) {
        scores.push_back(role.others.Add(rank, times[i] / expected));
        continue;
      }
      const double excess = std::log(times[i] / expected);
      scores.push_back({.rank = rank,
                        .excess = excess,
                        .deviation = role.alike.deviation(),
                        .penalties = role.alike.penalties()});
      role.alike.Add(rank, excess);
    }
  }
  return scores;
}

}  // namespace seqpoint::ranks
