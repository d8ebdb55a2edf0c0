// Reads a recorded trace as a launch stream, so that the learner can be judged on jobs that ran
// elsewhere: PyTorch profiler (Kineto) Chrome JSON, and the CSV of GPU activities in start order
// ("start_us,dur_us,stream,name_id,size" with a "#names" list). Either may be gzipped.
//
// A Kineto trace's calls are its runtime and driver calls in call order, each with the name,
// geometry and bytes of the GPU work it caused. Annotations are not turned into calls: they are the
// markers that the learner is judged by.
//
// Threading: free functions. Ownership: values only.
#ifndef DAEMON_ITERATIONS_TRACE_READER_H_
#define DAEMON_ITERATIONS_TRACE_READER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "injection/abi/records.h"

namespace seqpoint::iterations {

struct Marker {
  std::string name;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

struct RecordedTrace {
  std::vector<std::string> names;  // by name id; 0 is empty
  std::vector<abi::CallRecord> calls;
  std::vector<std::pair<uint32_t, uint64_t>> gpu_starts;  // correlation id, ns
  std::vector<Marker> markers;                            // begin ascending
};

// `marker_prefix`: annotations whose name begins so become markers ("ProfilerStep#"). NotFound when
// the file cannot be read, InvalidArgument when it is neither format.
absl::StatusOr<RecordedTrace> ReadTrace(const std::string& path, const std::string& marker_prefix);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_TRACE_READER_H_
