// Who waits for whom when a job of several ranks stands still: from the operations that each rank's
// host has asked for. A rank waits in an operation that it has called and another rank has not. The
// rank that all wait for, directly or not, waits for nobody.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_STUCK_H_
#define DAEMON_RANKS_STUCK_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace seqpoint::ranks {

// What a rank's calls are counted by. Every rank of a communicator calls a collective; a send of
// one rank is a receive of its peer's.
struct CallKey {
  std::string function;  // "AllReduce", "Send"
  int32_t peer = -1;     // of a send or receive
  auto operator<=>(const CallKey&) const = default;
};
// The last call of its key.
struct LastCall {
  int64_t number = 0;  // how many there were
  int64_t at_ns = 0;   // by the host's clock
};
using LastCalls = std::map<CallKey, LastCall>;

struct RankCalls {
  int32_t rank = 0;    // in the job
  bool ended = false;  // it waits for nobody
  // By the hash of the communicator: the rank within it, and its calls.
  struct Communicator {
    int32_t rank = 0;
    LastCalls calls;
  };
  std::map<uint64_t, Communicator> communicators;
};

struct Stuck {
  std::vector<int32_t> awaited;  // ranks that wait for nobody; empty: they wait for one another
  std::vector<int32_t> waiting;
  // What the awaited ranks have not called, or, where there are none, what one of the waiting ones
  // waits in.
  CallKey operation;
  int64_t number = 0;    // of the call, from 1
  int64_t since_ns = 0;  // the last call of the awaited ranks; 0: not known
};

// Absent: nobody waits for a call of another rank.
std::optional<Stuck> FindStuck(const std::vector<RankCalls>& ranks);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_STUCK_H_
