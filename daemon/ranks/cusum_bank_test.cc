#include "daemon/ranks/cusum_bank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace seqpoint::ranks {
namespace {

// Those of normal values.
Penalties NormalPenalties() {
  Penalties penalties = {};
  for (size_t i = 0; i < kSlopes.size(); ++i) penalties[i] = kSlopes[i] * kSlopes[i] / 2;
  return penalties;
}

TEST(CusumBankTest, ALargeRiseBeginsWhereValuesRise) {
  CusumBank bank;
  for (int64_t number = 0; number < 60; ++number) {
    bank.Add(number, number < 50 ? -1 : 3, NormalPenalties());
  }
  EXPECT_EQ(bank.onset(), 50);
  EXPECT_EQ(bank.earliest(), 50);
}

TEST(CusumBankTest, ARiseMayHaveBegunSinceTheLastOrdinaryValue) {
  CusumBank bank;
  for (int64_t number = 0; number < 50; ++number) bank.Add(number, -1, NormalPenalties());
  for (int64_t number = 80; number < 90; ++number) bank.Add(number, 3, NormalPenalties());
  EXPECT_EQ(bank.onset(), 80);
  EXPECT_EQ(bank.earliest(), 50);
}

// A small rise shows late; where it began is not earlier than what is said to be the earliest.
TEST(CusumBankTest, TheEarliestStartIsRarelyTooLate) {
  int onset_late = 0, earliest_late = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    CusumBank bank;
    int64_t number = 0;
    for (; number < 100; ++number) bank.Add(number, normal(random) - 0.75, NormalPenalties());
    for (; bank.evidence() < Threshold(12); ++number) {
      bank.Add(number, normal(random) + 0.5, NormalPenalties());
    }
    onset_late += bank.onset() > 104;
    earliest_late += bank.earliest() > 104;
  }
  EXPECT_LT(earliest_late, onset_late / 2);
}

}  // namespace
}  // namespace seqpoint::ranks
