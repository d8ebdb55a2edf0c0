// The operators of a recorded iteration, and the data that they need of each other: an execution
// trace without times. docs/formats/operator-costs.md says how each part is found.
//
// An operator is a call of the program (aten::linear with all that it calls itself), or one node of
// the backward pass. The optimizer's step is no part of the graph: its operators are listed with
// the parameters that they update.
//
// Pure functions; values. Any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_OPERATOR_GRAPH_H_
#define SEQPOINT_DAEMON_PLACEMENT_OPERATOR_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/placement/problem.h"
#include "daemon/traces/execution_trace.h"

namespace seqpoint::placement {

struct GraphOperator {
  int node = 0;      // index into ExecutionTrace::operators
  std::string name;  // without the prefix of the autograd engine
  bool backward = false;
  // Operators of one color use the same parameters, or are a forward operator and its backward
  // ones; -1: alone.
  int color = -1;
  double activation_bytes = 0;  // of its outputs, kept for the backward pass
  std::vector<int> parameters;  // that it reads, a forward operator; ascending
};

// Something that an operator makes for others: a tensor, with the memory behind it.
struct Output {
  int producer = 0;  // operator
  double bytes = 0;
  std::vector<int> consumers;  // operators; ascending
};

struct Parameter {
  uint64_t elements = 0;
  double bytes = 0;
  double resident_bytes = 0;  // with its gradient and the optimizer's state
  int first_reader = 0;       // operator
  int updater = 0;            // operator that its update is charged to
};

// An operator of the optimizer's step, or another one after the backward pass.
struct UpdateOperator {
  int node = 0;
  std::vector<int> parameters;  // parameters that it updates; empty: it serves all of them
};

struct OperatorGraph {
  std::vector<GraphOperator> operators;  // in the order in which they began
  std::vector<Edge> edges;               // from a lower index to a higher one; none twice
  std::vector<Output> outputs;           // that others read
  std::vector<Parameter> parameters;     // in the order of their first reads
  std::vector<UpdateOperator> updates;
  bool training = false;  // it has a backward pass
};

// FailedPrecondition: no graph can be made of it (compiled kernels, more than one iteration); the
// message says what to record.
absl::StatusOr<OperatorGraph> MakeOperatorGraph(const traces::ExecutionTrace& trace);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_OPERATOR_GRAPH_H_
