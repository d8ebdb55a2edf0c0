// ControlWriter: writes the control block of one ring under its sequence lock
// (docs/formats/shared-ring.md, "Control block").
//
// Threading: one thread. Ownership: the block belongs to the RingReader, which must outlive this.
// The process may scribble over the block: nothing but its own copy is ever read from it.
#ifndef SEQPOINT_DAEMON_INGEST_CONTROL_WRITER_H_
#define SEQPOINT_DAEMON_INGEST_CONTROL_WRITER_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "injection/abi/control.h"

namespace seqpoint::ingest {

class ControlWriter {
 public:
  explicit ControlWriter(abi::ControlBlock* block)
      : block_(block),
        sequence_(Word(block->sequence).load(std::memory_order_relaxed)),
        generation_(Word(block->generation).load(std::memory_order_relaxed)) {}

  // Publishes all of `control`. Its generation is set here, one above the block's last, also over
  // a restart of the daemon: a reader never takes another content for the one it has.
  void Write(const abi::Control& control) {
    abi::Control copy = control;
    if (++generation_ == 0) generation_ = 1;  // 0: nothing was ever written
    copy.generation = generation_;
    // A daemon that was killed in the middle left an odd value; from it, too, this goes up to odd
    // while writing and to even after.
    sequence_ |= 1;
    Word(block_->sequence).store(sequence_, std::memory_order_relaxed);
    static_assert(sizeof(copy) % sizeof(uint64_t) == 0);
    auto* to = reinterpret_cast<uint64_t*>(&block_->control);
    for (size_t i = 0; i < sizeof(copy) / sizeof(uint64_t); ++i) {
      uint64_t word;
      memcpy(&word, reinterpret_cast<const uint8_t*>(&copy) + i * sizeof word, sizeof word);
      // Release keeps the odd sequence before it, without a fence.
      Word(to[i]).store(word, std::memory_order_release);
    }
    Word(block_->sequence).store(++sequence_, std::memory_order_release);
    Word(block_->generation).store(generation_, std::memory_order_release);
  }

  // `now_ns`: CLOCK_MONOTONIC. At least every 500 ms, or the library takes the daemon for dead.
  void Heartbeat(uint64_t now_ns) {
    Word(block_->heartbeat_ns).store(now_ns, std::memory_order_relaxed);
  }

  uint32_t generation() const { return generation_; }

 private:
  template <typename T>
  static std::atomic_ref<T> Word(T& word) {
    return std::atomic_ref<T>(word);
  }

  abi::ControlBlock* const block_;
  uint64_t sequence_;
  uint32_t generation_;
};

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_CONTROL_WRITER_H_
