#include "injection/base/names.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "injection/abi/matcher.h"

namespace seqpoint::inject {
namespace {

class NamesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ring_.Create({}).ok()); }
  void TearDown() override { ring_.Destroy(); }
  uint64_t Announced() const { return ring_.header()->lane_number; }

  injection::RingWriter ring_;
  Names names_{&ring_};
};

TEST_F(NamesTest, OneIdForOneTextWhateverItsAddress) {
  const std::string a = "kernel_a", again = "kernel_a", b = "kernel_b";
  const NameRef first = names_.Intern(a.c_str());
  EXPECT_EQ(first.id, 1u);
  EXPECT_EQ(first.hash, abi::NameHash("kernel_a", 8));
  EXPECT_STREQ(first.text, "kernel_a");
  EXPECT_EQ(names_.Intern(again.c_str()).id, 1u);
  EXPECT_EQ(names_.Intern(b.c_str()).id, 2u);
  EXPECT_EQ(Announced(), 2u);
}

TEST_F(NamesTest, AnAddressWithAnotherTextIsAnotherName) {
  char buffer[32];
  std::set<uint32_t> ids;
  for (int i = 0; i < 100; ++i) {
    snprintf(buffer, sizeof(buffer), "step %d", i);
    ids.insert(names_.Intern(buffer).id);
    EXPECT_STREQ(names_.Intern(buffer).text, buffer);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(Announced(), 100u);
}

TEST_F(NamesTest, AKernelsAddressIsTrustedUntilItsModuleIsUnloaded) {
  const std::string prefix(80, 'k');
  char buffer[128];
  snprintf(buffer, sizeof(buffer), "%s_one", prefix.c_str());
  const NameRef one = names_.InternKernel(buffer);
  EXPECT_EQ(names_.InternKernel(buffer).id, one.id);
  names_.ForgetAddresses();
  snprintf(buffer, sizeof(buffer), "%s_two", prefix.c_str());
  EXPECT_NE(names_.InternKernel(buffer).id, one.id);
  EXPECT_EQ(names_.Intern((prefix + "_one").c_str()).id, one.id);
}

TEST_F(NamesTest, NoNameIsIdZero) { EXPECT_EQ(names_.Intern(nullptr).id, 0u); }

TEST_F(NamesTest, LongNamesAreCutButToldApart) {
  const std::string common(5000, 'x');
  const std::string a = common + "a", b = common + "b";
  const NameRef first = names_.Intern(a.c_str());
  EXPECT_EQ(strlen(first.text), 4096u);
  EXPECT_NE(names_.Intern(b.c_str()).id, first.id);
  EXPECT_EQ(names_.Intern(a.c_str()).id, first.id);
}

TEST_F(NamesTest, AFullTableCountsAndGoesOn) {
  char buffer[32];
  for (uint32_t i = 0; i < Names::kCapacity / 2 + 10; ++i) {
    snprintf(buffer, sizeof(buffer), "name %u", i);
    names_.Intern(buffer);
  }
  EXPECT_EQ(names_.overflows(), 10u);
  EXPECT_EQ(names_.Intern("name 17").id, 18u);
  // Kernels still find room, up to their own limit.
  for (uint32_t i = 0; i < Names::kCapacity / 2 + 5; ++i) {
    snprintf(buffer, sizeof(buffer), "kernel %u", i);
    EXPECT_EQ(names_.InternKernel(buffer).id != 0, i < Names::kCapacity / 2);
  }
  EXPECT_EQ(names_.overflows(), 15u);
}

TEST_F(NamesTest, ANameThatTheLaneDroppedIsToldLater) {
  char buffer[32];
  uint32_t dropped = 0;
  for (int i = 0; ring_.header()->lane_dropped == 0; ++i) {
    snprintf(buffer, sizeof(buffer), "name %d", i);
    dropped = names_.InternKernel(buffer).id;
  }
  const uint64_t before = ring_.header()->lane_head;
  __atomic_store_n(&ring_.header()->lane_tail, before, __ATOMIC_RELEASE);  // the reader caught up
  EXPECT_EQ(names_.InternKernel(buffer).id, dropped);
  EXPECT_GT(ring_.header()->lane_head, before);
}

TEST_F(NamesTest, ThreadsAgreeOnIds) {
  constexpr int kThreads = 4, kNames = 500;
  std::vector<std::string> texts;
  for (int i = 0; i < kNames; ++i) texts.push_back("kernel " + std::to_string(i));
  std::vector<std::vector<uint32_t>> ids(kThreads, std::vector<uint32_t>(kNames));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < kNames; ++i) ids[t][i] = names_.Intern(texts[i].c_str()).id;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 1; t < kThreads; ++t) EXPECT_EQ(ids[t], ids[0]);
  EXPECT_EQ(Announced(), static_cast<uint64_t>(kNames));
}

}  // namespace
}  // namespace seqpoint::inject
