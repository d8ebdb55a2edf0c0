#include "injection/cupti/clock.h"

#include <gtest/gtest.h>
#include <time.h>

namespace {
// Nanoseconds that the clocks show; reading the monotonic one takes `g_reading_ns`.
uint64_t g_monotonic_ns = 0, g_real_ns = 0, g_reading_ns = 0;
}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  uint64_t ns = g_real_ns;
  if (clock != CLOCK_REALTIME) {
    g_monotonic_ns += g_reading_ns;
    ns = g_monotonic_ns;
  }
  now->tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  now->tv_nsec = static_cast<long>(ns % 1'000'000'000);
  return 0;
}

namespace seqpoint::inject {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class ClockTest : public testing::Test {
 protected:
  ClockTest() {
    g_monotonic_ns = 5 * kSecond;
    g_real_ns = 1'800'000'000 * kSecond;
    g_reading_ns = 0;
  }
  void Pass(uint64_t ns) {
    g_monotonic_ns += ns;
    g_real_ns += ns;
  }
  bool Take(uint64_t call) { return clock_.TakeStep(call, &step_); }

  Clock clock_{nullptr, nullptr};
  abi::ClockStepEvent step_ = {};
};

TEST_F(ClockTest, AStepIsToldOnceWithItsSizeAndTheCallsAroundIt) {
  EXPECT_FALSE(Take(1));
  Pass(kSecond);
  EXPECT_FALSE(Take(2));
  g_real_ns += 3600 * kSecond;
  EXPECT_TRUE(Take(7));
  EXPECT_EQ(step_.by_ns, static_cast<int64_t>(3600 * kSecond));
  EXPECT_EQ(step_.first_call, 2u);
  EXPECT_EQ(step_.last_call, 7u);
  EXPECT_EQ(step_.real_ns, g_real_ns);
  EXPECT_FALSE(Take(8));
  Pass(kSecond);
  g_real_ns -= 30 * kSecond;
  EXPECT_TRUE(Take(9));
  EXPECT_EQ(step_.by_ns, -static_cast<int64_t>(30 * kSecond));
}

TEST_F(ClockTest, AClockThatIsDisciplinedIsNotSet) {
  EXPECT_FALSE(Take(1));
  for (uint64_t call = 2; call < 100; ++call) {
    Pass(kSecond);
    g_real_ns += 499'000;  // a second
    EXPECT_FALSE(Take(call));
  }
}

TEST_F(ClockTest, WhereTheThreadWasInterruptedNothingIsSaid) {
  EXPECT_FALSE(Take(1));
  g_reading_ns = 5'000'000;
  EXPECT_FALSE(Take(2));
  g_reading_ns = 0;
  g_real_ns += kSecond;
  EXPECT_TRUE(Take(3));
  EXPECT_EQ(step_.first_call, 1u);
}

}  // namespace
}  // namespace seqpoint::inject
