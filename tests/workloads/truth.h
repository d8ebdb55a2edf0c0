// The true times and lengths of a training, written to a file that tests compare a profiler's
// findings with. The profiler never sees the file. docs/internals/workloads.md gives the format
// with an example.
//
// The file is JSON lines: a header with the options, a line for each training iteration, evaluation
// and checkpoint in the order they ran, and a line of totals. GPU times come from one CUDA event
// per line, recorded where the phase begins; they are resolved when they are long past, or at the
// end, so that training is never made to wait.
//
// Threading: one thread. Owns its events.
#ifndef SEQPOINT_TESTS_WORKLOADS_TRUTH_H_
#define SEQPOINT_TESTS_WORKLOADS_TRUTH_H_

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "tests/workloads/gpu.h"
#include "tests/workloads/ranks.h"

namespace seqpoint::workload {

struct Phase {
  enum class Kind { kIteration, kEvaluation, kCheckpoint };
  Kind kind = Kind::kIteration;
  int64_t number = 0;  // iteration, or iterations done before an evaluation or checkpoint
  int epoch = 0;
  int batch = 0;             // examples, over all micro-batches
  std::vector<int> lengths;  // summed over micro-batches
  std::vector<std::vector<int>> micro_lengths;
};

class Truth {
 public:
  // Does nothing at all when `path` is empty. A file that cannot be written ends the process with a
  // message. "%r" in the path is the rank. With several `ranks`, lines also tell what the rank
  // waited for the others.
  Truth(std::string path, const std::string& options_json, const std::string& device,
        const Ranks& ranks);
  ~Truth();
  Truth(const Truth&) = delete;
  Truth& operator=(const Truth&) = delete;

  // A phase begins: before its first GPU call on `stream`. It lasts until the next begins.
  void Begin(Phase phase, Stream stream);
  // The next launch is the open phase's first forward one. Later calls in a phase do nothing.
  void FirstForward();
  // Everything has been submitted: waits for the GPU and writes what is left, and the totals.
  void Finish(Stream stream, float final_loss);

 private:
  // Both sides of a phase: taken when it begins.
  struct Mark {
    uint64_t host_ns = 0;
    CallCounts calls;
    SwgpuTotals totals{};
    SwgpuNcclTotals nccl{};
    Event event = nullptr;
  };
  struct Entry {
    Phase phase;
    Mark begin;
    uint64_t forward_host_ns = 0;
    CallCounts forward_calls;
  };

  Mark TakeMark(Stream stream);
  // Writes the entries whose end the GPU has passed.
  void WriteFinished();
  void Write(const Entry& entry, const Mark& end);
  std::string RankJson(const Mark& begin, const Mark& end);

  FILE* file_ = nullptr;
  bool software_ = false;
  bool many_ranks_ = false;
  KernelAccount training_kernels_;
  std::deque<Entry> open_;
  std::vector<Event> free_events_;
  uint64_t first_host_ns_ = 0;
  double gpu_start_ns_ = 0;
  double train_gpu_ns_ = 0;
  int64_t iterations_ = 0;
  int64_t evaluations_ = 0;
  int64_t checkpoints_ = 0;
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_TRUTH_H_
