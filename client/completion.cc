#include "client/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace seqpoint::client {
namespace {

struct Command {
  std::string name;
  std::string description;
  std::vector<std::string> flags;  // "--json"
  std::vector<std::string> words;  // subcommands, and fixed values of positionals
  bool takes_job = false;
};

// Commands without a description are for the scripts themselves and stay out.
std::vector<Command> Commands(const CLI::App& app) {
  std::vector<std::string> global;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) global.push_back("--" + name);
  }
  std::vector<Command> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_description().empty()) continue;
    Command command{sub->get_name(), sub->get_description(), global, {}, false};
    for (const CLI::Option* option : sub->get_options()) {
      for (const std::string& name : option->get_lnames()) command.flags.push_back("--" + name);
      command.takes_job = command.takes_job || option->get_name() == "JOB";
    }
    for (const CLI::App* inner : sub->get_subcommands([](const CLI::App*) { return true; })) {
      command.words.push_back(inner->get_name());
    }
    commands.push_back(command);
  }
  return commands;
}

std::string FirstSentence(const std::string& text) { return text.substr(0, text.find('.')); }

std::string Bash(const std::vector<Command>& commands) {
  std::string cases;
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.push_back(command.name);
    absl::StrAppend(&cases, "    ", command.name, ") words=\"", absl::StrJoin(command.words, " "),
                    "\" flags=\"", absl::StrJoin(command.flags, " "),
                    "\" jobs=", command.takes_job ? "yes" : "no", " ;;\n");
  }
  return absl::StrReplaceAll(R"sh(# bash completion for seqpoint; source it, or save it as
# ~/.local/share/bash-completion/completions/seqpoint
_seqpoint() {
  local current=${COMP_WORDS[COMP_CWORD]} i words="" flags="" jobs=no
  COMPREPLY=()
  if [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W "@NAMES@" -- "$current"))
    return
  fi
  for ((i = 2; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} == -- ]]; then
      compopt -o default
      return
    fi
  done
  case ${COMP_WORDS[1]} in
@CASES@  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == --* ]]; then
    compopt -o default
  else
    [[ $jobs == yes ]] && words="$words $(seqpoint complete-jobs 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
complete -F _seqpoint seqpoint
)sh",
                             {{"@NAMES@", absl::StrJoin(names, " ")}, {"@CASES@", cases}});
}

std::string Zsh(const std::vector<Command>& commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    absl::StrAppend(&names, "    '", command.name, ":",
                    absl::StrReplaceAll(FirstSentence(command.description), {{"'", ""}}), "'\n");
    absl::StrAppend(&cases, "    ", command.name, ") choices=(", absl::StrJoin(command.words, " "),
                    ") flags=(", absl::StrJoin(command.flags, " "),
                    ") jobs=", command.takes_job ? "yes" : "no", " ;;\n");
  }
  return absl::StrReplaceAll(R"sh(#compdef seqpoint
# zsh completion for seqpoint; save it as _seqpoint in a folder of $fpath, or source it
compdef _seqpoint seqpoint
_seqpoint() {
  local -a commands choices flags
  local jobs=no
  commands=(
@NAMES@  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  if (( ${words[(I)--]} && ${words[(I)--]} < CURRENT )); then
    _files
    return
  fi
  case $words[2] in
@CASES@  esac
  if [[ $PREFIX == -* ]]; then
    compadd -- $flags
  elif [[ $words[CURRENT-1] == --* ]]; then
    _files
  else
    [[ $jobs == yes ]] && choices+=($(seqpoint complete-jobs 2>/dev/null))
    compadd -- $choices
  fi
}
if [[ $funcstack[1] == _seqpoint ]]; then
  _seqpoint
fi
)sh",
                             {{"@NAMES@", names}, {"@CASES@", cases}});
}

std::string Fish(const std::vector<Command>& commands) {
  std::string text =
      "# fish completion for seqpoint; save it as\n"
      "# ~/.config/fish/completions/seqpoint.fish\n";
  for (const Command& command : commands) {
    absl::StrAppend(&text, "complete -c seqpoint -n __fish_use_subcommand -f -a ", command.name,
                    " -d '", absl::StrReplaceAll(FirstSentence(command.description), {{"'", ""}}),
                    "'\n");
    std::string here =
        absl::StrCat("complete -c seqpoint -n '__fish_seen_subcommand_from ", command.name, "' ");
    for (const std::string& flag : command.flags) {
      absl::StrAppend(&text, here, "-l ", flag.substr(2), "\n");
    }
    if (!command.words.empty()) {
      absl::StrAppend(&text, here, "-f -a '", absl::StrJoin(command.words, " "), "'\n");
    }
    if (command.takes_job) {
      absl::StrAppend(&text, here, "-f -a '(seqpoint complete-jobs 2>/dev/null)'\n");
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, const std::string& shell) {
  std::vector<Command> commands = Commands(app);
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  return Fish(commands);
}

}  // namespace seqpoint::client
