// What one rank says about one iteration: its lengths, its time, and its collectives on the GPU.
//
// Threading, ownership: values.
// Units: ns. Times of a rank are those of its own GPU's clock, relative to any instant; nobody
// compares the clocks of two GPUs.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_ITERATION_H_
#define SEQPOINT_DAEMON_RANKS_RANK_ITERATION_H_

#include <array>
#include <cstdint>
#include <vector>

namespace seqpoint::ranks {

// One collective of a communicator, or one transfer (send or receive) between two ranks.
struct Collective {
  uint64_t communicator = 0;  // NCCL's hash, the same on all ranks
  // Function, datatype and number of elements; the same number on all ranks, and for a transfer the
  // same at the sender and at the receiver.
  uint32_t kind = 0;
  // Of a collective: NCCL's number, the same on all ranks. Of a transfer: any number that grows
  // from one transfer of the iteration to the next; transfers of a pair are matched in their order.
  uint32_t sequence = 0;
  int32_t peer = -1;      // of a transfer: the other rank of the job; -1: the whole communicator
  bool receives = false;  // of a transfer: from `peer`
  int64_t start_ns = 0, end_ns = 0;

  bool is_transfer() const { return peer >= 0; }
};

struct RankIteration {
  int64_t number = 0;                   // of the iteration, the same on all ranks
  int32_t rank = 0;                     // of the job
  std::array<int64_t, 2> lengths = {};  // of this rank's own batch; 0: not known
  int64_t duration_ns = 0;  // from the start of this iteration to that of the next; 0: not known
  bool distorted = false;   // something other than training took time: it is no evidence
  bool new_length = false;  // one that the rank has not had: its first time takes longer
  std::vector<Collective> collectives;  // in any order
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_ITERATION_H_
