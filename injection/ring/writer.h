// The writing side of the shared ring (docs/formats/shared-ring.md), for the guest in the profiled
// process: libc only, no C++ runtime, no heap, no lock. A full ring drops and counts; nothing ever
// waits.
//
//   static RingWriter ring;                      // constant-initialised, trivially destructible
//   Status status = ring.Create(RingOptions{});
//   ring.WriteEvent(abi::EventType::kName, &name, sizeof name, text, length);
//   record.call.sequence = ring.NextCallSequence();
//   ring.WriteData(record);
//
// Threading: Create, Close, Destroy and DisableInChild are called by one thread at a time; all else
// by any thread at any time. A ThreadChunk belongs to one thread.
// Ownership: the writer owns memfd and mapping. Both stay until the process ends (Destroy is for
// tests), because other threads may be writing. After fork() the child has no mapping; every call
// there does nothing, even before DisableInChild.
#ifndef SEQPOINT_INJECTION_RING_WRITER_H_
#define SEQPOINT_INJECTION_RING_WRITER_H_

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "injection/abi/control.h"
#include "injection/abi/hello.h"
#include "injection/abi/records.h"
#include "injection/abi/ring.h"

namespace seqpoint::injection {

inline uint64_t NowNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Outcome of an operation: 0 or an errno value, and then a sentence with the way out.
struct Status {
  int error = 0;
  char message[256] = {};
  bool ok() const { return error == 0; }
};

struct RingOptions {
  uint32_t lane_slots = abi::kDefaultLaneSlots;  // power of two
  uint32_t chunk_count = abi::kDefaultChunkCount;
  uint32_t chunk_bytes = abi::kDefaultChunkBytes;  // multiple of 64
};
// The smallest ring that tests use: 64 KiB in all.
inline constexpr RingOptions kSmallRing = {64, 24, 1024};

class RingWriter;

// The chunk a thread is filling. All zero: none.
struct ThreadChunk {
  RingWriter* writer;
  abi::ChunkState* state;
  abi::DataRecord* records;
  uint64_t sequence;
  uint32_t used;
  uint32_t capacity;  // 0: no chunk
  bool starved;       // the last search found no free chunk
  uint32_t next_search;
};

class RingWriter {
 public:
  // Makes, seals and maps the memfd. Errors: EINVAL for options that make no ring the reader would
  // take, and what memfd_create, ftruncate, mmap and getrandom give.
  Status Create(const RingOptions& options);

  // False: dropped and counted (or there is no ring). The first form keeps the thread's chunk in
  // thread-local storage and closes it when the thread ends; one RingWriter per process may use it.
  bool WriteData(const abi::DataRecord& record);
  bool WriteData(const abi::DataRecord& record, ThreadChunk* chunk) {
    if (!active()) return false;
    if (chunk->writer != this || chunk->capacity == 0) {
      if (!ClaimChunk(chunk)) return CountDrop(record);
    }
    memcpy(chunk->records + chunk->used, &record, sizeof record);
    __atomic_store_n(&chunk->state->published, ++chunk->used, __ATOMIC_RELEASE);
    if (chunk->used == chunk->capacity) CloseChunk(chunk);
    return true;
  }
  // Lets the reader have the chunk. The thread's next record claims another.
  void CloseChunk(ThreadChunk* chunk);
  // The same for the calling thread's own chunk.
  void CloseThreadChunk();

  // `fixed` is the event's struct, `tail` what follows it. False: dropped and counted.
  bool WriteEvent(abi::EventType type, const void* fixed, size_t fixed_bytes,
                  const void* tail = nullptr, size_t tail_bytes = 0);

  // CallRecord::sequence of the next call. Each number taken must go into one WriteData, else the
  // reader counts the call as missing.
  uint64_t NextCallSequence() {
    return active() ? __atomic_fetch_add(&header_->call_sequence, 1, __ATOMIC_RELAXED) : 0;
  }

  // Raises one of the header's counters of activity records.
  void Count(uint64_t abi::RingHeader::*counter, uint64_t n);
  void SetClockKind(abi::ClockKind kind);

  // Orderly exit: closes the calling thread's chunk and tells the reader that nothing follows.
  // Later writes of any thread do nothing.
  void Close(int exit_status = 0);
  // In the child, after fork(): gives up the inherited descriptor.
  void DisableInChild();
  // Close, unmap, close the descriptor. No thread may be writing.
  void Destroy();

  // False before Create, after Close, and in a forked child.
  bool active() const {
    return active_ != nullptr && __atomic_load_n(active_, __ATOMIC_RELAXED) != 0;
  }
  int fd() const { return fd_; }
  // False, too, once the program has closed the descriptor; its number may then be a file of its.
  bool HasFile() const;
  abi::RingHeader* header() const { return header_; }
  size_t bytes() const { return bytes_; }
  const abi::ControlBlock* control_block() const { return control_; }
  // All of Hello but `reconnect` and `text_bytes`.
  abi::Hello MakeHello() const;

 private:
  bool ClaimChunk(ThreadChunk* chunk);
  bool CountDrop(const abi::DataRecord& record);
  void CopyToLane(uint64_t offset, const void* bytes, size_t n);

  abi::RingHeader* header_ = nullptr;
  abi::ControlBlock* control_ = nullptr;
  uint8_t* lane_ = nullptr;
  abi::ChunkState* directory_ = nullptr;
  uint8_t* chunks_ = nullptr;
  // On a page of its own that the kernel wipes in a forked child: a child that got past no fork
  // handler (a raw clone) still sees that it has no ring.
  uint32_t* active_ = nullptr;
  size_t bytes_ = 0;
  RingOptions options_;
  int fd_ = -1;
  uint64_t device_ = 0;  // of the memfd, with inode_
  uint64_t inode_ = 0;
  bool has_key_ = false;
  pthread_key_t thread_key_ = 0;
};

// Reads the control block. One per reading thread, or behind the user's own lock.
class ControlReader {
 public:
  explicit constexpr ControlReader(const RingWriter* ring) : ring_(ring) {}

  // One relaxed load: is there another generation than the one copied last?
  bool Changed() const {
    return ring_->active() &&
           __atomic_load_n(&ring_->control_block()->generation, __ATOMIC_RELAXED) != generation_;
  }
  // Copies the block under its sequence lock. False, with `out` unchanged or torn and not to be
  // used, when the daemon was writing three times in a row: keep the old copy, ask again later.
  bool Copy(abi::Control* out);

  // Nanoseconds of CLOCK_MONOTONIC since the daemon's last sign of life; UINT64_MAX: never any.
  uint64_t HeartbeatAgeNs() const;

 private:
  const RingWriter* ring_;
  uint32_t generation_ = 0;
};

}  // namespace seqpoint::injection

#endif  // SEQPOINT_INJECTION_RING_WRITER_H_
