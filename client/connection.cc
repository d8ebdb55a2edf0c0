#include "client/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "client/text/format.h"
#include "proto/invalid_argument.h"
#include "proto/start_note.h"
#include "proto/status_macros.h"
#include "proto/tls_probe.h"

namespace seqpoint::client {
namespace {

constexpr absl::Duration kStartTimeout = absl::Seconds(15);
constexpr absl::Duration kRivalTimeout = absl::Seconds(1);
constexpr std::chrono::seconds kServerTimeout{10};
constexpr int kConnectTimeoutMs = 2000;
constexpr int kMostBackoffMs = 1000;  // a daemon that was restarted is soon found again
constexpr int kExecFailed = 127;
// Which hub a private daemon tells, and as whom (deploy/slurm/seqpoint-task).
constexpr const char* kHubVariables[] = {
    "SEQPOINTD_HUB=", "SEQPOINTD_HUB_CA=", "SEQPOINTD_TLS_CERTIFICATE=", "SEQPOINTD_TLS_KEY="};

const char* NonEmptyEnv(const char* name) {
  const char* value = getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::string FallbackDirectory() { return absl::StrCat("/tmp/seqpoint-", getuid()); }

// In /tmp anybody could have made the folder first.
bool IsOursAlone(const std::string& directory) {
  struct stat info;
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == getuid() &&
         (info.st_mode & 077) == 0;
}

// Where a private daemon of this user has its sockets.
std::string PrivateDirectory() {
  if (const char* own = NonEmptyEnv("SEQPOINT_DIR")) return own;
  if (const char* runtime = NonEmptyEnv("XDG_RUNTIME_DIR")) {
    return absl::StrCat(runtime, "/seqpoint");
  }
  return getuid() == 0 ? "/run/seqpoint" : FallbackDirectory();
}

absl::StatusOr<std::string> MakePrivateDirectory() {
  std::string directory = PrivateDirectory();
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("cannot make ", directory, ": ", strerror(errno),
                                               "; set SEQPOINT_DIR to a folder of yours"));
  }
  if (directory == FallbackDirectory() && !IsOursAlone(directory)) {
    return absl::UnavailableError(
        absl::StrCat(directory, " is not a folder of yours alone; set SEQPOINT_DIR to one"));
  }
  return directory;
}

// A socket that does not let this user in.
std::string WhoseIs(const std::string& socket) {
  // The folder tells where the socket itself cannot be looked at.
  struct stat info;
  const std::string folder = std::filesystem::path(socket).parent_path();
  if (stat(socket.c_str(), &info) != 0 && stat(folder.c_str(), &info) != 0) {
    return absl::StrCat(socket, " belongs to another user");
  }
  const passwd* user = getpwuid(info.st_uid);
  return absl::StrCat(socket, " belongs to ",
                      user != nullptr ? absl::StrCat("user ", user->pw_name)
                                      : absl::StrCat("user id ", info.st_uid),
                      ", whose daemon does not let this user in");
}

// Whether the daemon at `fd` ends what this user begins, as one with --allow-users does. A daemon
// of this user's own never does, nor one that root asks.
bool IsTurnedAway(int fd, const std::string& path) {
  struct stat info;
  if (getuid() == 0 || (stat(path.c_str(), &info) == 0 && info.st_uid == getuid())) return false;
  // Each client of HTTP/2 begins with this and its settings, here none; the server sends its own.
  constexpr std::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  if (send(fd, kPreface.data(), kPreface.size(), MSG_NOSIGNAL) < 0) return true;
  pollfd wait = {.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, kConnectTimeoutMs) != 1) return false;  // it hangs: a call says so
  char byte;
  return recv(fd, &byte, 1, 0) != 1;
}

// Says which configured daemon left a note in its folder (proto/start_note.h), in a
// sentence. Empty: there is none, or the folder is only where this user's daemons are by default.
std::string WhatBelongsHere() {
  const char* directory = NonEmptyEnv("SEQPOINT_DIR");
  if (directory == nullptr) return "";
  const std::string path = absl::StrCat(directory, "/", kStartNote);
  std::ifstream note(path);
  std::string kind, command;
  if (!std::getline(note, kind) || !std::getline(note, command)) return "";
  return absl::StrCat("the ", kind, " at ", directory, " does not run; start it (", command,
                      "), set SEQPOINT_DIR to another folder, or, for a private daemon here, "
                      "remove ",
                      path);
}

// Where nothing says where the state of programs is, people look in vain for what was stored.
void SayStore(Connection* connection) {
  if (NonEmptyEnv("HOME") != nullptr || NonEmptyEnv("XDG_STATE_HOME") != nullptr) return;
  const auto daemon = connection->Call(&v1::Profiler::Stub::GetDaemon, v1::GetDaemonRequest());
  if (!daemon.ok()) return;
  fprintf(stderr, "seqpoint: HOME is not set; jobs are stored in %s (XDG_STATE_HOME changes it)\n",
          Printable(daemon->store_path()).c_str());
}

std::string LastLine(int fd) {
  std::ifstream file(absl::StrCat("/proc/self/fd/", fd));
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return InvalidArgument("cannot read ", path, ": ", strerror(errno));
  }
  return text.str();
}

ConnectOptions WithEnvironment(ConnectOptions options) {
  if (!options.use_environment || !options.socket_path.empty()) return options;
  const std::pair<const char*, std::string*> variables[] = {
      {"SEQPOINT_SERVER", &options.server},
      {"SEQPOINT_CA", &options.ca_file},
      {"SEQPOINT_CERT", &options.certificate_file},
      {"SEQPOINT_KEY", &options.key_file},
      {"SEQPOINT_TOKEN_FILE", &options.token_file}};
  for (auto [name, target] : variables) {
    const char* value = NonEmptyEnv(name);
    if (value != nullptr && target->empty()) *target = value;
    if (options.server.empty()) return options;  // the files belong to it
  }
  return options;
}

// Refuses options that do not go together. The files may be those of variables.
absl::Status CheckServer(const ConnectOptions& options) {
  const std::pair<const char*, const std::string*> files[] = {
      {"--ca", &options.ca_file},
      {"--cert", &options.certificate_file},
      {"--key", &options.key_file},
      {"--token-file", &options.token_file}};
  for (auto [name, path] : files) {
    if (!options.server.empty() || path->empty()) continue;
    return InvalidArgument(name, " is for a daemon on the network; add --server HOST:PORT, or set ",
                           "SEQPOINT_SERVER");
  }
  if (options.server.empty()) return absl::OkStatus();
  if (const std::string wrong = WhyNoAddress(options.server); !wrong.empty()) {
    return InvalidArgument("--server (SEQPOINT_SERVER): ", wrong);
  }
  if (options.certificate_file.empty() != options.key_file.empty()) {
    return InvalidArgument(
        "a client's certificate and its key go together: give both --cert (SEQPOINT_CERT) and ",
        "--key (SEQPOINT_KEY)");
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsProbe> ReadTlsFiles(const ConnectOptions& options) {
  TlsProbe tls = {.address = options.server};
  const std::pair<const std::string*, std::string*> files[] = {
      {&options.ca_file, &tls.authorities},
      {&options.certificate_file, &tls.certificate},
      {&options.key_file, &tls.key}};
  for (auto [path, target] : files) {
    if (path->empty()) continue;
    SEQPOINT_ASSIGN_OR_RETURN(*target, ReadWhole(*path));
  }
  if (!options.ca_file.empty()) absl::StrAppend(&tls.authorities_from, " ", options.ca_file);
  if (!options.certificate_file.empty()) {
    absl::StrAppend(&tls.certificate_from, " ", options.certificate_file);
  }
  return tls;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(
    const TlsProbe& files, const std::string& token_file) {
  const grpc::SslCredentialsOptions tls = {.pem_root_certs = files.authorities,
                                           .pem_private_key = files.key,
                                           .pem_cert_chain = files.certificate};
  if (token_file.empty()) return grpc::SslCredentials(tls);
  SEQPOINT_ASSIGN_OR_RETURN(std::string token, ReadWhole(token_file));
  absl::StripAsciiWhitespace(&token);
  // A header holds nothing else, and the token itself belongs into no message.
  if (token.empty() || !std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return InvalidArgument(token_file, " holds no token: one word on one line");
  }
  return grpc::CompositeChannelCredentials(grpc::SslCredentials(tls),
                                           grpc::AccessTokenCredentials(token));
}

// A file that belongs to this program: as the variable `environment` says, or in its folders.
absl::StatusOr<std::string> FindCompanion(const char* environment, const std::string& name,
                                          int wanted_access) {
  if (const char* path = NonEmptyEnv(environment)) {
    // The dynamic loader finds a library without a folder.
    bool for_loader = wanted_access == R_OK && strchr(path, '/') == nullptr;
    if (for_loader || access(path, wanted_access) == 0) return path;
    return absl::UnavailableError(absl::StrCat(environment, "=", path, ": ", strerror(errno),
                                               "; set it to the path of ", name, ", or unset it"));
  }
  std::error_code error;
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {".", "../lib", "../lib/seqpoint", "../lib64", "../libexec"}) {
    std::filesystem::path path = (here / folder / name).lexically_normal();
    if (std::filesystem::is_regular_file(path, error)) return path;
  }
  return absl::UnavailableError(
      absl::StrCat(name, " was not found beside this program; install it, or set ", environment,
                   " to its path"));
}

// Tries until the server was reached or refused.
absl::Status Reach(grpc::Channel& channel, const TlsProbe& tls) {
  auto deadline = std::chrono::system_clock::now() + kServerTimeout;
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE &&
         channel.WaitForStateChange(state, deadline)) {
    state = channel.GetState(/*try_to_connect=*/true);
  }
  if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
  std::string why = WhyNoTls(tls);
  if (why.empty()) {
    why = "TLS succeeds, and no gRPC follows; is the daemon there stopped, or just starting?";
  }
  return absl::UnavailableError(
      absl::StrCat("no daemon answers on ", tls.address, " over TLS: ", why));
}

}  // namespace

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitNoDaemon;
    case absl::StatusCode::kNotFound:
      return kExitNoSuchJob;
    case absl::StatusCode::kFailedPrecondition:
      return kExitNotEnoughData;
    default:
      return kExitError;
  }
}

absl::StatusOr<v1::Job> Connection::GetJob(const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  SEQPOINT_ASSIGN_OR_RETURN(v1::GetJobReply reply, Call(&v1::Profiler::Stub::GetJob, request));
  return std::move(*reply.mutable_job());
}

absl::StatusOr<v1::ListJobsReply> Connection::ListJobs(v1::ListJobsRequest request) {
  v1::ListJobsReply all;
  do {
    SEQPOINT_ASSIGN_OR_RETURN(v1::ListJobsReply page, Call(&v1::Profiler::Stub::ListJobs, request));
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    all.MergeFrom(page);
  } while (!request.page_token().empty());
  return all;
}

absl::Status Connection::FromGrpc(const grpc::Status& status) {
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    message = absl::StrCat("the daemon does not know this question (", message,
                           "); it is older than this program: restart it after an update");
  } else if (absl::StrContains(message, "timed out before receiving SETTINGS")) {
    return absl::DeadlineExceededError(
        "a daemon is there, but it does not answer; is it stopped (kill -CONT) or its disk stuck?");
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    message = absl::StrCat("no answer from the daemon in ", kCallTimeout.count(),
                           " s; is it stopped or its disk stuck? (", message, ")");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

std::vector<std::string> SocketDirectories() {
  if (const char* own = NonEmptyEnv("SEQPOINT_DIR")) return {own};
  std::vector<std::string> directories;
  if (const char* runtime = NonEmptyEnv("XDG_RUNTIME_DIR")) {
    directories.push_back(absl::StrCat(runtime, "/seqpoint"));
  }
  directories.push_back("/run/seqpoint");
  if (IsOursAlone(FallbackDirectory())) directories.push_back(FallbackDirectory());
  return directories;
}

bool Answers(const std::string& path, std::string* denied) {
  if (denied != nullptr) denied->clear();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  memcpy(address.sun_path, path.data(), path.size());
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool answers = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  bool turned_away = !answers && (errno == EACCES || errno == EPERM);
  if (answers && IsTurnedAway(fd, path)) {
    turned_away = true;
    answers = false;
  }
  if (turned_away && denied != nullptr) *denied = WhoseIs(path);
  close(fd);
  return answers;
}

absl::StatusOr<std::string> FindLibrary() {
  return FindCompanion("SEQPOINT_LIBRARY", "libseqpoint_inject.so", R_OK);
}

std::string FindAdapter() {
  if (const char* path = NonEmptyEnv("SEQPOINT_ADAPTER")) return path[0] == '/' ? path : "";
  std::error_code error;
  std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::filesystem::path path = (here / "../share/seqpoint/python").lexically_normal();
  return std::filesystem::is_regular_file(path / "sitecustomize.py", error) ? path.string() : "";
}

absl::StatusOr<std::string> FindDaemonProgram() {
  absl::StatusOr<std::string> found = FindCompanion("SEQPOINT_DAEMON", "seqpointd", X_OK);
  const char* path = getenv("PATH");
  if (found.ok() || NonEmptyEnv("SEQPOINT_DAEMON") != nullptr || path == nullptr) return found;
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path, ':'))) {
    std::string program = folder + "/seqpointd";
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return found;
}

absl::StatusOr<std::string> StartPrivateDaemon() {
  SEQPOINT_ASSIGN_OR_RETURN(std::string directory, MakePrivateDirectory());
  SEQPOINT_ASSIGN_OR_RETURN(const std::string program, FindDaemonProgram());
  std::string socket = directory + "/api.sock";
  std::string log = directory + "/seqpointd.log";
  // All that the child needs is made before the fork: gRPC's threads may hold any lock.
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    // The daemon must not be profiled, nor anything else be loaded into it. Settings are those of a
    // daemon that somebody configured, whose store or port this one must not take.
    const std::string text = *entry;
    const auto begins = [&](const char* name) { return absl::StartsWith(text, name); };
    const bool tells_hub = std::any_of(std::begin(kHubVariables), std::end(kHubVariables), begins);
    if (begins("SEQPOINT_DIR=") || begins("LD_PRELOAD=")) continue;
    if (begins("SEQPOINTD_") && !tells_hub) continue;
    environment.push_back(text);
  }
  environment.push_back("SEQPOINT_DIR=" + directory);
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  // Also where no log can be written it is known why the daemon ended.
  int out = open(log.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool logged = out >= 0;
  if (!logged) out = memfd_create("seqpointd.log", MFD_CLOEXEC);
  const auto close_log = absl::MakeCleanup([out] { close(out); });
  pid_t child = fork();
  if (child < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  if (child == 0) {
    setsid();
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    close_range(3, ~0u, 0);
    execle(program.c_str(), "seqpointd", "--private", nullptr, pointers.data());
    _exit(kExecFailed);
  }
  const auto now = [] {
    return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  };
  absl::Duration deadline = now() + kStartTimeout;
  bool ended = false;
  while (now() < deadline) {
    if (Answers(socket)) return directory;
    // Another one may have been started at the same moment and have won: then its socket answers
    // soon although ours has ended.
    int status = 0;
    if (!ended && waitpid(child, &status, WNOHANG) == child) {
      ended = true;
      bool ran = !WIFEXITED(status) || WEXITSTATUS(status) != kExecFailed;
      deadline = std::min(deadline, now() + (ran ? kRivalTimeout : absl::ZeroDuration()));
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  std::string reason = LastLine(out);
  if (ended && !reason.empty()) return absl::UnavailableError(reason);
  return absl::UnavailableError(absl::StrCat(program, ended ? " ended" : " does not answer",
                                             " after its start",
                                             logged ? "; its log is " + log : std::string()));
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectOptions& given) {
  const ConnectOptions options = WithEnvironment(given);
  SEQPOINT_RETURN_IF_ERROR(CheckServer(options));
  // Never given back: gRPC's own clean-up may wait ten seconds for a poller. Not earlier: it starts
  // threads.
  static const bool kept = (grpc_init(), true);
  (void)kept;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Also the time that one attempt to connect may take: a daemon that hangs must not hold `run` up.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectTimeoutMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMostBackoffMs);
  if (!options.server.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(const TlsProbe tls, ReadTlsFiles(options));
    SEQPOINT_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                              TlsCredentials(tls, options.token_file));
    std::shared_ptr<grpc::Channel> channel =
        grpc::CreateCustomChannel(options.server, credentials, arguments);
    SEQPOINT_RETURN_IF_ERROR(Reach(*channel, tls));
    return std::unique_ptr<Connection>(new Connection(channel, ""));
  }
  std::vector<std::string> sockets;
  if (!options.socket_path.empty()) {
    sockets.push_back(options.socket_path);
  } else {
    for (const std::string& directory : SocketDirectories()) {
      sockets.push_back(directory + "/api.sock");
    }
  }
  std::string found, why;
  // Beside another user's daemon, in its folder, there is no place for one of ours.
  bool place = options.socket_path.empty();
  for (const std::string& socket : sockets) {
    std::string whose;
    if (found.empty() && Answers(socket, &whose)) found = socket;
    if (whose.empty()) continue;
    absl::StrAppend(&why, why.empty() ? "" : "; ", whose);
    if (socket == PrivateDirectory() + "/api.sock") place = false;
  }
  const std::string here = options.socket_path.empty() ? WhatBelongsHere() : "";
  if (found.empty() && why.empty() && !here.empty()) return absl::UnavailableError(here);
  const char* const between = why.empty() ? "" : "; ";
  bool started = false;
  if (found.empty() && options.start_private && place) {
    absl::StatusOr<std::string> directory = StartPrivateDaemon();
    if (!directory.ok()) {
      return absl::UnavailableError(
          absl::StrCat("no daemon answers on ", absl::StrJoin(sockets, ", "), between, why,
                       ", and none could be started: ", std::string(directory.status().message())));
    }
    found = *directory + "/api.sock";
    started = true;
    if (!why.empty()) {
      fprintf(stderr, "seqpoint: %s; a daemon of your own was started in %s\n",
              Printable(why).c_str(), Printable(*directory).c_str());
    }
  }
  if (found.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no daemon answers on ", absl::StrJoin(sockets, ", "), between, why,
                     place || why.empty()
                         ? "; start seqpointd, or set SEQPOINT_DIR"
                         : "; set SEQPOINT_DIR to a folder of yours, for a daemon of your own"));
  }
  std::unique_ptr<Connection> connection(new Connection(
      grpc::CreateCustomChannel("unix:" + found, grpc::InsecureChannelCredentials(), arguments),
      std::filesystem::path(found).parent_path()));
  if (started) SayStore(connection.get());
  return connection;
}

}  // namespace seqpoint::client
