// Layout of the memory a profiled process shares with the daemon: header, control block, event
// lane, chunk directory and chunks, in one sealed memfd. `docs/formats/shared-ring.md` specifies it
// with the transitions of every state and an example; this header is that page as code.
//
//   * Writes are atomic per record: a reader sees a record whole or not at all.
//   * A full ring drops and counts; a writer never waits.
//   * Each writing thread fills its own chunk. A thread that is killed half way loses its
//     unfinished record only.
//   * THE OTHER SIDE MAY CHANGE THIS MEMORY AT ANY TIME. Copy first, then check, then use the copy.
//
// Plain fixed-size structs, little endian, no pointers. Shared words are accessed through
// std::atomic_ref / __atomic builtins only. Threading: see each group. Ownership: the writing
// process creates the memfd and never unmaps it while it runs; the reader maps a duplicate.
#ifndef SEQPOINT_INJECTION_ABI_RING_H_
#define SEQPOINT_INJECTION_ABI_RING_H_

#include <stddef.h>
#include <stdint.h>

namespace seqpoint::abi {

inline constexpr uint64_t kRingMagic = 0x31474E5250514553ull;  // "SEQPRNG1"
// Raised on every incompatible change of anything under injection/abi. Each side refuses another
// value with a message that names both.
inline constexpr uint32_t kAbiVersion = 1;

inline constexpr uint32_t kSlotBytes = 64;
inline constexpr uint32_t kDefaultChunkBytes = 64 * 1024;
inline constexpr uint32_t kDefaultChunkCount = 240;      // 15 MiB of data records
inline constexpr uint32_t kDefaultLaneSlots = 8 * 1024;  // 512 KiB of event records
inline constexpr uint64_t kMaxRingBytes = 64ull << 20;   // the reader maps nothing larger
inline constexpr uint32_t kMaxChunkCount = 4096;
inline constexpr uint32_t kMaxEventSlots = 96;  // one event record: at most 6 KiB

// Which clock the stamps of a process are in.
enum class ClockKind : uint32_t {
  kUnknown = 0,
  kReal = 1,     // within 1 ms of CLOCK_REALTIME
  kForeign = 2,  // a software GPU's virtual time, or another tool's timestamp callback
};

// Byte 0 of the memfd. The first group is written once, before the memfd is handed over.
struct alignas(64) RingHeader {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t header_bytes;  // sizeof(RingHeader)
  uint64_t total_bytes;
  uint64_t control_offset;
  uint64_t lane_offset;
  uint64_t directory_offset;
  uint64_t chunks_offset;
  uint32_t lane_slots;  // power of two
  uint32_t chunk_count;
  uint32_t chunk_bytes;  // multiple of 64
  uint32_t pid;
  uint8_t ring_id[16];           // random; names this ring in the store
  uint64_t lane_salt;            // random; see LaneSlot::stamp
  uint64_t created_real_ns;      // CLOCK_REALTIME
  uint64_t process_start_ticks;  // field 22 of /proc/PID/stat: tells a reused pid

  // Written by any thread of the process.
  alignas(64) uint64_t next_chunk_sequence;  // first chunk gets 1
  alignas(64) uint64_t lane_head;            // next free slot position, counted from 0 for ever
  uint64_t lane_number;                      // next event number, counted from 0
  alignas(64) uint64_t lane_dropped;         // events not written, the lane being full
  uint64_t data_dropped;                     // data records not written, no chunk being free
  uint64_t cupti_dropped;                    // activity records CUPTI itself dropped
  uint64_t invalid_timestamps;  // activity records with zero, reversed or absurd stamps
  uint64_t unknown_records;     // activity records of a kind or size we do not read
  uint64_t call_sequence;       // learn records tried so far: CallRecord::sequence
  uint64_t call_dropped;        // those of data_dropped that were learn records
  uint32_t closed;              // orderly exit, nothing more follows; 1: status 0, 2: another
  uint32_t clock_kind;          // ClockKind

  // Written by the reader: everything before this position is committed and may be overwritten.
  alignas(64) uint64_t lane_tail;
};

// State of one chunk. `state` = sequence << 2 | ChunkPhase. Sequences are unique within a ring, so
// (sequence, record index) names a data record for ever; the cursor in the store uses that.
//
//   kFree --writer CAS--> kClaimed --writer--> kOpen --writer--> kClosed --reader, after commit-->
//   kFree
struct alignas(64) ChunkState {
  uint64_t state;
  uint32_t published;  // records complete so far; store-release by the owner, only ever grows
  uint32_t owner_tid;
};
enum ChunkPhase : uint64_t { kFree = 0, kClaimed = 1, kOpen = 2, kClosed = 3 };

// First slot of an event record; the payload goes on in the following slots (modulo lane_slots).
// Published by a store-release of `stamp` = position + lane_salt, after everything else.
struct alignas(64) LaneSlot {
  uint64_t stamp;
  uint64_t number;  // consecutive over all tried events: a gap is a known loss
  uint16_t type;    // EventType
  uint16_t slots;   // slots of the whole record, this one included
  uint32_t payload_bytes;
  uint8_t payload[40];
};
static_assert(sizeof(LaneSlot) == kSlotBytes);
static_assert(sizeof(ChunkState) == 64);
static_assert(sizeof(RingHeader) % 64 == 0);

inline constexpr uint32_t EventSlots(uint32_t payload_bytes) {
  return payload_bytes <= 40 ? 1 : 2 + (payload_bytes - 41) / kSlotBytes;  // no overflow at 2^32
}

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_RING_H_
