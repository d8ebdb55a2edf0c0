#include "daemon/seqpoint/key_table.h"

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

TEST(KeyTableTest, IsReadInTheOrderOfKeys) {
  KeyTable keys;
  for (const int64_t length : {30, 10, 20}) {
    keys.Insert({length})->ordinary = {.count = 2, .mean_ns = 1e6, .level = 1};
  }
  keys.At({20}).ordinary.own_baseline = true;
  const std::vector<KeyTimes> times = keys.OrdinaryOfKeys();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].key, Key{10});
  EXPECT_EQ(times[2].key, Key{30});
  EXPECT_EQ(keys.KeysWithBaseline(), std::vector<Key>{Key{20}});
}

TEST(KeyTableTest, LengthZeroIsUnknownUnlessEverythingHasIt) {
  KeyTable keys;
  keys.Insert({});
  EXPECT_FALSE(keys.LengthUnknown({}));
  EXPECT_EQ(keys.Lengths(), 1u);
  keys.Insert({7});
  EXPECT_TRUE(keys.LengthUnknown({}));
  EXPECT_EQ(keys.Lengths(), 1u);
}

TEST(KeyTableTest, HasRoomForAQuarterOfAMillionKeys) {
  KeyTable keys;
  for (size_t i = 0; i < kMaxKeys; ++i) ASSERT_NE(keys.Insert({static_cast<int64_t>(i)}), nullptr);
  EXPECT_EQ(keys.Insert({static_cast<int64_t>(kMaxKeys)}), nullptr);
  EXPECT_NE(keys.Insert({5}), nullptr);
}

}  // namespace
}  // namespace seqpoint
