// --limit and --all: how many rows of a table are shown.
// Threading: values. Ownership: the options outlive the app that reads them.
#ifndef CLIENT_COMMANDS_ROWS_H_
#define CLIENT_COMMANDS_ROWS_H_

#include <CLI/CLI.hpp>

#include "client/commands/options.h"

namespace seqpoint::client {

struct RowOptions {
  int limit = 20;
  bool all = false;

  void AddTo(CLI::App* command) {
    constexpr int64_t kMaxRows = 1'000'000'000;
    AddValue(command, "--limit N", &limit, "how many rows; default 20", WholeNumber(1, kMaxRows));
    command->add_flag("--all", all, "all rows");
  }
};

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_ROWS_H_
