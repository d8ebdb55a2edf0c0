// The calls and the works of a trace, in order and joined: which call launched which work, and in
// which lane each work ran.
//
// Threading: plain values. Ownership: refers to the trace, which outlives it.
#ifndef DAEMON_WHATIF_GRAPH_JOIN_H_
#define DAEMON_WHATIF_GRAPH_JOIN_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

struct JoinedTrace {
  struct Launch {        // of a call
    uint32_t first = 0;  // in works_of_call
    uint32_t count = 0;
  };
  struct Launched {         // by one call, into one lane
    uint32_t position = 0;  // of the call
    uint32_t first = 0, last = 0;
  };

  explicit JoinedTrace(const Trace& of) : trace(of) {}

  const Call& CallAt(uint32_t position) const { return trace.calls[calls[position]]; }
  // The work that a lane was last given before, or is first given after, a call.
  uint32_t LastBefore(uint32_t lane, uint32_t position) const;
  uint32_t FirstAfter(uint32_t lane, uint32_t position) const;

  // Launched before the trace started.
  bool InFlight(uint32_t w) const { return call_of[w] == kNone; }
  // Its own launch is in the trace; it does not merely go with another one.
  bool HasLaunch(uint32_t w) const { return !InFlight(w) && !adopted[w]; }
  // The work in flight that a lane had finished last by then.
  uint32_t LastInFlight(uint32_t lane, int64_t until_ns) const;

  // Not the first work of its launch.
  bool IsLaterNode(uint32_t w) const { return works_of_call[launches[call_of[w]].first] != w; }

  // A wait for an event that was recorded before the trace started.
  bool RecordedBefore(uint32_t p) const;

  // The event that a call waits for, as recorded; kNone: not known.
  uint32_t EventOf(uint32_t p) const;

  const Trace& trace;
  std::vector<Work> works;                  // in order of their starts
  std::vector<uint32_t> work_ids;           // of the trace
  std::vector<uint32_t> calls;              // by position, in order of their starts
  std::vector<uint32_t> outer;              // position of a call of the trace
  uint64_t first_correlation = UINT64_MAX;  // of the calls: those of a process ascend
  std::vector<uint32_t> call_of;            // position, of a work
  std::vector<bool> adopted;                // works that go with another work's launch
  std::vector<Launch> launches;
  std::vector<uint32_t> works_of_call;
  std::vector<uint32_t> lane_of;
  std::vector<uint32_t> before;                           // work before on the lane
  std::vector<uint32_t> main_lane;                        // of a stream
  std::vector<std::vector<Launched>> launched;            // by lane
  std::vector<std::vector<uint32_t>> in_flight;           // by lane: see InFlight
  std::vector<uint32_t> wait_of;                          // in Trace::waits, of a call
  absl::flat_hash_map<uint32_t, uint32_t> event_of;       // of a call that records
  absl::flat_hash_map<uint32_t, uint32_t> record_stream;  // of a call that records
  absl::flat_hash_map<uint64_t, uint32_t> event_by_correlation;
};

// Sets the lanes, the number of events, the begin and the figures of works in `graph`, too.
JoinedTrace Join(const Trace& trace, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_JOIN_H_
