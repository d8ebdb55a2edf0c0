// Works that start later than their launch, their lane and their waits explain.
//
// Threading: plain values. Ownership: refers to the joined trace and the gaps, which outlive it.
#ifndef DAEMON_WHATIF_GRAPH_LATE_STARTS_H_
#define DAEMON_WHATIF_GRAPH_LATE_STARTS_H_

#include <cstdint>
#include <vector>

#include "daemon/whatif/graph/gaps.h"
#include "daemon/whatif/graph/join.h"

namespace seqpoint::whatif {

class LateStarts {
 public:
  // Sets Figures::shared and unexplained.
  LateStarts(const JoinedTrace& joined, const Gaps& gaps, Figures* figures);

  // The work of another lane at whose end it started without an event; kNone: there is none.
  uint32_t SharedWith(uint32_t w) const { return shared_[w]; }
  // Nothing explains its start.
  bool IsLate(uint32_t w) const { return late_[w]; }
  // The launch came last of all that the work waited for.
  bool LaunchBound(uint32_t w) const;

 private:
  bool LateByCall(uint32_t w) const;

  const JoinedTrace& j_;
  const Gaps& gaps_;
  std::vector<uint32_t> shared_;
  std::vector<bool> late_;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_LATE_STARTS_H_
