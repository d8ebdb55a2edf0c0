// `seqpoint run`: starts a training program under the injected library and follows its job.
//
// The program keeps our terminal, process group, standard streams and exit status; signals sent to
// us go on to it. Whatever fails on our side, it runs: then without a profile, and we say why.
//
// Threading: Run is called once, from main, before any thread was started.
#ifndef CLIENT_COMMANDS_RUN_RUN_H_
#define CLIENT_COMMANDS_RUN_RUN_H_

#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct RunOptions {
  ConnectOptions connect;
  std::vector<std::string> command;
  std::string job;     // empty: from the command
  std::string run_id;  // empty: from torchrun or Slurm, else a new one
  v1::Horizon horizon;
  double overhead_budget_share = 0;  // 0: the daemon's default
  std::vector<std::string> metric_sets;
  std::optional<v1::MetricFile> metric_file;  // own sets
  v1::CounterBackend counter_backend = v1::COUNTER_BACKEND_UNSPECIFIED;
  bool roofline = false;   // single kernels are measured, too
  bool operators = false;  // operators are recorded, too
  bool progress = true;
  bool quiet = false;  // no summary either
  bool json = false;   // the summary is a GetJobReply as JSON, on standard output
};

// The program's exit status; when a signal killed it, ends this process by the same signal.
int Run(const RunOptions& options);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_RUN_H_
