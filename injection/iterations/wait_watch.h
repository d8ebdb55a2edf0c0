// WaitWatch: whether a wait of the host covers the work of the GPU. A loop may copy its batches on
// a stream of their own and wait for the copies alone, to use their memory again, or wait for what
// it launched some iterations ago. The work of this iteration is then still to come, and such a
// wait says nothing about its time.
//
//   waits.OnCall(Op::kLaunch, stream, 0);     // every watched call, in order
//   if (waits.Covers(Op::kStreamSync, stream, 0)) ...
//
// A wait covers the work when it is for the stream that computes, for an event that was recorded on
// it since the last boundary and behind all of its kernels that were watched, or for the whole
// context. The stream that computes is that of the rule's step, or, where that is no launch, the
// one with most kernels so far. Whatever is not known for certain covers nothing: results that come
// back on another stream, an event whose place in the table another one took.
//
// Threading: IterationState's lock. Memory: fixed.
#ifndef SEQPOINT_INJECTION_ITERATIONS_WAIT_WATCH_H_
#define SEQPOINT_INJECTION_ITERATIONS_WAIT_WATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

class WaitWatch {
 public:
  static constexpr size_t kStreams = 64;  // of which kernels are counted
  static constexpr size_t kEvents = 512;  // a place for each by its handle; the last one has it

  // `stream`, `event`: handles. O(streams).
  void OnCall(abi::Op op, uint64_t stream, uint64_t event);
  // A launch on the stream was the step of an iteration.
  void OnStep(uint64_t stream) {
    step_ = stream;
    has_step_ = true;
  }
  void OnBoundary() { ++boundaries_; }
  // Whether the work that computes is done when a call that waits for these returns.
  bool Covers(abi::Op op, uint64_t stream, uint64_t event) const;

 private:
  struct Stream {
    uint64_t handle;
    uint64_t kernels;
  };
  struct Event {
    uint64_t handle;
    uint64_t stream;
    uint64_t boundaries;  // so many came before it was recorded
    uint64_t kernels;     // likewise, on its stream
  };
  static constexpr uint64_t kGraph = 64;  // a graph counts for as many kernels

  bool Computes(uint64_t stream) const;
  uint64_t KernelsOn(uint64_t stream) const;
  static size_t PlaceOf(uint64_t event) { return (event >> 4 ^ event >> 13) % kEvents; }

  Stream streams_[kStreams] = {};
  size_t stream_count_ = 0;
  const Stream* busiest_ = nullptr;
  uint64_t step_ = 0;
  bool has_step_ = false;
  uint64_t boundaries_ = 0;
  Event events_[kEvents] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_WAIT_WATCH_H_
