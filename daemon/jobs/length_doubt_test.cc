#include "daemon/jobs/length_doubt.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::jobs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

enum class Order { kShuffled, kBucketed, kSorted };

// Lengths of so many examples, as sentences have them.
std::vector<int64_t> Examples(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<int64_t> lengths;
  for (int i = 0; i < count; ++i) {
    const double length = 24 * std::exp(0.5 * normal(random));
    lengths.push_back(std::clamp<int64_t>(std::llround(length), 3, 120));
  }
  return lengths;
}

// The longest of each batch, times `factor`; of an epoch's first `iterations`.
Histogram1 Batches(std::vector<int64_t> examples, size_t batch, Order order, uint32_t seed,
                   int64_t factor, size_t iterations = SIZE_MAX) {
  std::mt19937 random(seed);
  std::shuffle(examples.begin(), examples.end(), random);
  const size_t window = order == Order::kSorted ? examples.size() : 100 * batch;
  for (size_t i = 0; order != Order::kShuffled && i < examples.size(); i += window) {
    std::sort(examples.begin() + i, examples.begin() + std::min(examples.size(), i + window));
  }
  Histogram1 longest;
  for (size_t i = 0; i < examples.size() && iterations-- > 0; i += batch) {
    const size_t end = std::min(examples.size(), i + batch);
    // The last batch's feature is that of fewer rows.
    const auto rows = static_cast<int64_t>(end - i);
    const auto length = *std::max_element(examples.begin() + i, examples.begin() + end);
    ++longest[length * factor * rows / static_cast<int64_t>(batch)];
  }
  return longest;
}

TEST(LengthDoubt, ShuffledBatchesMatchThoughTheirLengthsWereNotAllDrawn) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const std::vector<int64_t> examples = Examples(1000, seed);
    const Histogram1 expected = Batches(examples, 8, Order::kShuffled, 1000 + seed, 1);
    const Histogram1 observed = Batches(examples, 8, Order::kShuffled, 2000 + seed, 64);
    const auto scale = FindScaleOfDrawn(observed, expected);
    ASSERT_TRUE(scale.has_value()) << seed;
    EXPECT_EQ(scale->factor, 64) << seed;
    EXPECT_THAT(WhyLengthsDiffer(observed, expected, 8, 1).cause, IsEmpty()) << seed;
  }
}

TEST(LengthDoubt, OtherOrdersAreToldFromOtherBatches) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const std::vector<int64_t> examples = Examples(4000, seed);
    const auto cause = [&](size_t batch, Order order, int64_t given, int64_t ranks) {
      const Histogram1 expected =
          Batches(examples, static_cast<size_t>(given), Order::kShuffled, 1000 + seed, 1);
      const Histogram1 observed = Batches(examples, batch, order, 2000 + seed, 64);
      return WhyLengthsDiffer(observed, expected, given, ranks).cause;
    };
    EXPECT_THAT(cause(16, Order::kShuffled, 16, 1), IsEmpty()) << seed;
    EXPECT_THAT(cause(16, Order::kBucketed, 16, 1), HasSubstr("--order bucket")) << seed;
    EXPECT_THAT(cause(16, Order::kSorted, 16, 1), HasSubstr("--order sorted")) << seed;
    EXPECT_THAT(cause(4, Order::kShuffled, 16, 1), HasSubstr("examples, not 16")) << seed;
    EXPECT_THAT(cause(32, Order::kShuffled, 8, 1), HasSubstr("examples, not 8")) << seed;
    EXPECT_THAT(cause(4, Order::kShuffled, 32, 8), HasSubstr("for each of 8 ranks")) << seed;
  }
}

TEST(LengthDoubt, RowsThatAreNoIterationsLackTheBatch) {
  const std::vector<int64_t> examples = Examples(4000, 1);
  Histogram1 rows;
  for (const int64_t length : examples) ++rows[length];
  const Histogram1 observed = Batches(examples, 8, Order::kShuffled, 2, 64);
  EXPECT_THAT(WhyLengthsDiffer(observed, rows, 0, 1).cause, HasSubstr("is --batch missing"));
}

TEST(LengthDoubt, PaddingIsTold) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::vector<int64_t> examples = Examples(1000, seed);
    const Histogram1 expected = Batches(examples, 8, Order::kShuffled, 1000 + seed, 1);
    for (int64_t& length : examples) length = (length + 7) / 8 * 8;
    const Histogram1 observed = Batches(examples, 8, Order::kShuffled, 2000 + seed, 64);
    EXPECT_FALSE(FindScaleOfDrawn(observed, expected).has_value()) << seed;
    EXPECT_THAT(WhyLengthsDiffer(observed, expected, 8, 1).cause, HasSubstr("--pad-to 8")) << seed;
  }
}

TEST(LengthDoubt, AnotherOrderMatchesNoOtherFactor) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    const std::vector<int64_t> examples = Examples(4000, seed);
    const Histogram1 expected = Batches(examples, 16, Order::kShuffled, 1000 + seed, 1);
    for (const size_t iterations : {50, 100, 250}) {
      for (const Order order : {Order::kBucketed, Order::kSorted}) {
        const Histogram1 observed = Batches(examples, 16, order, 2000 + seed, 64, iterations);
        EXPECT_FALSE(FindScaleOfDrawn(observed, expected).has_value()) << seed << iterations;
      }
    }
  }
}

TEST(LengthDoubt, AnotherColumnIsNoBatchOfThisOne) {
  const std::vector<int64_t> examples = Examples(4000, 1);
  std::vector<int64_t> labels;  // of another column: few lengths, all about as long
  for (const int64_t length : examples) labels.push_back(70 + length % 7);
  const Histogram1 expected = Batches(examples, 8, Order::kShuffled, 1, 1);
  const Histogram1 observed = Batches(labels, 8, Order::kShuffled, 2, 64);
  EXPECT_THAT(WhyLengthsDiffer(observed, expected, 8, 1).cause, HasSubstr("--length-column"));
}

TEST(LengthDoubt, FewIterationsProveNothing) {
  const std::vector<int64_t> examples = Examples(4000, 1);
  const Histogram1 expected = Batches(examples, 16, Order::kShuffled, 1, 1);
  const Histogram1 observed = Batches(examples, 16, Order::kBucketed, 2, 64, 3);
  EXPECT_THAT(WhyLengthsDiffer(observed, expected, 16, 1).cause, IsEmpty());
}

}  // namespace
}  // namespace seqpoint::jobs
