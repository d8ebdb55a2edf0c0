#include "daemon/jobs/rank_verdicts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace seqpoint::jobs {
namespace {

v1::Estimate EstimateOf(const ranks::Range& from) {
  v1::Estimate to;
  to.set_value(from.value);
  to.set_low(from.low);
  to.set_high(from.high);
  return to;
}

ranks::Range RangeOf(const v1::Estimate& from) { return {from.value(), from.low(), from.high()}; }

std::string DoubtOf(ranks::Doubt doubt) {
  return doubt == ranks::Doubt::kNone
             ? ""
             : "not known, because " + std::string(ranks::DoubtText(doubt));
}

ranks::Doubt DoubtFrom(const std::string& message) {
  for (int i = 0; i <= static_cast<int>(ranks::Doubt::kMostAreSlow); ++i) {
    const auto doubt = static_cast<ranks::Doubt>(i);
    if (DoubtOf(doubt) == message) return doubt;
  }
  return ranks::Doubt::kTooFew;
}

void SetEpisode(const ranks::Episode& from, v1::SlowEpisode* to) {
  to->set_first_iteration(from.first);
  if (from.last >= 0) to->set_last_iteration(from.last);
  to->set_maybe_before(from.maybe_before);
  to->set_named_iteration(from.named);
  *to->mutable_excess() = EstimateOf(from.excess);
  if (from.cost_doubt == ranks::Doubt::kNone) *to->mutable_cost() = EstimateOf(from.cost);
  to->set_message(DoubtOf(from.doubt));
  to->set_cost_message(DoubtOf(from.cost_doubt));
}

ranks::Episode EpisodeOf(const v1::SlowEpisode& from) {
  return {.first = from.first_iteration(),
          .last = from.has_last_iteration() ? from.last_iteration() : -1,
          .maybe_before = from.maybe_before(),
          .named = from.named_iteration(),
          .excess = RangeOf(from.excess()),
          .cost = RangeOf(from.cost()),
          .doubt = DoubtFrom(from.message()),
          .cost_doubt = DoubtFrom(from.cost_message())};
}

void SetRank(const ranks::RankVerdict& from, v1::RankSummary* to) {
  to->set_rank(from.rank);
  to->set_course(static_cast<v1::RankCourse>(from.course));
  to->set_message(DoubtOf(from.doubt));
  to->set_own_baseline(from.own_baseline);
  for (const ranks::Episode& episode : from.episodes) SetEpisode(episode, to->add_episodes());
  to->set_episode_count(from.episode_count);
  to->set_iterations(from.iterations);
  if (from.iterations > 0) {
    const auto mean = [&](double sum) { return sum / static_cast<double>(from.iterations); };
    to->set_mean_duration_ns(mean(from.duration_ns));
    to->set_mean_work_ns(mean(from.exclusive_ns));
    to->set_mean_wait_ns(mean(from.wait_ns));
  }
  to->set_collectives(from.collectives);
  to->set_last(from.last);
}

ranks::RankVerdict RankOf(const v1::RankSummary& from) {
  const auto sum = [&](double mean) { return mean * static_cast<double>(from.iterations()); };
  ranks::RankVerdict to = {.rank = from.rank(),
                           .course = static_cast<ranks::Course>(std::clamp<int>(
                               from.course(), 0, static_cast<int>(ranks::Course::kRotating))),
                           .doubt = DoubtFrom(from.message()),
                           .own_baseline = from.own_baseline(),
                           .episodes = {},
                           .episode_count = from.episode_count(),
                           .iterations = from.iterations(),
                           .duration_ns = sum(from.mean_duration_ns()),
                           .exclusive_ns = sum(from.mean_work_ns()),
                           .wait_ns = sum(from.mean_wait_ns()),
                           .collectives = from.collectives(),
                           .last = from.last()};
  for (const v1::SlowEpisode& episode : from.episodes()) {
    to.episodes.push_back(EpisodeOf(episode));
  }
  return to;
}

void SetLink(const ranks::LinkVerdict& from, v1::SlowLink* to) {
  to->set_communicator(absl::StrCat(absl::Hex(from.communicator)));
  to->mutable_ranks()->Add(from.ranks.begin(), from.ranks.end());
  to->set_pair(from.pair);
  to->set_first_iteration(from.first);
  if (from.last >= 0) to->set_last_iteration(from.last);
  to->set_named_iteration(from.named);
  *to->mutable_factor() = EstimateOf(from.factor);
}

ranks::LinkVerdict LinkOf(const v1::SlowLink& from) {
  ranks::LinkVerdict to = {.ranks = {from.ranks().begin(), from.ranks().end()},
                           .pair = from.pair(),
                           .first = from.first_iteration(),
                           .last = from.has_last_iteration() ? from.last_iteration() : -1,
                           .named = from.named_iteration(),
                           .factor = RangeOf(from.factor())};
  if (!absl::SimpleHexAtoi(from.communicator(), &to.communicator)) to.communicator = 0;
  return to;
}

// "20 % (18 to 22 %)"
std::string Percent(const v1::Estimate& share) {
  const auto number = [](double value) {
    return absl::StrFormat("%.*f", std::abs(value) < 0.1 ? 1 : 0, 100 * value);
  };
  return absl::StrCat(number(share.value()), " % (", number(share.low()), " to ",
                      number(share.high()), " %)");
}

std::string Since(const v1::SlowEpisode& episode) {
  return absl::StrCat("since iteration ", episode.first_iteration(),
                      episode.maybe_before() ? " or before" : "");
}

// The rank's last episode goes on.
std::string SlowInWords(const v1::RankSummary& rank) {
  const v1::SlowEpisode& episode = *rank.episodes().rbegin();
  std::string text = absl::StrCat("rank ", rank.rank(), " is slow ", Since(episode));
  if (episode.has_excess()) {
    absl::StrAppend(&text, ": its own work takes ", Percent(episode.excess()),
                    " longer than expected");
  }
  if (episode.has_cost()) {
    absl::StrAppend(&text, ", which costs ", Percent(episode.cost()),
                    " of the job's time since then");
  }
  if (episode.reason() != v1::SLOW_REASON_UNSPECIFIED) {
    absl::StrAppend(&text, "; ", episode.reason_message());
  }
  return text;
}

std::string LinkInWords(const v1::SlowLink& link) {
  return absl::StrFormat(
      "%s take %.2f times as long (%.2f to %.2f) since iteration %d, although all ranks have come",
      link.pair() ? absl::StrFormat("transfers from rank %d to rank %d", link.ranks(0),
                                    link.ranks(link.ranks_size() - 1))
                  : absl::StrFormat("collectives of ranks %s", absl::StrJoin(link.ranks(), ", ")),
      link.factor().value(), link.factor().low(), link.factor().high(), link.first_iteration());
}

}  // namespace

void SetVerdicts(const ranks::Verdicts& from, v1::GetRanksReply* to) {
  for (const ranks::RankVerdict& rank : from.ranks) SetRank(rank, to->add_ranks());
  for (const ranks::LinkVerdict& link : from.links) SetLink(link, to->add_links());
  v1::LengthImbalance& imbalance = *to->mutable_imbalance();
  imbalance.set_found(from.imbalance.found);
  imbalance.set_message(DoubtOf(from.imbalance.doubt));
  if (from.imbalance.doubt == ranks::Doubt::kNone) {
    *imbalance.mutable_loss() = EstimateOf(from.imbalance.loss);
  }
  imbalance.set_iterations(from.imbalance.iterations);
  to->set_rotating(from.rotating);
  to->set_iterations(from.observed);
  if (from.observed == 0) return;
  to->set_first_iteration(from.first);
  to->set_last_iteration(from.last);
}

ranks::Verdicts VerdictsOf(const v1::GetRanksReply& from) {
  ranks::Verdicts to;
  for (const v1::RankSummary& rank : from.ranks()) to.ranks.push_back(RankOf(rank));
  for (const v1::SlowLink& link : from.links()) to.links.push_back(LinkOf(link));
  to.imbalance = {.doubt = DoubtFrom(from.imbalance().message()),
                  .found = from.imbalance().found(),
                  .loss = RangeOf(from.imbalance().loss()),
                  .iterations = from.imbalance().iterations()};
  to.rotating = from.rotating();
  to.observed = from.iterations();
  if (from.has_first_iteration()) to.first = from.first_iteration();
  if (from.has_last_iteration()) to.last = from.last_iteration();
  return to;
}

std::string SummaryOf(const v1::GetRanksReply& reply) {
  if (!reply.first_end().empty()) return reply.first_end();
  if (reply.has_standstill()) return reply.standstill().message();
  std::vector<std::string> slow;
  for (const v1::RankSummary& rank : reply.ranks()) {
    if (rank.course() == v1::RANK_COURSE_SLOW && rank.episodes_size() > 0) {
      slow.push_back(SlowInWords(rank));
    }
  }
  if (!slow.empty()) return absl::StrJoin(slow, "; ");
  if (reply.rotating()) {
    return "ranks are slow in turn, each for some iterations: no single one is to be replaced";
  }
  for (const v1::SlowLink& link : reply.links()) {
    if (!link.has_last_iteration()) return LinkInWords(link);
  }
  if (!reply.imbalance().found()) return "";
  return absl::StrCat(
      "ranks wait for longer sequences of others: equal lengths on all ranks "
      "would save ",
      Percent(reply.imbalance().loss()), " of the run's time");
}

}  // namespace seqpoint::jobs
