#include "injection/iterations/speculative_window.h"

#include <gtest/gtest.h>

namespace seqpoint::inject {
namespace {

constexpr uint32_t kLongestDraw = UINT32_MAX;  // every backoff is one less than a power of two

// Boundaries that pass before the next window may open.
int Pass(SpeculativeWindow* window) {
  int passed = 0;
  while (!window->MayOpen(0)) ++passed;
  return passed;
}

TEST(SpeculativeWindowTest, AfterEachWindowForNothingMoreIterationsMayPass) {
  SpeculativeWindow window;
  EXPECT_EQ(Pass(&window), 0);
  for (const int most : {1, 3, 7, 15, 31, 31, 31}) {
    window.OnUnwanted(kLongestDraw);
    EXPECT_EQ(Pass(&window), most);
  }
}

TEST(SpeculativeWindowTest, HowManyPassIsDrawn) {
  SpeculativeWindow window;
  window.OnUnwanted(0);
  EXPECT_EQ(Pass(&window), 0);
  window.OnUnwanted(2);
  EXPECT_EQ(Pass(&window), 2);
}

TEST(SpeculativeWindowTest, AWantedLengthEndsTheBackoff) {
  SpeculativeWindow window;
  for (int i = 0; i < 5; ++i) window.OnUnwanted(0);
  window.OnWanted();
  window.OnUnwanted(kLongestDraw);
  EXPECT_EQ(Pass(&window), 1);
}

TEST(SpeculativeWindowTest, WindowsForNothingTakeHalfOfTheOverheadBudget) {
  SpeculativeWindow window;
  constexpr uint64_t kEnd = 1'000'000, kStopped = 500;
  window.SetBudget(20);  // 2 %: half of it is a hundredth of the time
  window.Charge(kEnd, kStopped);
  EXPECT_FALSE(window.MayOpen(kEnd + 100 * kStopped - 1));
  EXPECT_TRUE(window.MayOpen(kEnd + 100 * kStopped));
  window.SetBudget(0);  // the default is 1 %
  window.Charge(kEnd, kStopped);
  EXPECT_FALSE(window.MayOpen(kEnd + 200 * kStopped - 1));
  EXPECT_TRUE(window.MayOpen(kEnd + 200 * kStopped));
}

TEST(SpeculativeWindowTest, AnotherRuleBeginsWithoutBackoffAndKeepsTheBudget) {
  SpeculativeWindow window;
  window.SetBudget(20);
  window.OnUnwanted(kLongestDraw);
  window.Charge(1'000, 1'000'000);
  window.Reset();
  EXPECT_TRUE(window.MayOpen(0));
  window.Charge(0, 10);
  EXPECT_TRUE(window.MayOpen(1'000));
  EXPECT_FALSE(window.MayOpen(999));
}

}  // namespace
}  // namespace seqpoint::inject
