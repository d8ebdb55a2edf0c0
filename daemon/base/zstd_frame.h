// Bytes as a zstd frame that says its size.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_BASE_ZSTD_FRAME_H_
#define DAEMON_BASE_ZSTD_FRAME_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace seqpoint {

std::string ToZstdFrame(std::string_view bytes);

// The frame comes from another machine. DataLoss: it is damaged, or would be larger than `most`.
absl::StatusOr<std::string> FromZstdFrame(std::string_view frame, size_t most);

}  // namespace seqpoint

#endif  // DAEMON_BASE_ZSTD_FRAME_H_
