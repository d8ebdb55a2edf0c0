// The fixed part of an event's payload, and the text after it. Payloads come from a ring: any
// length, any bytes.
//
// Threading: free functions. Ownership: the text is the payload's.
#ifndef DAEMON_JOBS_PAYLOAD_H_
#define DAEMON_JOBS_PAYLOAD_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/types/span.h"

namespace seqpoint::jobs {

// Absent when the payload is too short.
template <typename T>
std::optional<T> Fixed(absl::Span<const uint8_t> payload) {
  if (payload.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, payload.data(), sizeof(T));
  return value;
}

// At most `length` bytes of what follows a T that Fixed<T>() found.
template <typename T>
std::string_view TextAfter(absl::Span<const uint8_t> payload, uint32_t length) {
  const size_t available = payload.size() - sizeof(T);
  return {reinterpret_cast<const char*>(payload.data()) + sizeof(T),
          std::min<size_t>(length, available)};
}

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PAYLOAD_H_
