// Kernels run on the CPU against plain loops, in every variant that a shape can pick.
#include "tests/workloads/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/workloads/gemm_variant.h"
#include "tests/workloads/random.h"
#include "tests/workloads/tape.h"

namespace seqpoint::workload {
namespace {

std::vector<float> Values(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2 * random.Uniform() - 1);
  return values;
}

Queue MakeQueue(std::vector<float>* workspace) {
  workspace->resize(1 << 16);
  Queue queue;
  queue.workspace = workspace->data();
  queue.workspace_floats = workspace->size();
  return queue;
}

TEST(GemmVariantTest, ShapesPickEveryVariant) {
  EXPECT_EQ(PickGemm(32, 512, 512, 1, 8).tile, GemmTile::k32x32);
  EXPECT_EQ(PickGemm(64, 512, 512, 1, 8).tile, GemmTile::k64x64);
  EXPECT_EQ(PickGemm(512, 2048, 1600, 1, 8).tile, GemmTile::k128x64);
  EXPECT_EQ(PickGemm(4096, 2048, 512, 1, 8).tile, GemmTile::k128x128);
  const GemmVariant split = PickGemm(64, 512, 2048, 1, 8);
  EXPECT_EQ(split.tile, GemmTile::kSplitK);
  EXPECT_EQ(split.splits, 4);
  // Without room for partial sums nothing is split.
  EXPECT_EQ(PickGemm(64, 512, 2048, 1, 1).tile, GemmTile::k64x64);
}

TEST(GemmTest, EveryVariantAndLayoutMultiplies) {
  struct {
    int m, n, k, batch;
    GemmTile tile;
  } const shapes[] = {{5, 7, 40, 2, GemmTile::k32x32},
                      {70, 50, 20, 2, GemmTile::k64x64},
                      {50, 40, 1030, 1, GemmTile::kSplitK},
                      {130, 70, 9, 40, GemmTile::k128x64},
                      {130, 130, 9, 32, GemmTile::k128x128}};
  std::vector<float> workspace;
  const Queue queue = MakeQueue(&workspace);
  for (const auto& s : shapes) {
    ASSERT_EQ(PickGemm(s.m, s.n, s.k, s.batch, 8).tile, s.tile);
    for (int layout = 0; layout < 3; ++layout) {
      const auto a = Values(static_cast<size_t>(s.batch * s.m * s.k), 1);
      const auto b = Values(static_cast<size_t>(s.batch * s.k * s.n), 2);
      auto c = Values(static_cast<size_t>(s.batch * s.m * s.n), 3);
      const auto before = c;
      const bool transpose_a = layout == 2;
      const bool transpose_b = layout == 1;
      const GemmCall call{.m = s.m,
                          .n = s.n,
                          .k = s.k,
                          .a = {a.data(), transpose_a ? s.m : s.k, transpose_a, s.m * s.k},
                          .b = {b.data(), transpose_b ? s.k : s.n, transpose_b, s.k * s.n},
                          .c = {c.data(), s.n, s.m * s.n},
                          .accumulate = layout == 1,
                          .alpha = s.tile == GemmTile::kSplitK ? 1.0f : 0.5f,
                          .batch = s.batch};
      Gemm(queue, call);
      float worst = 0;
      for (int z = 0; z < s.batch; ++z) {
        for (int i = 0; i < s.m; ++i) {
          for (int j = 0; j < s.n; ++j) {
            double sum = 0;
            for (int k = 0; k < s.k; ++k) {
              const int at_a = transpose_a ? k * s.m + i : i * s.k + k;
              const int at_b = transpose_b ? j * s.k + k : k * s.n + j;
              sum += static_cast<double>(a[static_cast<size_t>(z * s.m * s.k + at_a)]) *
                     static_cast<double>(b[static_cast<size_t>(z * s.k * s.n + at_b)]);
            }
            const size_t at_c = static_cast<size_t>(z * s.m * s.n + i * s.n + j);
            const double expected = static_cast<double>(call.alpha) * sum +
                                    (call.accumulate ? static_cast<double>(before[at_c]) : 0);
            worst = std::max(worst, std::fabs(c[at_c] - static_cast<float>(expected)));
          }
        }
      }
      EXPECT_LT(worst, 1e-4f) << "tile " << static_cast<int>(s.tile) << " layout " << layout;
    }
  }
}

TEST(SoftmaxTest, ShortAndLongRowsSumToOne) {
  const Queue queue;
  for (int columns : {1, 31, 128, 129, 300}) {
    const int rows = 11;
    const auto logits = Values(static_cast<size_t>(rows * columns), 4);
    auto p = logits;
    Softmax(queue, p.data(), rows, columns);
    for (int r = 0; r < rows; ++r) {
      double sum = 0;
      double norm = 0;
      for (int c = 0; c < columns; ++c) {
        sum += static_cast<double>(p[static_cast<size_t>(r * columns + c)]);
        norm += std::exp(static_cast<double>(logits[static_cast<size_t>(r * columns + c)]));
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      EXPECT_NEAR(static_cast<double>(p[static_cast<size_t>(r * columns)]),
                  std::exp(static_cast<double>(logits[static_cast<size_t>(r * columns)])) / norm,
                  1e-5);
    }
  }
}

// How many steps a launch takes is a matter of speed only.
TEST(RnnTest, ChunksDoNotChangeTheResult) {
  const Queue queue;
  constexpr int kSteps = 7, kBatch = 2, kHidden = 5;
  constexpr size_t kCount = static_cast<size_t>(kSteps * kBatch * 2 * kHidden);
  const auto gx = Values(kCount, 5);
  const auto bias = Values(2 * kHidden, 6);
  const auto u = Values(2 * kHidden * kHidden, 7);
  std::vector<float> whole(kCount), parts(kCount);
  RnnForward(queue, gx.data(), bias.data(), u.data(), whole.data(), kSteps, 0, kSteps, kBatch,
             kHidden);
  for (int from = 0; from < kSteps; from += 3) {
    RnnForward(queue, gx.data(), bias.data(), u.data(), parts.data(), kSteps, from,
               std::min(kSteps, from + 3), kBatch, kHidden);
  }
  EXPECT_EQ(whole, parts);
  const auto d_h = Values(kCount, 8);
  std::vector<float> d_whole(kCount), d_parts(kCount);
  RnnBackward(queue, u.data(), whole.data(), d_h.data(), d_whole.data(), kSteps, kSteps, 0, kBatch,
              kHidden);
  for (int from = kSteps; from > 0; from -= 3) {
    RnnBackward(queue, u.data(), whole.data(), d_h.data(), d_parts.data(), kSteps, from,
                std::max(0, from - 3), kBatch, kHidden);
  }
  EXPECT_EQ(d_whole, d_parts);
}

TEST(ConvTest, NarrowAndWideVariantsConvolve) {
  const Queue queue;
  for (int time : {9, 500}) {
    const ConvShape shape{2, 2, time, 33, 3, 3, 5, 2};
    const auto x = Values(static_cast<size_t>(time * 2 * 2 * 33), 9);
    const auto filter = Values(3 * 2 * 3 * 5, 10);
    const int out_time = shape.OutTime(), out_frequency = shape.OutFrequency();
    std::vector<float> out(static_cast<size_t>(out_time * 2 * 3 * out_frequency));
    Conv(queue, shape, x.data(), filter.data(), out.data());
    float worst = 0;
    for (int t = 0; t < out_time; ++t) {
      for (int b = 0; b < 2; ++b) {
        for (int o = 0; o < 3; ++o) {
          for (int f = 0; f < out_frequency; ++f) {
            float sum = 0;
            for (int c = 0; c < 2; ++c) {
              for (int kt = 0; kt < 3; ++kt) {
                for (int kf = 0; kf < 5; ++kf) {
                  const int in_t = 2 * t - 1 + kt, in_f = 2 * f - 2 + kf;
                  if (in_t < 0 || in_t >= time || in_f < 0 || in_f >= 33) continue;
                  sum += x[static_cast<size_t>(((in_t * 2 + b) * 2 + c) * 33 + in_f)] *
                         filter[static_cast<size_t>(((o * 2 + c) * 3 + kt) * 5 + kf)];
                }
              }
            }
            const size_t at = static_cast<size_t>(((t * 2 + b) * 3 + o) * out_frequency + f);
            worst = std::max(worst, std::fabs(out[at] - sum));
          }
        }
      }
    }
    EXPECT_LT(worst, 1e-5f);
  }
}

// Sums the probability of every path through `steps` that reads as `labels`.
double PathProbability(const std::vector<std::vector<double>>& p, const std::vector<int>& labels) {
  const size_t steps = p.size();
  const size_t symbols = p[0].size();
  size_t paths = 1;
  for (size_t t = 0; t < steps; ++t) paths *= symbols;
  double total = 0;
  for (size_t path = 0; path < paths; ++path) {
    std::vector<int> read;
    int last = 0;
    double probability = 1;
    size_t rest = path;
    for (size_t t = 0; t < steps; ++t, rest /= symbols) {
      const int symbol = static_cast<int>(rest % symbols);
      probability *= p[t][static_cast<size_t>(symbol)];
      if (symbol != 0 && symbol != last) read.push_back(symbol);
      last = symbol;
    }
    if (read == labels) total += probability;
  }
  return total;
}

TEST(CtcTest, LossIsTheSumOverAllPaths) {
  const Queue queue;
  constexpr int kSteps = 6, kBatch = 3, kSymbols = 3, kMaxLabels = 3;
  const std::vector<std::vector<int>> labels = {{1, 2}, {2, 2}, {1, 1, 2}};
  std::vector<int> padded(kBatch * kMaxLabels, -1);
  for (size_t b = 0; b < labels.size(); ++b) {
    std::copy(labels[b].begin(), labels[b].end(),
              padded.begin() + static_cast<ptrdiff_t>(b * kMaxLabels));
  }
  const auto logits = Values(kSteps * kBatch * kSymbols, 12);
  std::vector<float> alpha(kSteps * kBatch * (2 * kMaxLabels + 1));
  std::vector<float> loss(kBatch), gradient(logits.size());
  Ctc(queue, logits.data(), padded.data(), alpha.data(), loss.data(), gradient.data(), 1, kSteps,
      kBatch, kSymbols, kMaxLabels);
  for (size_t b = 0; b < kBatch; ++b) {
    std::vector<std::vector<double>> p(kSteps, std::vector<double>(kSymbols));
    for (size_t t = 0; t < kSteps; ++t) {
      double norm = 0;
      for (size_t s = 0; s < kSymbols; ++s) {
        p[t][s] = std::exp(static_cast<double>(logits[(t * kBatch + b) * kSymbols + s]));
        norm += p[t][s];
      }
      for (double& value : p[t]) value /= norm;
    }
    EXPECT_NEAR(static_cast<double>(loss[b]), -std::log(PathProbability(p, labels[b])), 1e-4);
  }
}

// The fused kernel for short key ranges and the three launches for long ones, against plain loops.
TEST(AttentionTest, ShortAndLongKeyRanges) {
  std::vector<float> workspace;
  const Queue queue = MakeQueue(&workspace);
  for (int keys : {kShortAttentionKeys, kShortAttentionKeys + 1}) {
    Arena arena(1 << 22);
    Tape tape(queue, &arena);
    constexpr int kWidth = 6, kHeads = 2, kQueries = 3;
    auto q = Values(kQueries * kHeads * kWidth, 13);
    auto k = Values(static_cast<size_t>(keys * kHeads * kWidth), 14);
    const AttentionShape shape{kHeads, kQueries,        keys,   kWidth,
                               0.4f,   kHeads * kWidth, kWidth, kHeads * kWidth,
                               kWidth, kHeads * kWidth, kWidth};
    Tensor* out = tape.New(kQueries, kHeads * kWidth);
    Tensor* query = tape.Input(q.data(), kQueries, kHeads * kWidth);
    Tensor* memory = tape.Input(k.data(), keys, kHeads * kWidth);
    tape.Attention(shape, {query, 0}, {memory, 0}, {memory, 0}, out);
    for (int head = 0; head < kHeads; ++head) {
      for (int i = 0; i < kQueries; ++i) {
        std::vector<double> weights(static_cast<size_t>(keys));
        double norm = 0;
        auto at = [&](int row, int w) {
          return static_cast<size_t>((row * kHeads + head) * kWidth + w);
        };
        for (int j = 0; j < keys; ++j) {
          double score = 0;
          for (int w = 0; w < kWidth; ++w) {
            score += static_cast<double>(q[at(i, w)]) * static_cast<double>(k[at(j, w)]);
          }
          norm += weights[static_cast<size_t>(j)] = std::exp(0.4 * score);
        }
        for (int w = 0; w < kWidth; ++w) {
          double expected = 0;
          for (int j = 0; j < keys; ++j) {
            expected += weights[static_cast<size_t>(j)] / norm * static_cast<double>(k[at(j, w)]);
          }
          EXPECT_NEAR(static_cast<double>(out->value[at(i, w)]), expected, 1e-5);
        }
      }
    }
  }
}

}  // namespace
}  // namespace seqpoint::workload
