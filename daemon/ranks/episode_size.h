// How slow a rank is, and what that costs: from what was seen since it became slow.
//
// Threading: free functions. Ownership: values.
#ifndef SEQPOINT_DAEMON_RANKS_EPISODE_SIZE_H_
#define SEQPOINT_DAEMON_RANKS_EPISODE_SIZE_H_

#include <array>
#include <cstddef>
#include <optional>

#include "daemon/ranks/iteration_time.h"
#include "daemon/ranks/straggler_detector.h"
#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

struct EpisodeEvidence {
  std::array<ExcessMean, kParts> excess;
  Range cost;              // share of the iterations' time
  double usual_share = 1;  // of the iterations' time, as Episode has it
  double time_count = 0;   // iterations that the cost was computed from
  double leverage = 1;
  double exclusive_share = 0;  // the rank's exclusive time as a share of the iteration
  bool no_baseline = false;    // nothing shows that the rank was ordinary before
  bool has_peers = false;
  double baseline_count = 0;   // without peers: iterations that its baseline was learned from
  bool equal_lengths = false;  // in each iteration, on all ranks
};

// Whether an episode costs more than half a percent of the iteration's time. Where lengths are
// equal and collectives overlap with work, tiny differences between ranks show many times. Nothing:
// only more iterations tell.
std::optional<bool> Matters(const EpisodeEvidence& evidence, size_t part);

// Sets excess, cost and their doubts.
void SizeEpisode(const EpisodeEvidence& evidence, Episode& episode);

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_EPISODE_SIZE_H_
