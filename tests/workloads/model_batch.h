// What the models' batches and parameters have in common. Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_MODEL_BATCH_H_
#define SEQPOINT_TESTS_WORKLOADS_MODEL_BATCH_H_

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/workloads/models.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {

// Token `position` of example `id`: words are about Zipf-distributed. 0 is padding, 1 the mask.
inline int Token(uint64_t seed, uint64_t id, int position, int vocabulary) {
  const uint64_t hash = Mix(Mix(seed ^ Mix(id)) + static_cast<uint64_t>(position));
  const double u = static_cast<double>(hash >> 11) * 0x1p-53;
  return 2 + static_cast<int>(static_cast<double>(vocabulary - 2) * u * u * u);
}

inline float Scale(int fan_in) { return 1 / std::sqrt(static_cast<float>(fan_in)); }

inline void AddArray(HostBatch* batch, std::vector<int> values) {
  batch->owned.push_back(std::move(values));
  batch->arrays.push_back(
      {batch->owned.back().data(), batch->owned.back().size() * sizeof(int), false});
}

inline const int* Ints(void* data) { return static_cast<const int*>(data); }

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_MODEL_BATCH_H_
