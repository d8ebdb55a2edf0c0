#include "tests/workloads/sharing.h"

#include <set>

namespace seqpoint::workload {

void FinishedParameters::Begin(const std::vector<Operation>& operations) {
  finished_.assign(operations.size(), {});
  std::set<const Tensor*> seen;
  for (size_t i = 0; i < operations.size(); ++i) {
    for (const Tensor* tensor : operations[i].reads) {
      if (tensor != nullptr && seen.insert(tensor).second) finished_[i].push_back(tensor);
    }
  }
}

}  // namespace seqpoint::workload
