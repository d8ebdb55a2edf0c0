#include "daemon/jobs/standstill.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace seqpoint::jobs {
namespace {

constexpr char kLost[] = "was killed or crashed";

std::string Ranks(const std::vector<int32_t>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

std::string At(int64_t at_ns) {
  return absl::FormatTime("%H:%M:%S UTC", absl::FromUnixNanos(at_ns), absl::UTCTimeZone());
}

v1::Standstill Describe(const ranks::Stuck& stuck, const std::vector<Standstill::Rank>& ranks,
                        int64_t stands_ns, bool clock_is_real) {
  v1::Standstill to;
  to.mutable_awaited()->Add(stuck.awaited.begin(), stuck.awaited.end());
  to.mutable_waiting()->Add(stuck.waiting.begin(), stuck.waiting.end());
  to.set_operation(stuck.operation.function);
  to.set_number(stuck.number);
  if (clock_is_real) to.set_since_ns(stuck.since_ns);
  std::string text;
  if (stuck.awaited.empty()) {
    text = absl::StrCat(Ranks(stuck.waiting),
                        " wait for one another: they have called their collectives in different "
                        "orders");
  } else {
    const bool many = stuck.awaited.size() > 1;
    text = absl::StrCat(Ranks(stuck.waiting), stuck.waiting.size() > 1 ? " wait" : " waits",
                        " for ", Ranks(stuck.awaited), ", which ", many ? "have" : "has",
                        " not called ", stuck.operation.function, " number ", stuck.number);
    for (const Standstill::Rank& rank : ranks) {
      const bool awaited = std::count(stuck.awaited.begin(), stuck.awaited.end(), rank.calls.rank);
      if (awaited && rank.calls.ended) {
        absl::StrAppend(&text, "; rank ", rank.calls.rank, " ", rank.lost ? kLost : "has ended");
      }
    }
  }
  absl::StrAppend(&text, "; nothing has moved for ", stands_ns / 1'000'000'000, " s or longer");
  if (clock_is_real && stuck.since_ns > 0 && !stuck.awaited.empty()) {
    absl::StrAppend(&text, " (the last call of ", Ranks(stuck.awaited), " was at ",
                    At(stuck.since_ns), ")");
  }
  to.set_message(text);
  return to;
}

// A rank that was killed inside of a collective has called all that the others have. One that ended
// in order was in none.
std::optional<ranks::Stuck> Ended(const std::vector<Standstill::Rank>& ranks) {
  ranks::Stuck stuck;
  for (const Standstill::Rank& rank : ranks) {
    if (rank.lost) stuck.awaited.push_back(rank.calls.rank);
    if (!rank.calls.ended) stuck.waiting.push_back(rank.calls.rank);
  }
  if (stuck.awaited.empty() || stuck.waiting.empty()) return std::nullopt;
  return stuck;
}

std::string EndedInWords(const ranks::Stuck& stuck, const std::vector<Standstill::Rank>& ranks,
                         int64_t stands_ns) {
  std::string text;
  for (const Standstill::Rank& rank : ranks) {
    if (!rank.lost) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "rank ", rank.calls.rank, " ", kLost);
  }
  return absl::StrCat(text, ", and ", Ranks(stuck.waiting),
                      stuck.waiting.size() > 1 ? " wait" : " waits",
                      " in collectives that it has called, too; nothing has moved for ",
                      stands_ns / 1'000'000'000, " s or longer");
}

}  // namespace

int64_t Standstill::PatienceNs() const {
  return std::clamp(2 * longest_pause_ns_, kLeastPatienceNs, kLongestPatienceNs);
}

bool Standstill::Check(int64_t monotonic_ns, int64_t progress, const std::vector<Rank>& ranks,
                       bool clock_is_real) {
  if (progress != progress_ || last_progress_ns_ == 0) {
    if (last_progress_ns_ != 0) {
      longest_pause_ns_ = std::max(longest_pause_ns_, monotonic_ns - last_progress_ns_);
    }
    progress_ = progress;
    last_progress_ns_ = monotonic_ns;
    return std::exchange(found_, std::nullopt).has_value();
  }
  const int64_t stands_ns = monotonic_ns - last_progress_ns_;
  if (found_ || stands_ns < PatienceNs()) return false;
  std::vector<ranks::RankCalls> calls;
  for (const Rank& rank : ranks) calls.push_back(rank.calls);
  if (const auto stuck = ranks::FindStuck(calls)) {
    found_ = Describe(*stuck, ranks, stands_ns, clock_is_real);
  } else if (const auto ended = Ended(ranks)) {
    found_ = Describe(*ended, ranks, stands_ns, clock_is_real);
    found_->clear_operation();
    found_->clear_number();
    found_->set_message(EndedInWords(*ended, ranks, stands_ns));
  }
  return found_.has_value();
}

}  // namespace seqpoint::jobs
