#include "daemon/placement/measured_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/placement/judge.h"
#include "tests/support/recorded_operators.h"

namespace seqpoint::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr DevicesAsked kTwo = {.accelerators = 2, .memory_bytes = 1e9, .bytes_per_second = 1e9};

MeasuredRun Measure(std::vector<Recording> recordings, DevicesAsked devices = kTwo) {
  auto run = MakeMeasuredRun(recordings, devices);
  if (!run.ok()) {
    ADD_FAILURE() << run.status();
    return {};
  }
  return *std::move(run);
}

std::string ErrorOf(std::vector<Recording> recordings, DevicesAsked devices = kTwo) {
  return std::string(MakeMeasuredRun(recordings, devices).status().message());
}

std::vector<std::string> EdgesOf(const Problem& problem) {
  std::vector<std::string> edges;
  for (const Edge& edge : problem.edges) {
    edges.push_back(
        absl::StrCat(problem.operators[edge.from].name, "->", problem.operators[edge.to].name));
  }
  return edges;
}

const Operator& Find(const Problem& problem, const std::string& name) {
  for (const Operator& op : problem.operators) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no " << name;
  static const Operator none;
  return none;
}

TEST(MeasuredProblemTest, AnOperatorNeedsWhoMadeItsInputs) {
  TestRecording r;
  r.Op("a", {}, {{1}}).Op("b", {{1}}, {{2}}).Op("c", {{1}, {2}}, {{3}});
  EXPECT_THAT(EdgesOf(Measure({r.recording()}).problems[0].problem),
              UnorderedElementsAre("a->b", "a->c", "b->c"));
}

TEST(MeasuredProblemTest, WhoReadsAViewNeedsTheViewAndAfterAWriteTheWriter) {
  TestRecording r;
  r.Op("make", {}, {{1, 256, 10}})
      .Op("view", {{1, 256, 10}}, {{1, 128, 11}})
      .Op("read", {{1, 128, 11}}, {{2}})
      .Op("write", {{1, 256, 10}}, {{1, 256, 10}}, {.schema = "write(Tensor(a!) self) -> ()"})
      .Op("last", {{1, 128, 11}}, {{3}});
  EXPECT_THAT(EdgesOf(Measure({r.recording()}).problems[0].problem),
              UnorderedElementsAre("make->view", "view->read", "make->write", "write->last"));
}

TEST(MeasuredProblemTest, MemoryThatIsGivenOutAgainConnectsNobody) {
  TestRecording r;
  r.Op("a", {}, {{1}}).Op("b", {{1}}, {{2}}).Op("again", {}, {{1}}).Op("c", {{1}}, {{3}});
  EXPECT_THAT(EdgesOf(Measure({r.recording()}).problems[0].problem),
              UnorderedElementsAre("a->b", "again->c"));
  // Neither does memory that an operator uses only inside, at an address that was another one's.
  TestRecording inside;
  inside.Op("a", {}, {{1}})
      .Op("b", {{1}}, {{2}})
      .Begin("c", {{2}}, {{3}}, {})
      .Op("copy", {{1}, {2}}, {{1}}, {.schema = "copy(Tensor(a!) self, Tensor b) -> Tensor(a!)"})
      .Op("add", {{1}}, {{3}})
      .End();
  EXPECT_THAT(EdgesOf(Measure({inside.recording()}).problems[0].problem),
              UnorderedElementsAre("a->b", "b->c"));
}

// A linear layer of 1,000 elements, its loss, the backward pass and an optimizer with one tensor of
// state.
TestRecording Training() {
  TestRecording r("length 8");
  const TestTensor weight = {50, 1000}, state = {51, 1000};
  r.Op("linear", {{1}, weight}, {{2}},
       {.us = 100, .sequence = 7, .schema = "linear(T x, T w) -> T"})
      .Op("relu", {{2}}, {{3}}, {.us = 20, .sequence = 8})
      .Backward("ReluBackward0", 8, {{3}}, {{4}}, 30)
      .Backward("LinearBackward0", 7, {{4}, {1}}, {{52, 1000}}, 200)
      .Begin("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", {}, {},
             {.us = 0, .schema = ""})
      .Op("aten::detach", {{52, 1000}}, {{52, 1000}}, {.us = 5})
      .End()
      .BeginStep()
      .Op("mul_", {state}, {state}, {.us = 7, .schema = "mul_(Tensor(a!) self) -> Tensor(a!)"})
      .Op("add_", {state, {52, 1000}}, {state},
          {.us = 8, .schema = "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"})
      .Op("add_", {weight, state}, {weight},
          {.us = 9, .schema = "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"})
      .End();
  return r;
}

TEST(MeasuredProblemTest, ForwardAndBackwardOperatorsAreTwins) {
  const MeasuredRun run = Measure({Training().recording()});
  const Problem& problem = run.problems[0].problem;
  ASSERT_EQ(problem.operators.size(), 5U);  // the optimizer's are none
  const Operator& linear = Find(problem, "linear");
  const Operator& relu = Find(problem, "relu");
  EXPECT_FALSE(linear.backward);
  EXPECT_TRUE(Find(problem, "LinearBackward0").backward);
  EXPECT_EQ(Find(problem, "LinearBackward0").color, linear.color);
  EXPECT_EQ(Find(problem, "ReluBackward0").color, relu.color);
  EXPECT_NE(linear.color, relu.color);
  // The gradient is kept where the parameter is.
  EXPECT_EQ(Find(problem, "torch::autograd::AccumulateGrad").color, linear.color);
}

TEST(MeasuredProblemTest, TheOptimizersStepIsChargedToItsParameters) {
  const MeasuredRun run = Measure({Training().recording()});
  const Problem& problem = run.problems[0].problem;
  EXPECT_DOUBLE_EQ(run.recordings[0].update, 0.024);
  EXPECT_DOUBLE_EQ(Find(problem, "torch::autograd::AccumulateGrad").cpu_time, 0.005 + 0.024);
  // Parameter, gradient and state; beside them its input, kept for the backward pass, is nobody's:
  // no operator of the iteration made it.
  EXPECT_DOUBLE_EQ(Find(problem, "linear").memory_bytes, 3 * 4000);
  EXPECT_DOUBLE_EQ(Find(problem, "relu").memory_bytes, 256 * 4);  // read by its backward node
}

TEST(MeasuredProblemTest, AnOptimizerOfListsIsChargedByTheBytesOfEachParameter) {
  TestRecording r;
  r.Op("small", {{1}, {50, 100}}, {{2}}, {.sequence = 1})
      .Op("large", {{2}, {51, 300}}, {{3}}, {.sequence = 2})
      .Backward("LargeBackward0", 2, {{3}}, {{4}})
      .Backward("SmallBackward0", 1, {{4}}, {{5}})
      .BeginStep();
  TestRecording::Options options = {
      .us = 40, .schema = "_foreach_add_(Tensor(a!)[] self, Tensor[] other) -> ()"};
  r.Begin("_foreach_add_", {}, {}, options);
  std::vector<traces::TensorUse>& uses = r.recording().graph.uses;
  traces::ExecutedOperator& op = r.recording().graph.operators.back();
  for (const uint32_t argument : {0U, 1U}) {
    for (const uint32_t element : {0U, 1U}) {
      uses.push_back({.tensor = 900 + argument * 2 + element,
                      .storage = 50 + argument * 20 + element,
                      .elements = element == 0 ? 100U : 300U,
                      .item_bytes = 4,
                      .argument = argument,
                      .element = element});
    }
  }
  op.inputs = 4;
  r.End().End();
  const Problem problem = Measure({r.recording()}).problems[0].problem;
  EXPECT_DOUBLE_EQ(Find(problem, "SmallBackward0").cpu_time, 0.010 + 0.040 / 4);
  EXPECT_DOUBLE_EQ(Find(problem, "LargeBackward0").cpu_time, 0.010 + 0.040 * 3 / 4);
}

// DistributedDataParallel keeps gradients side by side in one allocation.
TEST(MeasuredProblemTest, GradientsThatShareTheirMemoryAreCountedOnceEach) {
  TestRecording r;
  r.Op("small", {{1}, {50, 100}}, {{2}}, {.sequence = 1})
      .Op("large", {{2}, {51, 300}}, {{3}}, {.sequence = 2})
      .Backward("LargeBackward0", 2, {{3}}, {})
      .Backward("SmallBackward0", 1, {{3}}, {})
      .BeginStep();
  const TestRecording::Options in_place = {.schema =
                                               "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"};
  for (int i = 0; i < 2; ++i) {
    r.Op("add_", {{50, 100}, {70, 100, 81}}, {{50, 100}}, in_place);
    r.Op("add_", {{51, 300}, {70, 300, 82}}, {{51, 300}}, in_place);
  }
  r.End();
  for (traces::TensorUse& use : r.recording().graph.uses) {
    if (use.tensor == 82) use.offset = 100;
  }
  const Problem problem = Measure({r.recording()}).problems[0].problem;
  double bytes = 0;
  for (const Operator& op : problem.operators) bytes += op.memory_bytes;
  EXPECT_DOUBLE_EQ(bytes, 2 * 400 * 4 + 256 * 4);  // and what {3}'s maker keeps for backward
}

TEST(MeasuredProblemTest, TheLoadsAddUpToTheIteration) {
  TestRecording r;
  r.Op("a", {}, {{1}}, {.us = 100})
      .Begin("b", {{1}}, {{2}}, {.us = 30, .gap_us = 50})
      .Op("inner", {{1}}, {{2}}, {.us = 60})
      .End()
      .Op("c", {{2}}, {{3}}, {.us = 10, .gap_us = 5});
  const MeasuredRun run = Measure({r.recording()});
  const Problem& problem = run.problems[0].problem;
  ASSERT_EQ(problem.operators.size(), 3U);
  EXPECT_DOUBLE_EQ(Find(problem, "b").cpu_time, 0.140);  // with the time before it
  EXPECT_DOUBLE_EQ(run.recordings[0].iteration, 0.255);
  EXPECT_DOUBLE_EQ(run.recordings[0].loads, 0.255);
  EXPECT_DOUBLE_EQ(run.recordings[0].between, 0.055);
  EXPECT_FALSE(run.gpu_times);
  const Judgement judgement = Judge(problem, {0, 0, 0});
  EXPECT_DOUBLE_EQ(judgement.max_load, 0.255);
}

TEST(MeasuredProblemTest, AnOutputIsMovedOnceInItsBytes) {
  TestRecording r;
  r.Op("a", {}, {{1, 1000}, {2, 500}, {3, 9999}})
      .Op("b", {{1, 1000}}, {{4}})
      .Op("c", {{1, 1000}, {2, 500}}, {{5}});
  const Problem problem = Measure({r.recording()}).problems[0].problem;
  // 6,000 bytes at 1 GB/s; nobody reads the third output.
  EXPECT_DOUBLE_EQ(Find(problem, "a").transfer_time, 0.006);
  EXPECT_DOUBLE_EQ(Find(problem, "c").transfer_time, 0);
}

TEST(MeasuredProblemTest, WhatOnlyItsTwinNeedsIsNotMoved) {
  TestRecording r;
  r.Op("a", {{7}}, {{1, 1000}, {2, 500}}, {.sequence = 4})
      .Op("b", {{1, 1000}}, {{3}}, {.sequence = 5})
      .Backward("BBackward0", 5, {{3}}, {{4}})
      .Backward("ABackward0", 4, {{4}, {2, 500}}, {{5}});
  const Problem problem = Measure({r.recording()}).problems[0].problem;
  EXPECT_DOUBLE_EQ(Find(problem, "a").transfer_time, 0.004);
  // It is kept for the backward pass all the same.
  EXPECT_DOUBLE_EQ(Find(problem, "a").memory_bytes, 2000);
}

TEST(MeasuredProblemTest, AnUpdateByHandIsAnUpdate) {
  TestRecording r;
  const TestTensor weight = {50, 1000};
  r.Op("linear", {{1}, weight}, {{2}}, {.sequence = 7})
      .Backward("LinearBackward0", 7, {{2}, {1}}, {{52, 1000}})
      .Op("add_", {weight, {52, 1000}}, {weight},
          {.us = 9, .schema = "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"});
  const MeasuredRun run = Measure({r.recording()});
  EXPECT_DOUBLE_EQ(run.recordings[0].update, 0.009);
  EXPECT_EQ(run.problems[0].problem.operators.size(), 2U);
  EXPECT_DOUBLE_EQ(Find(run.problems[0].problem, "linear").memory_bytes, 2 * 4000 + 256 * 4);
}

// Numbers become tensors whose allocation is not recorded, here where a gradient was before.
TEST(MeasuredProblemTest, ANumberAtAnOldAddressIsNotWhatWasThere) {
  TestRecording r;
  r.Op("first", {{1}, {50, 100}}, {{2}}, {.sequence = 7})
      .Backward("FirstBackward0", 7, {{2}}, {{60}})
      .Op("div", {{3}, {60, 1, 777}}, {{4}}, {.sequence = 8})
      .Op("second", {{4}, {50, 100}}, {{5}}, {.sequence = 9})
      .Backward("SecondBackward0", 9, {{5}}, {{61}});
  const MeasuredRun run = Measure({r.recording()});
  EXPECT_DOUBLE_EQ(run.recordings[0].update, 0);
  EXPECT_EQ(run.problems[0].problem.operators.size(), 5U);
}

TEST(MeasuredProblemTest, TwoIterationsInOneGraphAreRefused) {
  TestRecording r;
  for (int i = 0; i < 2; ++i) {
    r.Op("linear", {{1}, {50, 100}}, {{2}}, {.sequence = 7 + i})
        .Backward("LinearBackward0", 7 + i, {{2}}, {{52, 100}})
        .Op("add_", {{50, 100}, {52, 100}}, {{50, 100}},
            {.schema = "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)"});
  }
  EXPECT_THAT(ErrorOf({r.recording()}), HasSubstr("record a single iteration"));
}

TEST(MeasuredProblemTest, TimesOfAnotherIterationAreJoinedByOrderAndName) {
  TestRecording r;
  r.Op("a", {}, {{1}}, {.us = 100}).Begin("b", {{1}}, {{2}}, {.us = 30});
  r.Op("b", {{1}}, {{2}}, {.us = 5}).End().Op("c", {{2}}, {{3}}, {.us = 10});
  for (int i = 0; i < 100; ++i) r.Op(absl::StrCat("d", i), {}, {});
  // PyTorch's own list leaves out operators of their caller's name.
  Recording& recording = r.recording();
  recording.times.spans.erase(recording.times.spans.begin() + 2);
  const MeasuredRun run = Measure({recording});
  EXPECT_FALSE(run.recordings[0].joined_by_id);
  EXPECT_EQ(run.recordings[0].without_time, 0);
  EXPECT_DOUBLE_EQ(Find(run.problems[0].problem, "b").cpu_time, 0.035);
  EXPECT_DOUBLE_EQ(Find(run.problems[0].problem, "c").cpu_time, 0.010);
}

TEST(MeasuredProblemTest, IdsJoinWhereBothHaveThem) {
  TestRecording r;
  r.Op("a", {}, {{1}}, {.us = 100}).Op("a", {{1}}, {{2}}, {.us = 30});
  Recording recording = r.recording();
  std::swap(recording.times.spans[0], recording.times.spans[1]);
  recording.times.spans[0].record_function = 2;
  recording.times.spans[1].record_function = 1;
  // The time line also has the iterations before and after.
  for (int i = 0; i < 5; ++i) recording.times.spans.push_back(recording.times.spans[0]);
  for (int i = 2; i < 7; ++i) recording.times.spans[i].record_function = 100 + i;
  const MeasuredRun run = Measure({recording});
  EXPECT_TRUE(run.recordings[0].joined_by_id);
  EXPECT_DOUBLE_EQ(run.problems[0].problem.operators[0].cpu_time, 0.100);
}

TEST(MeasuredProblemTest, TimesOfAnotherProgramAreRefused) {
  TestRecording r;
  for (int i = 0; i < 10; ++i) r.Op(absl::StrCat("op", i), {}, {});
  Recording other = r.recording();
  for (int i = 5; i < 10; ++i) other.times.names[other.times.spans[i].name] = "else";
  EXPECT_THAT(ErrorOf({other}), HasSubstr("5 of 10 operators of r.et.json are not in it, the first "
                                          "is op5 (node 8); record both in iterations of the same "
                                          "length"));
  Recording twice = r.recording();
  for (int i = 0; i < 10; ++i) twice.times.spans.push_back(twice.times.spans[i]);
  EXPECT_THAT(ErrorOf({twice}), HasSubstr("has 20 operators, the execution trace 10"));
}

TEST(MeasuredProblemTest, OnAGpuAnOperatorTakesWhatItLaunches) {
  TestRecording r;
  r.Op("a", {}, {{1}}, {.us = 10, .gpu_us = 300}).Begin("b", {{1}}, {{2}}, {.us = 5});
  r.Op("inner", {{1}}, {{2}}, {.us = 10, .gpu_us = 200}).End();
  r.Op("view", {{2}}, {{2, 128, 77}});
  r.AddWork(1000, trace::WorkKind::kCopyH2D, 4'000'000);  // 4 GB/s, by no operator
  DevicesAsked devices = kTwo;
  devices.bytes_per_second.reset();
  const MeasuredRun run = Measure({r.recording()}, devices);
  EXPECT_TRUE(run.gpu_times);
  const Problem& problem = run.problems[0].problem;
  EXPECT_DOUBLE_EQ(Find(problem, "a").accelerator_time, 0.300);
  EXPECT_DOUBLE_EQ(Find(problem, "b").accelerator_time, 0.200);
  EXPECT_DOUBLE_EQ(Find(problem, "view").accelerator_time, 0);
  EXPECT_TRUE(run.bandwidth_measured);
  EXPECT_DOUBLE_EQ(run.bytes_per_second, 4e9);
  EXPECT_DOUBLE_EQ(run.recordings[0].without_operator, 1.0);
  // The CPU's time of such an operator is that of the launch.
  devices.cpus = 1;
  EXPECT_THAT(ErrorOf({r.recording()}, devices), HasSubstr("ask for 0 CPU cores"));
}

TEST(MeasuredProblemTest, CompiledKernelsAreRefused) {
  TestRecording r;
  r.Op("triton_poi_fused_0", {}, {});
  r.recording().graph.operators[0].compiled = true;
  EXPECT_THAT(ErrorOf({r.recording()}), HasSubstr("record the model without torch.compile"));
}

// An encoder (a parameter), `steps` steps of a cell (a parameter) with an activation between them,
// and an output layer (a parameter) for each step.
Recording Recurrence(int steps, double weight = 1) {
  TestRecording r(absl::StrCat("length ", steps), weight);
  const auto weights = [](uint64_t storage) { return TestTensor{storage, storage * 10}; };
  const std::string schema = "f(Tensor x, Tensor weight, Tensor h) -> Tensor";
  r.Op("encode", {{1}, weights(50)}, {{100}}, {.us = 10 * steps, .sequence = 0, .schema = schema});
  uint64_t h = 100;
  for (int t = 0; t < steps; ++t, h += 10) {
    r.Op("cell", {{100}, weights(51), {h}}, {{h + 5}}, {.sequence = 3 * t + 1, .schema = schema});
    r.Op("tanh", {{h + 5}}, {{h + 10}}, {.sequence = 3 * t + 2});
    r.Op("out", {{h + 10}, weights(52)}, {{h + 6}}, {.sequence = 3 * t + 3, .schema = schema});
  }
  for (int t = steps - 1; t >= 0; --t, h -= 10) {
    r.Backward("OutBackward0", 3 * t + 3, {{h - 4}}, {{h + 1007}});
    r.Backward("TanhBackward0", 3 * t + 2, {{h + 1007}, {h + 1018}}, {{h + 1009}});
    r.Backward("CellBackward0", 3 * t + 1, {{h + 1009}}, {{h + 1008}}, 20);
  }
  r.Backward("EncodeBackward0", 0, {{h + 1018}}, {{2000}});
  return r.recording();
}

TEST(MeasuredProblemTest, LengthsOfARecurrenceHaveOneGraph) {
  const MeasuredRun run = Measure({Recurrence(3), Recurrence(7, 3)});
  EXPECT_TRUE(run.folded);
  ASSERT_EQ(run.problems.size(), 2U);
  const Problem& at3 = run.problems[0].problem;
  const Problem& at7 = run.problems[1].problem;
  ASSERT_EQ(at3.operators.size(), at7.operators.size());
  const Operator* cell3 = nullptr;
  for (size_t i = 0; i < at3.operators.size(); ++i) {
    EXPECT_EQ(at3.operators[i].name, at7.operators[i].name);
    if (at3.operators[i].name.starts_with("cell")) cell3 = &at3.operators[i];
  }
  // All steps of the cell are one operator; activations between steps are in the circle, too.
  ASSERT_NE(cell3, nullptr);
  const size_t cell = cell3 - at3.operators.data();
  EXPECT_NEAR(cell3->cpu_time, 3 * 0.010 + 2 * 0.010, 1e-12);
  EXPECT_NEAR(at7.operators[cell].cpu_time, 7 * 0.010 + 6 * 0.010, 1e-12);
  for (size_t r = 0; r < 2; ++r) {
    double loads = 0;
    for (const Operator& op : run.problems[r].problem.operators) loads += op.cpu_time;
    EXPECT_NEAR(loads, run.recordings[r].iteration, 1e-9);
  }
  EXPECT_THAT(Judge(at7, Placement(at7.operators.size(), 0)).violations, IsEmpty());
}

TEST(MeasuredProblemTest, OneLengthKeepsEveryOperator) {
  const MeasuredRun run = Measure({Recurrence(3)});
  EXPECT_FALSE(run.folded);
  EXPECT_EQ(run.problems[0].problem.operators.size(), 1U + 9 + 9 + 1);
  EXPECT_THAT(run.trace_ids[0], ElementsAre(3));
  // Steps share their parameter: they sit together.
  std::vector<int64_t> colors;
  for (const Operator& op : run.problems[0].problem.operators) {
    if (op.name == "cell") colors.push_back(op.color.value_or(-1));
  }
  EXPECT_EQ(colors, std::vector<int64_t>(3, colors[0]));
}

TEST(MeasuredProblemTest, OperatorsThatAreTheSameAtEachLengthStayApart) {
  Recording longer = Recurrence(3);
  longer.name = "longer";
  for (trace::Span& span : longer.times.spans) {
    span.begin_ns *= 2;
    span.end_ns *= 2;
  }
  const MeasuredRun run = Measure({Recurrence(3), longer});
  EXPECT_FALSE(run.folded);
  EXPECT_NEAR(run.problems[1].problem.operators[0].cpu_time,
              2 * run.problems[0].problem.operators[0].cpu_time, 1e-12);
}

TEST(MeasuredProblemTest, OtherModelsAreRefused) {
  Recording other = Recurrence(4);
  other.name = "other";
  for (traces::TensorUse& use : other.graph.uses) {
    if (use.storage == 51) use.elements = 77;
  }
  EXPECT_THAT(ErrorOf({Recurrence(3), other}),
              HasSubstr("length 3 and other are of different models: parameter 2 has 510 and 77"));
  EXPECT_THAT(ErrorOf({Recurrence(3), Training().recording()}), HasSubstr("parameters"));
  EXPECT_THAT(ErrorOf({}), HasSubstr("no recording"));
}

}  // namespace
}  // namespace seqpoint::placement
