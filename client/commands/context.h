// Context: the parts that all commands of `seqpoint` share. These are the options of every command,
// the daemon that they ask, and the places where answers and errors go.
//
//   struct Options { std::string job; };
//   absl::StatusOr<int> Show(const Context& context, Options& options) {
//     return context.Ask(...);
//   }
//   auto [command, options] = AddCommand<Options>(app, context, "show", "Show a job.", &Show);
//   AddJob(command, &options->job)->required();
//
// Threading: one thread. Ownership: main owns the context, which outlives the app; a command's
// options live as long as the app.
#ifndef CLIENT_COMMANDS_CONTEXT_H_
#define CLIENT_COMMANDS_CONTEXT_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/text/format.h"
#include "client/text/json.h"
#include "client/text/nothing.h"
#include "proto/status_macros.h"
#include "seqpoint/v1/profiler.grpc.pb.h"

namespace seqpoint::client {

class Context {
 public:
  explicit Context(std::string version) : version_(std::move(version)) {}

  // The options that belong to every command.
  void AddTo(CLI::App* app);

  const std::string& version() const { return version_; }
  const ConnectOptions& connect() const { return connect_; }
  bool json() const { return json_; }
  void set_json(bool json) { json_ = json; }

  absl::StatusOr<std::unique_ptr<Connection>> Connect() const { return Connection::Open(connect_); }
  // To a daemon that runs already.
  absl::StatusOr<std::unique_ptr<Connection>> ConnectToRunning() const;

  // Prints the error message and, with --json, the error as an object. Returns the exit code.
  // `output_taken`: standard output is a file of the user's, which gets no JSON.
  int Fail(const absl::Status& status, bool output_taken = false) const;
  // Wrong usage; the message names the help of the command that was given.
  absl::Status UsageError(const std::string& message) const;

  // Asks one question.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                             const Request& request) const {
    SEQPOINT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connect());
    return connection->Call(call, request);
  }

  // Asks one question and prints its answer.
  template <typename Request, typename Reply, typename ToText>
  absl::StatusOr<int> Ask(grpc::Status (v1::Profiler::Stub::*call)(grpc::ClientContext*,
                                                                   const Request&, Reply*),
                          const Request& request, ToText to_text) const {
    SEQPOINT_ASSIGN_OR_RETURN(Reply reply, Call(call, request));
    if (std::string why = NothingIn(reply); !why.empty()) return absl::FailedPreconditionError(why);
    return PrintReply(&reply, to_text);
  }

  template <typename Reply, typename ToText>
  int PrintReply(Reply* reply, ToText to_text) const {
    if (json_) {
      Print(ToJson(*reply, /*one_line=*/false) + "\n");
    } else {
      MakePrintable(reply);
      Print(to_text(*reply));
    }
    return kExitOk;
  }

  static void Print(const std::string& text);
  static int Width();  // of standard output's terminal; 0: it is none

  // The words after "--": the command of `run`.
  const std::vector<std::string>& separated_words() const { return separated_words_; }
  void set_separated_words(std::vector<std::string> words) { separated_words_ = std::move(words); }

  // The command that was given, which main runs once all options are read. It returns the exit
  // code, or an error that is printed.
  void set_command(std::function<absl::StatusOr<int>()> command) { command_ = std::move(command); }
  int RunCommand() const;

 private:
  const std::string version_;
  const CLI::App* app_ = nullptr;
  ConnectOptions connect_;
  bool json_ = false;
  std::vector<std::string> separated_words_;
  std::function<absl::StatusOr<int>()> command_;
};

// A command of `app`, among its other commands in --help.
CLI::App* AddSubcommand(CLI::App* app, const std::string& name, const std::string& help);

template <typename Options>
struct Command {
  CLI::App* app;
  Options* options;
};

// A command with options of its own, which `run` gets once they are read.
template <typename Options>
Command<Options> AddCommand(CLI::App* app, Context* context, const std::string& name,
                            const std::string& help,
                            absl::StatusOr<int> (*run)(const Context&, Options&)) {
  auto options = std::make_shared<Options>();
  CLI::App* command = AddSubcommand(app, name, help);
  command->callback([context, options, run] {
    context->set_command([context, options, run] { return run(*context, *options); });
  });
  return {command, options.get()};
}

CLI::Option* AddJob(CLI::App* command, std::string* job);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_CONTEXT_H_
