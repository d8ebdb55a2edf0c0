// Matches the collectives of one iteration on those ranks that reported it: waits, transfers, and
// who arrived last.
//
// Threading: free functions. Ownership: values. Units: ns.
#ifndef SEQPOINT_DAEMON_RANKS_COLLECTIVE_MATCH_H_
#define SEQPOINT_DAEMON_RANKS_COLLECTIVE_MATCH_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "daemon/ranks/rank_agreement.h"
#include "daemon/ranks/rank_iteration.h"

namespace seqpoint::ranks {

// The share of its time that a rank waits which the others wait for. Where collectives overlap with
// work most of it costs no time: up to this share the times of sharded jobs on the software GPU
// scatter by 0.4 %, up to 0.2 of it by 0.5 %, and up to 0.003 by 0.3 %.
inline constexpr double kHardly = 0.05;

// One rank in one iteration.
struct RankPart {
  int32_t rank = 0;
  std::array<int64_t, 2> lengths = {};
  bool distorted = false, new_length = false;  // as in RankIteration
  int64_t duration_ns = 0;                     // 0: not known
  int64_t collective_ns = 0;                   // time in which a collective ran: their union
  // Time in which no collective ran: duration - collective. With collectives that block, the rank's
  // own work. 0 where the duration is not known.
  int64_t exclusive_ns = 0;
  // Own duration - shortest duration over the ranks that are seen, summed over the collectives.
  // Where collectives block, the time that the rank waited. Where they overlap with work, it is
  // larger than that, but still smallest on the rank that the others wait for. Where ranks are not
  // seen, it is at most too small.
  int64_t wait_ns = 0;
  // By how much these collectives would have ended earlier if this rank had never been the last:
  // what the others waited for it alone.
  int64_t delay_ns = 0;
  int64_t outside_ns = 0;  // before the first and after the last collective; 0: duration not known
  std::vector<int64_t> gaps_ns;  // before each collective but the first, in their order; 0: none
  int32_t matched = 0;           // collectives that another rank reported, too
  int32_t last = 0;              // matched ones in which it alone arrived last
  int32_t unmatched = 0;  // collectives that no other rank reported, or that do not fit theirs
  int32_t missed = 0;     // collectives of its communicators that only others reported
  // Equal for ranks that ran equally many collectives of equal kinds, and no transfers: a rank that
  // sends to others does work of its own.
  uint64_t signature = 0;

  // The part of its time that is looked at.
  enum class Time { kExclusive, kOutside };
  double Ns(Time time) const {
    return static_cast<double>(time == Time::kExclusive ? exclusive_ns : outside_ns);
  }
  bool disturbed() const { return distorted || new_length; }
  // The others waited for it, and it did not wait itself: its time is its own work.
  bool hardly_waited() const {
    return last > 0 && static_cast<double>(wait_ns) < kHardly * static_cast<double>(duration_ns);
  }
  // Its collectives are known. Else only its lengths and its time are.
  bool observed() const { return matched + unmatched > 0; }
};

// Of two ranks and more, in one iteration.
inline bool HaveEqualLengths(const std::vector<const RankPart*>& parts) {
  return parts.size() > 1 && std::all_of(parts.begin(), parts.end(), [&](const RankPart* part) {
           return part->lengths == parts.front()->lengths;
         });
}

// The collectives of one communicator and kind in one iteration, or the transfers of one kind from
// one rank to another.
struct TransferPart {
  uint64_t communicator = 0;
  uint32_t kind = 0;
  int32_t from = -1, to = -1;  // -1: the whole communicator
  int32_t count = 0;
  int64_t transfer_ns = 0;  // sum of the shortest durations
  // Each rank of the communicator was seen in each of them. Else the transfer may contain the wait
  // for one that was not.
  bool complete = true;
};

struct JoinedIteration {
  int64_t number = 0;
  bool complete = false;        // every rank that was waited for reported it
  std::vector<RankPart> ranks;  // by rank
  std::vector<TransferPart> transfers;
  // The ranks that ran a collective (not a transfer) of a communicator, by its hash.
  std::vector<std::pair<uint64_t, std::vector<int32_t>>> communicators;

  bool observed() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const RankPart& p) { return p.observed(); });
  }
};

// `sizes`: the number of ranks of those communicators where it is known. Elsewhere, the ranks that
// reported one of its collectives count as all. `agreement` knows the reports; transfers between
// ranks that do not agree are left out. `complete` is left to the caller.
// O(n log n) for n collectives.
JoinedIteration MatchCollectives(absl::Span<const RankIteration> reports,
                                 const absl::flat_hash_map<uint64_t, int32_t>& sizes,
                                 const RankAgreement& agreement);

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_COLLECTIVE_MATCH_H_
