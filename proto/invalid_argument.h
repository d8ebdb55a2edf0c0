// An error about something that was given, of its parts:
//
//   return InvalidArgument(path, ": ", rows, " rows are too many");
//
// Threading: a pure function.
#ifndef PROTO_INVALID_ARGUMENT_H_
#define PROTO_INVALID_ARGUMENT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace seqpoint {

// The parts are those of absl::StrCat.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace seqpoint

#endif  // PROTO_INVALID_ARGUMENT_H_
