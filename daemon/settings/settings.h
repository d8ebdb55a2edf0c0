// Settings of seqpointd, from the command line, variables and a file (docs/using/operating.md).
//
//   auto settings = LoadSettings(argc, argv);
//   if (!settings->answer.empty()) print it and end;
//
// The command line goes before a variable, which goes before the file. The variable of
// --max-job-age is SEQPOINTD_MAX_JOB_AGE, and its key in the file is max-job-age.
//
// Threading: one thread; it reads the environment. Ownership: values only.
#ifndef DAEMON_SETTINGS_SETTINGS_H_
#define DAEMON_SETTINGS_SETTINGS_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/rpc/server.h"
#include "daemon/rpc/uplink.h"
#include "daemon/service/daemon.h"

namespace seqpoint::settings {

struct Settings {
  service::DaemonOptions daemon;
  rpc::ServerOptions server;
  rpc::UplinkOptions uplink;  // the certificate and the key are those of `server`
  std::string directory;      // of inject.sock and api.sock
  std::string log_path;       // empty: standard error
  std::string log_level = "info";
  std::string log_format = "text";
  std::string allowed_users;    // as they were given
  std::string metrics_address;  // "host:port"; empty: none
  bool private_daemon = false;

  // Of --help, --version and --check-config: to print instead of running.
  std::string answer;
  // By key, as text, secrets masked.
  std::map<std::string, std::string> values;
};

// InvalidArgument: a sentence that names the option, key or variable, and the file.
absl::StatusOr<Settings> LoadSettings(int argc, const char* const* argv);

// SEQPOINTD_MAX_JOB_AGE for "max-job-age".
std::string VariableOf(std::string_view key);
// Passwords in a URL, or as libpq takes them (password=...), become ***.
std::string WithoutSecrets(std::string_view value);

// The keys whose values are not the same in both. First those that take effect with a reload.
struct Difference {
  std::vector<std::string> reloaded;
  std::vector<std::string> at_next_start;
};
Difference Compare(const Settings& before, const Settings& after);

}  // namespace seqpoint::settings

#endif  // DAEMON_SETTINGS_SETTINGS_H_
