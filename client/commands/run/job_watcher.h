// The state of a job, kept up to date by a thread for as long as the job lives.
// Threading: one owner; job() and WaitForEnd() are thread-safe. Ownership: keeps a pointer to the
// connection, which outlives it; owns its thread.
#ifndef CLIENT_COMMANDS_RUN_JOB_WATCHER_H_
#define CLIENT_COMMANDS_RUN_JOB_WATCHER_H_

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "client/connection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Keeps the latest state of a job, for as long as it lives; connects again when the daemon was
// restarted.
class JobWatcher {
 public:
  // `private_daemon`: it was this program's to start, and is again when it is gone.
  JobWatcher(Connection* connection, bool private_daemon, const v1::Job& job)
      : private_daemon_(private_daemon),
        connection_(connection),
        id_(job.id()),
        job_(job),
        thread_([this] { Loop(); }) {}
  ~JobWatcher();

  v1::Job job() {
    std::lock_guard<std::mutex> lock(mutex_);
    return job_;
  }
  // Waits until the job is over; false when it is not after `timeout`.
  bool WaitForEnd(absl::Duration timeout) { return over_.WaitForNotificationWithTimeout(timeout); }

 private:
  void Loop();
  // The library holds the records that no daemon takes, but not for long.
  void RestartDaemon();

  const bool private_daemon_;
  std::chrono::steady_clock::time_point next_start_;
  Connection* const connection_;
  const std::string id_;
  std::mutex mutex_;
  v1::Job job_;                             // under mutex_
  grpc::ClientContext* context_ = nullptr;  // under mutex_
  bool stop_ = false;                       // under mutex_
  absl::Notification over_;
  std::thread thread_;
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_JOB_WATCHER_H_
