// Small traces for tests (tests/support/small_trace.h), and the graphs of them:
//
//   TestTrace t;
//   t.Launch(0, 5, "gemm", 10, 30);  // called at [0, 5), the kernel runs at [10, 30)
//   Graph graph = t.Graph();
//
// Threading: none. Ownership: values.
#ifndef TESTS_SUPPORT_SMALL_GRAPH_H_
#define TESTS_SUPPORT_SMALL_GRAPH_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/whatif/graph.h"
#include "daemon/whatif/replay.h"
#include "tests/support/small_trace.h"

namespace seqpoint::whatif {

class TestTrace : public trace::TestTrace {
 public:
  whatif::Graph Graph(const std::vector<double>& iterations_us = {}) const {
    GraphOptions options;
    for (const double begin_us : iterations_us) options.iteration_starts_ns.push_back(Ns(begin_us));
    return BuildGraph(trace(), options);
  }
};

// The replay of one rank; every task runs.
inline RankTimeline ReplayOne(const Graph& graph, const ReplayOptions& options = {}) {
  const Graph* ranks[] = {&graph};
  const Timeline timeline = Replay(ranks, options);
  EXPECT_EQ(timeline.not_run, 0u);
  return timeline.ranks[0];
}

// The first GPU task of a name.
inline uint32_t TaskNamed(const Graph& graph, const std::string& name) {
  for (uint32_t i = 0; i < graph.gpu.size(); ++i) {
    if (graph.names[graph.gpu[i].name] == name) return i;
  }
  ADD_FAILURE() << "no task " << name;
  return 0;
}

// Its start in the replay, and the end of the replay, microseconds.
inline double StartUs(const Graph& graph, const std::string& name) {
  return static_cast<double>(ReplayOne(graph).gpu_begin_ns[TaskNamed(graph, name)]) / 1000;
}
inline double EndUs(const Graph& graph) {
  return static_cast<double>(ReplayOne(graph).end_ns) / 1000;
}

}  // namespace seqpoint::whatif

#endif  // TESTS_SUPPORT_SMALL_GRAPH_H_
