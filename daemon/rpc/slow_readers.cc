#include "daemon/rpc/slow_readers.h"

#include <string>

#include "absl/strings/match.h"
#include "daemon/base/clock.h"
#include "spdlog/spdlog.h"

namespace seqpoint::rpc {
namespace {

// A call is over its time by at most this share of it.
constexpr int kLooksInPatience = 4;

absl::Duration MonotonicNow() { return absl::Nanoseconds(Clock::System().MonotonicNs()); }

}  // namespace

// One call's.
class SlowReaders::Call final : public grpc::experimental::Interceptor {
 public:
  Call(SlowReaders* readers, grpc::ServerContextBase* context)
      : readers_(*readers), context_(context) {}
  ~Call() override { Forget(); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    // Run() holds the lock while it cancels.
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_CANCEL)) return;
    if (methods->QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      absl::MutexLock lock(&readers_.mutex_);
      readers_.writing_[context_] = MonotonicNow();
    } else if (methods->QueryInterceptionHookPoint(Point::POST_SEND_MESSAGE)) {
      Forget();
    }
    methods->Proceed();
  }

 private:
  void Forget() {
    absl::MutexLock lock(&readers_.mutex_);
    readers_.writing_.erase(context_);
  }

  SlowReaders& readers_;
  grpc::ServerContextBase* const context_;
};

grpc::experimental::Interceptor* SlowReaders::Factory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  // Calls without a thread, which gRPC may finish while they are cancelled.
  for (const char* service : {"/seqpoint.v1.Ingest/", "/grpc.health."}) {
    if (absl::StartsWith(info->method(), service)) return nullptr;
  }
  return new Call(&readers_, info->server_context());
}

SlowReaders::SlowReaders(absl::Duration patience)
    : patience_(patience), thread_([this] { Run(); }) {}

SlowReaders::~SlowReaders() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void SlowReaders::Run() {
  absl::MutexLock lock(&mutex_);
  const auto stopped = [this] {
    mutex_.AssertReaderHeld();
    return stop_;
  };
  while (!changed_.Await(mutex_, patience_ / kLooksInPatience, stopped)) {
    const absl::Duration now = MonotonicNow();
    for (auto& [context, since] : writing_) {
      if (now - since < patience_) continue;
      // The call stays in the list until its thread notices.
      since = absl::InfiniteDuration();
      if (const auto left_out = lines_.Admit()) {
        spdlog::warn("a client did not take a message for {} and is cut off{}",
                     absl::FormatDuration(patience_), LeftOut(*left_out));
      }
      context->TryCancel();
    }
  }
}

}  // namespace seqpoint::rpc
