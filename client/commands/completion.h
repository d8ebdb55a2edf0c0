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

// What may stand in place of the last of `words` (those after "seqpoint"; the last may be empty or
// begun): a line each, "word<TAB>description". The line ":files" alone means a file's name.
// `jobs` is called where a job may stand.
std::string Complete(const CLI::App& app, const std::vector<std::string>& words,
                     const std::function<std::vector<std::string>()>& jobs);

// What may stand for a job, of the daemon that runs, if any: ids, and names with run ids.
std::vector<std::string> JobWords(const Context& context);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMPLETION_H_
