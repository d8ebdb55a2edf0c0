// The judge: it alone decides the cost of a placement, and whether it keeps the rules.
//
// Works on the problem as it was read, operator by operator, and shares no code with the methods
// (class graph, ideals, search), so that a fault in one of these shows. Cost: linear in operators
// and edges. No state; any thread.
#ifndef SEQPOINT_DAEMON_PLACEMENT_JUDGE_H_
#define SEQPOINT_DAEMON_PLACEMENT_JUDGE_H_

#include <string>
#include <vector>

#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// One device under the max-load objective. Times in the problem's unit.
struct DeviceLoad {
  double compute = 0;
  double communication = 0;  // transfers in and out; none on a core
  double memory_bytes = 0;   // none on a core
  int operators = 0;

  double load() const { return compute + communication; }
};

struct Judgement {
  std::vector<DeviceLoad> devices;  // accelerators first, then cores
  double max_load = 0;

  // A sentence for each rule that is broken; contiguity is apart. Empty: the placement is allowed.
  std::vector<std::string> violations;

  // The devices can be put in an order in which no forward edge leads back:
  // docs/using/placement.md, "Contiguous".
  bool contiguous = false;
};

// `placement` has an entry for each operator.
Judgement Judge(const Problem& problem, const Placement& placement);

// The time until one sample is through. An accelerator runs its operators in pieces, one piece
// after another; a piece begins when all of its inputs are in host memory, fetches them, computes
// and writes what others need. There are as many cores as the graph asks for (as published).
// `pieces`: the piece of each operator on its accelerator, from 0 on, in the order in which they
// run; without it the pieces are made as the published program makes them (docs/using/placement.md,
// "Latency"). Returns infinity where pieces wait for each other in a circle.
double Latency(const Problem& problem, const Placement& placement,
               const std::vector<int>* pieces = nullptr);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_JUDGE_H_
