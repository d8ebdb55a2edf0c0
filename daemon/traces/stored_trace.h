// A recorded trace, and where its iterations begin, as bytes for the store and back.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_TRACES_STORED_TRACE_H_
#define DAEMON_TRACES_STORED_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/trace/trace.h"

namespace seqpoint::traces {

struct RecordedTrace {
  trace::Trace trace;
  std::vector<int64_t> iteration_starts_ns;  // on the CPU, ascending; one more may end the last one
  size_t iterations = 0;
  int64_t first_iteration = 0;  // number of the first one within the job
};

// ResourceExhausted: more than the 2 GiB that one message can have.
absl::StatusOr<std::string> ToBytes(const RecordedTrace& recorded);
// Trusts no byte: DataLoss for one that makes no sense, FailedPrecondition for another version.
absl::StatusOr<RecordedTrace> FromBytes(std::string_view bytes);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_STORED_TRACE_H_
