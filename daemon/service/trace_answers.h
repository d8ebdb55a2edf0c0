// TraceAnswers: the traced iterations of this node's processes, for a hub that asks for them
// (docs/formats/ingest.md, "Traces").
//
// Threading: thread-safe; an answer takes the registry's lock for a moment. Ownership: none; the
// parts outlive it.
#ifndef DAEMON_SERVICE_TRACE_ANSWERS_H_
#define DAEMON_SERVICE_TRACE_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/service/daemon_parts.h"
#include "seqpoint/v1/ingest.pb.h"

namespace seqpoint::service {

class TraceAnswers {
 public:
  // Uncompressed, of a part; compressed, of an answer.
  static constexpr size_t kMostPartBytes = 1 << 20;
  static constexpr size_t kMostAnswerBytes = 64 << 20;

  explicit TraceAnswers(const DaemonParts& parts) : parts_(parts) {}

  // Hands the parts of the answer to `send` in order, until it returns false.
  void Answer(const v1::TraceRequest& request,
              absl::FunctionRef<bool(const v1::TracePart&)> send) const;

 private:
  struct Found {
    ProcessRow process;
    std::vector<std::pair<int64_t, int64_t>> iterations;  // the job's numbers, the process' own
  };
  absl::StatusOr<Found> Find(const v1::TraceRequest& request) const;
  // Says what is missing, and why; empty: nothing.
  std::string SendAll(const v1::TraceRequest& request,
                      absl::FunctionRef<bool(const v1::TracePart&)> send) const;

  const DaemonParts parts_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_TRACE_ANSWERS_H_
