// `seqpoint`, the command line: builds it of its commands, reads it, and runs the command that was
// given.
#include <errno.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/completion.h"
#include "client/commands/options.h"
#include "client/commands/planners.h"
#include "client/text/help.h"
#include "proto/invalid_argument.h"
#include "proto/tls_versions.h"

namespace seqpoint::client {
namespace {

constexpr const char* kDescription =
    "What a whole training run costs and why, from the few iterations that represent all others.";

using Words = std::vector<std::string>;

void AddCommands(CLI::App* app, Context* context) {
  app->require_subcommand(1);
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "print this help");
  app->set_version_flag("--version", context->version(), "print the version");
  context->AddTo(app);
  for (const auto add :
       {AddRun,        AddJobs,    AddJobChanges, AddWatch,      AddSeqPoints, AddProject,
        AddPlaylist,   AddMetrics, AddCounters,   AddKernels,    AddRoofline,  AddRanks,
        AddFleet,      AddNodes,   AddCompare,    AddIterations, AddExport,    AddAnalyze,
        AddImport,     AddReplay,  AddWhatIf,     AddPlanners,   AddControl,   AddDoctor,
        AddCompletion, AddVersion}) {
    add(app, context);
  }
  app->footer(kSeqpointHelp);  // last: commands would inherit it
}

// `seqpoint --json place` is `seqpoint place --json`; other options are about a daemon.
int RunPlanner(const Context& context, Words words, size_t at) {
  const auto name = words.begin() + static_cast<ptrdiff_t>(at);
  const std::string planner = *name;
  const auto other =
      std::find_if(words.begin(), name, [](const auto& word) { return word != "--json"; });
  if (other != name) {
    return context.Fail(InvalidArgument(*other, " does not belong to seqpoint ", planner));
  }
  words.erase(name);
  return context.Fail(StartPlanner(planner, words));
}

// `seqpoint help COMMAND ...`
int Help(const Context& context, const CLI::App& app, const Words& words) {
  if (!words.empty() && IsPlanner(words[0])) {
    return context.Fail(StartPlanner(words[0], {"--help"}));
  }
  const CLI::App* command = &app;
  std::string name = "seqpoint";
  for (const std::string& word : words) {
    if (word == "--json") continue;  // help is text for people
    command = FindCommand(*command, word);
    if (command == nullptr) {
      Words names;
      for (const CLI::App* known : Commands(app)) names.push_back(known->get_name());
      return context.Fail(context.UsageError(
          absl::StrCat("there is no command ", Quote(word), DidYouMean(word, names))));
    }
    absl::StrAppend(&name, " ", word);
  }
  Context::Print(app.get_formatter()->make_help(command, name, CLI::AppFormatMode::Normal));
  return kExitOk;
}

int Main(Words words) {
  Context context(SEQPOINT_VERSION);
  CLI::App app(kDescription, "seqpoint");
  AddCommands(&app, &context);
  if (words.size() > 1 && words[0] == "complete" && words[1] == "--") {
    words.erase(words.begin(), words.begin() + 2);
    Context::Print(Complete(app, words, context));
    return kExitOk;
  }
  const auto first = std::find_if(words.begin(), words.end(),
                                  [](const auto& word) { return !absl::StartsWith(word, "-"); });
  if (first != words.end() && IsPlanner(*first)) {
    return RunPlanner(context, words, static_cast<size_t>(first - words.begin()));
  }
  if (!words.empty() && words[0] == "help") {
    return Help(context, app, Words(words.begin() + 1, words.end()));
  }
  const auto separator = std::find(words.begin(), words.end(), "--");
  if (separator != words.end() && std::find(words.begin(), separator, "run") != separator) {
    context.set_separated_words(Words(separator + 1, words.end()));
    words.erase(separator, words.end());
  }
  JoinPercent(&words);
  Words reversed(words.rbegin(), words.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    context.set_json(std::find(words.begin(), words.end(), "--json") != words.end());
    return context.Fail(
        context.UsageError(UsageMessage(app, error, !context.separated_words().empty(), words)));
  }
  return context.RunCommand();
}

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // a file size limit is a full disk: write says so
  seqpoint::RequireTls13();
  // The status of a call says it better than what gRPC logs.
  gpr_set_log_function([](gpr_log_func_args*) {});
  const int code = seqpoint::client::Main(std::vector<std::string>(argv + 1, argv + argc));
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "seqpoint: the answer could not be written to standard output: %s\n",
          strerror(errno));
  return code == 0 ? 1 : code;
}
