#include "daemon/sparse/zoltan_partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/sparse/baselines.h"
#include "daemon/sparse/planner.h"
#include "daemon/sparse/radixnet.h"
#include "daemon/sparse/volume.h"

namespace seqpoint::sparse {
namespace {

TEST(ZoltanPartitionerTest, KeepsFixedVerticesAndFindsTheCut) {
  const auto partitioner = MakeZoltanPartitioner();
  ASSERT_TRUE(partitioner.ok()) << partitioner.status();
  // Two groups of 20 vertices, each in nets of its own, with one of each fixed, crosswise.
  Hypergraph graph;
  graph.vertex_weight.assign(40, 1);
  graph.fixed.assign(40, -1);
  graph.fixed[0] = 1;
  graph.fixed[20] = 0;
  graph.pins_of_net.push_back(0);
  for (int32_t group : {0, 20}) {
    for (int32_t i = 0; i < 20; ++i) {
      for (int32_t k = 0; k < 4; ++k) graph.pin.push_back(group + (i + k) % 20);
      graph.pins_of_net.push_back(static_cast<int64_t>(graph.pin.size()));
    }
  }
  const auto part_of = (*partitioner)(graph, 2, 0.01, 1);
  ASSERT_TRUE(part_of.ok()) << part_of.status();
  for (int32_t v = 0; v < 40; ++v) EXPECT_EQ((*part_of)[v], v < 20 ? 1 : 0) << v;
}

TEST(ZoltanPartitionerTest, ThePlanIsBetterThanThePublishedWay) {
  const auto partitioner = MakeZoltanPartitioner();
  ASSERT_TRUE(partitioner.ok()) << partitioner.status();
  const RadixNetSize size{.neurons = 256, .layers = 8};
  const Network network = MakeRadixNet(size, DrawPermutations(size, 1));
  const auto plan = MakePlan(network, {.parts = 4, .effort = 0.2}, *partitioner);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->layer_by_layer.has_value());
  EXPECT_LT(plan->volume.words, plan->layer_by_layer->words);
  EXPECT_LT(plan->layer_by_layer->words, plan->random.words);
  EXPECT_LE(plan->volume.imbalance, 0.01);
}

}  // namespace
}  // namespace seqpoint::sparse
