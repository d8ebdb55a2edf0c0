#include "daemon/settings/settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/base/json_string.h"
#include "daemon/base/status_macros.h"
#include "daemon/rpc/access.h"
#include "daemon/rpc/tls_files.h"
#include "daemon/settings/config_file.h"
#include "proto/host_name.h"
#include "proto/tls_probe.h"

namespace seqpoint::settings {
namespace {

constexpr std::string_view kPassword = "password";
constexpr std::string_view kKeywordLetters = "abcdefghijklmnopqrstuvwxyz_";
constexpr int64_t kMost = 1'000'000'000'000'000'000;

std::string Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
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

CLI::Validator OneOf(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        for (const std::string& word : words) {
          if (text == word) return std::string();
        }
        return absl::StrCat("\"", text.substr(0, 60), "\" is not one of ",
                            absl::StrJoin(words, ", "));
      },
      /*validator_desc=*/"");
}

// Reads the file for CLI11. A key whose variable is set is left out: the variable goes first.
class ConfigReader final : public CLI::ConfigTOML {
 public:
  ConfigReader(std::set<std::string> known, std::set<std::string>* found)
      : known_(std::move(known)), found_(*found) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& stream) const override {
    std::string text(kMostConfigBytes + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(stream.gcount()));
    auto items = ParseConfig(text, file_, known_);
    if (!items.ok()) {
      throw CLI::ConfigError(std::string(items.status().message()), CLI::ExitCodes::ConfigError);
    }
    std::erase_if(*items, [](const CLI::ConfigItem& item) {
      return !Environment(VariableOf(item.name)).empty();
    });
    for (const CLI::ConfigItem& item : *items) found_.insert(item.name);
    return *std::move(items);
  }

  void set_file(std::string file) { file_ = std::move(file); }

 private:
  const std::set<std::string> known_;
  std::set<std::string>& found_;
  std::string file_;
};

// The options, which write into `settings`.
void AddOptions(CLI::App& app, Settings& settings) {
  service::DaemonOptions& daemon = settings.daemon;
  app.add_option("--dir", settings.directory, "directory of inject.sock and api.sock");
  app.add_option("--store", daemon.store_path,
                 "SQLite file with all jobs and their data, or postgresql://USER@HOST/DATABASE "
                 "without a password (docs/formats/postgresql.md)");
  app.add_option("--log", settings.log_path, "log file (default: standard error)");
  app.add_option("--log-level", settings.log_level, "debug, info, warning or error")
      ->check(OneOf({"debug", "info", "warning", "error"}));
  app.add_option("--log-format", settings.log_format, "text, or json: an object a line")
      ->check(OneOf({"text", "json"}));
  app.add_option("--metrics-listen", settings.metrics_address,
                 "answer /metrics, /healthz and /readyz on host:port, over HTTP, to everybody");
  app.add_option("--max-store-bytes", daemon.retention.max_store_bytes,
                 "remove the oldest ended jobs when the store is larger than this; 0: no limit")
      ->transform(WholeNumber(kMost));
  app.add_option("--max-job-age", daemon.retention.max_job_age_s,
                 "remove ended jobs older than this, in seconds; 0: no limit")
      ->transform(WholeNumber(kMost));
  app.add_option("--measurements", daemon.job.measurement_budget,
                 "how many iterations of a job are measured in detail")
      ->transform(WholeNumber(4096));
  app.add_option("--allow-users", settings.allowed_users,
                 "users, by name or id, who may connect to the two sockets besides root and this "
                 "one: \"alice,1001\"");
  app.add_option("--listen", settings.server.tcp_address,
                 "also serve clients with a certificate on host:port, over TLS");
  app.add_option("--tls-certificate", settings.server.tls_certificate_file,
                 "PEM file of the certificate chain");
  app.add_option("--tls-key", settings.server.tls_key_file, "PEM file of the key");
  app.add_option("--tls-client-ca", settings.server.tls_client_ca_file,
                 "PEM file of the certificate authority of the clients; required with --listen, "
                 "unless there are --tokens");
  rpc::AccessOptions& access = settings.server.access;
  app.add_option("--control-names", access.control_names,
                 "certificates that may do everything with jobs, by their names: \"admin,*.ops\"");
  app.add_option("--read-names", access.read_names, "certificates that may ask and not change");
  app.add_option("--node-names", access.node_names, "certificates that may report as nodes");
  app.add_option("--tokens", access.token_file,
                 "file of tokens that clients may show instead of a certificate: lines "
                 "`read NAME SHA256` or `control NAME SHA256`");
  app.add_option("--hub", settings.uplink.addresses,
                 "tell this hub of all jobs: host:port, over TLS, or unix:PATH; or the first that "
                 "answers of several, separated by commas");
  app.add_option("--hub-ca", settings.uplink.files.authorities,
                 "PEM file of the certificate authority of the hub");
  app.add_flag("--accept-nodes", daemon.takes_nodes,
               "be a hub: take what nodes tell, on the same addresses as clients");
  app.add_option("--peer-address", settings.daemon.peer_address,
                 "be one of several hubs on one PostgreSQL; the others reach this one here: "
                 "host:port, over TLS, or unix:PATH");
  app.add_flag("--move-corrupt-store-aside", daemon.store.move_corrupt_aside,
               "rename a damaged store and start a new one");
  app.add_flag("--private", settings.private_daemon,
               "end 10 s after the last process and the last question");
}

bool OnCommandLine(int argc, const char* const* argv, const std::string& key) {
  for (int i = 1; i < argc; ++i) {
    if (absl::StrCat("--", key) == argv[i] ||
        absl::StartsWith(argv[i], absl::StrCat("--", key, "="))) {
      return true;
    }
  }
  return false;
}

std::string KeyOf(const CLI::Option& option) { return option.get_single_name(); }

std::string TextOf(const CLI::Option& option) {
  const bool flag = option.get_expected_max() == 0;
  if (flag) return option.count() > 0 && option.as<bool>() ? "true" : "false";
  return option.count() > 0 ? option.results().back() : option.get_default_str();
}

// To other hubs a daemon is who it is to its clients.
rpc::TlsPem PeerFiles(const Settings& settings) {
  return {.certificate = settings.server.tls_certificate_file,
          .key = settings.server.tls_key_file,
          .authorities = settings.uplink.files.authorities};
}

absl::Status CheckListen(const rpc::ServerOptions& server) {
  const rpc::AccessOptions& access = server.access;
  if (server.tcp_address.empty()) {
    const std::pair<const char*, const std::string*> of_listen[] = {
        {"--tokens", &access.token_file},
        {"--node-names", &access.node_names},
        {"--read-names", &access.read_names},
        {"--control-names", &access.control_names}};
    for (const auto& [option, value] : of_listen) {
      if (value->empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          option, " is for clients on the network; add --listen HOST:PORT, or leave it out"));
    }
    return absl::OkStatus();
  }
  if (server.tls_certificate_file.empty() || server.tls_key_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", server.tcp_address,
                     " needs --tls-certificate and --tls-key, or leave it out: the socket in --dir "
                     "needs none"));
  }
  if (server.tls_client_ca_file.empty() && access.token_file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen ", server.tcp_address,
                     " would serve everybody who reaches it; add --tls-client-ca or --tokens"));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const Settings& settings) {
  if (settings.daemon.takes_nodes && !settings.uplink.addresses.empty()) {
    return absl::InvalidArgumentError(
        "a hub tells no other hub; leave out --hub or --accept-nodes");
  }
  if (settings.daemon.takes_nodes && settings.private_daemon) {
    return absl::InvalidArgumentError(
        "a hub does not end when it is idle; leave out --private or --accept-nodes");
  }
  for (absl::string_view address : absl::StrSplit(settings.uplink.addresses, ',')) {
    if (absl::StripAsciiWhitespace(address) != "unix:") continue;
    return absl::InvalidArgumentError(
        "--hub \"unix:\" has no path; say unix:PATH, the hub's api.sock");
  }
  const std::pair<const char*, const std::string*> addresses[] = {
      {"--hub", &settings.uplink.addresses}, {"--peer-address", &settings.daemon.peer_address}};
  for (const auto& [option, list] : addresses) {
    for (absl::string_view address : absl::StrSplit(*list, ',', absl::SkipWhitespace())) {
      address = absl::StripAsciiWhitespace(address);
      if (absl::StartsWith(address, "unix:")) continue;
      if (const std::string wrong = WhyNoAddress(std::string(address)); !wrong.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(option, ": ", wrong));
      }
    }
  }
  if (absl::Status status = CheckListen(settings.server); !status.ok()) return status;
  if (settings.daemon.peer_address.empty()) return absl::OkStatus();
  if (!settings.daemon.takes_nodes || !IsPostgresAddress(settings.daemon.store_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--peer-address ", settings.daemon.peer_address,
        " is for hubs that share a store: add --accept-nodes and --store postgresql://..., or "
        "leave it out"));
  }
  const rpc::TlsPem files = PeerFiles(settings);
  if (!absl::StartsWith(settings.daemon.peer_address, "unix:") &&
      (files.certificate.empty() || files.key.empty() || files.authorities.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--peer-address ", settings.daemon.peer_address,
        " needs --tls-certificate, --tls-key and --hub-ca: this hub passes calls to the one that "
        "leads, over TLS"));
  }
  return absl::OkStatus();
}

// "host=db password=x", as libpq takes it, would be the name of a file with the password in it.
absl::Status CheckStore(const std::string& store) {
  const size_t word = std::min(store.find_first_not_of(kKeywordLetters), store.size());
  const size_t equals = store.find_first_not_of(' ', word);
  if (word == 0 || equals == std::string::npos || store[equals] != '=') return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--store: \"", store.substr(0, word),
      "=...\" is neither a file nor a URL; write PostgreSQL's "
      "address as postgresql://USER@HOST/DATABASE, and a file of such a name as ./NAME"));
}

// That the files are there and are what they should be. The start says the same.
absl::Status CheckFiles(const Settings& settings) {
  const rpc::ServerOptions& server = settings.server;
  std::vector<rpc::TlsPem> used;
  if (!server.tcp_address.empty()) {
    used.push_back({.certificate = server.tls_certificate_file,
                    .key = server.tls_key_file,
                    .authorities = server.tls_client_ca_file});
  }
  for (const std::string& addresses : {settings.uplink.addresses, settings.daemon.peer_address}) {
    for (absl::string_view address : absl::StrSplit(addresses, ',', absl::SkipWhitespace())) {
      if (absl::StartsWith(absl::StripAsciiWhitespace(address), "unix:")) continue;
      used.push_back(PeerFiles(settings));
    }
  }
  for (const rpc::TlsPem& files : used) {
    SEQPOINT_RETURN_IF_ERROR(rpc::TlsFiles::Open(files).status());
  }
  if (server.access.token_file.empty()) return absl::OkStatus();
  return rpc::Access::Open(server.access).status();
}

absl::StatusOr<std::set<uid_t>> UsersOf(const std::string& text) {
  std::set<uid_t> users;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    if (word.empty()) continue;
    uint32_t id = 0;
    const passwd* const user = getpwnam(std::string(word).c_str());
    if (user == nullptr && !absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--allow-users: \"", word.substr(0, 60), "\" is no user of this machine"));
    }
    users.insert(user != nullptr ? user->pw_uid : static_cast<uid_t>(id));
  }
  return users;
}

}  // namespace

std::string VariableOf(std::string_view key) {
  return absl::StrCat("SEQPOINTD_",
                      absl::AsciiStrToUpper(absl::StrReplaceAll(std::string(key), {{"-", "_"}})));
}

std::string WithoutSecrets(std::string_view value) {
  std::string text(value);
  // postgresql://USER:PASSWORD@HOST: rather too much than half of a password that has a '/' or '@'.
  const size_t begin = text.find("://");
  const size_t at = begin == std::string::npos ? begin : text.rfind('@');
  const size_t colon = begin == std::string::npos ? begin : text.find(':', begin + 3);
  if (at != std::string::npos && colon < at) text.replace(colon + 1, at - colon - 1, "***");
  // ?password=PASSWORD&..., and as libpq takes it: password = 'PASS WORD'
  for (size_t key = text.find(kPassword); key != std::string::npos;
       key = text.find(kPassword, key + kPassword.size())) {
    const size_t equals = text.find_first_not_of(' ', key + kPassword.size());
    if (equals == std::string::npos || text[equals] != '=') continue;
    const size_t first = std::min(text.find_first_not_of(' ', equals + 1), text.size());
    size_t end = first;
    if (first < text.size() && text[first] == '\'') {
      for (++end; end < text.size() && text[end] != '\''; ++end) end += text[end] == '\\' ? 1 : 0;
      end = std::min(end + 1, text.size());
    } else {
      end = std::min(text.find_first_of("& ", first), text.size());
    }
    text.replace(first, end - first, "***");
  }
  return text;
}

absl::StatusOr<Settings> LoadSettings(int argc, const char* const* argv) {
  Settings settings;
  settings.directory = DefaultDirectory();
  settings.daemon.store_path = DefaultStore();
  bool check_config = false;

  CLI::App app{"SeqPoint Profiler daemon: reads the rings of training processes, answers over gRPC",
               "seqpointd"};
  app.option_defaults()->always_capture_default();
  AddOptions(app, settings);
  std::set<std::string> keys, in_file;
  std::vector<const CLI::Option*> options;
  for (CLI::Option* option : app.get_options()) {
    const std::string key = KeyOf(*option);
    if (key == "help") continue;
    option->envname(VariableOf(key));
    keys.insert(key);
    options.push_back(option);
  }
  app.set_version_flag("--version", SEQPOINT_VERSION, "print the version")->configurable(false);
  app.add_flag("--check-config", check_config,
               "print the settings and where each is from, and end");
  const std::string default_file = Environment("SEQPOINTD_CONFIG");
  app.set_config("--config", default_file, "file with settings: a line `key = value` each",
                 /*config_required=*/!default_file.empty());
  const auto reader = std::make_shared<ConfigReader>(keys, &in_file);
  app.config_formatter(reader);
  std::string file = default_file;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (argument == "--config" && i + 1 < argc) file = argv[i + 1];
    if (absl::ConsumePrefix(&argument, "--config=")) file = std::string(argument);
  }
  reader->set_file(file);

  const auto source = [&](const std::string& key) -> std::string {
    if (OnCommandLine(argc, argv, key)) return "command line";
    if (!Environment(VariableOf(key)).empty()) return VariableOf(key);
    return in_file.count(key) > 0 ? file : "default";
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      settings.answer = error.get_name() == "CallForHelp" ? app.help() : error.what();
      absl::StripTrailingAsciiWhitespace(&settings.answer);
      settings.answer += '\n';
      return settings;
    }
    std::string message = WithoutSecrets(error.what());
    for (const CLI::Option* option : options) {
      // Numbers have their own check: this is a flag.
      absl::string_view value = message;
      if (!absl::ConsumePrefix(&value,
                               absl::StrCat("Could not convert: --", KeyOf(*option), " = ")))
        continue;
      message = absl::StrCat("--", KeyOf(*option), ": \"", value.substr(0, 60),
                             "\" is neither true nor false");
      break;
    }
    for (const CLI::Option* option : options) {
      const std::string key = KeyOf(*option), from = source(key);
      if (from == "command line" || from == "default") continue;
      if (absl::StartsWith(message, absl::StrCat("--", key, ":"))) {
        absl::StrAppend(&message, " (from ", from, ")");
      }
    }
    return absl::InvalidArgumentError(absl::StrCat(message, "; see seqpointd --help"));
  }
  if (const absl::Status status = CheckStore(settings.daemon.store_path); !status.ok()) {
    return status;
  }
  if (const absl::Status status = CheckTogether(settings); !status.ok()) return status;
  auto users = UsersOf(settings.allowed_users);
  if (!users.ok()) return users.status();
  settings.server.allowed_users = *users;
  settings.daemon.ingest.allowed_users = *std::move(users);
  if (OnCommandLine(argc, argv, "store") &&
      WithoutSecrets(settings.daemon.store_path) != settings.daemon.store_path) {
    return absl::InvalidArgumentError(
        "--store: other users see a password on the command line; leave it out, and put it into "
        "PGPASSWORD or ~/.pgpass");
  }

  if (check_config) SEQPOINT_RETURN_IF_ERROR(CheckFiles(settings));

  for (const CLI::Option* option : options) {
    settings.values[KeyOf(*option)] = WithoutSecrets(TextOf(*option));
  }
  if (check_config) {
    for (const auto& [key, value] : settings.values) {
      int64_t number = 0;
      const bool bare = value == "true" || value == "false" || absl::SimpleAtoi(value, &number);
      absl::StrAppend(&settings.answer, key, " = ", bare ? value : JsonString(value), "  # ",
                      source(key), "\n");
    }
  }
  settings.daemon.ingest.directory = settings.directory;
  settings.server.socket_path = settings.directory + "/api.sock";
  settings.daemon.has_hub = !settings.uplink.addresses.empty();
  settings.uplink.files = PeerFiles(settings);
  const bool is_alone = settings.daemon.peer_address.empty();
  settings.daemon.store.holder = is_alone
                                     ? absl::StrCat(HostName(), ":", settings.server.socket_path)
                                     : settings.daemon.peer_address;
  if (settings.private_daemon) {
    settings.daemon.ingest.end_when_idle = absl::Seconds(10);
    // Nobody operates it, and a port that is taken must not keep a training from its profile.
    settings.metrics_address.clear();
  }
  return settings;
}

Difference Compare(const Settings& before, const Settings& after) {
  static const std::set<std::string> kReloaded = {"log-level", "max-job-age", "max-store-bytes"};
  Difference difference;
  for (const auto& [key, value] : after.values) {
    const auto old = before.values.find(key);
    if (old != before.values.end() && old->second == value) continue;
    (kReloaded.count(key) > 0 ? difference.reloaded : difference.at_next_start).push_back(key);
  }
  return difference;
}

}  // namespace seqpoint::settings
