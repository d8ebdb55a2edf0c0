#include "daemon/seqpoint/key.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace seqpoint {
namespace {

class LengthsAndNoise {
 public:
  explicit LengthsAndNoise(int seed) : random_(seed) {}
  int64_t Length(int low, int high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  double Noise(double deviation) {
    return std::exp(deviation * std::normal_distribution<double>()(random_));
  }

 private:
  std::mt19937 random_;
};

TEST(FitKeyTest, ExplainsTimeThatFollowsTheLength) {
  LengthsAndNoise log(1);
  std::vector<Key> keys;
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    keys.push_back({log.Length(5, 100)});
    times.push_back((1e6 + 1e5 * static_cast<double>(keys[i].first)) * log.Noise(0.02));
  }
  const KeyFit fit = FitKey(keys, times);
  EXPECT_EQ(fit.verdict, KeyVerdict::kExplained);
  EXPECT_GT(fit.explained, 0.97);
}

// As much as the curve that made the times explains; normal noise is not cut.
TEST(FitKeyTest, TellsTheTrueShare) {
  for (const double noise : {0.05, 0.1, 0.3}) {
    LengthsAndNoise log(7);
    std::vector<Key> keys;
    std::vector<double> times, made;
    for (int i = 0; i < 1000; ++i) {
      keys.push_back({log.Length(40, 80)});
      made.push_back(1e5 * static_cast<double>(keys[i].first));
      times.push_back(made[i] + 6e6 * std::log(log.Noise(noise)));
    }
    double mean = 0, error = 0, variance = 0;
    for (double t : times) mean += t / 1000;
    for (int i = 0; i < 1000; ++i) {
      error += std::pow(times[i] - made[i], 2);
      variance += std::pow(times[i] - mean, 2);
    }
    EXPECT_NEAR(FitKey(keys, times).explained, 1 - error / variance, 0.015) << noise;
  }
}

TEST(FitKeyTest, RareSlowIterationsDoNotHideWhatTheLengthExplains) {
  LengthsAndNoise log(8);
  std::vector<Key> keys;
  std::vector<double> times;
  for (int i = 0; i < 1000; ++i) {
    keys.push_back({log.Length(1500, 1700)});
    times.push_back(1e4 * static_cast<double>(keys[i].first) * log.Noise(0.003));
    if (i % 100 == 50) times[i] *= 1.3;
  }
  EXPECT_GT(FitKey(keys, times).explained, 0.97);
}

TEST(FitKeyTest, RefusesTimeThatDoesNot) {
  for (int seed = 0; seed < 50; ++seed) {
    LengthsAndNoise log(seed);
    std::vector<Key> keys;
    std::vector<double> times;
    for (int i = 0; i < 64; ++i) {
      keys.push_back({log.Length(5, 100)});
      times.push_back(1e7 * log.Noise(0.3));
    }
    EXPECT_EQ(FitKey(keys, times).verdict, KeyVerdict::kNotExplained) << "seed " << seed;
  }
}

TEST(FitKeyTest, SaysWhenTimeHardlyVaries) {
  LengthsAndNoise log(2);
  std::vector<Key> keys;
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    keys.push_back({log.Length(5, 100)});
    times.push_back(1e7 * log.Noise(0.01));
  }
  EXPECT_EQ(FitKey(keys, times).verdict, KeyVerdict::kTimeHardlyVaries);
}

TEST(FitKeyTest, ClaimsNothingFromFewIterations) {
  const std::vector<Key> keys = {{1}, {2}, {3}};
  const std::vector<double> times = {1, 2, 3};
  EXPECT_EQ(FitKey(keys, times).verdict, KeyVerdict::kTooFew);
  EXPECT_EQ(FitKey({}, {}).verdict, KeyVerdict::kTooFew);
}

TEST(FitKeyTest, AllTimesEqual) {
  std::vector<Key> keys;
  for (int i = 0; i < 100; ++i) keys.push_back({i});
  const KeyFit fit = FitKey(keys, std::vector<double>(100, 5.0));
  EXPECT_EQ(fit.verdict, KeyVerdict::kTimeHardlyVaries);
  EXPECT_EQ(fit.explained, 0);
}

TEST(FitKeyTest, HugeLengths) {
  LengthsAndNoise log(3);
  std::vector<Key> keys;
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    keys.push_back({1'000'000'000 + log.Length(0, 1000)});
    times.push_back(static_cast<double>(keys[i].first - 999'999'000));
  }
  EXPECT_GT(FitKey(keys, times).explained, 0.99);
}

}  // namespace
}  // namespace seqpoint
