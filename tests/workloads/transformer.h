// The transformer, whole or one rank's part of it (ModelPart): some of its layers, or a part of
// each layer's matrices. Column-parallel matrices are followed by row-parallel ones, and the sum
// over the ranks comes after attention and after the feed-forward layers (Shoeybi et al.,
// Megatron-LM, 2019).
#ifndef SEQPOINT_TESTS_WORKLOADS_TRANSFORMER_H_
#define SEQPOINT_TESTS_WORKLOADS_TRANSFORMER_H_

#include <memory>

#include "tests/workloads/models.h"

namespace seqpoint::workload {

// `pad_to_longest`: every batch is padded to the longest example there is.
std::unique_ptr<Model> MakeTransformer(const ModelConfig& config, bool pad_to_longest);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_TRANSFORMER_H_
