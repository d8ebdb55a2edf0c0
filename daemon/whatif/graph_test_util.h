// Small traces for tests (daemon/trace/trace_test_util.h), and the graphs of them:
//
//   TestTrace t;
//   t.Launch(0, 5, "gemm", 10, 30);  // called at [0, 5), the kernel runs at [10, 30)
//   Graph graph = t.Graph();
//
// Threading: none. Ownership: values.
#ifndef DAEMON_WHATIF_GRAPH_TEST_UTIL_H_
#define DAEMON_WHATIF_GRAPH_TEST_UTIL_H_

#include <vector>

#include "daemon/trace/trace_test_util.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

class TestTrace : public trace::TestTrace {
 public:
  whatif::Graph Graph(const std::vector<double>& iterations_us = {}) const {
    GraphOptions options;
    for (const double begin_us : iterations_us) options.iteration_begins_ns.push_back(Ns(begin_us));
    return BuildGraph(trace(), options);
  }
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_TEST_UTIL_H_
