#include "client/commands/completion.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/commands.h"
#include "client/commands/options.h"
#include "client/commands/whatif.h"

namespace seqpoint::client {
namespace {

constexpr const char* kFiles = ":files\n";

constexpr const char* kBash = R"sh(# bash completion for seqpoint; source it, or save it as
# ~/.local/share/bash-completion/completions/seqpoint
_seqpoint() {
  local IFS=$'\n'
  COMPREPLY=($(seqpoint complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f 1))
  if [[ ${COMPREPLY[0]} == :files ]]; then
    COMPREPLY=()
    compopt -o default
  fi
}
complete -F _seqpoint seqpoint
)sh";

constexpr const char* kZsh = R"sh(#compdef seqpoint
# zsh completion for seqpoint; save it as _seqpoint in a folder of $fpath, or source it
_seqpoint() {
  local -a lines
  lines=("${(@f)$(seqpoint complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $lines[1] == :files ]]; then
    _files
  elif [[ -n $lines[1] ]]; then
    lines=("${(@)lines//:/\\:}")
    lines=("${(@)lines/$'\t'/:}")
    _describe seqpoint lines
  fi
}
compdef _seqpoint seqpoint
)sh";

constexpr const char* kFish = R"sh(# fish completion for seqpoint; save it as
# ~/.config/fish/completions/seqpoint.fish
function __seqpoint_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l lines (seqpoint complete -- $words[2..-1] 2>/dev/null)
  if test "$lines[1]" = :files
    __fish_complete_path (commandline -ct)
  else
    printf '%s\n' $lines
  end
end
complete -c seqpoint -f -a '(__seqpoint_complete)'
)sh";

// The option of `app`, or of those above it, that is called `name`; null: none.
const CLI::Option* FindOption(const CLI::App* app, const std::string& name) {
  for (; app != nullptr; app = app->get_parent()) {
    if (const CLI::Option* option = app->get_option_no_throw(name)) return option;
  }
  return nullptr;
}

std::vector<const CLI::Option*> Positionals(const CLI::App* app) {
  return app->get_options([](const CLI::Option* option) { return option->get_positional(); });
}

// Ids, and names with run ids, of the daemon that runs, if any.
std::vector<std::string> JobWords(const Context& context) {
  std::vector<std::string> words;
  absl::StatusOr<std::unique_ptr<Connection>> connection = context.ConnectToRunning();
  if (!connection.ok()) return words;
  absl::StatusOr<v1::ListJobsReply> reply = (*connection)->ListJobs({});
  if (!reply.ok()) return words;
  for (const v1::Job& job : reply->jobs()) {
    words.push_back(job.id());
    words.push_back(absl::StrCat(job.name(), "@", job.run_id()));
  }
  return words;
}

// Values of an option or a positional that begin with `word`, or all.
std::string Values(const CLI::Option* option, const std::string& word, const Context& context) {
  std::string type = option->get_type_name();
  if (option->get_name() == "JOB") {
    std::string text;
    for (const std::string& job : JobWords(context)) absl::StrAppend(&text, job, "\n");
    return text;
  }
  if (type == "FILE" || type == "PATH") return kFiles;
  std::string text;
  if (type == "PRESET" || type == "CHANGE") {
    for (const std::string& preset : PresetNames(context)) {
      if (absl::StartsWith(preset, word)) absl::StrAppend(&text, preset, "\n");
    }
    return text.empty() && type == "CHANGE" ? kFiles : text;  // a change may be a file
  }
  if (absl::StrContains(type, "|")) {
    for (absl::string_view word : absl::StrSplit(type, '|')) {
      absl::StrAppend(&text, word, "\n");
    }
  }
  return text;
}

std::string FirstSentence(const std::string& text) { return text.substr(0, text.find('.')); }

std::string Candidates(const CLI::App& app, const std::vector<std::string>& words,
                       const Context& context) {
  const CLI::App* command = &app;
  size_t positional = 0;
  const CLI::Option* awaiting = nullptr;  // the option whose value comes next
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (awaiting != nullptr) {
      awaiting = nullptr;
    } else if (word == "--") {
      return kFiles;
    } else if (absl::StartsWith(word, "-")) {
      awaiting = FindOption(command, word);
      if (awaiting != nullptr && awaiting->get_expected_max() == 0) awaiting = nullptr;
    } else if (const CLI::App* sub = FindCommand(*command, word)) {
      command = sub;
      positional = 0;
    } else if (command->get_prefix_command()) {
      return kFiles;
    } else {
      ++positional;
    }
  }
  if (awaiting != nullptr) return Values(awaiting, words.back(), context);
  std::string text;
  if (!words.empty() && absl::StartsWith(words.back(), "-")) {
    for (const CLI::App* of = command; of != nullptr; of = of->get_parent()) {
      for (const CLI::Option* option : of->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          absl::StrAppend(&text, "--", name, "\t", option->get_description(), "\n");
        }
      }
    }
    return text;
  }
  std::vector<const CLI::Option*> positionals = Positionals(command);
  if (!positionals.empty() && positionals.back()->get_expected_max() > 1) {
    positional = std::min(positional, positionals.size() - 1);  // the last one goes on
  }
  if (positional < positionals.size()) {
    return Values(positionals[positional], words.empty() ? "" : words.back(), context);
  }
  for (const CLI::App* sub : Commands(*command)) {
    absl::StrAppend(&text, sub->get_name(), "\t", FirstSentence(sub->get_description()), "\n");
  }
  return text.empty() && command->get_prefix_command() ? kFiles : text;
}

}  // namespace

std::string Complete(const CLI::App& app, const std::vector<std::string>& words,
                     const Context& context) {
  std::string candidates = Candidates(app, words, context);
  if (candidates == kFiles || words.empty()) return candidates;
  std::string fitting;
  for (absl::string_view line : absl::StrSplit(candidates, '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, words.back())) absl::StrAppend(&fitting, line, "\n");
  }
  return fitting;
}

namespace {

struct CompletionOptions {
  std::string shell;
};

absl::StatusOr<int> PrintCompletion(const Context& context, CompletionOptions& options) {
  const std::string script = options.shell == "bash"  ? kBash
                             : options.shell == "zsh" ? kZsh
                                                      : kFish;
  Context::Print(context.json() ? FieldsJson({{"shell", options.shell}, {"script", script}}) + "\n"
                                : script);
  return kExitOk;
}

}  // namespace

void AddCompletion(CLI::App* app, Context* context) {
  auto [command, options] = AddCommand<CompletionOptions>(
      app, context, "completion", "Print a completion script for a shell.", &PrintCompletion);
  AddChoice(command, "SHELL", &options->shell, {"bash", "zsh", "fish"}, "bash, zsh or fish")
      ->required();
}

}  // namespace seqpoint::client
