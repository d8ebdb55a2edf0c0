// The `seqpoint` binary as a person meets it, against a fake daemon on a real socket.
// CLIENT_BINARY and DAEMON_BINARY are their paths.
// Threading: one thread. Ownership: the fixture owns its folder and its server.
#ifndef TESTS_SUPPORT_CLIENT_FIXTURE_H_
#define TESTS_SUPPORT_CLIENT_FIXTURE_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/fake_backend.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {

struct Result {
  int code = 0;  // exit code; 1000 + signal
  std::string out;
  std::string err;
};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    setenv("SEQPOINT_DIR", directory_.c_str(), 1);
    setenv("SEQPOINT_DAEMON", DAEMON_BINARY, 1);
    // Any library that can be preloaded.
    setenv("SEQPOINT_LIBRARY", "libm.so.6", 1);
    setenv("FAKE_JOB_MS", "1", 1);
    setenv("TZ", "UTC", 1);
    for (const char* name :
         {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "SLURM_JOB_ID",
          "TORCHELASTIC_RUN_ID", "FAKE_FAILURE", "SEQPOINT_SERVER", "SEQPOINT_CA", "SEQPOINT_CERT",
          "SEQPOINT_KEY", "SEQPOINT_TOKEN_FILE"}) {
      unsetenv(name);
    }
  }
  ~ClientTest() override { server_.reset(); }

  void StartServer() {
    auto server = rpc::Server::Start({.socket_path = directory_ / "api.sock"}, &backend_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  pid_t Spawn(const std::vector<std::string>& arguments) {
    std::vector<const char*> pointers = {"seqpoint"};
    for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
    pointers.push_back(nullptr);
    std::string out = directory_ / "out", err = directory_ / "err";
    pid_t child = fork();
    if (child == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      execv(CLIENT_BINARY, const_cast<char* const*>(pointers.data()));
      _exit(99);
    }
    return child;
  }
  // Files that were left half written.
  int Parts() const {
    const auto is_part = [](const auto& file) {
      return file.path().filename().string().find(".part") != std::string::npos;
    };
    return static_cast<int>(
        std::count_if(std::filesystem::directory_iterator(directory_), {}, is_part));
  }
  static std::string ReadFile(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  Result Wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
            ReadFile(directory_ / "out"), ReadFile(directory_ / "err")};
  }
  Result Client(const std::vector<std::string>& arguments) { return Wait(Spawn(arguments)); }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  rpc::FakeBackend backend_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace seqpoint::client

#endif  // TESTS_SUPPORT_CLIENT_FIXTURE_H_
