// Gradient accumulation in CUDA graphs: the number of graph launches that make one iteration.
//
// A micro-batch that is one graph launch looks like an iteration. But the graph of the last
// micro-batch holds the optimiser and that of the first clears the gradients; there is one of each
// kind per batch shape. With launches numbered in order,
//
//   number     0  1  2  3 | 4  5  6  7 | 8  9 10 11
//   graph      A  b  c  D | E  c  f  D | A  g  b  H         accumulation over 4
//
// graphs of the last micro-batch come back only at numbers 3 mod 4, those of the first only at 0
// mod 4, and those in between anywhere else. The period is the smallest for which this is no
// accident. Where batches are prefetched into two buffers, each graph also belongs to one of them
// and comes back only after an even number of launches, whatever the period.
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_GRAPH_PERIOD_H_
#define DAEMON_ITERATIONS_GRAPH_PERIOD_H_

#include <cstdint>
#include <vector>

namespace seqpoint::iterations {

inline constexpr uint32_t kMaxGraphPeriod = 32;

struct GraphLaunches {
  std::vector<uint32_t> graphs;  // which graph each launch launched
  std::vector<uint32_t> waits;   // numbers of the launches before which the host waited, ascending
  bool from_start = false;       // the first one is the process' first: an iteration starts there
  bool prefetched = false;       // batches are prefetched
};

struct GraphPeriod {
  uint32_t period = 1;
  // Scores for an iteration to start at numbers r mod period, by r.
  std::vector<double> start_scores;
  // With period 1: too few graphs came back to exclude every other period.
  bool unsure = false;
};

GraphPeriod FindGraphPeriod(const GraphLaunches& launches);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_GRAPH_PERIOD_H_
