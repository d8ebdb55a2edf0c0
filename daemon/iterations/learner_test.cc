#include "daemon/iterations/learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/iterations/synthetic_stream.h"

namespace seqpoint::iterations {
namespace {

using ZeroGrad = SyntheticOptions::ZeroGrad;

struct Found {
  uint32_t begin = 0;
  uint32_t step = 0;
  uint32_t micro_batches = 0;
  int64_t length[2] = {0, 0};
  uint32_t valid = 0;
};

// Every iteration that the rule finds in the whole stream.
std::vector<Found> Match(const SyntheticStream& stream, const abi::Rule& rule) {
  NameTable names;
  for (uint32_t id = 1; id < stream.names.size(); ++id) names.Add(id, stream.names[id]);
  std::vector<Found> found;
  abi::Matcher matcher(rule);
  Found open;
  for (uint32_t i = 0; i < stream.calls.size(); ++i) {
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(stream.calls[i], names));
    if (flags & abi::kMatchedStep) {
      open.step = i;
      open.micro_batches = matcher.result().step.micro_batches;
      for (int d = 0; d < 2; ++d) open.length[d] = matcher.result().step.length[d];
      open.valid = matcher.result().step.valid;
      found.push_back(open);
    }
    if (flags & abi::kMatchedBoundary) open.begin = i;
  }
  return found;
}

void Feed(const SyntheticStream& stream, IterationLearner* learner, size_t* published_at) {
  for (uint32_t id = 1; id < stream.names.size(); ++id) learner->AddName(id, stream.names[id]);
  for (const auto& [correlation, start] : stream.gpu_starts) {
    learner->AddGpuStart(correlation, start);
  }
  for (size_t i = 0; i < stream.calls.size() && learner->rule() == nullptr; ++i) {
    learner->AddCall(stream.calls[i]);
    *published_at = i;
  }
}

uint32_t Launches(const SyntheticStream& stream, uint32_t begin, uint32_t end) {
  uint32_t launches = 0;
  for (uint32_t i = begin; i < end; ++i) launches += IsLaunch(stream.calls[i].op);
  return launches;
}

struct Case {
  std::string name;
  SyntheticOptions options;
  size_t latest = 30;  // iterations that may have begun when the rule comes
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class LearnerTest : public ::testing::TestWithParam<Case> {};

TEST_P(LearnerTest, FindsEachIterationOnceAtTheSamePlace) {
  const SyntheticOptions& options = GetParam().options;
  const SyntheticStream stream = MakeSyntheticStream(options);
  IterationLearner learner;
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
  const LearnedRule& learned = *learner.rule();
  SCOPED_TRACE(learned.boundary_words + "; " + learned.evidence + "; " + learned.length_words);

  size_t begun = 0;
  while (begun < stream.iterations.size() && stream.iterations[begun].end <= published_at) ++begun;
  EXPECT_LE(begun, GetParam().latest) << "the rule came late";

  const std::vector<Found> found = Match(stream, learned.rule);
  // The last one is complete only when the next begins, where the rule has no step.
  ASSERT_GE(found.size(), stream.iterations.size() - 1);
  ASSERT_LE(found.size(), stream.iterations.size());
  std::set<int64_t> offsets;
  for (size_t i = 0; i < found.size(); ++i) {
    const TrueIteration& truth = stream.iterations[i];
    EXPECT_LE(found[i].begin, truth.first_forward) << "iteration " << i;
    if (i > 0) {
      EXPECT_GE(found[i].begin, truth.first_call) << "iteration " << i;
      offsets.insert(Launches(stream, found[i].begin, truth.first_forward));
    }
    EXPECT_EQ(found[i].micro_batches, learned.micro_batches) << "iteration " << i;
  }
  EXPECT_EQ(offsets.size(), 1u) << "begins at different launch offsets";
}

TEST_P(LearnerTest, ReadsTheLength) {
  const SyntheticOptions& options = GetParam().options;
  if (!options.framework &&
      (options.fixed_work || options.graphs || (options.prefetch && options.micro_batches > 1))) {
    GTEST_SKIP() << "no length to be found";
  }
  const SyntheticStream stream = MakeSyntheticStream(options);
  IterationLearner learner;
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
  const LearnedRule& learned = *learner.rule();
  SCOPED_TRACE(learned.boundary_words + "; " + learned.length_words);
  if (!options.marks) {  // with marks the rule is there before anything can be judged
    EXPECT_TRUE(learned.lengths.depends);
    EXPECT_GE(learned.lengths.explained, 0.9);
  }
  ASSERT_EQ(learned.rule.length_count, static_cast<uint32_t>(options.lengths));
  const std::vector<Found> found = Match(stream, learned.rule);
  for (size_t i = 4; i < found.size(); ++i) {
    ASSERT_EQ(found[i].valid, (1u << options.lengths) - 1) << "iteration " << i;
    for (int d = 0; d < options.lengths; ++d) {
      EXPECT_EQ(found[i].length[d], stream.iterations[i].length[d] * kSyntheticBytesPerStep)
          << "iteration " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, LearnerTest,
    ::testing::Values(
        Case{"recurrent", {}}, Case{"two_lengths", {.lengths = 2}},
        Case{"attention", {.recurrent = false}}, Case{"readback_never", {.readback_every = 0}},
        Case{"readback_50", {.lengths = 2, .readback_every = 50}},
        Case{"prefetch", {.prefetch = true}},
        Case{"prefetch_without_memset",
             {.lengths = 2, .zero_grad = ZeroGrad::kNone, .prefetch = true, .readback_every = 0}},
        Case{"accumulation", {.iterations = 40, .micro_batches = 4}},
        Case{"accumulation_evaluation",
             {.iterations = 60, .micro_batches = 2, .evaluate_every = 20}},
        Case{"accumulation_8_per_tensor_optimiser",
             {.recurrent = false, .per_tensor_optimiser = true, .micro_batches = 8}},
        Case{"accumulation_16", {.recurrent = false, .micro_batches = 16, .evaluate_every = 20}},
        Case{"accumulation_32",
             {.recurrent = false, .readback_every = 0, .micro_batches = 32, .evaluate_every = 20}},
        Case{"accumulation_32_prefetch",
             {.recurrent = false, .prefetch = true, .readback_every = 0, .micro_batches = 32}},
        Case{"accumulation_32_zero_by_kernel",
             {.recurrent = false, .zero_grad = ZeroGrad::kKernel, .micro_batches = 32}},
        Case{"pipeline_last_stage", {.recurrent = false, .micro_batches = 4, .ahead = 0}},
        Case{"pipeline_first_of_two_stages", {.recurrent = false, .micro_batches = 4, .ahead = 1}},
        Case{"pipeline_first_of_four_stages",
             {.layers = 2, .recurrent = false, .micro_batches = 8, .ahead = 3}},
        Case{
            "pipeline_second_of_four_stages",
            {.layers = 2, .recurrent = false, .readback_every = 0, .micro_batches = 8, .ahead = 2}},
        Case{"pipeline_third_of_four_stages",
             {.layers = 1, .recurrent = false, .micro_batches = 8, .ahead = 1}},
        Case{"pipeline_middle_stage_12",
             {.layers = 1,
              .recurrent = false,
              .micro_batches = 12,
              .ahead = 1,
              .middle_stage = true}},
        Case{"pipeline_stage_of_two_layers_12",
             {.layers = 2, .recurrent = false, .micro_batches = 12, .ahead = 1}},
        Case{"pipeline_evaluation",
             {.recurrent = false, .micro_batches = 8, .ahead = 3, .evaluate_every = 10}},
        Case{"evaluation_while_learning", {.iterations = 80, .evaluate_every = 6}},
        Case{"evaluation_never_seen_before", {.iterations = 90, .evaluate_every = 40}},
        Case{"evaluation_never_seen_before_prefetch",
             {.iterations = 90, .prefetch = true, .readback_every = 0, .evaluate_every = 40}},
        Case{"evaluation_first", {.iterations = 60, .evaluate_every = 30, .evaluate_first = true}},
        Case{"backward_thread", {.zero_grad = ZeroGrad::kKernel, .backward_thread = true}},
        Case{"algorithm_search", {.algorithm_search = true}},
        Case{"per_tensor_optimiser",
             {.recurrent = false, .per_tensor_optimiser = true, .evaluate_every = 40}},
        Case{"scalar_copy", {.iterations = 90, .scalar_copy = true, .evaluate_every = 40}},
        Case{"nvtx", {.iterations = 70, .evaluate_every = 40, .nvtx = true}},
        Case{"two_optimisers", {.recurrent = false, .two_optimisers = true}},
        Case{"fixed_work", {.recurrent = false, .fixed_work = true}},
        Case{"graphs", {.graphs = true}},
        Case{"graphs_evaluation", {.iterations = 90, .graphs = true, .evaluate_every = 40}},
        Case{"graphs_never_read_back",
             {.iterations = 150, .graphs = true, .readback_every = 0},
             100},
        Case{"graphs_accumulation", {.graphs = true, .micro_batches = 8}},
        Case{"graphs_accumulation_2",
             {.iterations = 120, .graphs = true, .readback_every = 0, .micro_batches = 2},
             60},
        Case{"graphs_accumulation_3_evaluation",
             {.iterations = 150, .graphs = true, .micro_batches = 3, .evaluate_every = 20},
             60},
        Case{"graphs_accumulation_never_read_back",
             {.iterations = 120, .graphs = true, .readback_every = 0, .micro_batches = 8},
             60},
        Case{"graphs_accumulation_32",
             {.graphs = true, .readback_every = 50, .micro_batches = 32},
             60},
        Case{"long_recurrent", {.iterations = 45, .shortest = 20, .longest = 340}, 40},
        Case{"long_recurrent_nvtx",
             {.iterations = 45, .shortest = 20, .longest = 340, .nvtx = true},
             40},
        Case{"long_recurrent_first",
             {.iterations = 45, .layers = 2, .shortest = 300, .longest = 340},
             40},
        Case{"long_recurrent_kernel_zero_never_read_back",
             {.iterations = 45,
              .layers = 8,
              .shortest = 20,
              .longest = 340,
              .lengths = 2,
              .zero_grad = ZeroGrad::kKernel,
              .prefetch = true,
              .readback_every = 0},
             40},
        Case{"long_recurrent_accumulation",
             {.iterations = 24, .shortest = 20, .longest = 340, .micro_batches = 4},
             20},
        Case{"long_recurrent_evaluation",
             {.iterations = 60, .shortest = 20, .longest = 340, .evaluate_every = 10},
             40},
        Case{"marks", {.marks = true}}, Case{"framework", {.framework = true}},
        Case{"framework_two_lengths_never_read_back",
             {.lengths = 2, .readback_every = 0, .framework = true}},
        Case{"framework_accumulation",
             {.prefetch = true, .micro_batches = 3, .evaluate_every = 20, .framework = true}},
        Case{"framework_accumulation_32_evaluation_first",
             {.recurrent = false,
              .micro_batches = 32,
              .evaluate_every = 7,
              .evaluate_first = true,
              .framework = true}},
        Case{"framework_two_optimisers", {.two_optimisers = true, .framework = true}},
        Case{"framework_resident", {.resident = true, .readback_every = 0, .framework = true}},
        Case{"framework_graphs_accumulation_2",
             {.graphs = true,
              .prefetch = true,
              .readback_every = 0,
              .micro_batches = 2,
              .framework = true}},
        Case{"framework_no_gpu", {.framework = true, .no_gpu = true}},
        Case{"framework_no_gpu_evaluation",
             {.lengths = 2, .evaluate_every = 5, .framework = true, .no_gpu = true}},
        Case{"framework_no_gpu_accumulation",
             {.micro_batches = 4, .evaluate_every = 9, .framework = true, .no_gpu = true}}),
    [](const auto& info) { return info.param.name; });

TEST(LearnerTest, LengthsThatExplainNothingAreReadAllTheSame) {
  const SyntheticStream stream =
      MakeSyntheticStream({.recurrent = false, .fixed_work = true, .zero_grad = ZeroGrad::kMemset});
  IterationLearner learner;
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  ASSERT_NE(learner.rule(), nullptr);
  EXPECT_FALSE(learner.rule()->lengths.depends);
  // Whether they explain the time is judged anew as the run goes on, by the engine.
  EXPECT_EQ(learner.rule()->length_words, "bytes of the 1st host-to-device copy ÷ 256");
}

// The first marks decide: lengths of sorted batches may grow by the same amount each time.
TEST(LearnerTest, LengthsThatTheProgramTellsMayGrowEvenly) {
  IterationLearner learner;
  for (uint64_t i = 1; i <= 12; ++i) {
    abi::CallRecord mark{};
    mark.op = static_cast<uint8_t>(abi::Op::kMark);
    mark.bytes = 10 * i;
    mark.sequence = i;
    mark.api_ns = 1'000'000 * i;
    learner.AddCall(mark);
  }
  ASSERT_NE(learner.rule(), nullptr);
  EXPECT_EQ(learner.rule()->rule.length_count, 1u);
  EXPECT_NE(learner.rule()->length_words.find("told by the framework mark"), std::string::npos);
}

// As with accumulation of a changing number of micro-batches: how many there are explains a part of
// the time, the sum of their lengths nearly all. No third number is there to pair them with.
TEST(LearnerTest, TheLengthIsWhatExplainsMost) {
  FeatureTable table;
  for (const char* words : {"batch", "length"}) {
    abi::LengthSource source{};
    source.pattern.op = static_cast<uint8_t>(abi::Op::kFeature);
    source.field = static_cast<uint8_t>(abi::LengthField::kNamePayload);
    table.sources.push_back(source);
    table.words.push_back(words);
  }
  for (int64_t row = 0; row < 40; ++row) {
    const int64_t micro_batches = 1 + row * 7 % 5, length = micro_batches * 20 + row * 11 % 30;
    table.values.insert(table.values.end(), {micro_batches, length});
    table.time_ns.push_back(static_cast<double>(length * 100'000 + row % 3 * 200'000));
    table.launched_threads.push_back(0);
    table.launches.push_back(0);
  }
  table.time_source = "host waits";
  const LengthChoice choice = ChooseLengths(table);
  EXPECT_EQ(choice.words, "length");
  EXPECT_GT(choice.explained, 0.95);
}

// Numbers of the samples of a batch, as a framework adapter tells them.
FeatureTable SampleNumbers(double ns_per_token, double ns_per_square) {
  FeatureTable table;
  for (const char* words : {"tokens", "number", "sum", "longest", "sum of squares"}) {
    abi::LengthSource source{};
    source.pattern.op = static_cast<uint8_t>(abi::Op::kFeature);
    source.field = static_cast<uint8_t>(abi::LengthField::kNamePayload);
    table.sources.push_back(source);
    table.words.push_back(words);
  }
  std::mt19937_64 draw(1);
  for (int row = 0; row < 100; ++row) {
    int64_t count = 1 + static_cast<int64_t>(draw() % 9), sum = 0, longest = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t length = 1 + static_cast<int64_t>(draw() % 1'000'000);
      sum += length;
      longest = std::max(longest, length);
      squares += length * length;
    }
    const double noise = 1 + 0.01 * static_cast<double>(draw() % 3);
    table.values.insert(table.values.end(), {sum, count, sum, longest, squares});
    table.time_ns.push_back(noise * (ns_per_token * static_cast<double>(sum) +
                                     ns_per_square * static_cast<double>(squares)));
    table.launched_threads.push_back(0);
    table.launches.push_back(0);
  }
  table.time_source = "host waits";
  return table;
}

TEST(LearnerTest, SumsOfSquaresAreTakenWhereTheyExplain) {
  const LengthChoice squares = ChooseLengths(SampleNumbers(0, 1e-3));
  EXPECT_EQ(squares.words, "sum of squares");
  EXPECT_GT(squares.explained, 0.95);
  const LengthChoice tokens = ChooseLengths(SampleNumbers(1e3, 0));
  EXPECT_EQ(tokens.words, "tokens");
  EXPECT_GT(tokens.explained, 0.95);
}

// The copy of the iteration itself decides how much is launched. `likely`: the lag that is proposed
// first.
FeatureTable CopiesOf(const std::vector<int64_t>& lengths, uint8_t likely) {
  FeatureTable table;
  for (const uint8_t lag : {likely, static_cast<uint8_t>(1 - likely)}) {
    abi::LengthSource source{};
    source.pattern.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
    source.lag = lag;
    table.sources.push_back(source);
    table.words.push_back(lag == 0 ? "this" : "before");
  }
  int64_t before = -1;
  for (const int64_t length : lengths) {
    table.values.push_back(likely == 0 ? length : before);
    table.values.push_back(likely == 0 ? before : length);
    table.time_ns.push_back(0);
    table.launched_threads.push_back(static_cast<double>(1000 * length));
    table.launches.push_back(257);
    before = length;
  }
  return table;
}

// Batches padded to multiples of 128: most of the first iterations have one length.
TEST(LearnerTest, ALengthThatSeldomVariesIsJudgedByWhatIsLaunched) {
  const LengthChoice choice =
      ChooseLengths(CopiesOf({256, 384, 256, 256, 256, 256, 384, 256, 256, 512, 256, 256, 384}, 1));
  EXPECT_EQ(choice.words, "this ÷ 128");
  EXPECT_TRUE(choice.judged);
}

// The one that was longer is too early to be looked at: only the iteration after it has a copy
// before that varies.
TEST(LearnerTest, AGuessTakesTheLikelyCopy) {
  std::vector<int64_t> lengths(14, 256);
  lengths[1] = 384;
  const LengthChoice choice = ChooseLengths(CopiesOf(lengths, 0));
  EXPECT_FALSE(choice.judged);
  EXPECT_EQ(choice.words.substr(0, 4), "this");
}

TEST(LearnerTest, LengthsThatExplainLittleAreWaitedForALittleLonger) {
  for (const bool explained : {true, false}) {
    const SyntheticStream stream = MakeSyntheticStream({.iterations = 100,
                                                        .recurrent = false,
                                                        .fixed_work = !explained,
                                                        .framework = true,
                                                        .no_gpu = true});
    IterationLearner learner;
    size_t published_at = 0;
    Feed(stream, &learner, &published_at);
    ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
    EXPECT_EQ(learner.rule()->lengths.depends, explained);
    EXPECT_GE(learner.rule()->iterations, explained ? 10u : 60u);
    EXPECT_LE(learner.rule()->iterations, explained ? 30u : 80u);
  }
}

TEST(LearnerTest, TimeStepsAndLayersAreNotIterations) {
  // One endless forward pass: as regular as a loop, but nothing of an iteration.
  IterationLearner learner;
  learner.AddName(1, "cell_gemm");
  learner.AddName(2, "cell");
  for (uint32_t i = 0; i < 400; ++i) {
    abi::CallRecord call{};
    call.op = static_cast<uint8_t>(abi::Op::kLaunch);
    call.sequence = i;
    call.api_ns = 4000 * i;
    call.name_id = 1 + i % 2;
    call.grid_x = call.grid_y = call.grid_z = call.block_x = call.block_y = call.block_z = 1;
    learner.AddCall(call);
  }
  EXPECT_EQ(learner.rule(), nullptr);
  EXPECT_NE(learner.Explanation(), "");
}

// `iterations` repeats of some launches: time steps, or iterations of a loop that does nothing but
// launch; something else in each of `others`.
const LearnedRule* FeedLaunches(int iterations, uint32_t launches, const std::set<int>& others,
                                IterationLearner* learner) {
  const uint32_t other = launches + 1;
  for (uint32_t i = 1; i <= other; ++i) learner->AddName(i, "kernel_" + std::to_string(i));
  uint32_t sequence = 0;
  const auto add = [&](uint32_t name_id) {
    abi::CallRecord call{};
    call.op = static_cast<uint8_t>(abi::Op::kLaunch);
    call.sequence = sequence++;
    call.api_ns = 4000 * call.sequence;
    call.name_id = name_id;
    call.grid_x = call.grid_y = call.grid_z = call.block_x = call.block_y = call.block_z = 64;
    learner->AddCall(call);
  };
  for (int iteration = 0; iteration < iterations && learner->rule() == nullptr; ++iteration) {
    for (uint32_t name = 1; name <= launches; ++name) add(name);
    if (others.contains(iteration)) add(other);
  }
  return learner->rule();
}

TEST(LearnerTest, ALoopOfEqualLaunchesIsLearnedLate) {
  IterationLearner few, many;
  EXPECT_EQ(FeedLaunches(8'000, 20, {}, &few), nullptr);
  EXPECT_FALSE(few.Analyse().has_value());
  EXPECT_NE(few.Explanation().find("time steps"), std::string::npos) << few.Explanation();
  const LearnedRule* learned = FeedLaunches(30'000, 20, {}, &many);
  ASSERT_NE(learned, nullptr) << many.Explanation();
  EXPECT_EQ(learned->micro_batches, 1u);
  EXPECT_GE(learned->iterations, 12'000u);
}

TEST(LearnerTest, ALoopOfFewEqualLaunchesIsNeverLearned) {
  IterationLearner learner({.min_launch_only_calls = 1 << 14});
  EXPECT_EQ(FeedLaunches(100'000, 3, {}, &learner), nullptr);
  EXPECT_NE(learner.Explanation().find("seqpoint_iteration_begin"), std::string::npos)
      << learner.Explanation();
}

TEST(LearnerTest, LaunchesWithSomethingRareAroundThemAreLearnedLater) {
  const LearnerOptions options{.min_launch_only_calls = 1 << 14,
                               .min_launch_only_calls_unsure = 100'000};
  IterationLearner sure(options), few(options), many(options);
  EXPECT_NE(FeedLaunches(4'500, 20, {}, &sure), nullptr) << sure.Explanation();
  EXPECT_EQ(FeedLaunches(4'500, 20, {300, 1'800}, &few), nullptr);
  EXPECT_NE(FeedLaunches(12'000, 20, {300, 1'800}, &many), nullptr) << many.Explanation();
}

TEST(LearnerTest, IterationsOnResidentDataAreLearnedByTheirLengths) {
  for (const bool nvtx : {false, true}) {
    const SyntheticStream stream = MakeSyntheticStream({.iterations = 400,
                                                        .longest = 80,
                                                        .zero_grad = ZeroGrad::kNone,
                                                        .resident = true,
                                                        .readback_every = 0,
                                                        .nvtx = nvtx});
    IterationLearner learner;
    size_t published_at = 0;
    Feed(stream, &learner, &published_at);
    ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
    // The last one may be complete only when the next begins.
    EXPECT_NEAR(Match(stream, learner.rule()->rule).size(), stream.iterations.size(), 1);
  }
}

TEST(LearnerTest, LearnsBehindAHole) {
  // Behind a hole it is not known how training began: it takes longer until these are no
  // micro-batches for sure.
  SyntheticStream stream = MakeSyntheticStream({.iterations = 120});
  // Calls 3000 to 3099 were lost.
  stream.calls.erase(stream.calls.begin() + 3000, stream.calls.begin() + 3100);
  IterationLearner learner;
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  ASSERT_NE(learner.rule(), nullptr) << learner.Explanation();
  EXPECT_EQ(learner.stream().holes(), 100u);
}

TEST(LearnerTest, MemoryStaysBounded) {
  const SyntheticStream stream = MakeSyntheticStream({.iterations = 40});
  IterationLearner learner({.max_calls = 2000});
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  EXPECT_LT(learner.stream().size(), 2000u);
}

TEST(LearnerTest, RestartForgetsTheRuleAndKeepsNames) {
  const SyntheticStream stream = MakeSyntheticStream({});
  IterationLearner learner;
  size_t published_at = 0;
  Feed(stream, &learner, &published_at);
  ASSERT_NE(learner.rule(), nullptr);
  learner.Restart();
  EXPECT_EQ(learner.rule(), nullptr);
  EXPECT_EQ(learner.stream().size(), 0u);
  EXPECT_EQ(learner.stream().names().Get(1).text, stream.names[1]);
}

}  // namespace
}  // namespace seqpoint::iterations
