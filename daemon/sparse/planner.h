// From a network to a partition: the obvious ways, the published way, the joint improvement, and
// what each of them sends.
//
// Threading: one thread. Ownership: values.
#ifndef SEQPOINT_DAEMON_SPARSE_PLANNER_H_
#define SEQPOINT_DAEMON_SPARSE_PLANNER_H_

#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/sparse/hypergraph_partitioner.h"
#include "daemon/sparse/network.h"
#include "daemon/sparse/volume.h"

namespace seqpoint::sparse {

inline constexpr int kMostParts = 4096;  // ranks; more than any published run has

struct PlannerOptions {
  int parts = 1;
  double imbalance = 0.01;  // share
  bool training = false;    // count forward and backward passes; the partition is the same
  uint64_t seed = 1;
  double effort = 1;  // multiplies the time of the search
  std::function<bool()> stop;
  std::function<void(const std::string& what)> progress;
};

struct Plan {
  Owners owners;
  Volume volume;
  Volume random, blocks;
  std::optional<Volume> layer_by_layer;  // none: no partitioner, or stopped before it was done
  bool stopped = false;                  // by `stop`, with the best so far
  std::vector<std::string> notes;        // sentences
};

// `partitioner` may be empty. InvalidArgument: fewer than one or more than kMostParts parts, more
// parts than a layer has rows. The partitioner's error where it fails.
absl::StatusOr<Plan> MakePlan(const Network& network, const PlannerOptions& options,
                              const HypergraphPartitioner& partitioner);

}  // namespace seqpoint::sparse

#endif  // SEQPOINT_DAEMON_SPARSE_PLANNER_H_
