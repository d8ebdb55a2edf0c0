#include "injection/nccl/activation_masks.h"

#include <gtest/gtest.h>

#include "injection/nccl/profiler_abi.h"

namespace seqpoint::inject {
namespace {

constexpr int kOperations = nccl::kCollective | nccl::kPointToPoint;
constexpr int kAll = kOperations | nccl::kKernelChannel;

TEST(ActivationMasksTest, OperationsAreToldWhileTheyAreWanted) {
  ActivationMasks masks;
  int mask = 77;
  masks.Add(&mask, 6);
  EXPECT_EQ(mask, 0);
  masks.SetWish(true, 0, 0);
  EXPECT_EQ(mask, kOperations);
  masks.SetWish(false, 1, 0);
  EXPECT_EQ(mask, 0);
  EXPECT_FALSE(masks.channels_on());
}

TEST(ActivationMasksTest, ChannelsAreOnInOneIterationOfEachPeriod) {
  ActivationMasks masks;
  int mask = 0;
  masks.SetWish(true, 3, 2);
  masks.Add(&mask, 4);
  for (uint64_t iteration = 0; iteration < 12; ++iteration) {
    masks.OnBoundary(iteration);
    EXPECT_EQ(masks.iteration(), iteration);
    EXPECT_EQ(mask, iteration % 3 == 2 ? kAll : kOperations) << iteration;
    EXPECT_EQ(masks.channels_on(), iteration % 3 == 2) << iteration;
  }
  masks.SetWish(true, 0, 0);
  EXPECT_EQ(mask, kOperations);
}

TEST(ActivationMasksTest, VersionsWithoutGpuTimesHaveNoChannels) {
  ActivationMasks masks;
  int mask = 0;
  masks.Add(&mask, 3);
  masks.SetWish(true, 1, 0);
  EXPECT_EQ(mask, kOperations);
}

TEST(ActivationMasksTest, EachCopyOfNcclHasItsMaskForAsLongAsItHasCommunicators) {
  ActivationMasks masks;
  int first = 0, second = 0;
  masks.SetWish(true, 0, 0);
  masks.Add(&first, 6);
  masks.Add(&first, 6);
  masks.Add(&second, 6);
  masks.Remove(&first);
  masks.SetWish(false, 0, 0);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 0);
  masks.Remove(&first);
  masks.SetWish(true, 0, 0);
  EXPECT_EQ(first, 0) << "nobody uses it";
  EXPECT_EQ(second, kOperations);
}

TEST(ActivationMasksTest, BitsOfTheUsersPluginAreAdded) {
  ActivationMasks masks;
  int mask = 0;
  masks.Add(&mask, 6);
  masks.SetOthers(nccl::kProxyOp);
  EXPECT_EQ(mask, nccl::kProxyOp);
  masks.SetWish(true, 0, 0);
  EXPECT_EQ(mask, kOperations | nccl::kProxyOp);
  masks.ForgetInChild();
  EXPECT_EQ(mask, nccl::kProxyOp);
}

}  // namespace
}  // namespace seqpoint::inject
