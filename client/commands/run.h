// `seqpoint run`: starts a training program under the injected library and follows its job.
//
// The program keeps our terminal, process group, standard streams and exit status; signals sent to
// us go on to it. Whatever fails on our side, it runs: then without a profile, and we say why.
//
// Threading: Run is called once, from main, before any thread was started.
#ifndef CLIENT_COMMANDS_RUN_H_
#define CLIENT_COMMANDS_RUN_H_

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

// "train" for {"python3", "-u", "src/train.py", "--lr", "1"}.
std::string JobNameFor(const std::vector<std::string>& command);

// The run id that torchrun or Slurm gave; else "20260102-101500-7f3a".
std::string RunIdFromEnvironment();

// Does a file that the command names, the program or a script, call functions of seqpoint.h? Such a
// program needs the library from its start; others get it from the CUDA driver, NVTX or the
// adapter, and a program that starts many others does not pay for it in each.
bool CallsTheLibrary(const std::vector<std::string>& command);

// This process' environment plus what brings the library and, where it is not empty, the PyTorch
// adapter into the program. `preload`: from the program's start.
std::vector<std::string> ChildEnvironment(const std::string& library, bool preload,
                                          const std::string& adapter, const std::string& directory,
                                          const std::string& job, const std::string& run_id,
                                          std::vector<std::string>* warnings);

// What the daemon can answer of a job beside its time.
struct Answerable {
  bool counters = false;
  bool kernels = false;  // and a trace
  bool operators = false;
};

// Why the PyTorch adapter told no iterations of a Python program, and the way out: a sentence
// without its full stop. `told`: what adapters told in the file that SEQPOINT_ADAPTER_TOLD names:
// "p" for each Python and "t" for each torch that they got into, "u" for a training whose steps
// could not be seen. Answers nothing where one got into torch, or no Python is known to have run.
std::string AdapterMissing(const std::vector<std::string>& command, const std::string& told);

// What `run` prints at the end. `wait_status`: how the program ended, as waitpid tells it;
// `adapter_missing`: AdapterMissing.
std::string RunSummary(const v1::Job& job, const Answerable& answers, int wait_status,
                       const std::string& adapter_missing = "");

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_RUN_H_
