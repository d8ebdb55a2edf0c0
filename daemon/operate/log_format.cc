#include "daemon/operate/log_format.h"

#include <string>

#include "absl/time/time.h"
#include "daemon/base/json_string.h"
#include "proto/printable.h"
#include "spdlog/common.h"
#include "spdlog/details/log_msg.h"

namespace seqpoint::operate {

void TextLogFormatter::format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  const std::string text =
      EscapeUnprintable({message.payload.data(), message.payload.size()}, LineEnds::kEscaped);
  spdlog::details::log_msg escaped = message;
  escaped.payload = text;
  line_.format(escaped, out);
}

std::unique_ptr<spdlog::formatter> TextLogFormatter::clone() const {
  return std::make_unique<TextLogFormatter>();
}

void JsonLogFormatter::format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) {
  const auto level = spdlog::level::to_string_view(message.level);
  std::string line = "{\"time\":\"";
  line +=
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time), absl::UTCTimeZone());
  line += "\",\"level\":\"";
  line.append(level.data(), level.size());
  line += "\",\"message\":";
  line += JsonString({message.payload.data(), message.payload.size()});
  line += "}\n";
  out.append(line.data(), line.data() + line.size());
}

std::unique_ptr<spdlog::formatter> JsonLogFormatter::clone() const {
  return std::make_unique<JsonLogFormatter>();
}

}  // namespace seqpoint::operate
