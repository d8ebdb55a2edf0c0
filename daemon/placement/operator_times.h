// The times of an execution trace's operators, from a time line: Kineto's, or the list of a PyTorch
// without Kineto. docs/formats/operator-costs.md, "Joining".
//
// Pure functions; values. Any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_OPERATOR_TIMES_H_
#define SEQPOINT_DAEMON_PLACEMENT_OPERATOR_TIMES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/execution_trace.h"

namespace seqpoint::placement {

struct OperatorTime {
  // On the CPU: from its begin to its end, and before it the time in which no operator ran. With
  // one thread these add up to the iteration.
  double cpu_ns = 0;
  double between_ns = 0;  // the part of cpu_ns before its begin
  double gpu_ns = 0;      // of the GPU work that it, or an operator that it calls, launched
};

struct OperatorTimes {
  std::vector<OperatorTime> operators;  // one for each asked for
  bool by_id = false;                   // joined by record function id; else by order and name
  int without_time = 0;                 // operators that the time line does not have

  double iteration_ns = 0;  // from the first begin to the last end: of operators or GPU work
  double between_ns = 0;    // on the CPU
  double gpu_ns = 0;        // of all GPU work in the time line
  // Copies between host and GPU: 0 bytes where there are none that tell a bandwidth.
  double copied_bytes = 0;
  double copying_ns = 0;
};

// `nodes`: indices into trace.operators, ascending; none of them is called by another one.
// FailedPrecondition: the time line is of another program; the message says where they part.
absl::StatusOr<OperatorTimes> JoinTimes(const traces::ExecutionTrace& trace,
                                        absl::Span<const int> nodes, const trace::Trace& times);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_OPERATOR_TIMES_H_
