#include "tests/support/private_postgres.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace seqpoint {
namespace {

const passwd* ServerUser() {
  if (geteuid() != 0) return nullptr;
  const passwd* user = getpwnam("postgres");
  return user != nullptr ? user : getpwnam("nobody");
}

bool Succeeds(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

bool GiveToServerUser(const std::filesystem::path& folder) {
  const passwd* user = ServerUser();
  return user == nullptr || chown(folder.c_str(), user->pw_uid, user->pw_gid) == 0;
}

pid_t SpawnAsServerUser(const std::vector<std::string>& command,
                        const std::filesystem::path& folder, const std::string& log) {
  const passwd* user = ServerUser();
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  if (user != nullptr &&
      (setgroups(0, nullptr) != 0 || setgid(user->pw_gid) != 0 || setuid(user->pw_uid) != 0)) {
    _exit(1);
  }
  if (chdir(folder.c_str()) != 0) _exit(1);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(output, 1);
  dup2(output, 2);
  execv(arguments[0], arguments.data());
  _exit(1);
}

std::vector<pid_t> ServerProcesses(pid_t server) {
  std::vector<pid_t> processes = {server};
  std::ifstream children(absl::StrCat("/proc/", server, "/task/", server, "/children"));
  for (pid_t child; children >> child;) processes.push_back(child);
  return processes;
}

std::string PrivatePostgres::Missing() {
  if (access(absl::StrCat(kPostgresPrograms, "initdb").c_str(), X_OK) == 0) return "";
  return "PostgreSQL 15 is not installed (apt-get install postgresql-15)";
}

PrivatePostgres::PrivatePostgres(bool durable) : durable_(durable) {
  if (!GiveToServerUser(folder_.path())) return;
  Succeeds(Spawn({"initdb", "--no-sync", "--auth=trust", "--username=seqpoint", "--encoding=UTF8",
                  "--locale=C", "-D", (folder_.path() / "data").string()}));
}

pid_t PrivatePostgres::Spawn(const std::vector<std::string>& command) const {
  std::vector<std::string> words = command;
  words[0] = absl::StrCat(kPostgresPrograms, words[0]);
  return SpawnAsServerUser(words, folder_.path());
}

bool PrivatePostgres::Start() {
  constexpr int kTries = 300;
  for (int i = 0; i < kTries; ++i) {
    // It does not start while processes of a killed one are there.
    if (server_ == 0 || waitpid(server_, nullptr, WNOHANG) == server_) {
      server_ = Spawn({"postgres", "-D", (folder_.path() / "data").string(), "-k",
                       folder_.path().string(), "-c", "listen_addresses=", "-c",
                       durable_ ? "fsync=on" : "fsync=off"});
    }
    usleep(50'000);
    if (Succeeds(Spawn({"pg_isready", "-q", "-h", folder_.path().string()}))) return true;
  }
  return false;
}

bool PrivatePostgres::CreateDatabase(const std::string& name) {
  return Succeeds(Spawn({"createdb", "-h", folder_.path().string(), "-U", "seqpoint", "--", name}));
}

std::string PrivatePostgres::AddressOf(const std::string& database) const {
  return absl::StrCat("postgresql://seqpoint@/", database, "?host=", folder_.path().string());
}

void PrivatePostgres::Signal(int signal) const {
  for (const pid_t process : ServerProcesses(server_)) kill(process, signal);
}

void PrivatePostgres::Kill() {
  if (server_ == 0) return;
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
  server_ = 0;
}

std::string PrivatePostgres::Log() const {
  std::ifstream file(folder_.path() / "log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace seqpoint
