// A partition as text for people, and as JSON: docs/using/partition.md, "What is printed".
// Threading: pure functions.
#ifndef CLIENT_PARTITION_PARTITION_TEXT_H_
#define CLIENT_PARTITION_PARTITION_TEXT_H_

#include <string>

#include "daemon/sparse/network.h"
#include "daemon/sparse/planner.h"

namespace seqpoint::client {

struct PartitionAnswer {
  sparse::PlannerOptions options;
  sparse::Plan plan;
  double seconds = 0;
};

std::string PartitionText(const sparse::Network& network, const PartitionAnswer& answer);
std::string PartitionJson(const PartitionAnswer& answer);

}  // namespace seqpoint::client

#endif  // CLIENT_PARTITION_PARTITION_TEXT_H_
