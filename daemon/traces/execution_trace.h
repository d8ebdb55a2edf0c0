// Reads a PyTorch execution trace: the operators of an iteration with the memory that they read and
// write. A time line does not show which operator made the memory that another one uses.
//
//   absl::StatusOr<ExecutionTrace> trace = ReadExecutionTrace(text, "et.json");
//
// Written by torch.profiler.ExecutionGraphObserver (PyTorch 1.13, schema 1.0.1) and
// ExecutionTraceObserver (since 2.0, schemas 1.0.1 to 1.1.1-chakra.0.0.4); format:
// docs/formats/operator-costs.md. Sources: pytorch/pytorch@33427ee:torch/csrc/profiler/standalone/
// execution_graph_observer.cpp and @018d5f2:.../execution_trace_observer.cpp, writeJsonNode and
// convertIValue.
//
// Threading: free functions. Ownership: values only.
#ifndef SEQPOINT_DAEMON_TRACES_EXECUTION_TRACE_H_
#define SEQPOINT_DAEMON_TRACES_EXECUTION_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace seqpoint::traces {

// A tensor among the inputs or outputs of an operator. Tensors without elements are left out.
struct TensorUse {
  // Numbers that the observer gives to addresses: memory that is allocated later at the same
  // address has the same number.
  uint64_t tensor = 0;
  uint64_t storage = 0;   // the memory; views of one memory have the same
  uint64_t offset = 0;    // of its first element in the memory, in elements
  uint64_t elements = 0;  // of the tensor; of an expanded one more than there are in memory
  uint64_t item_bytes = 0;
  uint32_t argument = 0;  // its place among the inputs, or among the outputs
  uint32_t element = 0;   // its place in the argument, where that is a list
  bool host = false;      // in the memory of the CPU

  // The bytes of all elements, UINT64_MAX at most.
  uint64_t bytes() const;
};

// at::RecordScope, aten/src/ATen/record_function.h.
inline constexpr uint8_t kFunctionScope = 0;
inline constexpr uint8_t kBackwardScope = 1;
inline constexpr uint8_t kUserScope = 7;  // record_function("..."), the optimizer's among them

struct ExecutedOperator {
  uint64_t id = 0;
  uint64_t parent = 0;           // id of the operator that called it, or of its thread's root
  uint64_t record_function = 0;  // as in a Kineto trace of the same execution; 0: none
  int64_t sequence = -1;         // pairs a forward operator with its backward one; below 0: none
  uint64_t thread = 0;
  uint64_t forward_thread = 0;  // of a backward operator: the thread of the forward one
  uint32_t name = 0;            // indices into ExecutionTrace::names
  uint32_t schema = 0;          // "aten::mul_(Tensor(a!) self, ...) -> ..."; empty: none
  uint8_t scope = kFunctionScope;
  bool compiled = false;  // a kernel of torch.compile: the memory that it writes is not recorded

  size_t first_use = 0;  // in ExecutionTrace::uses: the inputs, then the outputs
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};

struct ExecutionTrace {
  std::string source;              // its name, for messages
  std::vector<std::string> names;  // [0] is empty
  // By id: in the order in which they began. A parent is before its children; the roots of process
  // and threads are left out.
  std::vector<ExecutedOperator> operators;
  std::vector<TensorUse> uses;

  const std::string& NameOf(const ExecutedOperator& op) const { return names[op.name]; }
  absl::Span<const TensorUse> Inputs(const ExecutedOperator& op) const {
    return absl::MakeConstSpan(uses).subspan(op.first_use, op.inputs);
  }
  absl::Span<const TensorUse> Outputs(const ExecutedOperator& op) const {
    return absl::MakeConstSpan(uses).subspan(op.first_use + op.inputs, op.outputs);
  }
};

// `text`: the whole file, unpacked; `name`: of the file, for messages. InvalidArgument: this is no
// execution trace, it ends in the middle, or a node of it contradicts another one; the message has
// the node's place or id and the way out.
absl::StatusOr<ExecutionTrace> ReadExecutionTrace(std::string_view text, std::string_view name);

}  // namespace seqpoint::traces

#endif  // SEQPOINT_DAEMON_TRACES_EXECUTION_TRACE_H_
