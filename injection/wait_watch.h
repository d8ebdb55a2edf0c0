// What does the host wait for? A loop may copy its batches on a stream of their own and wait for
// the copies alone, to use their memory again: the work that computes is then still to come, and
// such a wait says nothing about time. Waits for results do, and waits for streams that compute.
//
//   waits.OnCall(Op::kCopyH2D, stream, 0);     // every watched call, in order
//   if (waits.Covers(Op::kStreamSync, stream, 0)) ...
//
// A stream is for copies when data went to the GPU on it, and less than half as many kernels as on
// the busiest one (some prepare the batch there). An
// event stands for what its stream was when it was recorded; of an event that is not known (so many
// others came) nothing is said to be covered.
//
// Threading: CallStream's lock. Memory: fixed.
#ifndef SEQPOINT_INJECTION_WAIT_WATCH_H_
#define SEQPOINT_INJECTION_WAIT_WATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

class WaitWatch {
 public:
  static constexpr size_t kStreams = 64;  // further ones count as computing
  static constexpr size_t kEvents = 512;  // a place for each by its handle; the last one has it

  // `stream`, `event`: handles. O(streams).
  void OnCall(abi::Op op, uint64_t stream, uint64_t event);
  // Whether work that computes is done when a call that waits for these returns.
  bool Covers(abi::Op op, uint64_t stream, uint64_t event) const;

 private:
  struct Stream {
    uint64_t handle;
    bool brings;   // data to the GPU
    bool fetches;  // results, since the host last waited for it
    uint64_t kernels;
  };
  struct Event {
    uint64_t handle;
    bool covers;
  };
  // A graph counts for as many kernels.
  static constexpr uint64_t kGraph = 64;

  bool Covers(const Stream* stream) const;
  const Stream* Find(uint64_t handle) const;
  Stream* Get(uint64_t handle);
  static size_t PlaceOf(uint64_t event) { return (event >> 4 ^ event >> 13) % kEvents; }

  Stream streams_[kStreams] = {};
  size_t stream_count_ = 0;
  uint64_t most_kernels_ = 0;  // on one stream
  Event events_[kEvents] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_WAIT_WATCH_H_
