// Limits on texts from outside: over the API, over inject.sock, and in rings. Names that identify a
// job are refused when they are too long; texts that only describe are cut. Threading: constants
// and pure functions.
#ifndef DAEMON_BASE_LIMITS_H_
#define DAEMON_BASE_LIMITS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace seqpoint {

inline constexpr size_t kMaxJobNameBytes = 255;  // and of a run id; the library cuts there, too
inline constexpr size_t kMaxHostBytes = 255;
inline constexpr size_t kMaxCommandBytes = 4096;
inline constexpr size_t kMaxWordBytes = 4096;  // any other text, unless stated otherwise
inline constexpr size_t kMaxReplyTextBytes = size_t{16} << 10;  // any text of a reply
inline constexpr size_t kMaxMetricSetsBytes = size_t{256} << 10;
// Kernel, NVTX and graph names of a process: a thousand times what programs were seen to have.
inline constexpr size_t kMaxNamesBytes = size_t{64} << 20;
inline constexpr size_t kMaxRefusedConfigs = 4096;

// At most `most` bytes of the text, whole UTF-8 characters, and a mark where something was cut.
inline std::string ClipText(std::string text, size_t most) {
  if (text.size() <= most) return text;
  constexpr size_t kMarkBytes = 4;
  size_t end = most - kMarkBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + " ...";
}

// InvalidArgument for a text that cannot name a job or a run: it is too long, or would break a
// line.
inline absl::Status CheckJobText(const char* field, const std::string& text) {
  if (text.size() > kMaxJobNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", text.size(), " bytes, more than ", kMaxJobNameBytes));
  }
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": holds a control character"));
    }
  }
  return absl::OkStatus();
}

// InvalidArgument where a new job cannot have this name or run id.
inline absl::Status CheckNewJob(const std::string& name, const std::string& run_id) {
  if (name.empty()) return absl::InvalidArgumentError("name is empty; a job needs one");
  if (absl::Status status = CheckJobText("name", name); !status.ok()) return status;
  if (name.find('@') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("name = \"", name, "\" contains \"@\", which parts name and run id"));
  }
  return CheckJobText("run_id", run_id);
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_LIMITS_H_
