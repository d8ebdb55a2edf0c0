// ChangeSignal: a wait with a time limit for a change of what an absl::Mutex guards.
//
//   absl::MutexLock lock(&mutex_);
//   if (!changed_.Await(mutex_, absl::Seconds(1), [this] { return done_; })) ...
//
// Abseil's own timed waits go by the wall clock: they last as much longer as it is set back, and
// end at once when it is set forward. This one goes by the monotonic clock.
//
// Threading: thread-safe.
#ifndef DAEMON_BASE_CHANGE_SIGNAL_H_
#define DAEMON_BASE_CHANGE_SIGNAL_H_

#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace seqpoint {

class ChangeSignal {
 public:
  // Call it after a change: each waiting thread checks its condition again.
  void NotifyAll() { changed_.notify_all(); }

  // `mutex` is held before, after, and while `condition` is asked. False: `timeout`, of at most
  // hours, has passed and the condition does not hold.
  template <typename Condition>
  bool Await(absl::Mutex& mutex, absl::Duration timeout, Condition condition)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Lockable lockable{mutex};
    return changed_.wait_for(lockable, absl::ToChronoNanoseconds(timeout), condition);
  }

 private:
  struct Lockable {
    absl::Mutex& mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
  };

  std::condition_variable_any changed_;
};

}  // namespace seqpoint

#endif  // DAEMON_BASE_CHANGE_SIGNAL_H_
