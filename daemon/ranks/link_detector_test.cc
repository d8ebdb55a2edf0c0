#include "daemon/ranks/link_detector.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace seqpoint::ranks {
namespace {

constexpr uint64_t kLink = 7;

// A job of two ranks whose all-reduces are as long as its batches: hardly any size comes twice.
class LinkOfManySizes : public testing::Test {
 protected:
  // `slower`: of the part of the transfers that depends on their size.
  void Run(int iterations, double slower) {
    std::uniform_int_distribution<uint32_t> size(1, 40'000);
    std::normal_distribution<double> noise(0, 0.02);
    for (int i = 0; i < iterations; ++i) {
      const uint32_t kind = size(random_);
      sizes_[kind] = {.function = 3, .elements = kind * uint64_t{256}};
      const double ns = (8'000 + 2.5 * slower * kind) * std::exp(noise(random_));
      JoinedIteration iteration;
      iteration.number = number_++;
      iteration.communicators = {{kLink, {0, 1}}};
      iteration.transfers = {{.communicator = kLink,
                              .kind = kind,
                              .count = 10,
                              .transfer_ns = static_cast<int64_t>(10 * ns)}};
      detector_.Add(iteration, sizes_, verdicts_);
    }
  }

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

}  // namespace
}  // namespace seqpoint::ranks
