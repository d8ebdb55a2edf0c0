// Records of our own trace windows (injection/abi/records.h) as a trace::Trace.
//
//   WindowReader reader;
//   reader.AddName(7, "volta_sgemm_128x64_nn");
//   for (const abi::DataRecord& record : records) reader.Add(record);
//   trace::Trace trace = reader.Finish({.begin_ns = boundary, .end_ns = next_boundary});
//
// Calls that start at the end or later are the library's own, which waits for the GPU to close the
// window. The calls in which it opened the window are not recorded, only their work: they are put
// between the window's start and the first recorded call.
//
// A window knows the watched driver calls, GPU work and synchronisations, no annotations. Which
// stream an event is of, CUPTI 12.0's records do not tell: the graph infers it.
//
// Threading: none. Ownership: holds the trace until it is taken.
#ifndef DAEMON_TRACES_WINDOW_READER_H_
#define DAEMON_TRACES_WINDOW_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/trace/trace.h"
#include "daemon/traces/trace_builder.h"
#include "injection/abi/records.h"

namespace seqpoint::traces {

class WindowReader {
 public:
  // Names of kernels, by the process' ids. Before the records that use them.
  void AddName(uint32_t name_id, std::string_view text);
  // Records of other types are not of a window, and left out.
  void Add(const abi::DataRecord& record);
  // The window on the CPU: when the call that starts its iteration was entered, and the call that
  // starts the next.
  struct Window {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  trace::Trace Finish(const Window& window);
  // Window::begin_ns, plus the time that the library took in that call to open the window.
  int64_t begin_ns() const { return begin_ns_; }

 private:
  uint32_t NameOf(uint32_t name_id) const;
  int64_t AddOpeningCalls(int64_t begin_ns, trace::Trace* trace) const;

  TraceBuilder builder_;
  std::map<trace::WorkKind, uint32_t> opening_names_;  // of the calls that launch it
  absl::flat_hash_map<uint32_t, uint32_t> names_;
  std::vector<abi::SyncRecord> stream_syncs_;
  int64_t begin_ns_ = 0;
};

}  // namespace seqpoint::traces

#endif  // DAEMON_TRACES_WINDOW_READER_H_
