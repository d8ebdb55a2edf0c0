// The search and its parts against brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "daemon/sparse/assignment.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/joint_search.h"
#include "daemon/sparse/layered_hypergraph.h"
#include "daemon/sparse/partition_state.h"
#include "daemon/sparse/planner.h"
#include "daemon/sparse/radixnet.h"
#include "daemon/sparse/recombination.h"
#include "daemon/sparse/volume.h"
#include "tests/support/sparse_networks.h"

namespace seqpoint::sparse {
namespace {

using ::testing::HasSubstr;

std::vector<int32_t> Flat(const Owners& owners) {
  std::vector<int32_t> part_of;
  for (size_t l = 1; l < owners.size(); ++l) {
    part_of.insert(part_of.end(), owners[l].begin(), owners[l].end());
  }
  return part_of;
}

// As the judge counts it, with the inputs placed as documented.
int64_t Words(const Network& network, int parts, const std::vector<int32_t>& part_of) {
  return CountVolume(network, OwnersOfRows(network, parts, part_of), parts).words;
}

bool WithinLimits(const Network& network, int parts, const std::vector<int64_t>& limits,
                  const std::vector<int32_t>& part_of) {
  size_t at = 0;
  for (size_t l = 0; l < network.layers.size(); ++l) {
    std::vector<int64_t> load(parts, 0);
    for (int32_t row = 0; row < network.layers[l].rows; ++row) {
      load[part_of[at++]] +=
          network.layers[l].row_begin[row + 1] - network.layers[l].row_begin[row];
    }
    if (*std::max_element(load.begin(), load.end()) > limits[l]) return false;
  }
  return true;
}

// Calls `each` with every partition.
template <typename Each>
void ForAllPartitions(size_t rows, int parts, const Each& each) {
  std::vector<int32_t> part_of(rows, 0);
  for (;;) {
    each(part_of);
    size_t i = 0;
    while (i < rows && ++part_of[i] == parts) part_of[i++] = 0;
    if (i == rows) return;
  }
}

TEST(AssignmentTest, IsTheBestOfAllPermutations) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const int size = 1 + static_cast<int>(random() % 6);
    std::vector<int64_t> gain(static_cast<size_t>(size) * size);
    for (int64_t& value : gain) value = static_cast<int64_t>(random() % 20);
    const auto sum = [&](const std::vector<int>& column_of) {
      int64_t all = 0;
      for (int row = 0; row < size; ++row) all += gain[row * size + column_of[row]];
      return all;
    };
    const std::vector<int> found = LargestAssignment(gain, size);
    std::vector<int> permutation(size);
    std::iota(permutation.begin(), permutation.end(), 0);
    int64_t best = 0;
    do {
      best = std::max(best, sum(permutation));
    } while (std::next_permutation(permutation.begin(), permutation.end()));
    EXPECT_EQ(sum(found), best);
    std::vector<int> sorted = found;
    std::sort(sorted.begin(), sorted.end());
    std::iota(permutation.begin(), permutation.end(), 0);
    EXPECT_EQ(sorted, permutation);
  }
}

TEST(PartitionStateTest, CountsWhatTheJudgeCountsAfterEveryMove) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100; ++i) {
    const int parts = 2 + static_cast<int>(random() % 4);
    const Network network = RandomNetwork({5, 6, 7, 4}, 2, &random);
    const LayeredHypergraph graph = MakeHypergraph(network);
    PartitionState state(graph, parts, Flat(RandomOwners(network, parts, &random)));
    for (int step = 0; step < 20; ++step) {
      EXPECT_EQ(state.words(), Words(network, parts, state.part_of()));
      const auto vertex = static_cast<int32_t>(random() % graph.vertices());
      const auto to = static_cast<int32_t>(random() % parts);
      const int64_t expected = state.words() + state.Change(vertex, to);
      state.Move(vertex, to);
      EXPECT_EQ(state.words(), expected);
    }
  }
}

TEST(LayeredHypergraphTest, ACoarserOneSendsTheSame) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    const Network network = RandomNetwork({6, 8, 9, 5}, 3, &random);
    const LayeredHypergraph fine = MakeHypergraph(network);
    const Coarsening next =
        Coarsen(fine, {.common_nets = 0.5, .most_weight = {10, 10, 10}}, &random);
    std::vector<int32_t> coarse(next.coarse.vertices());
    for (int32_t& part : coarse) part = static_cast<int32_t>(random() % 3);
    std::vector<int32_t> part_of(fine.vertices());
    for (int32_t v = 0; v < fine.vertices(); ++v) part_of[v] = coarse[next.coarse_of[v]];
    EXPECT_EQ(PartitionState(next.coarse, 3, coarse).words(), Words(network, 3, part_of));
    for (int layer = 0; layer < 3; ++layer) {
      for (int32_t v = next.coarse.vertices_of_layer[layer];
           v < next.coarse.vertices_of_layer[layer + 1]; ++v) {
        EXPECT_LE(next.coarse.vertex_weight[v], 10);
      }
    }
  }
}

// The best over all choices of a candidate for each layer and of names for its parts.
TEST(RecombinationTest, IsTheBestMixtureUnderAllNames) {
  std::mt19937_64 random(4);
  constexpr int kParts = 3;
  for (int i = 0; i < 40; ++i) {
    const Network network = RandomNetwork({4, 5, 5, 5}, 2, &random);
    const LayeredHypergraph graph = MakeHypergraph(network);
    const std::vector<int64_t> limits(3, std::numeric_limits<int64_t>::max());
    std::vector<std::vector<int32_t>> candidates;
    for (int c = 0; c < 2; ++c) {
      candidates.push_back(Flat(RandomOwners(network, kParts, &random)));
    }
    int64_t best = std::numeric_limits<int64_t>::max();
    std::vector<std::vector<int>> names;
    std::vector<int> name = {0, 1, 2};
    do {
      names.push_back(name);
    } while (std::next_permutation(name.begin(), name.end()));
    for (int choice = 0; choice < 8; ++choice) {
      for (const auto& second : names) {
        for (const auto& third : names) {
          std::vector<int32_t> mixed(15);
          for (int row = 0; row < 15; ++row) {
            const int layer = row / 5;
            const int32_t part = candidates[choice >> layer & 1][row];
            mixed[row] = layer == 0 ? part : layer == 1 ? second[part] : third[part];
          }
          best = std::min(best, Words(network, kParts, mixed));
        }
      }
    }
    const std::vector<int32_t> found = Recombine(graph, kParts, limits, candidates);
    EXPECT_EQ(Words(network, kParts, found), best);
  }
}

TEST(RecombinationTest, ALayerAboveItsLimitIsNotTaken) {
  std::mt19937_64 random(5);
  const Network network = RandomNetwork({8, 8, 8}, 3, &random);
  const LayeredHypergraph graph = MakeHypergraph(network);
  const std::vector<int64_t> limits = PartLimits(graph, 2, 0.01);
  const std::vector<int32_t> one_part(16, 0);  // sends nothing
  const std::vector<int32_t> balanced = SpreadEvenly(graph, 2, &random);
  const std::vector<int32_t> found = Recombine(graph, 2, limits, {one_part, balanced});
  EXPECT_TRUE(WithinLimits(network, 2, limits, found));
}

TEST(JointSearchTest, FindsTheBestOfAllBalancedPartitionsOfTinyNetworks) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 60; ++i) {
    const int parts = 2 + static_cast<int>(random() % 2);
    const Network network = RandomNetwork({4, 4, 4}, 2, &random);
    const LayeredHypergraph graph = MakeHypergraph(network);
    const std::vector<int64_t> limits = PartLimits(graph, parts, 0.01);
    int64_t best = std::numeric_limits<int64_t>::max();
    ForAllPartitions(8, parts, [&](const std::vector<int32_t>& part_of) {
      if (WithinLimits(network, parts, limits, part_of)) {
        best = std::min(best, Words(network, parts, part_of));
      }
    });
    const JointSearchOptions options{.parts = parts};
    const Owners found = SearchJointly(network, {}, options).owners;
    ASSERT_TRUE(CheckOwners(network, found, parts).ok());
    EXPECT_TRUE(WithinLimits(network, parts, limits, Flat(found)));
    EXPECT_EQ(CountVolume(network, found, parts).words, best) << "network " << i;
  }
}

TEST(JointSearchTest, IsNeverWorseThanABalancedStartAndKeepsTheBalance) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    const int parts = 2 + static_cast<int>(random() % 6);
    const Network network = RandomNetwork({20, 30, 25, 40, 30}, 4, &random);
    const LayeredHypergraph graph = MakeHypergraph(network);
    const std::vector<int64_t> limits = PartLimits(graph, parts, 0.05);
    const Owners start = RandomParts(network, parts, i);
    const JointSearchOptions options{
        .parts = parts, .imbalance = 0.05, .seed = static_cast<uint64_t>(i), .effort = 0.1};
    const Owners found = SearchJointly(network, {start}, options).owners;
    EXPECT_TRUE(WithinLimits(network, parts, limits, Flat(found)));
    EXPECT_LE(CountVolume(network, found, parts).words, CountVolume(network, start, parts).words);
  }
}

TEST(JointSearchTest, AStopEndsItWithABalancedPartition) {
  const RadixNetSize size{.neurons = 128, .layers = 6};
  const Network network = MakeRadixNet(size, DrawPermutations(size, 1));
  int asked = 0;
  const JointSearchOptions options{.parts = 4, .stop = [&] { return ++asked > 40; }};
  const JointSearchResult result = SearchJointly(network, {}, options);
  EXPECT_TRUE(result.stopped);
  const Volume volume = CountVolume(network, result.owners, 4);
  EXPECT_EQ(volume.imbalance, 0);
  EXPECT_LE(volume.words, CountVolume(network, RandomParts(network, 4, 1), 4).words);
}

// The search finds residue classes without being told, and aligns them over layers.
TEST(JointSearchTest, FindsTheStructureOfARadixNet) {
  const RadixNetSize size{.neurons = 256, .layers = 8};
  const Network network = MakeRadixNet(size, DrawPermutations(size, 1));
  const JointSearchOptions options{.parts = 4, .effort = 0.3};
  const Volume volume = CountVolume(network, SearchJointly(network, {}, options).owners, 4);
  EXPECT_EQ(volume.imbalance, 0);
  // Block 0 costs at most a word for each neuron, each of the others less than three quarters: a
  // random name for each part would cost these.
  EXPECT_LT(volume.words, 256 * 8 * 3 / 4);
}

TEST(PlannerTest, SaysWhatIsWrongWithTheQuestion) {
  std::mt19937_64 random(8);
  const Network network = RandomNetwork({4, 4, 3}, 2, &random);
  EXPECT_THAT(MakePlan(network, {.parts = 4}, nullptr).status().message(),
              HasSubstr("layer 2 has 3 neurons, fewer than the 4 parts"));
  EXPECT_THAT(MakePlan(network, {.parts = 0}, nullptr).status().message(), HasSubstr("0 parts"));
}

TEST(PlannerTest, SaysWhichLayerDoesNotDivide) {
  std::mt19937_64 random(9);
  const Network network = RandomNetwork({4, 4, 3}, 8, &random);
  const auto plan = MakePlan(network, {.parts = 2}, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->volume.imbalance_layer, 1);
  ASSERT_EQ(plan->notes.size(), 1);
  EXPECT_THAT(plan->notes[0], HasSubstr("the imbalance of 33.33 % in layer 2"));
}

TEST(PlannerTest, OnePartSendsNothing) {
  std::mt19937_64 random(10);
  const auto plan = MakePlan(RandomNetwork({4, 4, 3}, 2, &random), {.parts = 1}, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->volume.words, 0);
  EXPECT_EQ(plan->volume.messages, 0);
}

}  // namespace
}  // namespace seqpoint::sparse
