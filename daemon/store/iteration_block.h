// IterationBlock: up to a thousand iterations of one rank as one value, by columns: the difference
// of each field to that of the row before, as variable-length numbers, in a zstd frame. Layout:
// docs/formats/postgresql.md.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_STORE_ITERATION_BLOCK_H_
#define DAEMON_STORE_ITERATION_BLOCK_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/store.h"

namespace seqpoint {

// A block holds the numbers from `block` * kBlockNumbers on, so many of them: all incarnations of a
// number are in one block.
inline constexpr int64_t kBlockNumbers = 1'000;
int64_t BlockOf(int64_t number);

// `rows`: of one rank of one job, in the order they are read.
std::string PackBlock(const std::vector<IterationRow>& rows);
// DataLoss: the bytes are damaged.
absl::StatusOr<std::vector<IterationRow>> UnpackBlock(std::string_view bytes, int64_t job_id,
                                                      int32_t rank);

}  // namespace seqpoint

#endif  // DAEMON_STORE_ITERATION_BLOCK_H_
