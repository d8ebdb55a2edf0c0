// SlowReaders: ends calls whose client does not take a message within some time. Such a call holds
// one of the threads that answer all clients, for as long as its client likes.
//
// gRPC's synchronous calls have no deadline for a write. This watches each message from outside, as
// an interceptor, and cancels the call.
//
// Threading: a thread of its own; gRPC makes interceptors on any. Ownership: outlives the server.
#ifndef DAEMON_RPC_SLOW_READERS_H_
#define DAEMON_RPC_SLOW_READERS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/base/change_signal.h"
#include "daemon/base/line_limit.h"

namespace seqpoint::rpc {

class SlowReaders {
 public:
  explicit SlowReaders(absl::Duration patience);
  ~SlowReaders();
  SlowReaders(const SlowReaders&) = delete;
  SlowReaders& operator=(const SlowReaders&) = delete;

  // For the server's builder.
  class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
   public:
    explicit Factory(SlowReaders* readers) : readers_(*readers) {}
    grpc::experimental::Interceptor* CreateServerInterceptor(
        grpc::experimental::ServerRpcInfo* info) override;

   private:
    SlowReaders& readers_;
  };

 private:
  class Call;
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration patience_;
  LineLimit lines_;
  absl::Mutex mutex_;
  ChangeSignal changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Calls with a message under way, and since when, on the monotonic clock.
  std::map<grpc::ServerContextBase*, absl::Duration> writing_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_SLOW_READERS_H_
