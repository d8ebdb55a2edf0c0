// Shell completion scripts, made from the command line's own description.
// Threading: pure.
#ifndef CLIENT_COMPLETION_H_
#define CLIENT_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>

namespace seqpoint::client {

// `shell`: "bash", "zsh" or "fish".
std::string CompletionScript(const CLI::App& app, const std::string& shell);

}  // namespace seqpoint::client

#endif  // CLIENT_COMPLETION_H_
