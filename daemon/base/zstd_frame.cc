#include "daemon/base/zstd_frame.h"

#include <zstd.h>

#include "absl/strings/str_cat.h"

namespace seqpoint {

std::string ToZstdFrame(std::string_view bytes) {
  std::string frame(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size =
      ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), ZSTD_CLEVEL_DEFAULT);
  frame.resize(ZSTD_isError(size) ? 0 : size);  // it has room
  return frame;
}

absl::StatusOr<std::string> FromZstdFrame(std::string_view frame, size_t most) {
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
    return absl::DataLossError(
        absl::StrCat(frame.size(), " bytes are not a zstd frame that says its size"));
  }
  if (size > most) {
    return absl::DataLossError(
        absl::StrCat("a zstd frame of ", size, " bytes is larger than ", most));
  }
  std::string bytes(size, '\0');
  const size_t read = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(read) || read != size) {
    return absl::DataLossError(absl::StrCat("a zstd frame of ", frame.size(), " bytes is damaged"));
  }
  return bytes;
}

}  // namespace seqpoint
