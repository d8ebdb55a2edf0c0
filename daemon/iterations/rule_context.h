// A found loop with what all who look for events to know its iterations by ask of it.
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

  uint32_t What(uint32_t call) const { return log.symbols()[call].of[0]; }
  abi::Op OpAt(uint32_t call) const { return static_cast<abi::Op>(calls[call].op); }
  // The last few regular loop iterations, ascending.
  std::vector<size_t> RegularIterations() const;
  // By operation, and by name where the name tells something.
  abi::EventPattern PatternOf(uint32_t call) const;
  // The n-th launch behind `launch`.
  uint32_t LaunchAfter(uint32_t launch, int n) const;

  const LaunchLog& log;
  const std::vector<abi::CallRecord>& calls;
  const Occurrences& occurrences;
  const Loop& loop;
  size_t graphs = 0;              // different ones
  uint32_t inner_iterations = 1;  // micro-steps

 private:
  // Batches copied per loop iteration for micro-steps: the same calls follow each of them.
  uint32_t MicroBatches() const;
};

// Any call of the operation.
abi::EventPattern On(abi::Op op);
bool IsNvtxBegin(abi::Op op);
uint32_t CountLaunches(const std::vector<abi::CallRecord>& calls, uint32_t begin, uint32_t end);

inline constexpr size_t kStudiedIterations = 10;

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_RULE_CONTEXT_H_
