// How soon works start after their launch, after the work before them in their lane, and after work
// of another lane that they wait for.
//
// Threading: plain values. Ownership: refers to the joined trace, which outlives it.
#ifndef DAEMON_WHATIF_GRAPH_GAPS_H_
#define DAEMON_WHATIF_GRAPH_GAPS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/whatif/graph/join.h"

namespace seqpoint::whatif {

class Gaps {
 public:
  // Measures without waits for other lanes, which are not known yet.
  Gaps(const JoinedTrace& joined, const Graph& graph);
  // Measures again, without the time spent in waits for other lanes. `waits_for`: by work, the
  // works that it waits for.
  void SetWaits(std::vector<std::vector<uint32_t>> waits_for);

  int64_t usual_latency_ns() const { return usual_latency_ns_; }
  int64_t shortest_latency_ns() const { return shortest_latency_ns_; }
  const std::vector<uint32_t>& WaitsFor(uint32_t w) const { return waits_for_[w]; }

  int64_t GapOf(uint32_t w) const;
  int64_t WaitGapOf(uint32_t w) const;
  // The work that ended last of those of other lanes that a work waits for.
  uint32_t LastWait(uint32_t w) const;
  // When a work could have started, as far as its lane and its launch say.
  int64_t ReadyNs(uint32_t w) const;

 private:
  // By lane and by the kinds of both works: see GapKey.
  using Samples = std::vector<std::vector<int64_t>>;

  void MeasureLatencies(const Graph& graph);
  void MeasureGaps();
  size_t GapKey(uint32_t after, uint32_t w) const;

  const JoinedTrace& j_;
  size_t lanes_;
  int64_t usual_latency_ns_ = 0;
  int64_t shortest_latency_ns_ = 0;
  int64_t usual_gap_ns_;
  int64_t usual_wait_gap_ns_;
  std::vector<int64_t> gap_ns_;  // by GapKey of it and the work before it in the lane
  std::vector<int64_t>
      wait_gap_ns_;  // by GapKey of it and the work of another lane that it waits for
  std::vector<std::vector<uint32_t>> waits_for_;  // by work
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_GAPS_H_
