// Writes traces as Chrome trace events, as PyTorch's profiler (Kineto) does: Perfetto, HTA and
// TensorBoard open the file, and TraceReader makes the same trace of it again.
//
//   ChromeWriter writer({.name = "resnet@1", .base_ns = begin_ns}, write);
//   for (const trace::Trace& trace : traces) if (!writer.Add(trace)) return;  // receiver gone
//   writer.Finish();
//
// A trace from TraceReader comes back as it was, except for unused names and threads, Trace::source
// and left_out, and GPUs without a name. Traces from elsewhere also lose: bytes that are no UTF-8
// (U+FFFD instead); a process or thread without a number whose name has quotes or backslashes; a
// kind of call or collective that its name does not show; a wait between streams of two devices, or
// for one with a negative number; correlations from 2^63 on.
//
// Threading: none. Ownership: what `write` refers to outlives the writer.
#ifndef DAEMON_TRACES_CHROME_WRITER_H_
#define DAEMON_TRACES_CHROME_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "daemon/trace/trace.h"

namespace seqpoint::traces {

// False: the receiver is gone, stop.
using WriteFunction = absl::FunctionRef<bool(std::string_view)>;

struct ChromeFile {
  std::string name;
  // Times are written relative to it: tools hold microseconds in a double, which from 1970 on would
  // leave steps of a quarter of one. 0 or more.
  int64_t base_ns = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  std::vector<std::string> gpus;
  // Why it cannot be imported again ("it has several ranks"); empty: it can.
  std::string only_to_view;
};

struct ChromeRows {
  std::string process;  // the name of the rows of the CPU; empty: "CPU"
  // Several ranks are in the file: processes have kRankProcesses * rank added, and say the rank.
  bool by_rank = false;
  bool replayed = false;  // rows of their own, each below the one of the same name
  // More fields of a piece of work, each with a comma before it; may be empty.
  std::function<std::string(const trace::Work&)> work_fields;
};

class ChromeWriter {
 public:
  static constexpr int64_t kRankProcesses = 10'000'000;

  ChromeWriter(const ChromeFile& file, WriteFunction write);

  // False: the receiver is gone.
  bool Add(const trace::Trace& trace, const ChromeRows& rows = {});
  // An arrow between work of two ranks, whose traces were added by rank.
  struct ArrowEnd {
    const trace::Trace* trace;
    uint32_t work;  // in its `works`
  };
  bool AddArrow(const std::string& category, const ArrowEnd& from, const ArrowEnd& to);
  bool Finish();

 private:
  class Rows;

  bool Flush();
  bool AddFlows(const trace::Trace& trace, Rows* rows);
  bool AddFlowEnd(char phase, const std::string& category, uint64_t number, const std::string& row,
                  int64_t at_ns);

  WriteFunction write_;
  const int64_t base_ns_;
  std::string text_;
  bool first_ = true;
  uint64_t flows_ = 0;                   // written; their numbers
  std::set<std::string> named_;          // rows and processes
  std::map<std::string, size_t> order_;  // of the rows of CPU threads
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_CHROME_WRITER_H_
