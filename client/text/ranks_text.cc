#include "client/text/ranks_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/text/notes.h"
#include "client/text/plain_text.h"

namespace seqpoint::client {
namespace {

std::string CourseWords(const v1::RankSummary& rank) {
  switch (rank.course()) {
    case v1::RANK_COURSE_EVEN:
      return "even";
    case v1::RANK_COURSE_SLOW:
      return "slow";
    case v1::RANK_COURSE_WAS_SLOW:
      return "was slow";
    case v1::RANK_COURSE_ROTATING:
      return "slow in turn";
    default:
      return "not known";
  }
}

std::string ReasonWords(v1::SlowReason reason) {
  switch (reason) {
    case v1::SLOW_REASON_CLOCKS:
      return "slower clocks";
    case v1::SLOW_REASON_KERNELS:
      return "single kernels";
    case v1::SLOW_REASON_HOST:
      return "late host";
    case v1::SLOW_REASON_LOADER:
      return "late batches";
    case v1::SLOW_REASON_LINK:
      return "slow link";
    case v1::SLOW_REASON_MORE_WORK:
      return "more work";
    case v1::SLOW_REASON_IMBALANCE:
      return "longer sequences";
    default:
      return "not known";
  }
}

std::string WithInterval(const v1::Estimate& share) {
  return absl::StrCat(FormatRoundedShare(share.value()), " (", FormatRoundedShare(share.low()),
                      " to ", FormatRoundedShare(share.high()), ")");
}

std::string Span(int64_t first, bool maybe_before, bool ended, int64_t last) {
  const std::string begin = absl::StrCat(FormatCount(first), maybe_before ? " or before" : "");
  return ended ? absl::StrCat("iterations ", begin, " to ", FormatCount(last))
               : absl::StrCat("since iteration ", begin);
}

std::string MeanTime(bool known, double time_ns) {
  return known ? FormatQuantity(time_ns, "ns") : "-";
}

std::string EpisodeText(int32_t rank, const v1::SlowEpisode& episode) {
  std::string text = absl::StrCat(
      Span(episode.first_iteration(), episode.maybe_before(), episode.has_last_iteration(),
           episode.last_iteration()),
      ". Its own work: ",
      episode.has_excess() ? absl::StrCat(WithInterval(episode.excess()), " longer than expected")
                           : episode.message(),
      ". ");
  absl::StrAppend(&text, "Cost: ",
                  episode.has_cost()               ? absl::StrCat(WithInterval(episode.cost()),
                                                    episode.has_last_iteration()
                                                                      ? " of the time of these iterations"
                                                                      : " of the job's time since then")
                  : episode.cost_message().empty() ? "not known"
                                                   : episode.cost_message(),
                  ". Reason: ");
  if (episode.reason() != v1::SLOW_REASON_UNSPECIFIED) {
    absl::StrAppend(&text, ReasonWords(episode.reason()), ": ");
  }
  absl::StrAppend(&text, episode.reason_message());
  return Wrap(absl::StrCat("rank ", rank, ":  "), text);
}

std::string LinkText(const v1::SlowLink& link) {
  const std::string whose =
      link.pair() && link.ranks_size() == 2
          ? absl::StrCat("transfers from rank ", link.ranks(0), " to rank ", link.ranks(1))
          : absl::StrCat("collectives of ranks ", absl::StrJoin(link.ranks(), ", "));
  return Wrap("link:    ",
              absl::StrFormat("%s take %.2f times as long (%.2f to %.2f), %s%s", whose,
                              link.factor().value(), link.factor().low(), link.factor().high(),
                              Span(link.first_iteration(), false, link.has_last_iteration(),
                                   link.last_iteration()),
                              link.pair() ? "" : "; which link between them is not known"));
}

std::string ImbalanceText(const v1::LengthImbalance& imbalance) {
  if (!imbalance.has_loss()) return Wrap("lengths: ", imbalance.message());
  constexpr double kShown = 0.0005;  // a share; less is 0.0 %
  if (imbalance.loss().high() < kShown) {
    return Wrap("lengths: ", "no rank waits for longer sequences of others");
  }
  return Wrap("lengths: ",
              absl::StrCat("waiting for longer sequences of other ranks takes ",
                           WithInterval(imbalance.loss()),
                           " of the run's time; equal lengths on all ranks would save it"));
}

}  // namespace

std::string RanksText(const v1::GetRanksReply& reply) {
  Table table({">RANK", ">ITERATION", ">WORK", ">WAIT", ">LAST", "VERDICT", "STATE"});
  std::string episodes;
  for (const v1::RankSummary& rank : reply.ranks()) {
    const bool any = rank.collectives() > 0;
    table.AddRow({absl::StrCat(rank.rank()),
                  MeanTime(rank.has_mean_duration_ns(), rank.mean_duration_ns()),
                  MeanTime(rank.has_mean_work_ns(), rank.mean_work_ns()),
                  MeanTime(rank.has_mean_wait_ns(), rank.mean_wait_ns()),
                  any ? FormatShare(static_cast<double>(rank.last()) /
                                    static_cast<double>(rank.collectives()))
                      : "-",
                  CourseWords(rank), rank.live() ? "runs" : "ended"});
    for (const v1::SlowEpisode& episode : rank.episodes()) {
      episodes += EpisodeText(rank.rank(), episode);
    }
    if (!rank.message().empty()) {
      episodes += Wrap(absl::StrCat("rank ", rank.rank(), ":  "), rank.message());
    }
  }
  std::string text = table.ToString();
  if (!reply.first_end().empty())
    absl::StrAppend(&text, "\n", Wrap("ended:   ", reply.first_end()));
  if (reply.has_standstill()) {
    absl::StrAppend(&text, "\n", Wrap("stands:  ", reply.standstill().message()));
  }
  if (!reply.message().empty()) return absl::StrCat(text, "\n", Note(reply.message()));
  text += Wrap("",
               "WORK is the part of ITERATION outside of collectives, WAIT the part in them before "
               "the last rank came, the rest transfers; LAST is a share of the rank's own timed "
               "collectives: those to which it came last");
  absl::StrAppend(&text, "\n", episodes);
  if (reply.rotating()) {
    text += Note(
        "ranks are slow in turn, each for some iterations: no single one is to be "
        "replaced");
  }
  for (const v1::SlowLink& link : reply.links()) text += LinkText(link);
  text += ImbalanceText(reply.imbalance());
  absl::StrAppend(&text, "\n", FormatCount(reply.iterations(), "iteration"),
                  " with timed collectives, ", FormatCount(reply.first_iteration()), " to ",
                  FormatCount(reply.last_iteration()), "\n");
  if (reply.incomplete() > 0) {
    absl::StrAppend(&text, FormatCount(reply.incomplete(), "timed iteration"),
                    " lack records of some rank and are in no figure\n");
  }
  return absl::StrCat(text, LossesLine(reply.losses()));
}

}  // namespace seqpoint::client
