// Shell completion. The scripts ask `seqpoint complete -- WORD ...`, which answers from the command
// line's own description.
// Threading: pure functions.
#ifndef CLIENT_COMMANDS_COMPLETION_H_
#define CLIENT_COMMANDS_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "client/commands/context.h"

namespace seqpoint::client {

// `shell`: "bash", "zsh" or "fish".
std::string CompletionScript(const std::string& shell);

// Words that the daemon knows. Each function is called only where such a word may stand.
struct CompletionWords {
  std::function<std::vector<std::string>()> jobs;  // ids, and names with run ids
  std::function<std::vector<std::string>()> presets;
};
// Jobs are those of a daemon that runs; for presets one is started. `context` outlives the result.
CompletionWords WordsOfDaemon(const Context& context);

// The words that may replace the last of `words` (those after "seqpoint"; the last may be empty or
// incomplete), a line each: "word<TAB>description". The line ":files" alone means a file's name.
std::string Complete(const CLI::App& app, const std::vector<std::string>& words,
                     const CompletionWords& known);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMPLETION_H_
