// What the ranks of one iteration spend their time on: each moment of a rank's iteration has one
// cause, so the causes sum to the iteration.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_TIMES_H_
#define DAEMON_RANKS_WINDOW_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_join.h"

namespace seqpoint::ranks {

// The cause of a moment, the first that holds. A host that is late would be so without the
// collective that waits meanwhile, so it comes before.
enum class Spent : uint8_t {
  kKernels,   // a kernel runs that is no collective
  kCopies,    // a copy or memset runs
  kLoader,    // the host has not launched yet what runs next, and prepares the batch
  kLaunch,    // ... or does something else
  kWaiting,   // the rank waits for a collective that would be over if it waited for nobody
  kTransfer,  // it waits for a collective that moves data
  kOther,     // the GPU goes from one work to the next, or the iteration is over
  kCount,
};
const char* SpentName(Spent spent);

// One rank's iteration, in nanoseconds of its own clocks.
struct RankTime {
  std::array<double, static_cast<size_t>(Spent::kCount)> spent_ns = {};
  double iteration_ns = 0;  // the sum
  double wait_ns = 0;       // in all collectives, whatever ran meanwhile
  struct InCollective {
    bool takes_part = false;
    bool behind =
        false;  // the rank was there before the collective before it, of its stream, ended
    double exposed_ns = 0;  // exposed wait
  };
  std::vector<InCollective> collectives;  // by collective of the join

  double& operator[](Spent spent) { return spent_ns[static_cast<size_t>(spent)]; }
  double operator[](Spent spent) const { return spent_ns[static_cast<size_t>(spent)]; }
  // How long the iteration would take if no other rank was waited for.
  double work_ns() const { return iteration_ns - (*this)[Spent::kWaiting]; }
};

// By window. An iteration lasts from the host's call that starts it to the end of its last work, or
// to the call that starts the next iteration where that comes later.
std::vector<RankTime> TimesOf(absl::Span<const RankWindow> windows, const WindowJoin& join);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_TIMES_H_
