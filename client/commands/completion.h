// Shell completion. The scripts ask `seqpoint complete -- WORD ...`, which answers from the command
// line's own description.
// Threading: one thread.
#ifndef CLIENT_COMMANDS_COMPLETION_H_
#define CLIENT_COMMANDS_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "client/commands/context.h"

namespace seqpoint::client {

// The words that may replace the last of `words` (those after "seqpoint"; the last may be empty or
// incomplete), a line each: "word<TAB>description". The line ":files" alone means a file's name.
// Jobs are those of a daemon that runs; for presets one is started.
std::string Complete(const CLI::App& app, const std::vector<std::string>& words,
                     const Context& context);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMPLETION_H_
