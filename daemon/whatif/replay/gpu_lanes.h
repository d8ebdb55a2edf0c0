// The GPU side of a replay: when the tasks of lanes start and end.
//
// Threading: none. Ownership: refers to the state, which outlives it.
#ifndef DAEMON_WHATIF_REPLAY_GPU_LANES_H_
#define DAEMON_WHATIF_REPLAY_GPU_LANES_H_

#include <cstdint>

#include "daemon/whatif/replay/state.h"

namespace seqpoint::whatif {

class GpuLanes {
 public:
  explicit GpuLanes(ReplayState* state) : state_(*state) {}

  // Puts a task of rank `r` at the end of its lane. `ready_ns`: when its launch lets it start.
  void Enqueue(uint32_t r, uint32_t g, int64_t ready_ns);
  // Lets a lane by priority start its next task.
  void Choose(uint32_t r, uint32_t q, int64_t now_ns);

 private:
  bool Ready(uint32_t r, uint32_t g, int64_t* begin_ns, uint32_t* by);
  static void Await(RankState* rank, uint32_t other, uint32_t g);
  void Follow(uint32_t r, uint32_t g, uint32_t other, int64_t* begin_ns, uint32_t* by) const;
  bool Resolve(uint32_t r, uint32_t g);
  bool Start(uint32_t r, uint32_t g, int64_t begin_ns, uint32_t by);
  void EnqueueByPriority(uint32_t r, uint32_t g);
  void PlanChoice(uint32_t r, uint32_t q);
  void End(uint32_t r, uint32_t g, int64_t end_ns);
  void Advance(uint32_t r, uint32_t q);
  bool Arrive(uint32_t r, uint32_t g, int64_t begin_ns);

  ReplayState& state_;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_REPLAY_GPU_LANES_H_
