#include "injection/iterations/plan.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace seqpoint::inject {
namespace {

bool Always(uint16_t) { return true; }
bool OnlyTwo(uint16_t config_id) { return config_id == 2; }

abi::PlanEntry Entry(uint64_t id, int64_t low, int64_t high, uint16_t config_id, uint32_t quota) {
  abi::PlanEntry entry = {};
  entry.low[0] = low;
  entry.high[0] = high;
  entry.low[1] = INT64_MIN;
  entry.high[1] = INT64_MAX;
  entry.config_id = config_id;
  entry.quota = quota;
  entry.entry_id = id;
  return entry;
}

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() { control_->measurement_cap = 100; }
  void Add(const abi::PlanEntry& entry) { control_->plan[control_->plan_count++] = entry; }
  const abi::PlanEntry* Match(int64_t length, bool (*ready)(uint16_t) = Always) {
    const int64_t lengths[2] = {length, 0};
    return plan_->Match(lengths, 1, 0, ready);
  }

  std::unique_ptr<abi::Control> control_ = std::make_unique<abi::Control>();
  std::unique_ptr<Plan> plan_ = std::make_unique<Plan>();
};

TEST_F(PlanTest, BoxesAreInclusiveAndTheFirstOneWins) {
  Add(Entry(1, 10, 20, 2, 1));
  Add(Entry(2, 20, 30, 3, 1));
  plan_->Apply(*control_);
  EXPECT_EQ(Match(9), nullptr);
  EXPECT_EQ(Match(10)->entry_id, 1u);
  EXPECT_EQ(Match(20)->entry_id, 1u);
  EXPECT_EQ(Match(21)->entry_id, 2u);
  EXPECT_EQ(Match(31), nullptr);
}

TEST_F(PlanTest, AnEntryWhoseConfigurationIsNotReadyIsPassedOver) {
  Add(Entry(1, 10, 20, 3, 1));
  Add(Entry(2, 10, 20, 2, 1));
  plan_->Apply(*control_);
  EXPECT_EQ(Match(15, OnlyTwo)->entry_id, 2u);
}

TEST_F(PlanTest, OperatorsAreWantedAsLongAsThereIsAnEntry) {
  Add(Entry(1, 10, 10, abi::kConfigOperators, 0));
  control_->measurement_cap = 0;
  plan_->Apply(*control_);
  const auto wants = [&](int64_t length, uint32_t valid) {
    const int64_t lengths[2] = {length, 0};
    return plan_->Wants(abi::kConfigOperators, lengths, valid);
  };
  EXPECT_TRUE(wants(10, 1));
  EXPECT_FALSE(wants(11, 1));
  EXPECT_FALSE(wants(10, 0));
  EXPECT_EQ(Match(10), nullptr);  // nothing is measured for it
}

TEST_F(PlanTest, ABoundOnAnUnknownLengthNeverHolds) {
  abi::PlanEntry entry = Entry(1, 10, 20, 2, 1);
  entry.low[1] = 0;
  entry.high[1] = 5;
  Add(entry);
  plan_->Apply(*control_);
  EXPECT_EQ(Match(15), nullptr);
  const int64_t both[2] = {15, 5};
  EXPECT_NE(plan_->Match(both, 3, 0, Always), nullptr);
}

TEST_F(PlanTest, QuotasAreCountedDownAndSurviveNewGenerations) {
  Add(Entry(1, 10, 20, 2, 2));
  Add(Entry(2, 30, 40, 2, 1));
  plan_->Apply(*control_);
  plan_->Take(1);
  // The entries change places; entry 1 keeps its count, a new one starts from nothing.
  control_->plan_count = 0;
  Add(Entry(3, 50, 60, 2, 1));
  Add(Entry(2, 30, 40, 2, 1));
  Add(Entry(1, 10, 20, 2, 2));
  plan_->Apply(*control_);
  EXPECT_NE(Match(15), nullptr);
  plan_->Take(1);
  EXPECT_EQ(Match(15), nullptr);
  EXPECT_NE(Match(35), nullptr);
  EXPECT_NE(Match(55), nullptr);
}

TEST_F(PlanTest, TheCapHoldsWhateverThePlanSays) {
  control_->measurement_cap = 2;
  Add(Entry(1, 10, 20, 2, 100));
  plan_->Apply(*control_);
  plan_->Take(1);
  plan_->Take(1);
  EXPECT_EQ(Match(15), nullptr);
  EXPECT_EQ(plan_->Pending(Always, 0), nullptr);
}

TEST_F(PlanTest, EveryPendingEntryHasItsTurn) {
  Add(Entry(1, 10, 20, 2, 1));
  Add(Entry(2, 30, 40, 3, 0));
  Add(Entry(3, 50, 60, 4, 1));
  plan_->Apply(*control_);
  std::set<uint64_t> found;
  for (uint32_t random : {0u, 1u, 2u, UINT32_MAX}) {
    found.insert(plan_->Pending(Always, random)->entry_id);
  }
  EXPECT_EQ(found, (std::set<uint64_t>{1, 3}));
}

TEST_F(PlanTest, FailuresAreGivenBackButNotForEver) {
  Add(Entry(1, 10, 20, 2, 1));
  plan_->Apply(*control_);
  int measured = 0;
  while (Match(15) != nullptr && measured < 50) {
    plan_->Take(1);
    plan_->GiveBack(1);
    ++measured;
  }
  EXPECT_GT(measured, 1);
  EXPECT_LT(measured, 20);
}

}  // namespace
}  // namespace seqpoint::inject
