#include "client/commands/run/job_watcher.h"

#include <stdio.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/commands/run/say.h"
#include "client/text/format.h"

namespace seqpoint::client {
namespace {

constexpr absl::Duration kReconnectPause = absl::Milliseconds(500);
constexpr absl::Duration kRestartPause = absl::Seconds(20);

}  // namespace

JobWatcher::~JobWatcher() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  thread_.join();
}

void JobWatcher::Loop() {
  while (true) {
    grpc::ClientContext context;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stop_) return;
      context_ = &context;
    }
    v1::WatchJobRequest request;
    request.set_job(id_);
    auto reader = connection_->stub().WatchJob(&context, request);
    v1::WatchJobReply reply;
    while (reader->Read(&reply)) {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = reply.job();
    }
    reader->Finish().IgnoreError();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      context_ = nullptr;
      if (IsOver(job_)) {
        over_.Notify();
        return;
      }
      if (stop_) return;
    }
    absl::SleepFor(kReconnectPause);
    RestartDaemon();
  }
}

void JobWatcher::RestartDaemon() {
  const std::string socket = connection_->directory() + "/api.sock";
  const auto now = std::chrono::steady_clock::now();
  if (!private_daemon_ || now < next_start_ || Answers(socket)) return;
  next_start_ = now + absl::ToChronoSeconds(kRestartPause);
  if (const auto started = StartPrivateDaemon(); !started.ok()) {
    Say(absl::StrCat("the daemon is gone, and none could be started: ",
                     std::string(started.status().message())));
  }
}

}  // namespace seqpoint::client
