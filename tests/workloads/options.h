// The command line of seqpoint_workload. Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_OPTIONS_H_
#define SEQPOINT_TESTS_WORKLOADS_OPTIONS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/workloads/batching.h"
#include "tests/workloads/faults.h"
#include "tests/workloads/models.h"
#include "tests/workloads/optimizer.h"

namespace seqpoint::workload {

// How the ranks of a job share the work.
enum class Parallel {
  kNone,      // they do not: each trains alone
  kData,      // all have the whole model; gradients are reduced over the ranks
  kSharded,   // each has a part of every layer's state
  kPipeline,  // each has some of the layers
  kTensor     // each has a part of every layer's matrices
};

struct Options {
  ModelConfig model;
  std::string lengths_file;  // empty: the histogram
  std::string histogram;
  int examples = 0;            // 0: as many as the histogram's corpus has
  int max_example_length = 0;  // 0: no limit; longer examples are left out
  Order order = Order::kShuffle;
  int pad_multiple = 1;
  bool drop_last = false;
  int epochs = 1;
  int max_iterations = 0;  // 0: all
  int readback_every = 1;  // 0: never
  bool prefetch = false;
  int accumulate = 1;
  int micro_batches_per_rank = 0;  // instead of `accumulate`; 0: that counts
  int eval_every = 0;              // 0: never
  int eval_batches = 8;
  int checkpoint_every = 0;  // 0: never
  int resume_at = 0;         // first iteration to run
  bool backward_thread = false;
  bool nvtx = false;
  bool fork_helper = false;
  bool second_context = false;
  bool graphs = false;
  ZeroGrad zero_grad = ZeroGrad::kMemset;
  bool foreach = false;
  double launch_us = 4;  // framework work before each launch
  double load_us = 150;  // data loading per batch
  double learning_rate = 1e-3;
  Parallel parallel = Parallel::kNone;
  double bucket_mb = 25;     // MiB of gradients that are reduced at once
  bool own_lengths = false;  // each rank has batches of its own
  bool layers_given = false;
  std::vector<Fault> faults;
  std::string lengths_out;
  std::string truth_file;
  std::string operations_file;
  bool quiet = false;
};

// Instead of training: print `text` and exit with `code` (help: 0, bad usage: 2).
struct Usage {
  int code;
  std::string text;
};
std::variant<Options, Usage> ParseOptions(int argc, const char* const* argv);

// The data set that the options describe: read or drawn, and cut at the longest example allowed.
absl::StatusOr<LengthTable> LoadLengths(const Options& options);

// The options as one JSON object, for the truth file.
std::string ToJson(const Options& options);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_OPTIONS_H_
