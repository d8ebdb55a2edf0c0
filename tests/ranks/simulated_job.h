// A training job of several ranks, simulated: what each GPU's clock would say about its
// collectives, and the exact truth.
//
// Work and waiting follow max-plus algebra: a collective starts on a rank when its stream reaches
// it, and ends on all ranks at the last start + the transfer. A rank has a compute stream and a
// communication stream. The simulation shares no code with daemon/ranks.
//
//   data      12 layers; after each two of the backward pass, one of 6 all-reduces on the
//             communication stream; the optimiser waits for all of them
//   sharded   an all-gather before each layer's forward and backward pass, one layer ahead on the
//             communication stream; a reduce-scatter after its backward pass
//   pipeline  8 micro-batches, all forward and then all backward (GPipe), blocking transfers;
//             stages are up to 10 % unlike
//   tensor    two blocking all-reduces in each layer's forward and backward pass
//
// Noise: each layer's time, each rank's iteration, chips that differ, slow wandering of each rank,
// rare stalls. All random numbers depend on (seed, rank, iteration, operation) alone: two jobs that
// differ in a fault have equal noise.
//
// Threading: one thread. Ownership: values. Units: ns.
#ifndef SEQPOINT_TESTS_RANKS_SIMULATED_JOB_H_
#define SEQPOINT_TESTS_RANKS_SIMULATED_JOB_H_

#include <cstdint>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "daemon/ranks/rank_iteration.h"

namespace seqpoint::ranks {

enum class Parallel { kData, kSharded, kPipeline, kTensor };
enum class FaultKind { kKernels, kOneKernel, kHost, kLoader, kLink };
std::string_view Name(Parallel parallel);
std::string_view Name(FaultKind kind);

// One rank's work grows by `size` of it: in all kernels, in one layer's backward pass, between
// kernels, or before the first one. kLink: transfers take 1 + `size` times as long; in a pipeline
// those between `rank` and the next one, else all.
struct Fault {
  FaultKind kind = FaultKind::kKernels;
  int32_t rank = 0;
  double size = 0;
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();  // iterations
};

struct JobConfig {
  Parallel parallel = Parallel::kData;
  int32_t ranks = 4;
  bool own_lengths = false;  // each rank draws its own; else all have the same
  bool fixed_lengths = false;
  // Many lengths: the first iteration of each on a rank is reported as such, and is up to half
  // longer, most of them at first; and stalls are frequent at first.
  bool new_lengths = false;
  int32_t lengths_of = -1;  // own lengths, but all ranks have those that this one would draw
  uint64_t seed = 1;
  std::vector<Fault> faults;
  // Relative standard deviations.
  double layer_noise = 0.02, iteration_noise = 0.007, chip_noise = 0.002, wander = 0.002;
  double transfer_noise = 0.02;
  double stall_probability = 0.003;  // of a rank's iteration: 10 % to several times longer
};

class SimulatedJob {
 public:
  explicit SimulatedJob(JobConfig config);

  // All ranks' reports of the next iteration. Valid until the next call. `with_collectives`: else
  // without them, which is faster.
  const std::vector<RankIteration>& Next(bool with_collectives = true);

  int64_t next_number() const { return iteration_; }
  // The end of the slowest rank's last iteration.
  double elapsed_ns() const;

 private:
  struct Rank {
    double start = 0, compute = 0, communication = 0;  // when the stream is free
    double chip = 1, wander = 0, offset = 0;           // of its GPU
    double cost = 0, factor = 1;                       // of this iteration
    std::set<int64_t> lengths;                         // that it had; with new_lengths
    double loader = 0, host = 0, kernel = 0;           // faults of this iteration, ns
  };
  double Noise(int32_t rank, uint64_t what) const;  // standard normal
  double Uniform(int32_t rank, uint64_t what) const;
  void StartIteration();
  int64_t DrawLength(int32_t rank) const;
  double Delay(int32_t rank, bool is_new) const;
  double Layer(size_t rank, int layer, double share);
  double Transfer(double ns, int32_t from = -1);
  void Record(size_t rank, uint32_t kind, uint32_t sequence, double start, double end,
              int32_t peer = -1, bool receives = false);
  void Collective(uint32_t kind, double ns, bool blocking);
  void Send(size_t from, size_t to, double ns);
  void RunData();
  void RunSharded();
  void RunTensor();
  void RunPipeline();

  JobConfig config_;
  int64_t iteration_ = 0;
  bool with_collectives_ = true;
  uint64_t operation_ = 0;  // of this iteration
  std::vector<uint32_t> sequences_;
  std::vector<Rank> ranks_;
  std::vector<RankIteration> reports_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_TESTS_RANKS_SIMULATED_JOB_H_
