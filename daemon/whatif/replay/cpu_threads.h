// The CPU side of a replay: threads run their tasks in order.
//
// Threading: none. Ownership: refers to the state and the lanes, which outlive it.
#ifndef DAEMON_WHATIF_REPLAY_CPU_THREADS_H_
#define DAEMON_WHATIF_REPLAY_CPU_THREADS_H_

#include <cstdint>

#include "daemon/whatif/replay/gpu_lanes.h"
#include "daemon/whatif/replay/state.h"

namespace seqpoint::whatif {

class CpuThreads {
 public:
  CpuThreads(ReplayState* state, GpuLanes* lanes) : state_(*state), lanes_(*lanes) {}

  // Runs a thread until another event would be earlier, or until it waits.
  void Run(const ReplayEvent& event);

 private:
  void Begin(uint32_t r, const CpuTask& task, int64_t now_ns);

  ReplayState& state_;
  GpuLanes& lanes_;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPLAY_CPU_THREADS_H_
