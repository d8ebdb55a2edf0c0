#include "client/commands/context.h"

#include <stdio.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/options.h"
#include "client/text/progress.h"
#include "proto/invalid_argument.h"

namespace seqpoint::client {

void Context::AddTo(CLI::App* app) {
  app_ = app;
  app->add_flag("--json", json_, "print the reply as protobuf JSON");
  AddValue(app, "--socket PATH", &connect_.socket_path, "the daemon's api.sock");
  app->add_flag_callback(
      "--no-start", [this] { connect_.start_private = false; },
      "do not start a private daemon when none answers");
  AddValue(app, "--server HOST:PORT", &connect_.server,
           "a daemon on the network, over TLS (default: SEQPOINT_SERVER)");
  AddValue(app, "--ca FILE", &connect_.ca_file,
           "PEM file of the authority of its certificate (default: SEQPOINT_CA)");
  AddValue(app, "--cert FILE", &connect_.certificate_file,
           "PEM file of the client's certificate (default: SEQPOINT_CERT)");
  AddValue(app, "--key FILE", &connect_.key_file, "PEM file of its key (default: SEQPOINT_KEY)");
  AddValue(app, "--token-file FILE", &connect_.token_file,
           "file with the client's token (default: SEQPOINT_TOKEN_FILE)");
}

absl::StatusOr<std::unique_ptr<Connection>> Context::ConnectToRunning() const {
  ConnectOptions running = connect_;
  running.start_private = false;
  return Connection::Open(running);
}

int Context::Fail(const absl::Status& status, bool output_taken) const {
  fprintf(stderr, "seqpoint: %s\n", Printable(std::string(status.message())).c_str());
  if (json_ && !output_taken) Print(ErrorJson(status) + "\n");
  return ExitCodeFor(status);
}

absl::Status Context::UsageError(const std::string& message) const {
  const std::vector<CLI::App*> parsed = app_->get_subcommands();
  const std::string command = parsed.empty() ? "" : parsed[0]->get_name() + " ";
  return InvalidArgument(message, "; see seqpoint ", command, "--help");
}

int Context::RunCommand() const {
  const absl::StatusOr<int> code = command_();
  return code.ok() ? *code : Fail(code.status());
}

void Context::Print(const std::string& text) { fwrite(text.data(), 1, text.size(), stdout); }

int Context::Width() { return TerminalWidth(STDOUT_FILENO); }

CLI::App* AddSubcommand(CLI::App* app, const std::string& name, const std::string& help) {
  CLI::App* command = app->add_subcommand(name, help);
  command->fallthrough();
  command->group("Commands");
  return command;
}

CLI::Option* AddJob(CLI::App* command, std::string* job) {
  return command->add_option("JOB", *job, "id, name@run_id or name (the latest run)")
      ->check(Name());
}

}  // namespace seqpoint::client
