// Kernels in turn, several times in each iteration: the repeats are not taken for iterations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/iterations/learner.h"
#include "tests/iterations/synthetic_stream.h"

namespace seqpoint::iterations {
namespace {

constexpr uint64_t kSeeds = 20;
// Seeds for which the stream tells the iterations: others may take longer.
constexpr size_t kMost = 15;
constexpr double kSure = 0.6;

struct Around {
  std::string name;
  RepeatOptions options;
  bool told = true;  // the stream tells the iterations: they are to be found
  int times = 1;     // as many repeats
};

void PrintTo(const Around& around, std::ostream* out) { *out << around.name; }

size_t CountIterations(const SyntheticStream& stream, const IterationLearner& learner,
                       const abi::Rule& rule) {
  size_t found = 0;
  abi::Matcher matcher(rule);
  for (const abi::CallRecord& call : stream.calls) {
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(call, learner.stream().names()));
    found += (flags & abi::kMatchedStep) != 0;
  }
  return found;
}

class RepeatsTest : public ::testing::TestWithParam<Around> {};

TEST_P(RepeatsTest, AreNoIterations) {
  size_t right = 0;
  std::string missed;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RepeatOptions options = GetParam().options;
    options.seed = seed;
    options.kernels = 1 + static_cast<int>(seed * 7 % 8);
    options.repeats = GetParam().times * (2 + static_cast<int>(seed * 5 % 9));
    options.more =
        seed % 3 == 0 ? static_cast<int>(seed % static_cast<uint64_t>(options.kernels)) : 0;
    const SyntheticStream stream = MakeRepeatStream(options);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", options.kernels, " kernels, ", options.repeats,
                              " times, and ", options.more, " more"));
    // Long runs are as far as short ones from telling; few calls are enough here.
    IterationLearner learner({.min_launch_only_calls = 512, .min_launch_only_calls_unsure = 1024});
    for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
    for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
    std::vector<LearnedRule> said;
    if (learner.rule() != nullptr) said.push_back(*learner.rule());
    EXPECT_EQ(learner.rule() == nullptr, !learner.Explanation().empty());
    // The answer for a run that ended.
    if (const auto now = learner.Analyse()) said.push_back(*now);
    for (const LearnedRule& learned : said) {
      const bool copy_alone =
          learned.boundary_words.find("nothing but the copy") != std::string::npos;
      if (learned.open || (learned.confidence < kSure && !copy_alone)) continue;
      // Nothing stands before the first one, by which some rules know it; the last one has no end.
      EXPECT_NEAR(static_cast<double>(CountIterations(stream, learner, learned.rule)),
                  static_cast<double>(stream.iterations.size()), 2)
          << learned.confidence << " " << learned.boundary_words << "; " << learned.evidence;
    }
    right += learner.rule() != nullptr;
    if (learner.rule() == nullptr && GetParam().told) {
      absl::StrAppend(&missed, seed, ": ", learner.Explanation(), "; ");
    }
  }
  EXPECT_GE(right, GetParam().told ? kMost : 0) << missed;
}

INSTANTIATE_TEST_SUITE_P(
    Loops, RepeatsTest,
    ::testing::Values(
        Around{"copy_readback", {}}, Around{"copy", {.readback_every = 0}},
        Around{"copy_readback_10", {.iterations = 200, .readback_every = 10}},
        Around{"copy_optimiser", {.optimiser = true}},
        Around{"copy_optimiser_never_read_back", {.readback_every = 0, .optimiser = true}},
        Around{"second_stream", {.second_stream = true}},
        Around{"second_stream_never_read_back", {.second_stream = true, .readback_every = 0}},
        Around{"default_stream", {.default_stream = true}},
        Around{"lengths_default_stream", {.default_stream = true, .copy_varies = true}},
        Around{"lengths", {.copy_varies = true}},
        Around{"lengths_never_read_back", {.copy_varies = true, .readback_every = 0}},
        Around{
            "lengths_second_stream_readback_10",
            {.iterations = 200, .second_stream = true, .copy_varies = true, .readback_every = 10}},
        Around{"time_steps", {.copy_varies = true, .repeats_vary = true}},
        Around{"time_steps_never_read_back",
               {.copy_varies = true, .repeats_vary = true, .readback_every = 0}},
        Around{"time_steps_of_padded_batches", {.repeats_vary = true}, false},
        Around{"noise", {.noise = 0.02}},
        Around{"noise_optimiser", {.optimiser = true, .noise = 0.1}},
        Around{"noise_never_read_back", {.readback_every = 0, .noise = 0.02}},
        Around{"graphs", {.graphs = true}},
        Around{"graphs_never_read_back", {.iterations = 200, .readback_every = 0, .graphs = true}},
        Around{"graphs_noise", {.graphs = true, .noise = 0.02}},
        Around{"graphs_second_stream_optimiser",
               {.second_stream = true, .optimiser = true, .graphs = true}},
        Around{"no_copy", {.iterations = 300, .copy = false}, false},
        Around{"no_copy_optimiser", {.iterations = 300, .copy = false, .optimiser = true}, false},
        Around{
            "no_copy_readback_10", {.iterations = 300, .copy = false, .readback_every = 10}, false},
        Around{"nothing_else", {.iterations = 300, .copy = false, .readback_every = 0}, false},
        Around{"no_copy_lengths", {.iterations = 300, .copy = false, .copy_varies = true}, false},
        Around{"no_copy_lengths_never_read_back",
               {.iterations = 300, .copy = false, .copy_varies = true, .readback_every = 0},
               false},
        Around{"no_copy_graphs", {.iterations = 300, .copy = false, .graphs = true}, false},
        // The first iteration alone has more repeats than are needed to recognise a loop, and one
        // copy for them may as well be an epoch's.
        Around{"many", {}, false, 12},
        Around{"many_never_read_back", {.readback_every = 0}, false, 12},
        Around{"many_second_stream", {.second_stream = true}, false, 12},
        Around{"many_optimiser", {.optimiser = true}, true, 12},
        Around{"many_noise", {.noise = 0.02}, false, 12},
        Around{"many_rare_noise", {.noise = 0.003}, false, 12},
        Around{"many_rare_noise_no_copy", {.copy = false, .noise = 0.003}, false, 12},
        Around{"many_lengths", {.copy_varies = true}, true, 12},
        Around{"many_time_steps", {.copy_varies = true, .repeats_vary = true}, true, 12},
        Around{"many_graphs", {.graphs = true}, false, 12},
        Around{"many_graphs_never_read_back", {.readback_every = 0, .graphs = true}, false, 12},
        Around{"many_no_copy_graphs", {.copy = false, .graphs = true}, false, 12},
        Around{"many_no_copy_optimiser", {.copy = false, .optimiser = true}, false, 12}),
    [](const auto& info) { return info.param.name; });

struct Shared {
  int iterations;  // for which one copy is made
  int readback_every;
  bool told = false;  // the iterations are to be found; elsewhere they may be
};

void PrintTo(const Shared& shared, std::ostream* out) {
  *out << "copy_" << shared.iterations << "_readback_" << shared.readback_every;
}

class SharedCopyTest : public ::testing::TestWithParam<Shared> {};

// Several batches, or what draws them, are in one copy.
TEST_P(SharedCopyTest, IsNoIteration) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RepeatOptions options;
    options.iterations = std::max(200, 8 * GetParam().iterations);
    options.seed = seed;
    options.kernels = 2 + static_cast<int>(seed * 5 % 13);
    options.repeats = 1;
    options.share = GetParam().iterations;
    options.readback_every = GetParam().readback_every;
    options.noise = seed % 4 == 0 ? 0.003 : 0;
    const SyntheticStream stream = MakeRepeatStream(options);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", options.kernels, " kernels"));
    IterationLearner learner({.min_launch_only_calls = 512, .min_launch_only_calls_unsure = 1024});
    for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
    for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
    std::vector<LearnedRule> said;
    if (learner.rule() != nullptr) said.push_back(*learner.rule());
    if (const auto now = learner.Analyse()) said.push_back(*now);
    for (const LearnedRule& learned : said) {
      if (learned.open) continue;
      EXPECT_NEAR(static_cast<double>(CountIterations(stream, learner, learned.rule)),
                  static_cast<double>(stream.iterations.size()), 2)
          << learned.confidence << " " << learned.boundary_words << "; " << learned.evidence;
    }
    if (learner.rule() != nullptr) continue;
    EXPECT_FALSE(GetParam().told);
    EXPECT_THAT(learner.Explanation(),
                ::testing::ContainsRegex("each may be an iteration, or .* may be the layers"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Loops, SharedCopyTest,
    ::testing::Values(Shared{4, 1}, Shared{4, 2}, Shared{3, 2}, Shared{10, 1}, Shared{10, 3},
                      Shared{20, 0}, Shared{50, 10}, Shared{200, 0}, Shared{200, 100},
                      Shared{200, 150}, Shared{200, 200},
                      // Each loop iteration is an iteration long before the second copy.
                      Shared{200, 1, true}),
    ::testing::PrintToStringParamName());

// One copy for few repeats and nothing else that tells: it is said, and the confidence is low.
TEST(CopyAloneTest, IsSaid) {
  const SyntheticStream stream =
      MakeRepeatStream({.kernels = 7, .repeats = 4, .readback_every = 0});
  IterationLearner learner({.min_launch_only_calls = 512, .min_launch_only_calls_unsure = 1024});
  for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
  for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
  ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
  EXPECT_LT(learner.rule()->confidence, kSure);
  EXPECT_THAT(learner.rule()->boundary_words,
              ::testing::HasSubstr("unless each of the 4 repeats behind it is an iteration"));
}

// The batches of one optimiser step, and nothing that only a backward pass launches.
TEST(MicroBatchesTest, TheLengthIsTheirSum) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SyntheticStream stream =
        MakeRepeatStream({.seed = seed,
                          .kernels = 1 + static_cast<int>(seed % 3),
                          .repeats = 2 + static_cast<int>(seed * 5 % 9),
                          .micro_batches = 2 + static_cast<int>(seed % 4),
                          .copy_varies = true,
                          .readback_every = static_cast<int>(seed % 2) * 10,
                          .optimiser = true});
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    IterationLearner learner;
    for (uint32_t id = 1; id < stream.names.size(); ++id) learner.AddName(id, stream.names[id]);
    for (const abi::CallRecord& call : stream.calls) learner.AddCall(call);
    ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
    const LearnedRule& learned = *learner.rule();
    SCOPED_TRACE(learned.boundary_words + "; " + learned.length_words);
    abi::Matcher matcher(learned.rule);
    std::vector<int64_t> lengths;
    for (const abi::CallRecord& call : stream.calls) {
      if (matcher.OnEvent(ToMatchEvent(call, learner.stream().names())) & abi::kMatchedStep) {
        lengths.push_back(matcher.result().step.length[0]);
      }
    }
    ASSERT_EQ(lengths.size(), stream.iterations.size());
    const int64_t unit = stream.iterations.back().length[0];
    for (size_t i = 0; i < lengths.size(); ++i) {
      // Bytes, or whatever is proportional to them.
      EXPECT_EQ(lengths[i] * unit, stream.iterations[i].length[0] * lengths.back()) << i;
    }
  }
}

}  // namespace
}  // namespace seqpoint::iterations
