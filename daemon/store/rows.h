// Rows, as every backend of the store takes and keeps them.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_STORE_ROWS_H_
#define DAEMON_STORE_ROWS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/store/store.h"

namespace seqpoint {

inline constexpr int64_t kMaxSegmentBytes = 256 << 20;
// Faster than level 1 by an eighth, larger by a seventh: the trace path must keep up with 5 M
// records per second.
inline constexpr int kTraceZstdLevel = -1;

// InvalidArgument, with the row and what is wrong with it, when the batch has one that cannot be
// stored.
absl::Status CheckRows(const WriteBatch& batch);

// The records of a stored segment of `row`. `store`: its path or address, for the message.
// DataLoss: the bytes are damaged.
absl::Status UnpackRecords(const std::string& compressed, int64_t record_count,
                           const std::string& store, TraceSegmentRow* row);

}  // namespace seqpoint

#endif  // DAEMON_STORE_ROWS_H_
