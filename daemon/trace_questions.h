// What is asked of a job's traces: are they understood (replay), and what would a change do to the
// run (docs/using/whatif.md). Traces are our own windows and those that were imported.
//
// Threading: thread-safe; each question works on its caller's thread, with the memory of the
// traces and of a changed copy. Ownership: keeps a pointer to the store, and the traces that were
// asked for last, up to kKeptTasks.
#ifndef DAEMON_TRACE_QUESTIONS_H_
#define DAEMON_TRACE_QUESTIONS_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/jobs/answers.h"
#include "daemon/recorded_run.h"
#include "daemon/store/store.h"
#include "daemon/traces/chrome_writer.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

class TraceQuestions {
 public:
  explicit TraceQuestions(Store* store);
  ~TraceQuestions();

  // FailedPrecondition where no iteration was traced. Cancelled when `cancelled` says so.
  absl::StatusOr<v1::ReplayReply> Replay(const jobs::Answers& answers, Cancelled cancelled);
  // The traces and below them their replays, as Chrome trace events, for looking at; one of them at
  // a time is in memory. FailedPrecondition as above; Cancelled when the receiver went away.
  absl::Status WriteReplay(const jobs::Answers& answers, traces::WriteFunction write);
  // `roofline`: the kernels whose position was measured. InvalidArgument: a change that is not
  // understood, with its place.
  absl::StatusOr<v1::WhatIfReply> WhatIf(const jobs::Answers& answers,
                                         const v1::GetRooflineReply& roofline,
                                         const v1::WhatIfRequest& request, Cancelled cancelled);

 private:
  static constexpr int64_t kKeptTasks = 1'000'000;  // about 100 bytes each

  absl::StatusOr<std::shared_ptr<const RecordedRun>> Read(const jobs::Answers& answers,
                                                          Cancelled cancelled);

  Store* const store_;
  absl::Mutex mutex_;
  std::shared_ptr<const RecordedRun> kept_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint

#endif  // DAEMON_TRACE_QUESTIONS_H_
