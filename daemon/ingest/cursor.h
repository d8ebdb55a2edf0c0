// Cursor: how far a ring was read, as the store keeps it with the results
// (docs/formats/shared-ring.md, "Reading, cursors, restart"). It never points beyond the delivered
// records: a reader that resumes from it gets every later record, and none twice.
//
// Threading, ownership: plain data.
#ifndef SEQPOINT_DAEMON_INGEST_CURSOR_H_
#define SEQPOINT_DAEMON_INGEST_CURSOR_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace seqpoint::ingest {

// Stored as it is.
struct CursorCounts {
  uint64_t lane_position = 0;  // every event before it is delivered
  uint64_t event_numbers = 0;  // one more than the highest number seen
  uint64_t events_received = 0;
  uint64_t records_received = 0;
  uint64_t rejected = 0;
  uint64_t next_call = 0;  // CallReorder
  uint64_t calls_missing = 0;
  uint64_t calls_late = 0;
};

struct Cursor : CursorCounts {
  struct Chunk {
    uint64_t sequence = 0;
    uint32_t consumed = 0;  // records, from the first
  };
  std::string ring_id;        // 16 bytes
  std::vector<Chunk> chunks;  // begun and not yet free, by sequence

  std::string Serialize() const;
  // InvalidArgument: another version, or not a cursor.
  static absl::StatusOr<Cursor> Parse(std::string_view bytes);
};

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_CURSOR_H_
