// A recorded trace as the stream of calls that the injected library would have sent, so that the
// learner of iterations can be shown jobs that ran elsewhere.
//
// Calls are those of the runtime and driver that reach a stream, in call order, each with the name,
// geometry and bytes of the GPU work it caused; calls whose work ran outside of the recorded window
// are left out. A trace without calls gives each of its works as a call at its start. Annotations
// are not turned into calls.
//
// Threading: free functions. Ownership: values only.
#ifndef DAEMON_TRACES_CALL_RECORDS_H_
#define DAEMON_TRACES_CALL_RECORDS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/trace/trace.h"
#include "injection/abi/records.h"

namespace seqpoint::traces {

struct CallRecords {
  std::vector<abi::CallRecord> calls;                     // name ids are those of the trace
  std::vector<std::pair<uint32_t, uint64_t>> gpu_starts;  // correlation id, ns
};

// The operation of a call that causes such work.
abi::Op OpOf(trace::WorkKind kind);

CallRecords ToCallRecords(const trace::Trace& trace);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_CALL_RECORDS_H_
