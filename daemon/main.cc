// seqpointd: the daemon of one node.
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/descriptors.h"
#include "daemon/base/retry.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/uplink.h"
#include "daemon/service/daemon.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/spdlog.h"

namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where the sockets are: $SEQPOINT_DIR, else $XDG_RUNTIME_DIR/seqpoint, else /run/seqpoint.
std::string DefaultDirectory() {
  if (const std::string own = Environment("SEQPOINT_DIR"); !own.empty()) return own;
  if (const std::string runtime = Environment("XDG_RUNTIME_DIR"); !runtime.empty()) {
    return runtime + "/seqpoint";
  }
  return "/run/seqpoint";
}

std::string DefaultStore() {
  if (const std::string state = Environment("XDG_STATE_HOME"); !state.empty()) {
    return state + "/seqpoint/seqpoint.db";
  }
  std::string home = Environment("HOME");
  // Services and containers often leave it out: then what the system says of this user.
  if (const passwd* user = home.empty() ? getpwuid(getuid()) : nullptr) home = user->pw_dir;
  if (!home.empty()) return home + "/.local/state/seqpoint/seqpoint.db";
  return "/var/lib/seqpoint/seqpoint.db";
}

constexpr int kUsage = 2;
// The locks of a killed daemon go with its memory, which takes seconds where that is large.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
constexpr int64_t kMost = 1'000'000'000'000'000'000;

CLI::Validator WholeNumber(int64_t most) {
  return CLI::Validator(
      [most](std::string& text) {
        int64_t value = 0;
        if (!absl::SimpleAtoi(text, &value) || value < 0 || value > most) {
          return absl::StrCat("\"", text.substr(0, 60), "\" is not a whole number from 0 to ",
                              most);
        }
        text = absl::StrCat(value);  // CLI11 would read 010 as 8
        return std::string();
      },
      /*validator_desc=*/"");
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "seqpointd: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory = DefaultDirectory();
  std::string store_path = DefaultStore();
  std::string log_path;
  bool private_daemon = false;
  seqpoint::service::DaemonOptions options;
  seqpoint::rpc::ServerOptions server_options;
  seqpoint::rpc::UplinkOptions uplink_options;

  CLI::App app{
      "SeqPoint Profiler daemon: reads the rings of training processes, answers over gRPC"};
  app.set_version_flag("--version", SEQPOINT_VERSION, "print the version");
  app.add_option("--dir", directory, "directory of inject.sock and api.sock")
      ->capture_default_str();
  app.add_option("--store", store_path, "SQLite file with all jobs and their data")
      ->capture_default_str();
  app.add_option("--log", log_path, "log file (default: standard error)");
  app.add_option("--max-store-bytes", options.retention.max_store_bytes,
                 "remove the oldest ended jobs when the store is larger than this; 0: no limit")
      ->transform(WholeNumber(kMost))
      ->capture_default_str();
  app.add_option("--max-job-age", options.retention.max_job_age_s,
                 "remove ended jobs older than this, in seconds; 0: no limit")
      ->transform(WholeNumber(kMost))
      ->capture_default_str();
  app.add_option("--measurements", options.job.measurement_budget,
                 "how many iterations of a job are measured in detail")
      ->capture_default_str()
      ->transform(WholeNumber(4096));
  app.add_option("--listen", server_options.tcp_address,
                 "also serve clients with a certificate on host:port, over TLS");
  app.add_option("--tls-certificate", server_options.tls_certificate_file,
                 "PEM file of the certificate chain");
  app.add_option("--tls-key", server_options.tls_key_file, "PEM file of the key");
  app.add_option("--tls-client-ca", server_options.tls_client_ca_file,
                 "PEM file of the certificate authority of the clients; required with --listen");
  app.add_option("--hub", uplink_options.address,
                 "tell this hub of all jobs: host:port, over TLS, or unix:PATH");
  app.add_option("--hub-ca", uplink_options.tls_ca_file,
                 "PEM file of the certificate authority of the hub");
  app.add_flag("--accept-nodes", options.takes_nodes,
               "be a hub: take what nodes tell, on the same addresses as clients");
  app.add_flag("--move-corrupt-store-aside", options.store.move_corrupt_aside,
               "rename a damaged store and start a new one");
  app.add_flag("--private", private_daemon,
               "end 10 s after the last process and the last question");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "seqpointd: %s; see seqpointd --help\n", error.what());
    return kUsage;
  }

  if (options.takes_nodes && !uplink_options.address.empty()) {
    std::fprintf(stderr,
                 "seqpointd: a hub tells no other hub; leave out --hub or --accept-nodes\n");
    return kUsage;
  }

  // Signals come through a descriptor; no thread is ever interrupted.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk: write says so

  if (!log_path.empty()) {
    try {
      spdlog::set_default_logger(spdlog::basic_logger_mt("seqpointd", log_path));
      spdlog::flush_on(spdlog::level::info);
    } catch (const spdlog::spdlog_ex& error) {
      return Fail(absl::PermissionDeniedError(error.what()));
    }
  }

  options.ingest.directory = directory;
  options.store_path = store_path;
  if (private_daemon) options.ingest.end_when_idle = absl::Seconds(10);
  server_options.socket_path = directory + "/api.sock";

  const auto shares = seqpoint::RaiseDescriptorLimit();
  if (!shares.ok()) return Fail(shares.status());
  options.ingest.lock_patience = kLockPatience;
  options.ingest.max_processes = shares->processes;
  server_options.max_connections = shares->api_connections;

  options.has_hub = !uplink_options.address.empty();
  auto daemon = seqpoint::service::Daemon::Start(options);
  if (!daemon.ok()) return Fail(daemon.status());
  server_options.hub = (*daemon)->hub();
  auto server = seqpoint::RetryWhileTaken(kLockPatience, [&] {
    return seqpoint::rpc::Server::Start(server_options, &(*daemon)->backend());
  });
  if (!server.ok()) return Fail(server.status());
  std::unique_ptr<seqpoint::rpc::Uplink> uplink;
  if (options.has_hub) {
    uplink_options.tls_certificate_file = server_options.tls_certificate_file;
    uplink_options.tls_key_file = server_options.tls_key_file;
    auto started = seqpoint::rpc::Uplink::Start(uplink_options, (*daemon)->outbox(),
                                                &(*daemon)->trace_answers());
    if (!started.ok()) return Fail(started.status());
    uplink = *std::move(started);
  }
  spdlog::info("ready: {}, store {}; at most {} processes, {} clients", server_options.socket_path,
               store_path, shares->processes, shares->api_connections);

  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  pollfd wait = {.fd = signal_fd, .events = POLLIN, .revents = 0};
  while (poll(&wait, 1, 500) <= 0) {
    const bool asked = (*server)->since_last_question() <= options.ingest.end_when_idle;
    if ((*daemon)->idle() && !asked) break;
  }
  (*server)->Stop(absl::Seconds(1));
  (*daemon)->Stop();
  uplink.reset();
  return 0;
}
