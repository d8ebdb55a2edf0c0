// What windows are asked about a rank, and which iterations answer: its own, each with those that
// it is compared with.
//
// Threading: plain values, free functions. Ownership: refers to the profiles, which outlive it.
#ifndef DAEMON_RANKS_RANK_QUESTION_H_
#define DAEMON_RANKS_RANK_QUESTION_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_profile.h"

namespace seqpoint::ranks {

// The profiles of all ranks at one iteration. Those of disturbed ranks are compared with nothing.
using IterationProfiles = std::vector<RankProfile>;

struct RankQuestion {
  int32_t rank = 0;
  // Ranks that do the same work. Empty: none does (a stage of a pipeline); the rank's own earlier
  // windows are then the reference.
  std::vector<int32_t> peers;
  absl::Span<const IterationProfiles> iterations;  // while it is slow
  absl::Span<const IterationProfiles> earlier;     // while it was not; may be empty
  // ... in which the lengths were new to all ranks: they take longer than others, so what takes
  // longer still is a difference. For a rank without peers, where there are no others.
  absl::Span<const IterationProfiles> first_times = {};
};

// A rank's iteration and those that it is compared with.
struct Compared {
  const RankProfile* rank = nullptr;
  std::vector<const RankProfile*> reference;
};

struct Comparisons {
  std::vector<Compared> rank;   // by iteration; empty: there is nothing to compare with
  std::vector<Compared> noise;  // without a fault: peers with each other, or earlier iterations
  std::string with;             // in words: "on ranks 0, 2"
  std::deque<RankProfile> own;  // earlier iterations, as they would be at the batch of a later one
  bool first_times = false;     // the reference is RankQuestion::first_times
};
Comparisons ComparisonsOf(const RankQuestion& question);

// The iteration tells something of the rank: nothing disturbed it, nor another one.
bool TellsOf(const IterationProfiles& iteration, int32_t rank);

// Null: the rank has none.
const RankProfile* ProfileOf(const IterationProfiles& iteration, int32_t rank);
// "ranks 0, 2"
std::string RanksInWords(const std::vector<int32_t>& ranks);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_RANK_QUESTION_H_
