// The daemon's answers to those who watch over it: /metrics, /healthz and /readyz
// (docs/using/operating.md). Nothing is counted for it: each answer is made of what the daemon
// knows when somebody asks.
//
//   Probes probes(daemon.get());
//   HttpServer::Start(address, [&](std::string_view path) { return probes.Answer(path); });
//
// Threading: thread-safe. Ownership: keeps a pointer to the daemon, which outlives it.
#ifndef DAEMON_OPERATE_PROBES_H_
#define DAEMON_OPERATE_PROBES_H_

#include <atomic>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "daemon/operate/http_server.h"
#include "daemon/service/daemon.h"

namespace seqpoint::operate {

class Probes {
 public:
  // The ingest loop turns a hundred times a second, and a commit on a slow disk takes seconds. One
  // that does not turn for so long is stuck.
  static constexpr absl::Duration kStuck = absl::Seconds(60);
  // Live jobs with figures of their own, the latest first. Each has five series.
  static constexpr int kMostJobs = 100;

  explicit Probes(service::Daemon* daemon) : daemon_(*daemon) {}

  HttpReply Answer(std::string_view path) const;

  // Empty while the ingest loop makes progress; else a sentence. Takes no lock.
  std::string WhyNotHealthy() const;
  // Empty while records are read and stored; else a sentence. Waits 2 s at most for others.
  std::string WhyNotReady() const;
  // One sentence for people.
  std::string Status() const;
  void SetEnding() { ending_ = true; }

 private:
  std::string Metrics() const;

  service::Daemon& daemon_;
  std::atomic<bool> ending_ = false;
};

}  // namespace seqpoint::operate

#endif  // DAEMON_OPERATE_PROBES_H_
