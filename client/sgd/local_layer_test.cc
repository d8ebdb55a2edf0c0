#include "client/sgd/local_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace seqpoint::sgd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three rows over four columns:  . 2 3 .
//                                4 . . 5
//                                . 6 7 .
sparse::Layer ThreeByFour() {
  sparse::Layer layer;
  layer.rows = 3;
  layer.columns = 4;
  layer.row_begin = {0, 2, 4, 6};
  layer.column = {1, 2, 0, 3, 1, 2};
  layer.weight = {2, 3, 4, 5, 6, 7};
  return layer;
}

const std::vector<int32_t> kBefore = {0, 0, 1, 2};
const std::vector<int32_t> kOwners = {0, 1, 2};

TEST(LocalLayer, HasItsRowsAndWhomItExchangesNeuronsWith) {
  const LocalLayer first = MakeLocalLayer(ThreeByFour(), kBefore, kOwners, 0);
  EXPECT_THAT(first.rows, ElementsAre(0));
  EXPECT_THAT(first.columns, ElementsAre(0, 1));
  EXPECT_THAT(first.received, ElementsAre(2));
  EXPECT_FLOAT_EQ(first.own.coeff(0, 1), 2);
  EXPECT_FLOAT_EQ(first.remote.coeff(0, 0), 3);
  ASSERT_EQ(first.peers.size(), 2u);
  EXPECT_EQ(first.peers[0].rank, 1);
  EXPECT_THAT(first.peers[0].send, ElementsAre(0));  // column 0 for row 1
  EXPECT_EQ(first.peers[0].receive_count, 1);        // column 2
  EXPECT_EQ(first.peers[1].rank, 2);
  EXPECT_THAT(first.peers[1].send, ElementsAre(1));  // column 1 for row 2
  EXPECT_EQ(first.peers[1].receive_count, 0);
}

TEST(LocalLayer, WhatOneSendsTheOtherExpects) {
  std::vector<LocalLayer> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(MakeLocalLayer(ThreeByFour(), kBefore, kOwners, rank));
  }
  for (int a = 0; a < 3; ++a) {
    for (const Peer& to : ranks[a].peers) {
      std::vector<int32_t> sent, expected;
      for (int32_t i : to.send) sent.push_back(ranks[a].columns[i]);
      for (const Peer& from : ranks[to.rank].peers) {
        if (from.rank != a) continue;
        const auto begin = ranks[to.rank].received.begin() + from.receive_begin;
        expected.assign(begin, begin + from.receive_count);
      }
      EXPECT_EQ(sent, expected) << a << " to " << to.rank;
    }
  }
}

TEST(LocalLayer, WeightsComeBackInTheOrderOfTheLayer) {
  EXPECT_THAT(RowWeights(MakeLocalLayer(ThreeByFour(), kBefore, kOwners, 0)), ElementsAre(2, 3));
  EXPECT_THAT(RowWeights(MakeLocalLayer(ThreeByFour(), kBefore, kOwners, 1)), ElementsAre(4, 5));
  EXPECT_THAT(RowWeights(MakeLocalLayer(ThreeByFour(), kBefore, {0, 0, 0}, 1)), IsEmpty());
}

}  // namespace
}  // namespace seqpoint::sgd
