// Where the iterations of a trace are by its own marks: annotations such as "ProfilerStep#12"; and
// where it has holes.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_TRACE_MARKS_H_
#define DAEMON_TRACE_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/trace/trace.h"

namespace seqpoint::trace {

struct IterationMarks {
  std::string first;               // name of the first one; empty: there are none
  std::vector<int64_t> starts_ns;  // ascending
  std::vector<int64_t> ends_ns;
  std::vector<uint32_t> names;  // of each, in the trace
  // Marks that cover little of the time between them (an optimiser's step) are points in time: an
  // iteration is from one to the next, and the last one only ends one.
  bool points = false;
  size_t elsewhere = 0;  // marks of other threads whose names this one has not: left out

  size_t iterations() const { return starts_ns.empty() ? 0 : starts_ns.size() - (points ? 1 : 0); }
};

// Annotations and operators whose name holds `marker`, a regular expression (RE2). Empty: the
// profiler's steps, else what an optimiser does once per iteration. A mark may be mirrored on
// several threads: the one that has most of them counts.
IterationMarks FindMarks(const Trace& trace, const std::string& marker = "");

// Where nothing was recorded, an annotation of our own exports: one behind each window, as from one
// window to the next is no iteration.
inline constexpr char kNotRecorded[] = "SeqPoint: not recorded";
std::vector<Span> FindHoles(const Trace& trace);
// Splits a trace into parts, each with the hole after it. Work belongs to the part of its call.
// Parts without work are left out.
std::vector<Trace> SplitAtHoles(Trace trace);

}  // namespace seqpoint::trace

#endif  // DAEMON_TRACE_MARKS_H_
