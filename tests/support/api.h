// Processes of this build, and a synchronous client of the Profiler service, for the demo and for
// tests.
// Threading: one thread.
#ifndef SEQPOINT_TESTS_SUPPORT_API_H_
#define SEQPOINT_TESTS_SUPPORT_API_H_

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "seqpoint/v1/profiler.grpc.pb.h"

namespace seqpoint {

// Folder of the running program, where the others of the build are, too.
std::filesystem::path BinaryDirectory();

// Starts command[0]; its output is appended to `log`. Returns its pid.
pid_t Spawn(const std::vector<std::string>& command, const std::filesystem::path& log);

// Starts seqpointd: its sockets are in folder/run, its store is folder/store.db and its log
// folder/daemon.log. `environment`: "KEY=VALUE"; `options`: further ones.
pid_t SpawnDaemon(const std::filesystem::path& folder,
                  const std::vector<std::string>& environment = {},
                  const std::vector<std::string>& options = {});
// Waits for the end of a child and returns its status, as waitpid.
int WaitFor(pid_t pid);
// Sends the signal and waits; then *pid is 0. A pid of 0: nothing happens.
void KillAndWait(pid_t* pid, int signal);

class Api {
 public:
  explicit Api(const std::filesystem::path& socket);

  // Waits up to 20 s for the daemon and its answer. Nothing: see error().
  template <typename Request, typename Reply>
  std::optional<Reply> Call(grpc::Status (v1::Profiler::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Reply*),
                            const Request& request) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Reply reply;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    if (!status.ok()) {
      error_ = status.error_message();
      return std::nullopt;
    }
    return reply;
  }
  const std::string& error() const { return error_; }

  // All iterations of a rank, by default of the lowest; nothing on an error.
  std::optional<std::vector<v1::Iteration>> Iterations(const std::string& job,
                                                       std::optional<int> rank = std::nullopt);

 private:
  std::unique_ptr<v1::Profiler::Stub> stub_;
  std::string error_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_API_H_
