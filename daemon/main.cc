// seqpointd: the daemon of one node.
#include <grpc/support/log.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/base/descriptors.h"
#include "daemon/base/line_limit.h"
#include "daemon/base/retry.h"
#include "daemon/base/status_macros.h"
#include "daemon/operate/http_server.h"
#include "daemon/operate/log_format.h"
#include "daemon/operate/notify.h"
#include "daemon/operate/probes.h"
#include "daemon/operate/start_note.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/standby.h"
#include "daemon/rpc/uplink.h"
#include "daemon/service/daemon.h"
#include "daemon/settings/settings.h"
#include "proto/tls_versions.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace {

using seqpoint::Store;
using seqpoint::operate::HttpReply;
using seqpoint::operate::HttpServer;
using seqpoint::operate::Notifier;
using seqpoint::operate::Probes;
using seqpoint::rpc::Standby;
using seqpoint::settings::Settings;

constexpr int kUsage = 2;
// The locks of a killed daemon go with its memory, which takes seconds where that is large.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
// A hub that answers has the last reports within its next commit, unless many nodes end at once.
constexpr absl::Duration kHubPatience = absl::Seconds(3);
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
  } else {
    spdlog::set_formatter(std::make_unique<seqpoint::operate::TextLogFormatter>());
  }
  return absl::OkStatus();
}

// SIGHUP asks for it. A file that is wrong changes nothing. `daemon`: null on standby.
void Reload(int argc, char** argv, Settings& settings, seqpoint::service::Daemon* daemon) {
  auto next = seqpoint::settings::LoadSettings(argc, argv);
  if (!next.ok()) {
    spdlog::error("the settings stay as they are: {}", std::string(next.status().message()));
    return;
  }
  const auto changed = seqpoint::settings::Compare(settings, *next);
  spdlog::set_level(spdlog::level::from_str(next->log_level));
  if (daemon != nullptr) daemon->SetRetention(next->daemon.retention);
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

// The number of a signal that has come, or comes within kLookMs; else 0.
uint32_t NextSignal(int signal_fd) {
  pollfd wait = {.fd = signal_fd, .events = POLLIN, .revents = 0};
  signalfd_siginfo signal = {};
  if (poll(&wait, 1, kLookMs) <= 0) return 0;
  return read(signal_fd, &signal, sizeof signal) == sizeof signal ? signal.ssi_signo : 0;
}

// Answers signals and systemd while the daemon runs.
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

  // Why the lease of a store that others share is lost. Empty: the daemon is to end.
  std::string Run(int signal_fd) {
    while (true) {
      const uint32_t signal = NextSignal(signal_fd);
      if (signal == SIGHUP && !settings_.private_daemon) {
        ReloadNow();
      } else if (signal != 0) {
        return "";
      }
      if (!settings_.daemon.peer_address.empty()) {
        if (std::string lost = daemon_.LostLease(); !lost.empty()) return lost;
      }
      TellSystemd();
      const bool asked = server_.since_last_question() <= settings_.daemon.ingest.end_when_idle;
      if (daemon_.idle() && !asked) return "";
    }
  }

 private:
  void ReloadNow() {
    notifier_.Send(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", absl::ToInt64Microseconds(Now())));
    Reload(argc_, argv_, settings_, &daemon_);
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

HttpReply AnswerOnStandby(std::string_view path, const Standby& standby) {
  const Standby::Leader leader = standby.leader();
  if (path == "/healthz") return {.body = "healthy\n"};
  if (path == "/readyz" && !leader.error.empty()) {
    return {.status = 503, .body = absl::StrCat(leader.error, "\n")};
  }
  if (path == "/readyz") {
    return {.body = absl::StrCat("ready: calls are passed to hub ", leader.address, "\n")};
  }
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = "# TYPE seqpointd_leads gauge\nseqpointd_leads 0\n"};
  }
  return {.status = 404, .body = "there is /metrics, /healthz and /readyz\n"};
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(const Settings& settings,
                                                      HttpServer::Handler answer) {
  if (settings.metrics_address.empty()) return nullptr;
  SEQPOINT_ASSIGN_OR_RETURN(auto http,
                            HttpServer::Start(settings.metrics_address, std::move(answer)));
  spdlog::info("metrics on port {}", http->port());
  return http;
}

// Clients find it while this daemon is down. A private one is started by whoever needs it.
void LeaveNote(int argc, char** argv, const Settings& settings) {
  if (settings.private_daemon) return;
  std::vector<std::string> command;
  for (const char* const* entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, "SEQPOINTD_")) {
      command.push_back(seqpoint::settings::WithoutSecrets(*entry));
    }
  }
  if (!command.empty()) command.insert(command.begin(), "env");
  command.insert(command.end(), argv, argv + argc);
  const bool is_hub = settings.daemon.takes_nodes, is_node = settings.daemon.has_hub;
  seqpoint::operate::LeaveStartNote(settings.directory,
                                    is_hub    ? "hub"
                                    : is_node ? "node's daemon"
                                              : "daemon",
                                    command);
}

// Passes calls to the hub that leads until this one does. Null: the daemon is to end.
absl::StatusOr<std::unique_ptr<Store>> AwaitLease(int argc, char** argv, Settings& settings,
                                                  const Notifier& notifier, int signal_fd) {
  seqpoint::rpc::StandbyOptions options = {
      .server = settings.server,
      .relay = {.own_address = settings.daemon.peer_address, .files = settings.uplink.files},
      .store_path = settings.daemon.store_path,
      .store = settings.daemon.store};
  options.store.standby = true;
  mkdir(settings.directory.c_str(), 0700);  // where that fails, listening there says so
  SEQPOINT_ASSIGN_OR_RETURN(const auto standby, Standby::Start(options));
  LeaveNote(argc, argv, settings);
  SEQPOINT_ASSIGN_OR_RETURN(const auto http, StartHttp(settings, [&](std::string_view path) {
                              return AnswerOnStandby(path, *standby);
                            }));
  notifier.Send("READY=1\nSTATUS=passes calls to the hub that leads");
  while (true) {
    if (auto store = standby->TakeLease()) {
      spdlog::info("this hub leads from now on");
      return store;
    }
    notifier.Send("WATCHDOG=1");
    const uint32_t signal = NextSignal(signal_fd);
    if (signal == SIGHUP) {
      Reload(argc, argv, settings, /*daemon=*/nullptr);
    } else if (signal != 0) {
      return nullptr;
    }
  }
}

// Runs the daemon. Returns as Watch::Run.
absl::StatusOr<std::string> Run(int argc, char** argv, Settings& settings, const Notifier& notifier,
                                int signal_fd, std::unique_ptr<seqpoint::service::Daemon> daemon) {
  settings.server.hub = daemon->hub();
  SEQPOINT_ASSIGN_OR_RETURN(const auto server, seqpoint::RetryWhileTaken(kLockPatience, [&] {
                              return seqpoint::rpc::Server::Start(settings.server,
                                                                  &daemon->backend());
                            }));
  LeaveNote(argc, argv, settings);
  std::unique_ptr<seqpoint::rpc::Uplink> uplink;
  if (settings.daemon.has_hub) {
    SEQPOINT_ASSIGN_OR_RETURN(
        uplink,
        seqpoint::rpc::Uplink::Start(settings.uplink, daemon->outbox(), &daemon->trace_answers()));
  }
  // Another hub would find out once this one is needed.
  std::future<void> looks;
  if (!settings.daemon.peer_address.empty()) {
    looks = std::async(std::launch::async, [&settings] {
      const std::string why =
          seqpoint::rpc::WhyNotFound(settings.daemon.peer_address, settings.uplink.files);
      if (why.empty()) return;
      spdlog::warn(
          "other hubs do not reach this one at --peer-address {}: {}; until that is "
          "right, what they are asked gets no answer",
          settings.daemon.peer_address, why);
    });
  }
  Probes probes(daemon.get());
  SEQPOINT_ASSIGN_OR_RETURN(const auto http, StartHttp(settings, [&](std::string_view path) {
                              return probes.Answer(path);
                            }));
  // A hub that shares its store takes none.
  const size_t processes = settings.daemon.ingest.max_processes;
  spdlog::info("ready: {}, store {}; at most {}{} clients", settings.server.socket_path,
               settings.values["store"],
               processes > 0 ? absl::StrCat(processes, " processes, ") : "",
               settings.server.max_connections);
  notifier.Send("READY=1");

  std::string lost =
      Watch(argc, argv, &settings, daemon.get(), server.get(), &probes, &notifier).Run(signal_fd);
  if (lost.empty()) notifier.Send("STOPPING=1\nSTATUS=stops: what was read is committed");
  probes.SetEnding();
  // Answers of a hub that does not lead any more are old.
  server->Stop(lost.empty() ? absl::Seconds(1) : absl::ZeroDuration());
  daemon->Stop();
  if (uplink != nullptr) {
    daemon->outbox()->Finish();
    if (!daemon->outbox()->AwaitHub(kHubPatience)) {
      spdlog::info("the hub has not everything; the rest waits in the store for the next start");
    }
  }
  return lost;
}

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
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);

  seqpoint::RequireTls13();
  gpr_set_log_function(&LogOfGrpc);
  if (const absl::Status status = StartLog(settings); !status.ok()) return Fail(status);
  const Notifier notifier;

  const bool shares_store = !settings.daemon.peer_address.empty();
  const auto shares = seqpoint::RaiseDescriptorLimit();
  if (!shares.ok()) return Fail(shares.status());
  settings.daemon.ingest.lock_patience = kLockPatience;
  // The lease of a hub that was killed runs out, and then it is this one's.
  const bool has_lease = seqpoint::IsPostgresAddress(settings.daemon.store_path);
  if (has_lease) settings.daemon.ingest.lock_patience += settings.daemon.store.lease;
  // Another hub that leads would not reach the rings of this machine.
  settings.daemon.ingest.max_processes = shares_store ? 0 : shares->processes;
  settings.server.max_connections = shares->api_connections;

  std::string told;  // why the daemon could not start
  while (true) {
    std::unique_ptr<Store> store;
    if (shares_store) {
      auto leased = AwaitLease(argc, argv, settings, notifier, signal_fd);
      if (!leased.ok()) return Fail(leased.status());
      if (*leased == nullptr) return 0;
      store = *std::move(leased);
    }
    auto daemon = seqpoint::service::Daemon::Start(settings.daemon, std::move(store));
    if (absl::IsUnavailable(daemon.status()) && has_lease) {
      // A database is started again, or another server takes its place: a hub waits for it.
      const std::string why(daemon.status().message());
      if (why != told) spdlog::error("this hub cannot start: {}; it is tried again", why);
      told = why;
      notifier.Send("STATUS=waits for its database");
      const uint32_t signal = NextSignal(signal_fd);
      if (signal != 0 && signal != SIGHUP) return 0;
      continue;
    }
    if (!daemon.ok()) return Fail(daemon.status());
    told.clear();
    const auto lost = Run(argc, argv, settings, notifier, signal_fd, *std::move(daemon));
    if (!lost.ok()) return Fail(lost.status());
    if (lost->empty()) return 0;
    spdlog::error("{}; this hub forgets what it knows and passes calls to the one that leads",
                  *lost);
  }
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
