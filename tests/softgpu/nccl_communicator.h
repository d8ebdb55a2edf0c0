// A communicator as one rank has it.
//
// Created by a call that all ranks make and that waits for all. Shared by the caller, by calls
// under way and by kernels in graphs. One thread at a time uses it, but for Abort and WaitingMs.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_COMMUNICATOR_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_COMMUNICATOR_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/softgpu/hooks.h"
#include "tests/softgpu/nccl_law.h"
#include "tests/softgpu/nccl_profiler.h"
#include "tests/softgpu/nccl_progress.h"
#include "tests/softgpu/nccl_segment.h"

namespace seqpoint::softgpu {

// From now on the link between two ranks of the first communicators has this share of the bandwidth
// that the settings give it. 1 ends it. RenewLaw takes it over.
void SetNcclLink(int a, int b, double factor);

// The table that the libraries of the process share.
Hooks& NcclHooks();
NcclProfiler& ProcessProfiler();
inline const Config& NcclConfig() { return *NcclHooks().config; }

// Keeps the message for ncclGetLastError and returns `result`.
ncclResult_t NcclFail(ncclResult_t result, const std::string& message);
const char* NcclLastError();

// Makes a context current as long as it lives.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  CUcontext former_ = nullptr;
  bool changed_ = false;
};

// The thread waits for other ranks as long as it lives: virtual time stands still meanwhile.
class RankWait {
 public:
  RankWait() { ++NcclHooks().waits_for_ranks; }
  ~RankWait() { --NcclHooks().waits_for_ranks; }
  RankWait(const RankWait&) = delete;
  RankWait& operator=(const RankWait&) = delete;
};

// The kernel of this mangled name in the context's module of NCCL. Null when the driver refuses.
CUfunction NcclKernel(CUcontext context, const std::string& name);

// The facts that all ranks of a communicator agree on before they meet.
struct NcclMeeting {
  std::string segment;  // name of the shared memory
  uint64_t hash;
  int ranks;
  int rank;
  std::string name;  // given by the program, or empty
};

class NcclCommunicator {
 public:
  // Waits for all ranks. `context` is the device's that the rank computes on.
  static ncclResult_t Create(const NcclMeeting& meeting, CUcontext context,
                             std::shared_ptr<NcclCommunicator>* out);
  ~NcclCommunicator();

  // A part of this communicator; `out` stays null for a rank without colour.
  ncclResult_t Split(int color, int key, const std::string& name,
                     std::shared_ptr<NcclCommunicator>* out);

  // Waits (virtual time) until the last kernel has ended, and for the plugin to hear of it.
  void Drain();
  // Ends what waits, and what the plugin has not heard yet.
  void Abort();
  // The last call: the plugin forgets the communicator.
  void Close();

  // The links between ranks have changed.
  void RenewLaw();
  // The factor that the noise gives to the collective, or the transfer, of this number.
  double Noise(uint64_t number) const;
  // How long (real time) a thread of this rank has been waiting for others.
  uint64_t WaitingMs() const;
  const char* name() const { return name_.empty() ? nullptr : name_.c_str(); }

  const int rank;
  const int ranks;
  const uint64_t hash;
  const CUcontext context;
  int device = 0;
  int world_rank = 0;    // in the first communicator of the device
  bool is_first = true;  // this is that communicator
  std::unique_ptr<NcclSegment> segment;
  std::unique_ptr<NcclLaw> law;
  void* profiler_context = nullptr;
  NcclProgress progress;

  // Numbers of what comes next.
  uint64_t kernels = 0;
  uint64_t collectives = 0;  // kernels that have some
  uint64_t sequence[kNcclFunctions] = {};
  std::vector<uint64_t> sends;                  // to each rank
  std::vector<uint64_t> receives;               // from each rank
  uint64_t told_sequence[kNcclFunctions] = {};  // as the plugin hears it
  uint64_t last_end_ns = 0;

 private:
  NcclCommunicator(const NcclMeeting& meeting, CUcontext on);
  ncclResult_t Meet();

  const std::string segment_name_;
  const std::string name_;
  uint64_t splits_ = 0;
  uint64_t seed_ = 0;  // of rank 0
  std::vector<int> world_ranks_;
  std::vector<float> noise_;
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_COMMUNICATOR_H_
