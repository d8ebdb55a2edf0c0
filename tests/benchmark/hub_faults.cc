#include "tests/benchmark/hub_parts.h"
namespace seqpoint {
void DisturbHub(const HubPart&) {}
}  // namespace seqpoint
