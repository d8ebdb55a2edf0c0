#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "daemon/whatif/graph.h"
#include "tests/support/small_graph.h"

namespace seqpoint::whatif {
namespace {

// Phases of the launches, in order, by their letters: "ffbbo?"; x: other.
std::string Phases(const Graph& graph) {
  std::string phases;
  for (const CpuTask& task : graph.cpu) {
    if (task.first_work == kNone) continue;
    phases += task.phase == Phase::kUnknown ? '?'
              : task.phase == Phase::kOther ? 'x'
                                            : *PhaseName(task.phase);
  }
  return phases;
}

// Five launches and more are a thread's turn.
void Turn(TestTrace* t, uint32_t thread, double begin_us, int calls = 5) {
  t->On(thread);
  for (int i = 0; i < calls; ++i) {
    const double at = begin_us + 10 * i;
    t->Launch(at, at + 4, "kernel", at + 6, at + 9);
  }
}

TEST(PhasesTest, NamesAreReadAgain) {
  for (const Phase phase : {Phase::kUnknown, Phase::kForward, Phase::kBackward, Phase::kOptimizer,
                            Phase::kLoading, Phase::kOther}) {
    EXPECT_EQ(PhaseOf(PhaseName(phase)), phase);
  }
  EXPECT_FALSE(PhaseOf("forwards").has_value());
}

TEST(PhasesTest, TheInnermostAnnotationThatSaysItCounts) {
  TestTrace t;
  const auto launch = [&](double at, const std::vector<std::string>& annotations) {
    for (size_t i = 0; i < annotations.size(); ++i) {
      t.Annotation(at + static_cast<double>(i) * 0.1, at + 8, annotations[i]);
    }
    t.Launch(at + 1, at + 2, "kernel", at + 4, at + 6);
  };
  launch(0, {"ProfilerStep#1", "## forward ##", "linear"});
  launch(10, {"## backward ##"});
  launch(20, {"Optimizer.step#SGD.step"});
  launch(30, {"enumerate(DataLoader)#next"});
  launch(40, {"## forward ##", "Optimizer.zero_grad#SGD"});
  launch(50, {"forward_backward"});  // one of both
  launch(60, {"attention"});
  EXPECT_EQ(Phases(t.Graph()), "fbolo??");
}

TEST(PhasesTest, OperatorsOfAutogradAndItsThreadAreBackward) {
  TestTrace t;
  t.Operator(0, 40, "autograd::engine::evaluate_function: MmBackward0");
  t.Launch(1, 4, "on the main thread", 6, 9);
  t.Launch(50, 54, "after", 56, 59);
  t.On(1).Operator(100, 180, "AddmmBackward0");
  Turn(&t, 1, 101);
  EXPECT_EQ(Phases(t.Graph()), "b?bbbbb");
  TestTrace named;
  named.trace().threads[1] = "thread 7 (pt_autograd_0)";
  Turn(&named, 0, 0);
  Turn(&named, 1, 100);
  EXPECT_EQ(Phases(named.Graph()), "?????bbbbb");
}

// Forward on the main thread, backward on another one, and the optimiser.
TestTrace TwoIterations(const std::string& optimizer) {
  TestTrace t;
  for (int i = 0; i < 2; ++i) {
    const double at = 1000 * i;
    t.On(0).Api(at, at + 1, "cudaMemcpyAsync", CallKind::kCopy);
    t.Run("Memcpy HtoD", at + 3, at + 4, WorkKind::kCopyH2D);
    Turn(&t, 0, at + 10);
    Turn(&t, 1, at + 100);
    t.On(0).Launch(at + 200, at + 204, "clip", at + 206, at + 209);
    if (!optimizer.empty()) t.Annotation(at + 300, at + 400, optimizer);
    Turn(&t, 0, at + 310);
  }
  return t;
}

TEST(PhasesTest, ThreadsThatHandOverTellForwardAndBackward) {
  // Nothing says where the first forward pass began.
  EXPECT_EQ(Phases(TwoIterations("Optimizer.step#SGD.step").Graph()),
            "??????bbbbbxooooo"
            "?fffffbbbbbxooooo");
  EXPECT_EQ(Phases(TwoIterations("").Graph()), std::string(34, '?'));
  // With operators autograd's would be among them.
  TestTrace t = TwoIterations("Optimizer.step#SGD.step");
  t.Operator(0, 5, "aten::mm");
  const std::string phases = Phases(t.Graph());
  EXPECT_EQ(phases.find('b'), std::string::npos) << phases;
  EXPECT_EQ(phases.find('f'), std::string::npos) << phases;
}

TEST(PhasesTest, AProfilerStepBeginsAnIteration) {
  TestTrace t = TwoIterations("Optimizer.step#SGD.step");
  t.Annotation(0, 999, "ProfilerStep#1");
  EXPECT_EQ(Phases(t.Graph()).substr(0, 11), "?fffffbbbbb");
}

TEST(PhasesTest, GapsBetweenCallsOfAPhaseAreOfIt) {
  const Graph graph = TwoIterations("Optimizer.step#SGD.step").Graph();
  int64_t forward_ns = 0;
  for (const CpuTask& task : graph.cpu) {
    if (task.kind != CpuKind::kGap || task.phase != Phase::kForward) continue;
    forward_ns += task.duration_ns;
  }
  EXPECT_EQ(forward_ns, 4 * 6000);
}

}  // namespace
}  // namespace seqpoint::whatif
