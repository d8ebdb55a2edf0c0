#include "daemon/sparse/volume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <tuple>

#include "daemon/sparse/baselines.h"
#include "daemon/sparse/radixnet.h"
#include "tests/support/shared_traces.h"
#include "tests/support/sparse_networks.h"

namespace seqpoint::sparse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two inputs, three neurons, one output.
Network Small() {
  Network network;
  network.layers.push_back({.rows = 3,
                            .columns = 2,
                            .row_begin = {0, 1, 3, 4},
                            .column = {0, 0, 1, 1},
                            .weight = {1, 1, 1, 1}});
  network.layers.push_back(
      {.rows = 1, .columns = 3, .row_begin = {0, 3}, .column = {0, 1, 2}, .weight = {1, 1, 1}});
  return network;
}

TEST(VolumeTest, CountsWordsAndMessagesOfEachLayer) {
  const Owners owners = {{0, 1}, {0, 1, 1}, {1}};
  const Volume volume = CountVolume(Small(), owners, 2);
  EXPECT_EQ(volume.words, 2);  // input 0 to part 1, neuron 0 to part 1
  EXPECT_EQ(volume.messages, 2);
  EXPECT_EQ(volume.layers[0].words, 1);
  EXPECT_EQ(volume.layers[1].words, 1);
  EXPECT_THAT(volume.sent_words, ElementsAre(2, 0));
  EXPECT_EQ(volume.largest_sender_words, 2);
  EXPECT_DOUBLE_EQ(volume.imbalance, 1);  // the last layer has one row
  EXPECT_EQ(volume.imbalance_layer, 1);
}

TEST(VolumeTest, TheBackwardPassSendsTheSameBack) {
  const Owners owners = {{0, 1}, {0, 1, 1}, {1}};
  const Volume volume = CountVolume(Small(), owners, 2, /*training=*/true);
  EXPECT_EQ(volume.words, 4);
  EXPECT_EQ(volume.messages, 4);
  EXPECT_THAT(volume.sent_words, ElementsAre(2, 2));
  EXPECT_EQ(volume.largest_sender_words, 2);
}

TEST(VolumeTest, SendListsNameTheNeurons) {
  const std::vector<Message> messages = SendLists(Small(), {{1, 1}, {0, 0, 1}, {1}}, 2);
  ASSERT_EQ(messages.size(), 2);
  EXPECT_EQ(std::tuple(messages[0].layer, messages[0].sender, messages[0].receiver),
            std::tuple(0, 1, 0));
  EXPECT_THAT(messages[0].neurons, ElementsAre(0, 1));
  EXPECT_EQ(std::tuple(messages[1].layer, messages[1].sender, messages[1].receiver),
            std::tuple(1, 0, 1));
  EXPECT_THAT(messages[1].neurons, ElementsAre(0, 1));
}

// The definition, word by word: each pair of a neuron and a part that has a consumer of it.
TEST(VolumeTest, IsTheDefinitionOnRandomNetworks) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const int parts = 1 + static_cast<int>(random() % 5);
    const Network network = RandomNetwork({4, 6, 5, 7}, 2.5, &random);
    const Owners owners = RandomOwners(network, parts, &random);
    std::set<std::tuple<size_t, int, int, int>> words;  // layer, sender, receiver, neuron
    for (size_t l = 0; l < network.layers.size(); ++l) {
      const Layer& layer = network.layers[l];
      for (int32_t row = 0; row < layer.rows; ++row) {
        for (int64_t k = layer.row_begin[row]; k < layer.row_begin[row + 1]; ++k) {
          const int32_t from = owners[l][layer.column[k]];
          const int32_t to = owners[l + 1][row];
          if (from != to) words.insert({l, from, to, layer.column[k]});
        }
      }
    }
    std::set<std::tuple<size_t, int, int>> messages;
    std::vector<int64_t> sent(parts, 0);
    for (const auto& [layer, from, to, neuron] : words) {
      messages.insert({layer, from, to});
      ++sent[from];
    }
    const Volume volume = CountVolume(network, owners, parts);
    EXPECT_EQ(volume.words, static_cast<int64_t>(words.size()));
    EXPECT_EQ(volume.messages, static_cast<int64_t>(messages.size()));
    EXPECT_EQ(volume.sent_words, sent);
    std::set<std::tuple<size_t, int, int, int>> listed;
    for (const Message& message : SendLists(network, owners, parts)) {
      for (const int32_t neuron : message.neurons) {
        listed.insert(
            {static_cast<size_t>(message.layer), message.sender, message.receiver, neuron});
      }
    }
    EXPECT_EQ(listed, words);
  }
}

TEST(VolumeTest, OwnersOfAnotherNetworkAreRefused) {
  const Network network = Small();
  EXPECT_TRUE(CheckOwners(network, {{0, 1}, {0, 1, 1}, {1}}, 2).ok());
  EXPECT_THAT(CheckOwners(network, {{0, 1}, {0, 1, 1}}, 2).message(), HasSubstr("2 layers"));
  EXPECT_THAT(CheckOwners(network, {{0, 1}, {0, 1}, {1}}, 2).message(),
              HasSubstr("layer 1 has 3 neurons, and owners for 2"));
  EXPECT_THAT(CheckOwners(network, {{0, 1}, {0, 2, 1}, {1}}, 2).message(),
              HasSubstr("neuron 1 of layer 1 is in part 2; parts are 0 to 1"));
}

// The published network, counted by others: README.md of the data folder.
class PublishedNetworkTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string path = SharedData() + "/radixnet/n1024_block_residues_00_09.txt";
    std::ifstream file(path);
    if (!file.is_open()) GTEST_SKIP() << path << " is not there";
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const RadixNetSize size{.neurons = 1024, .layers = 60};
    const auto permutations = ReadPermutations(text, path, size);
    ASSERT_TRUE(permutations.ok()) << permutations.status();
    network_ = MakeRadixNet(size, *permutations);
  }

  Owners ByRule(int32_t (*rule)(int32_t neuron, int parts)) const {
    Owners owners(61, std::vector<int32_t>(1024));
    for (std::vector<int32_t>& level : owners) {
      for (int32_t i = 0; i < 1024; ++i) level[i] = rule(i, GetParam());
    }
    return owners;
  }

  Network network_;
};

TEST_P(PublishedNetworkTest, WordsOfSimplePartitionsAreThoseOfTheTable) {
  struct Row {
    int parts;
    int64_t random, blocks, residues;
  };
  constexpr Row kTable[] = {{4, 184287, 184320, 65068},
                            {8, 424468, 430080, 83913},
                            {16, 807631, 921600, 97958},
                            {32, 1227002, 1262798, 108329},
                            {64, 1552024, 1437868, 114929}};
  for (const Row& row : kTable) {
    if (row.parts != GetParam()) continue;
    EXPECT_EQ(CountVolume(network_, ByRule([](int32_t i, int parts) { return i * parts / 1024; }),
                          row.parts)
                  .words,
              row.blocks);
    EXPECT_EQ(
        CountVolume(network_, ByRule([](int32_t i, int parts) { return i % 64 * parts / 64; }),
                    row.parts)
            .words,
        row.residues);
    EXPECT_EQ(CountVolume(network_, BlockParts(network_, row.parts), row.parts).words, row.blocks);
    // Theirs is the mean of three others.
    const Volume random = CountVolume(network_, RandomParts(network_, row.parts, 1), row.parts);
    EXPECT_NEAR(static_cast<double>(random.words), static_cast<double>(row.random),
                0.01 * static_cast<double>(row.random));
    EXPECT_EQ(random.imbalance, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, PublishedNetworkTest, testing::Values(4, 8, 16, 32, 64));

}  // namespace
}  // namespace seqpoint::sparse
