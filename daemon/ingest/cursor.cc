#include "daemon/ingest/cursor.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace seqpoint::ingest {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kRingIdBytes = 16;
constexpr size_t kFixedBytes = sizeof(uint32_t) + kRingIdBytes + sizeof(CursorCounts);
constexpr size_t kChunkBytes = sizeof(uint64_t) + sizeof(uint32_t);

template <typename T>
void Put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T Get(std::string_view& bytes) {
  T value;
  memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

}  // namespace

std::string Cursor::Serialize() const {
  std::string bytes;
  bytes.reserve(kFixedBytes + chunks.size() * kChunkBytes);
  Put(bytes, kVersion);
  bytes.append(ring_id);
  Put<CursorCounts>(bytes, *this);
  for (const Chunk& chunk : chunks) {
    Put(bytes, chunk.sequence);
    Put(bytes, chunk.consumed);
  }
  return bytes;
}

absl::StatusOr<Cursor> Cursor::Parse(std::string_view bytes) {
  if (bytes.size() < kFixedBytes || (bytes.size() - kFixedBytes) % kChunkBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring cursor: ", bytes.size(), " bytes are not a cursor"));
  }
  const uint32_t version = Get<uint32_t>(bytes);
  if (version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("ring cursor: version ", version,
                                                   ", this daemon reads ", kVersion,
                                                   "; start the daemon that wrote it"));
  }
  Cursor cursor;
  cursor.ring_id = bytes.substr(0, kRingIdBytes);
  bytes.remove_prefix(kRingIdBytes);
  static_cast<CursorCounts&>(cursor) = Get<CursorCounts>(bytes);
  while (!bytes.empty()) {
    const uint64_t sequence = Get<uint64_t>(bytes);
    const uint32_t consumed = Get<uint32_t>(bytes);
    if (!cursor.chunks.empty() && sequence <= cursor.chunks.back().sequence) {
      return absl::InvalidArgumentError("ring cursor: chunks out of order");
    }
    cursor.chunks.push_back({sequence, consumed});
  }
  return cursor;
}

}  // namespace seqpoint::ingest
