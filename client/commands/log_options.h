// --key, --time, --time-unit, --group: what the columns of another tool's log are.
// Threading: one thread. Ownership: the options outlive the app that reads them.
#ifndef CLIENT_COMMANDS_LOG_OPTIONS_H_
#define CLIENT_COMMANDS_LOG_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "client/commands/options.h"
#include "client/files/log_file.h"

namespace seqpoint::client {

inline void AddLogColumns(CLI::App* command, LogOptions* log, const std::string& title) {
  const OptionGroup group(command, title);
  AddValue(command, "--key COL[,COL]", &log->key_columns,
           "one or two columns with the iteration's length; default: a common name, such "
           "as length or seq_len")
      ->delimiter(',')
      ->expected(1, 2);
  AddValue(command, "--time COL", &log->time_column,
           "column with the iteration's time; an ending _ns, _us, _ms or _s is its unit");
  AddChoice(command, "--time-unit", &log->time_unit, {"ns", "us", "ms", "s"},
            "unit of the time column, when its name does not end in one");
  AddValue(command, "--group COL[,COL]", &log->group_columns,
           "columns that identify a run or an epoch, whose first iteration may be start-up")
      ->delimiter(',')
      ->expected(1, 8);
}

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_LOG_OPTIONS_H_
