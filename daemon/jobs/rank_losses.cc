#include "daemon/jobs/rank_losses.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::jobs {

v1::RankLosses LossesOf(const v1::GetRanksReply& ranks, int64_t iterations) {
  v1::RankLosses losses;
  std::vector<std::string> messages;
  if (!ranks.message().empty() || iterations <= 0) {
    losses.set_message(ranks.message());
    return losses;
  }
  double sum = 0, below = 0, above = 0;  // squares of the distances to the ends
  bool known = true;
  std::set<std::string> unknown;
  for (const v1::RankSummary& rank : ranks.ranks()) {
    if (rank.course() == v1::RANK_COURSE_UNSPECIFIED && rank.episodes().empty()) {
      known = false;
      messages.push_back(absl::StrCat("rank ", rank.rank(), ": ", rank.message()));
    }
    if (rank.episode_count() > rank.episodes_size()) {
      unknown.insert(absl::StrCat("rank ", rank.rank(), ": its earlier slow episodes"));
    }
    for (const v1::SlowEpisode& episode : rank.episodes()) {
      if (!episode.has_cost()) {
        unknown.insert(absl::StrCat("rank ", rank.rank(), ": ", episode.cost_message()));
        continue;
      }
      const int64_t last = episode.has_last_iteration() ? episode.last_iteration() : iterations - 1;
      const int64_t count =
          std::clamp<int64_t>(last - episode.first_iteration() + 1, 0, iterations);
      const double share = static_cast<double>(count) / static_cast<double>(iterations);
      const v1::Estimate& cost = episode.cost();
      sum += share * cost.value();
      below += std::pow(share * (cost.value() - cost.low()), 2);
      above += std::pow(share * (cost.high() - cost.value()), 2);
    }
  }
  if (!unknown.empty()) {
    messages.push_back(
        absl::StrCat("what slow ranks cost is not known: ", absl::StrJoin(unknown, ", ")));
    known = false;
  }
  if (known) {
    losses.mutable_slow_ranks()->set_value(sum);
    losses.mutable_slow_ranks()->set_low(std::max(sum - std::sqrt(below), 0.0));
    losses.mutable_slow_ranks()->set_high(sum + std::sqrt(above));
  }
  if (ranks.imbalance().has_loss()) {
    *losses.mutable_unequal_lengths() = ranks.imbalance().loss();
  } else if (!ranks.imbalance().message().empty()) {
    messages.push_back(
        absl::StrCat("what unequal lengths cost is not known: ", ranks.imbalance().message()));
  }
  losses.set_message(absl::StrJoin(messages, "; "));
  return losses;
}

}  // namespace seqpoint::jobs
