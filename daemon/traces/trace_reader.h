// Reads a recorded trace from bytes as they come in: docs/formats/traces.md has the formats. What a
// file is is told from its content, never from its name.
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

  // After the last byte; once. InvalidArgument when nothing can be made of it: not a trace, or
  // without GPU work, or without what tells which call launched it. A file that was cut or is
  // damaged in places is read as far as it goes: Trace::left_out says so.
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

// What is not in the trace, or not as it was, for people; empty: nothing to say. Python frames and
// flows, which no trace has to have, are not mentioned.
std::string LeftOutInWords(const trace::LeftOut& left_out);

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_TRACE_READER_H_
