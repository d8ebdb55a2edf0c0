// A PostgreSQL server of a test's own: Debian's programs, data and socket in a temporary folder, no
// TCP, no password. Root starts it as the user postgres, or nobody, because the server refuses
// root.
//
// Threading: a value of one thread. Ownership: ends the server and removes the folder.
#ifndef TESTS_SUPPORT_PRIVATE_POSTGRES_H_
#define TESTS_SUPPORT_PRIVATE_POSTGRES_H_

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqpoint {

// Gives the folder to the user who runs servers. False: errno says why.
bool GiveToServerUser(const std::filesystem::path& folder);
// Starts a program as that user, in `folder`; its output is appended to `log` there. Returns its
// pid.
pid_t SpawnAsServerUser(const std::vector<std::string>& command,
                        const std::filesystem::path& folder, const std::string& log = "log");
// The process of a server, and those that it made for its connections.
std::vector<pid_t> ServerProcesses(pid_t server);
inline constexpr const char* kPostgresPrograms = "/usr/lib/postgresql/15/bin/";

class PrivatePostgres {
 public:
  // Why there can be no server here. Empty: there can.
  static std::string Missing();

  // `durable`: a commit is on the disk, as on a server in use. Tests are faster without.
  explicit PrivatePostgres(bool durable = false);
  ~PrivatePostgres() { Kill(); }

  // Until it answers, at once where it runs; false: it does not, and Log() tells why.
  bool Start();
  // kill -9, as a machine's death would be to those who are connected to it.
  void Kill();
  // All its processes stop and go on, as on a machine that hangs. Its kernel still answers.
  void Pause() const { Signal(SIGSTOP); }
  void Resume() const { Signal(SIGCONT); }
  pid_t pid() const { return server_; }
  // Makes an empty database.
  bool CreateDatabase(const std::string& name);
  std::string AddressOf(const std::string& database) const;
  std::string Log() const;

 private:
  pid_t Spawn(const std::vector<std::string>& command) const;
  void Signal(int signal) const;

  const TempFolder folder_;
  const bool durable_;
  pid_t server_ = 0;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_PRIVATE_POSTGRES_H_
