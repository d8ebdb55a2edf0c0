#include "daemon/jobs/coordinated_windows.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kNumber = 32;
constexpr uint32_t kGemm = 1, kAllReduce = 2;

abi::DataRecord Kernel(uint32_t name_id, int64_t start_ns, int64_t end_ns) {
  abi::DataRecord record = {};
  record.kernel = {.type = static_cast<uint16_t>(abi::DataType::kKernel),
                   .name_id = name_id,
                   .start_ns = static_cast<uint64_t>(start_ns),
                   .end_ns = static_cast<uint64_t>(end_ns)};
  return record;
}

// An iteration of two ranks that reduce twenty times; rank 1 has no records of some.
class CoordinatedWindowsTest : public testing::Test {
 protected:
  static constexpr int kReductions = 20;

  CoordinatedWindowsTest() {
    names_.Set(kGemm, "gemm");
    names_.Set(kAllReduce, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)");
  }
  bool Trace(const std::set<int>& lost, bool disturbed = false) {
    windows_.Want(kNumber, {0, 1});
    AddRank(0, {}, disturbed);
    AddRank(1, lost, disturbed);
    return windows_.TakeFinished();
  }

  CoordinatedWindows windows_;

 private:
  void AddRank(int32_t rank, const std::set<int>& lost, bool disturbed) {
    constexpr int64_t kBegin = 1'000'000;
    std::vector<abi::DataRecord> records;
    for (int i = 0; i < kReductions; ++i) {
      const int64_t at = kBegin + 100'000 * i;
      records.push_back(Kernel(kGemm, at, at + 40'000));
      if (lost.contains(i)) continue;
      const int64_t start = at + 50'000 + 10'000 * rank, end = at + 90'000;
      records.push_back(Kernel(kAllReduce, start, end));
      windows_.AddCollective(rank, {.communicator = 9,
                                    .sequence = static_cast<uint32_t>(i),
                                    .function = "AllReduce",
                                    .bytes = 4096,
                                    .start_ns = start,
                                    .end_ns = end});
    }
    for (const int64_t number : {kNumber, kNumber + 1}) {
      windows_.AddBoundary(rank, number, kBegin + (number - kNumber) * 100'000 * kReductions, {},
                           disturbed);
    }
    windows_.AddWork(rank, kNumber, records, names_);
    windows_.SetTimed(rank, kNumber);
  }

  ProcessNames names_;
};

TEST_F(CoordinatedWindowsTest, AnIterationOfAllRanksIsJoined) {
  EXPECT_TRUE(Trace({}));
  ASSERT_EQ(windows_.iterations().size(), 1u);
  ASSERT_EQ(windows_.iterations()[0].size(), 2u);
  EXPECT_EQ(windows_.given_up(), 0);
}

TEST_F(CoordinatedWindowsTest, AFewLostRecordsDoNotMatter) {
  EXPECT_TRUE(Trace({3}));
  EXPECT_EQ(windows_.iterations().size(), 1u);
}

TEST_F(CoordinatedWindowsTest, AnIterationWithManyCollectivesOfOneRankIsGivenUp) {
  EXPECT_FALSE(Trace({3, 8, 12, 17}));
  EXPECT_TRUE(windows_.iterations().empty());
  EXPECT_EQ(windows_.given_up(), 1);
  EXPECT_TRUE(windows_.idle());
}

TEST_F(CoordinatedWindowsTest, RecordsThatDoNotComeAreWaitedForAWhile) {
  windows_.Want(kNumber, {0, 1});
  for (int i = 0; i < 2 * CoordinatedWindows::kPatience; ++i) windows_.OnTime();
  for (const int rank : {0, 1}) windows_.AddBoundary(rank, kNumber + 1, 1'000'000, {}, false);
  for (int i = 0; i < CoordinatedWindows::kPatience; ++i) {
    EXPECT_FALSE(windows_.TakeFinished());
    EXPECT_FALSE(windows_.idle()) << "it is over only now";
    windows_.OnTime();
  }
  EXPECT_FALSE(windows_.TakeFinished());
  EXPECT_EQ(windows_.given_up(), 1);
  EXPECT_TRUE(windows_.idle());
}

TEST_F(CoordinatedWindowsTest, AnIterationWhoseLengthsAreNewToAllRanksIsNotKept) {
  EXPECT_TRUE(Trace({}, /*disturbed=*/true));
  EXPECT_TRUE(windows_.iterations().empty());
  EXPECT_EQ(windows_.given_up(), 0);
}

}  // namespace
}  // namespace seqpoint::jobs
