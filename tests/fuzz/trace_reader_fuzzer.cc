// Fuzz target of the reader of recorded traces: files of strangers. Nothing may crash, what is read
// must hold together, and the same bytes cut into other pieces must give the same trace.
//
// Input: first byte 0: the rest is the file; else: a program that writes one from pieces of real
// files, so that more than the first check is reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "daemon/traces/call_records.h"
#include "daemon/traces/trace_reader.h"

namespace seqpoint::traces {
namespace {

void Require(bool holds) {
  if (!holds) abort();
}

absl::StatusOr<trace::Trace> Read(std::string_view text, size_t piece) {
  TraceReader reader({.name = "f", .max_bytes = size_t{64} << 20});
  while (!text.empty()) {
    if (const auto status = reader.Add(text.substr(0, piece)); !status.ok()) return status;
    text.remove_prefix(std::min(piece, text.size()));
  }
  return reader.Finish();
}

void RequireWhole(const trace::Trace& trace) {
  Require(!trace.works.empty() && !trace.names.empty() && trace.names[0].empty());
  Require(trace.world_size > 0 && trace.rank >= 0);
  for (const auto& call : trace.calls) {
    Require(call.end_ns >= call.begin_ns && call.name < trace.names.size() &&
            call.thread < trace.threads.size());
  }
  for (const auto& work : trace.works) {
    Require(work.end_ns >= work.start_ns && work.name < trace.names.size() &&
            work.stream < trace.streams.size());
  }
  for (const auto& span : trace.spans) {
    Require(span.end_ns >= span.begin_ns && span.name < trace.names.size() &&
            span.thread < trace.threads.size());
  }
  for (const auto& wait : trace.waits) {
    Require(wait.stream == trace::kNone || wait.stream < trace.streams.size());
    Require(wait.source == trace::kNone || wait.source < trace.streams.size());
  }
}

bool Same(const trace::Trace& a, const trace::Trace& b) {
  const auto equal = [](const auto& left, const auto& right, const auto& same) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), same);
  };
  return a.names == b.names && a.threads == b.threads && a.gpus == b.gpus && a.rank == b.rank &&
         a.left_out.damaged == b.left_out.damaged &&
         a.left_out.first_damaged_at == b.left_out.first_damaged_at &&
         a.left_out.mended == b.left_out.mended && a.left_out.other == b.left_out.other &&
         a.left_out.truncated == b.left_out.truncated &&
         a.left_out.trailing_bytes == b.left_out.trailing_bytes &&
         equal(a.calls, b.calls,
               [](const auto& x, const auto& y) {
                 return x.begin_ns == y.begin_ns && x.end_ns == y.end_ns && x.name == y.name;
               }) &&
         equal(a.works, b.works,
               [](const auto& x, const auto& y) {
                 return x.start_ns == y.start_ns && x.end_ns == y.end_ns && x.name == y.name &&
                        x.stream == y.stream && x.correlation == y.correlation;
               }) &&
         equal(a.spans, b.spans, [](const auto& x, const auto& y) {
           return x.begin_ns == y.begin_ns && x.end_ns == y.end_ns && x.name == y.name;
         });
}

constexpr std::string_view kPieces[] = {
    "{\"schemaVersion\": 1, \"traceEvents\": [",
    "[",
    "]",
    "{",
    "}",
    "},\n  {",
    ",",
    ",\n",
    "\"",
    "\\",
    "\\\"",
    ":",
    "nan",
    "\n",
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"",
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, ",
    "\"ts\": 12.5, \"dur\": 3, \"args\": {\"correlation\": 5}}",
    "\", \"ts\": 12, \"dur\": 3.25, \"args\": {\"correlation\": 5, \"grid\": [1, 2, 3]}},",
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"ts\": 1, \"dur\": 2},",
    "{\"ph\": \"X\", \"cat\": \"python_function\", \"ts\": 1},",
    "{\"ph\": \"s\", \"id\": 1},",
    "\"args\": {\"stream\": \"stream 7\", \"wait_on_stream\": 3}",
    "\"baseTimeNanoseconds\": 1711964646000000000",
    "\"distributedInfo\": {\"rank\": 2, \"world_size\": 4}",
    "\"deviceProperties\": [{\"id\": 0, \"name\": \"T4\"}]",
    "#names: id\tname\n#0\tk\nstart_us,dur_us,stream,name_id,size\n",
    "1.5,2.5,7,0,(1 1 1)|(2 1 1)\n",
};

std::string Write(std::string_view program) {
  std::string text(kPieces[static_cast<uint8_t>(program[0]) % 2]);
  for (size_t i = 1; i < program.size() && text.size() < (size_t{1} << 16); ++i) {
    const auto byte = static_cast<uint8_t>(program[i]);
    if (byte < 128) {
      text += kPieces[byte % std::size(kPieces)];
    } else if (byte < 192) {
      text += static_cast<char>(byte - 128 + ' ');
    } else if (byte < 250) {
      text += static_cast<char>(byte);
    } else {
      text.append(size_t{1} << (byte - 244), ' ');
    }
  }
  return text;
}

}  // namespace
}  // namespace seqpoint::traces

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint::traces;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::string text = input.size() < 2 || input[0] == 0
                               ? std::string(input.substr(input.empty() ? 0 : 1))
                               : Write(input.substr(1));
  const auto whole = Read(text, text.size() + 1);
  for (const size_t piece : {size_t{1}, size_t{61}}) {
    const auto pieces = Read(text, piece);
    Require(whole.ok() == pieces.ok());
    if (whole.ok()) Require(Same(*whole, *pieces));
  }
  if (!whole.ok()) {
    Require(whole.status().message().size() < 600);
    return 0;
  }
  RequireWhole(*whole);
  (void)LeftOutInWords(whole->left_out);
  (void)ToCallRecords(*whole);
  return 0;
}
