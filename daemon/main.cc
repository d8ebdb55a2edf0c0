// seqpointd: the daemon of one node.
#include <grpc/support/log.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/base/descriptors.h"
#include "daemon/base/line_limit.h"
#include "daemon/base/retry.h"
#include "daemon/operate/http_server.h"
#include "daemon/operate/log_format.h"
#include "daemon/operate/notify.h"
#include "daemon/operate/probes.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/uplink.h"
#include "daemon/service/daemon.h"
#include "daemon/settings/settings.h"
#include "proto/tls_versions.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace {

using seqpoint::operate::Notifier;
using seqpoint::operate::Probes;
using seqpoint::settings::Settings;

constexpr int kUsage = 2;
// The locks of a killed daemon go with its memory, which takes seconds where that is large.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
// How soon a private daemon sees that it is idle.
constexpr int kLookMs = 500;
// The line in systemctl status is at most so old.
constexpr absl::Duration kStatusInterval = absl::Seconds(10);

int Fail(const absl::Status& status, int exit_code = 1) {
  std::fprintf(stderr, "seqpointd: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

absl::Duration Now() { return absl::Nanoseconds(seqpoint::Clock::System().MonotonicNs()); }

// A handshake that failed is a line of gRPC's log, and peers can fail as often as they like.
void LogOfGrpc(gpr_log_func_args* line) {
  static seqpoint::LineLimit& limit = *new seqpoint::LineLimit;
  if (line->severity == GPR_LOG_SEVERITY_DEBUG) return;
  if (const auto left_out = limit.Admit()) {
    spdlog::warn("gRPC: {}{}", line->message, seqpoint::LeftOut(*left_out));
  }
}

absl::Status StartLog(const Settings& settings) {
  if (!settings.log_path.empty()) {
    try {
      spdlog::set_default_logger(spdlog::basic_logger_mt("seqpointd", settings.log_path));
      spdlog::flush_on(spdlog::level::info);
    } catch (const spdlog::spdlog_ex& error) {
      return absl::PermissionDeniedError(error.what());
    }
  } else {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  }
  spdlog::set_level(spdlog::level::from_str(settings.log_level));
  if (settings.log_format == "json") {
    spdlog::set_formatter(std::make_unique<seqpoint::operate::JsonLogFormatter>());
  }
  return absl::OkStatus();
}

// SIGHUP asks for it. A file that is wrong changes nothing.
void Reload(int argc, char** argv, Settings& settings, seqpoint::service::Daemon& daemon) {
  auto next = seqpoint::settings::LoadSettings(argc, argv);
  if (!next.ok()) {
    spdlog::error("the settings stay as they are: {}", std::string(next.status().message()));
    return;
  }
  const auto changed = seqpoint::settings::Compare(settings, *next);
  spdlog::set_level(spdlog::level::from_str(next->log_level));
  daemon.SetRetention(next->daemon.retention);
  spdlog::info("settings are read again; changed: {}",
               changed.reloaded.empty() ? "none" : absl::StrJoin(changed.reloaded, ", "));
  if (!changed.at_next_start.empty()) {
    spdlog::warn("changed, too, and take effect when the daemon is started again: {}",
                 absl::StrJoin(changed.at_next_start, ", "));
  }
  // Settings that take effect later still differ from those that run.
  settings.log_level = next->log_level;
  settings.daemon.retention = next->daemon.retention;
  for (const std::string& key : changed.reloaded) settings.values[key] = next->values[key];
}

// Answers signals and systemd until the daemon is to end.
class Watch {
 public:
  Watch(int argc, char** argv, Settings* settings, seqpoint::service::Daemon* daemon,
        seqpoint::rpc::Server* server, const Probes* probes, const Notifier* notifier)
      : argc_(argc),
        argv_(argv),
        settings_(*settings),
        daemon_(*daemon),
        server_(*server),
        probes_(*probes),
        notifier_(*notifier) {}

  void Run(int signal_fd) {
    pollfd wait = {.fd = signal_fd, .events = POLLIN, .revents = 0};
    while (true) {
      if (poll(&wait, 1, kLookMs) > 0) {
        signalfd_siginfo signal = {};
        if (read(signal_fd, &signal, sizeof signal) != sizeof signal) continue;
        if (signal.ssi_signo != SIGHUP || settings_.private_daemon) return;
        ReloadNow();
      }
      TellSystemd();
      const bool asked = server_.since_last_question() <= settings_.daemon.ingest.end_when_idle;
      if (daemon_.idle() && !asked) return;
    }
  }

 private:
  void ReloadNow() {
    notifier_.Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", absl::ToInt64Microseconds(Now())));
    Reload(argc_, argv_, settings_, daemon_);
    notifier_.Send("READY=1");
  }

  void TellSystemd() {
    const absl::Duration now = Now();
    const bool healthy = probes_.WhyNotHealthy().empty();
    const absl::Duration watchdog = notifier_.watchdog();
    if (healthy && watchdog > absl::ZeroDuration() && now - last_ping_ >= watchdog / 4) {
      notifier_.Send("WATCHDOG=1");
      last_ping_ = now;
    }
    // A loop that is stuck may hold the locks that a status needs.
    if (!notifier_.on() || now - last_status_ < kStatusInterval) return;
    notifier_.Send(absl::StrCat("STATUS=", healthy ? probes_.Status() : probes_.WhyNotHealthy()));
    last_status_ = now;
  }

  const int argc_;
  char** const argv_;
  Settings& settings_;
  seqpoint::service::Daemon& daemon_;
  seqpoint::rpc::Server& server_;
  const Probes& probes_;
  const Notifier& notifier_;
  absl::Duration last_ping_ = -absl::InfiniteDuration();
  absl::Duration last_status_ = -absl::InfiniteDuration();
};

int Serve(int argc, char** argv, Settings& settings) {
  // Signals come through a descriptor; no thread is ever interrupted.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk: write says so

  seqpoint::RequireTls13();
  gpr_set_log_function(&LogOfGrpc);
  if (const absl::Status status = StartLog(settings); !status.ok()) return Fail(status);
  const Notifier notifier;

  const auto shares = seqpoint::RaiseDescriptorLimit();
  if (!shares.ok()) return Fail(shares.status());
  settings.daemon.ingest.lock_patience = kLockPatience;
  settings.daemon.ingest.max_processes = shares->processes;
  settings.server.max_connections = shares->api_connections;

  auto daemon = seqpoint::service::Daemon::Start(settings.daemon);
  if (!daemon.ok()) return Fail(daemon.status());
  settings.server.hub = (*daemon)->hub();
  auto server = seqpoint::RetryWhileTaken(kLockPatience, [&] {
    return seqpoint::rpc::Server::Start(settings.server, &(*daemon)->backend());
  });
  if (!server.ok()) return Fail(server.status());
  std::unique_ptr<seqpoint::rpc::Uplink> uplink;
  if (settings.daemon.has_hub) {
    auto started = seqpoint::rpc::Uplink::Start(settings.uplink, (*daemon)->outbox(),
                                                &(*daemon)->trace_answers());
    if (!started.ok()) return Fail(started.status());
    uplink = *std::move(started);
  }
  Probes probes(daemon->get());
  std::unique_ptr<seqpoint::operate::HttpServer> http;
  if (!settings.metrics_address.empty()) {
    auto started = seqpoint::operate::HttpServer::Start(
        settings.metrics_address, [&](std::string_view path) { return probes.Answer(path); });
    if (!started.ok()) return Fail(started.status());
    http = *std::move(started);
    spdlog::info("metrics on port {}", http->port());
  }
  spdlog::info("ready: {}, store {}; at most {} processes, {} clients", settings.server.socket_path,
               settings.values["store"], shares->processes, shares->api_connections);
  notifier.Send("READY=1");

  Watch(argc, argv, &settings, daemon->get(), server->get(), &probes, &notifier)
      .Run(signalfd(-1, &signals, SFD_CLOEXEC));

  notifier.Send("STOPPING=1\nSTATUS=stops: what was read is committed");
  probes.SetEnding();
  (*server)->Stop(absl::Seconds(1));
  (*daemon)->Stop();
  uplink.reset();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto settings = seqpoint::settings::LoadSettings(argc, argv);
  if (!settings.ok()) return Fail(settings.status(), kUsage);
  if (!settings->answer.empty()) {
    std::fputs(settings->answer.c_str(), stdout);
    return 0;
  }
  return Serve(argc, argv, *settings);
}
