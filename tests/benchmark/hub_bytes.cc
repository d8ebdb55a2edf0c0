#include "tests/benchmark/hub_parts.h"
namespace seqpoint {
void CountHubBytes(const HubPart&) {}
}  // namespace seqpoint
