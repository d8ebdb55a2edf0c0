// Reads a recorded trace from bytes as they come in: docs/formats/traces.md has the formats. The
// content decides the format, never the file's name.
//
//   TraceReader reader({.name = "resnet.json.gz"});
//   while (piece = ...) RETURN_IF_ERROR(reader.Add(piece));
//   absl::StatusOr<trace::Trace> trace = reader.Finish();
//
// Needs the memory of the trace and at most 64 MiB, mostly much less.
//
// Threading: none; any thread, one at a time. Ownership: values only.
#ifndef DAEMON_TRACES_TRACE_READER_H_
#define DAEMON_TRACES_TRACE_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/trace/trace.h"

namespace seqpoint::traces {

struct TraceReaderOptions {
  std::string name;  // of the file, for messages and Trace::source
  // More than this, unpacked, is refused.
  uint64_t max_bytes = uint64_t{16} << 30;
  // The trace is read for the times of its operators: it needs no GPU work, spans keep PyTorch's
  // number of the execution, and the lists that PyTorch without Kineto exports are read, too.
  bool operators = false;
};

class TraceReader {
 public:
  explicit TraceReader(TraceReaderOptions options);
  ~TraceReader();

  // The file's bytes in order, in pieces of any size. InvalidArgument: this is no trace, and
  // nothing more needs to be added; ResourceExhausted: it is larger than max_bytes.
  absl::Status Add(std::string_view piece);

  // Call it once, after the last byte. InvalidArgument: it is no trace, or has no GPU work, or does
  // not say which calls launched the work. A file that was cut or is damaged in places is read as
  // far as possible: Trace::left_out says so.
  absl::StatusOr<trace::Trace> Finish();

  uint64_t text_bytes() const;  // added so far, unpacked

 private:
  struct Content;
  void AddUnpacked(std::string_view piece);
  void Begin();
  absl::Status Refuse(std::string_view what) const;

  TraceReaderOptions options_;
  std::unique_ptr<Content> content_;
  absl::Status status_;
};

// Content that is missing from the trace, or was changed, for people; empty: none. Python frames
// and flows, which no trace needs, are not mentioned.
std::string LeftOutInWords(const trace::LeftOut& left_out);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_TRACE_READER_H_
