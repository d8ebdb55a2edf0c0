// The summary that `seqpoint run` prints at its end.
// Threading: pure but for the environment.
#ifndef CLIENT_COMMANDS_RUN_SUMMARY_H_
#define CLIENT_COMMANDS_RUN_SUMMARY_H_

#include <string>

#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Which questions about the job the daemon can answer, other than its time.
struct Answerable {
  bool counters = false;
  bool kernels = false;  // and a trace
  bool operators = false;
  std::string hub;  // that the daemon tells: host:port or unix:PATH; empty: none
};

// The summary. `wait_status`: how the program ended, as waitpid gives it; `adapter_missing`: the
// result of AdapterMissing; `stop_signal`: to which the program answered with an exit status; 0:
// none.
std::string RunSummary(const v1::Job& job, const Answerable& answers, int wait_status,
                       const std::string& adapter_missing = "", int stop_signal = 0);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_SUMMARY_H_
