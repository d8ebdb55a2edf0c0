// RingReader: the daemon's side of one process' ring (docs/formats/shared-ring.md).
//
//   auto reader = RingReader::Open(fd, {});            // checks seals, size, version, layout
//   if (stored) (*reader)->Resume(*stored);            // go on where the store says
//   (*reader)->Poll(sink, now_ns);                     // hands new records to the sink
//   Cursor cursor = (*reader)->cursor();
//   ... commit what the sink made of it, and the cursor, in one transaction ...
//   (*reader)->Release(cursor);                        // only now may the process overwrite it
//
// Whatever happens between these calls, resuming from the last committed cursor loses nothing and
// delivers nothing twice.
//
// THE PROCESS MAY CHANGE THE MEMORY AT ANY TIME, AND MAY BE HOSTILE. Everything is copied first,
// then checked, then used. Nonsense is rejected and counted; time per Poll is bounded by the ring's
// size.
//
// Threading: one thread at a time. Ownership: owns its mapping, which keeps the memory alive after
// the process; the descriptor stays the caller's and may be closed after Open.
#ifndef SEQPOINT_DAEMON_INGEST_RING_READER_H_
#define SEQPOINT_DAEMON_INGEST_RING_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/ingest/call_reorder.h"
#include "daemon/ingest/cursor.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "injection/abi/ring.h"

namespace seqpoint::ingest {

// Receives the records. Spans are valid during the call only.
class RingSink {
 public:
  virtual ~RingSink() = default;
  // A whole event of a known type: `payload` (8-byte aligned) begins with that type's struct, and
  // the text or the values behind it are as long as the struct says. In lane order, which never
  // contradicts the order in which the process wrote.
  virtual void OnEvent(uint64_t number, abi::EventType type, absl::Span<const uint8_t> payload) = 0;
  // Records of known types. Calls come in the order of CallRecord::sequence over all threads. The
  // others of a thread come in the order it wrote them; only where a call has to wait do those
  // behind it in its chunk wait too, while the thread's next chunk may overtake them. The name of a
  // record was delivered before it, unless its event was dropped.
  virtual void OnData(absl::Span<const abi::DataRecord> records) = 0;
  // A record of type kArrivals or kCollective. Its numbers are in order and its times do not run
  // backwards. The records of a communicator come in any order.
  virtual void OnCollectives(const abi::DataRecord&) {}
  // The calls [first, first + count) will not come: dropped, or lost with a killed thread.
  virtual void OnCallsMissing(uint64_t first, uint64_t count) = 0;
};

struct RingReaderOptions {
  // How long a call, or a half-written event, may hold up what lies behind it while the process
  // lives; a tenth of it while more than half of the ring is unread. A thread that is stopped for
  // longer in the middle of a write loses that call's place.
  uint64_t hole_wait_ns = 1'000'000'000;
};

// Since the ring was made, over all readers that resumed one another.
struct RingStats {
  uint64_t events_received = 0;   // delivered or rejected
  uint64_t records_received = 0;  // delivered
  uint64_t events_dropped = 0;    // the lane was full
  uint64_t records_dropped = 0;   // no chunk was free
  uint64_t lost = 0;              // numbers of events and calls that no drop explains
  uint64_t rejected = 0;          // bytes that make no sense
  uint64_t cupti_dropped = 0;
  uint64_t invalid_timestamps = 0;
  uint64_t unknown_records = 0;
  abi::ClockKind clock_kind = abi::ClockKind::kUnknown;
  bool closed = false;  // the process said goodbye
  bool failed = false;  // ... with another exit status than 0
};

struct PollResult {
  size_t events = 0;
  size_t records = 0;
  bool waiting = false;  // something is held up by a hole; poll again soon
  bool more = false;     // stopped at `most_records`; poll again at once
};

class RingReader {
 public:
  // Maps the memfd. InvalidArgument for anything that is not a ring of this version: the sentence
  // can be shown to the process' owner.
  static absl::StatusOr<std::unique_ptr<RingReader>> Open(int fd, const RingReaderOptions& options);
  // Reads a ring in memory of this very process, which the caller owns: for tests that let a
  // sanitizer see both sides, and for the fuzzer.
  static absl::StatusOr<std::unique_ptr<RingReader>> OpenMemory(absl::Span<uint8_t> memory,
                                                                const RingReaderOptions& options);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  // Call it before the first Poll: reading goes on after `cursor`, and the space before it is
  // freed. Without it, reading starts with the records that the ring still holds. InvalidArgument:
  // the cursor of another ring.
  absl::Status Resume(const Cursor& cursor);

  // Hands over everything that was published before the call, but no more than `most_records`
  // records: commits between such calls free a full ring bit by bit, and early.
  // `now_ns`: CLOCK_MONOTONIC.
  PollResult Poll(RingSink& sink, uint64_t now_ns, uint64_t most_records = UINT64_MAX);

  // Nothing writes any more: the next Poll waits for no hole and delivers the rest.
  void SetProcessGone() { process_gone_ = true; }

  Cursor cursor() const;
  // Frees what `committed`, a cursor of this reader, has finished.
  void Release(const Cursor& committed);

  RingStats stats() const;
  const std::string& ring_id() const { return read_.ring_id; }
  uint64_t created_real_ns() const { return created_real_ns_; }
  abi::ControlBlock* control_block() const { return control_; }

 private:
  struct Chunk {
    uint64_t sequence = 0;  // the active one, else the last one
    uint32_t published = 0;
    uint32_t consumed = 0;
    bool active = false;  // open or closed, and not freed by us
    bool closed = false;
    bool bad = false;  // chunks with invalid contents; no longer read
  };

  RingReader(uint8_t* memory, size_t bytes, bool mapped, const RingReaderOptions& options);
  absl::Status ReadHeader();
  void ScanDirectory();
  void FindNewChunk(uint32_t index, uint64_t end);
  void UpdateChunk(uint32_t index);
  void RejectChunk(Chunk& chunk);
  void ReadLane(RingSink& sink, uint64_t head);
  bool IsPublished(uint64_t position) const;
  bool ReadEvent(RingSink& sink, uint64_t head);
  void SkipToNextEvent(uint64_t head);
  bool ReadChunks(RingSink& sink, uint64_t now_ns);
  void ReadChunk(RingSink& sink, uint32_t index, std::optional<uint64_t> expected_call);
  void RunReorder(RingSink& sink);
  void RaiseGiveUp(uint64_t now_ns);
  uint64_t HoleWaitNs() const;
  uint64_t CountVisibleCalls() const;
  void Flush(RingSink& sink);
  const uint8_t* RecordAt(uint32_t chunk, uint32_t record) const;
  void CopyFromLane(uint64_t offset, void* to, size_t n) const;

  uint8_t* const memory_;
  const size_t bytes_;
  const bool mapped_;
  const RingReaderOptions options_;

  // Copied once from the header, and checked; the header's own are never read again.
  uint64_t created_real_ns_ = 0;
  uint64_t lane_salt_ = 0;
  uint32_t lane_slots_ = 0;
  uint32_t chunk_capacity_ = 0;  // records
  uint32_t chunk_bytes_ = 0;
  abi::RingHeader* header_ = nullptr;
  abi::ControlBlock* control_ = nullptr;
  uint8_t* lane_ = nullptr;
  abi::ChunkState* directory_ = nullptr;
  uint8_t* chunk_memory_ = nullptr;

  Cursor read_;                  // so far, without its calls and chunks
  std::vector<Chunk> chunks_;    // by directory index
  std::vector<uint32_t> order_;  // indices of the active chunks, by sequence
  CallReorder reorder_;
  uint64_t tried_calls_ = 0;  // header counters as they were before the last directory scan
  uint64_t dropped_calls_ = 0;
  // While a hole holds calls up: all calls below `sequence` were tried before `since_ns`.
  struct HoleDeadline {
    uint64_t sequence;
    uint64_t since_ns;
  };
  std::optional<HoleDeadline> hole_deadline_;
  std::optional<uint64_t> lane_stuck_since_ns_;
  uint64_t records_left_ = 0;  // that this Poll may still consume
  bool process_gone_ = false;

  std::vector<abi::DataRecord> batch_;
  size_t batch_size_ = 0;
  alignas(8) uint8_t payload_[abi::kMaxEventSlots * abi::kSlotBytes];
};

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_RING_READER_H_
