// The log as text or as JSON: a line for each message, also where a peer put control characters or
// line ends into a name.
//
//   [2026-03-01 12:00:00.123] [info] ready: ...
//   {"time":"2026-03-01T12:00:00.123Z","level":"info","message":"ready: ..."}
//
// Threading: spdlog calls the formatter of a sink with the sink's lock. Ownership: values only.
#ifndef DAEMON_OPERATE_LOG_FORMAT_H_
#define DAEMON_OPERATE_LOG_FORMAT_H_

#include <memory>

#include "spdlog/formatter.h"
#include "spdlog/pattern_formatter.h"

namespace seqpoint::operate {

class TextLogFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override;
  std::unique_ptr<spdlog::formatter> clone() const override;

 private:
  spdlog::pattern_formatter line_;
};

class JsonLogFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override;
  std::unique_ptr<spdlog::formatter> clone() const override;
};

}  // namespace seqpoint::operate

#endif  // DAEMON_OPERATE_LOG_FORMAT_H_
