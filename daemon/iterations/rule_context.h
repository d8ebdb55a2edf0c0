// A found loop, with the queries that the searches for boundary and decision events share.
//
// Threading: constant input. Ownership: refers to the log, the occurrences and the loop, which
// outlive it.
#ifndef DAEMON_ITERATIONS_RULE_CONTEXT_H_
#define DAEMON_ITERATIONS_RULE_CONTEXT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/iterations/kernel_groups.h"
#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/loop.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

struct RuleContext {
  RuleContext(const LaunchLog& of, const Occurrences& where, const Loop& found);

  uint32_t KindAt(uint32_t call) const { return log.symbols()[call].of[0]; }
  abi::Op OpAt(uint32_t call) const { return static_cast<abi::Op>(calls[call].op); }
  // The last few regular loop iterations, ascending.
  std::vector<size_t> RegularIterations() const;
  // A pattern by operation, and by name where the name says something.
  abi::EventPattern PatternOf(uint32_t call) const;
  // The n-th launch behind `launch`.
  uint32_t LaunchAfter(uint32_t launch, int n) const;

  const LaunchLog& log;
  const std::vector<abi::CallRecord>& calls;
  const Occurrences& occurrences;
  const Loop& loop;
  size_t graphs = 0;              // number of different ones
  uint32_t inner_iterations = 1;  // micro-batches

 private:
  // The number of batches copied per loop iteration for micro-batches: the same calls follow each
  // copy.
  uint32_t MicroBatches() const;
};

// Any call of the operation.
abi::EventPattern On(abi::Op op);
bool IsNvtxStart(abi::Op op);

inline constexpr size_t kStudiedIterations = 10;

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_RULE_CONTEXT_H_
