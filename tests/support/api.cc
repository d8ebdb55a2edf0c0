#include "tests/support/api.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

namespace seqpoint {

std::filesystem::path BinaryDirectory() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

pid_t Spawn(const std::vector<std::string>& command, const std::filesystem::path& log) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  std::vector<char*> argv;
  for (const std::string& part : command) argv.push_back(const_cast<char*>(part.c_str()));
  argv.push_back(nullptr);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(fd, 1);
  dup2(fd, 2);
  execv(argv[0], argv.data());
  _exit(127);
}

pid_t SpawnDaemon(const std::filesystem::path& folder, const std::vector<std::string>& environment,
                  const std::vector<std::string>& options) {
  std::vector<std::string> command = {"/usr/bin/env"};
  command.insert(command.end(), environment.begin(), environment.end());
  command.insert(command.end(),
                 {(BinaryDirectory() / "seqpointd").string(), "--dir", (folder / "run").string()});
  if (std::find(options.begin(), options.end(), "--store") == options.end()) {
    command.insert(command.end(), {"--store", (folder / "store.db").string()});
  }
  command.insert(command.end(), options.begin(), options.end());
  return Spawn(command, folder / "daemon.log");
}

int WaitFor(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

void KillAndWait(pid_t* pid, int signal) {
  if (*pid == 0) return;
  kill(*pid, signal);
  WaitFor(*pid);
  *pid = 0;
}

Api::Api(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  // A daemon that is starting is soon there; by default gRPC tries again after a second, then
  // later.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  stub_ = v1::Profiler::NewStub(grpc::CreateCustomChannel(
      "unix:" + socket.string(), grpc::InsecureChannelCredentials(), arguments));
}

std::optional<std::vector<v1::Iteration>> Api::Iterations(const std::string& job,
                                                          std::optional<int> rank) {
  std::vector<v1::Iteration> iterations;
  v1::ListIterationsRequest request;
  request.set_job(job);
  if (rank) request.set_rank(*rank);
  do {
    const auto reply = Call(&v1::Profiler::Stub::ListIterations, request);
    if (!reply) return std::nullopt;
    iterations.insert(iterations.end(), reply->iterations().begin(), reply->iterations().end());
    request.set_page_token(reply->next_page_token());
  } while (!request.page_token().empty());
  return iterations;
}

}  // namespace seqpoint
