#include "daemon/ranks/link_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "daemon/ranks/archive.h"

namespace seqpoint::ranks {
namespace {

constexpr uint64_t kLink = 7;

// A job of two ranks whose all-reduces are as long as its batches: hardly any size comes twice.
// All its communicators transfer in each iteration.
class LinkOfManySizes : public testing::Test {
 protected:
  // `slower`: of the part of the first one's transfers that depends on their size.
  void Run(int iterations, double slower) {
    std::uniform_int_distribution<uint32_t> size(1, largest_);
    std::normal_distribution<double> noise(0, 0.02);
    for (int i = 0; i < iterations; ++i) {
      JoinedIteration iteration;
      iteration.number = number_++;
      for (uint64_t link = kLink; link < kLink + links_; ++link) {
        const uint32_t kind = size(random_);
        const uint32_t function = same_function_ ? 3 : static_cast<uint32_t>(random_());
        sizes_[kind] = {.function = function, .elements = kind * uint64_t{256}};
        const double step_ns = kind > 20'000 ? step_ns_ : 0;
        const double factor = link == kLink ? slower : 1;
        const double ns = (8'000 + 2.5 * factor * kind + step_ns) * std::exp(noise(random_));
        iteration.communicators.push_back({link, {0, 1}});
        iteration.transfers.push_back({.communicator = link,
                                       .kind = kind,
                                       .count = 10,
                                       .transfer_ns = static_cast<int64_t>(10 * ns)});
      }
      detector_.Add(iteration, sizes_, verdicts_);
    }
  }

  // A restart of the daemon keeps so many.
  size_t SavedNumbers() {
    Saver saver;
    saver(detector_);
    return saver.numbers.size();
  }

  uint32_t largest_ = 40'000;  // size
  double step_ns_ = 0;         // of large messages: as where NCCL changes its protocol
  uint64_t links_ = 1;
  bool same_function_ = true;
  std::vector<LinkVerdict> verdicts_;
  KindSizes sizes_;

 private:
  std::mt19937 random_{5};
  LinkDetector detector_;
  int64_t number_ = 0;
};

TEST_F(LinkOfManySizes, IsNamedSoonWhenItIsSlow) {
  Run(150, 1);
  EXPECT_TRUE(verdicts_.empty());
  Run(60, 1.3);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_NEAR(static_cast<double>(verdicts_[0].first), 150, 8);
  EXPECT_NEAR(verdicts_[0].factor.value, 1.26, 0.05);  // 8 us of each are latency
}

TEST_F(LinkOfManySizes, IsNotNamedWhileItIsEven) {
  Run(10'000, 1);
  EXPECT_TRUE(verdicts_.empty());
}

TEST_F(LinkOfManySizes, StaysNamedWhereThereAreManyOthers) {
  links_ = 64;
  Run(300, 1);
  EXPECT_TRUE(verdicts_.empty());
  Run(700, 1.3);
  ASSERT_EQ(verdicts_.size(), 1u);
  EXPECT_NEAR(static_cast<double>(verdicts_[0].first), 300, 10);
  EXPECT_LT(verdicts_[0].last, 0);
}

TEST_F(LinkOfManySizes, IsNotNamedForSizesThatAreNew) {
  step_ns_ = 12'000;
  largest_ = 18'000;
  Run(500, 1);
  largest_ = 40'000;
  Run(2'000, 1);
  EXPECT_TRUE(verdicts_.empty());
}

TEST_F(LinkOfManySizes, NeedsNoMoreMemoryForFunctionsThatNeverComeAgain) {
  same_function_ = false;
  Run(1'000, 1);
  const size_t before = SavedNumbers();
  Run(5'000, 1);
  EXPECT_LE(SavedNumbers(), before * 11 / 10);
}

}  // namespace
}  // namespace seqpoint::ranks
