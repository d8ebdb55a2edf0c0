#include "daemon/placement/proof.h"

namespace seqpoint::placement {

bool ProofIsThere() { return false; }

Proof ProveMaxLoad(const Problem&, const ClassGraph&, double, double,
                   const std::function<bool()>&) {
  return {};
}

}  // namespace seqpoint::placement
