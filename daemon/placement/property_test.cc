// Every method against every placement there is, on small random problems. Only the judge tells
// what a placement is worth, to both sides.
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "daemon/placement/bound.h"
#include "daemon/placement/exact.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/latency.h"
#include "daemon/placement/linear.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/proof.h"
#include "daemon/placement/search.h"
#include "tests/support/placement_problem.h"

namespace seqpoint::placement {
namespace {

// Four to seven operators; colors, memory that binds, unsupported operators, training twins and
// backward operators without a twin come and go.
class RandomProblem {
 public:
  explicit RandomProblem(uint64_t seed) : random_(seed) {}

  Problem Make() {
    Problem problem;
    problem.accelerators = 1 + Below(3);
    problem.cpus = Below(3);
    const int count = 4 + Below(4);
    const bool training = Below(3) == 0;
    const int forward = training ? (count + 1) / 2 : count;
    for (int i = 0; i < count; ++i) problem.operators.push_back(MakeOperator(i * 3 + 1));
    for (int i = 0; i < forward; ++i) {
      for (int j = i + 1; j < forward; ++j) {
        if (Below(5) < 2) problem.edges.push_back({i, j});
      }
    }
    for (int i = forward; i < count; ++i) {
      problem.operators[i].backward = true;
      const int twin = count - 1 - i;  // the last forward operator comes back first
      if (Below(6) > 0) {
        problem.operators[i].color = twin;
        problem.operators[twin].color = twin;
      }
      problem.edges.push_back({twin, i});
      for (int j = i + 1; j < count; ++j) {
        if (Below(2) == 0) problem.edges.push_back({i, j});
      }
    }
    if (!training && Below(3) == 0) {
      const int a = Below(count), b = Below(count);
      problem.operators[a].color = 77;
      problem.operators[b].color = 77;
    }
    problem.memory_bytes = Below(2) == 0 ? 1e9 : 12 + Below(30);
    return problem;
  }

 private:
  Operator MakeOperator(int id) {
    Operator op;
    op.id = id;
    op.accelerator_supported = Below(8) > 0;
    op.accelerator_time = Below(5) == 0 ? 0 : Below(1000) / 64.0;
    op.cpu_time = op.accelerator_time * (1 + Below(8));
    op.memory_bytes = Below(12);
    op.transfer_time = Below(4) == 0 ? 0 : Below(256) / 64.0;
    return op;
  }
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  std::mt19937_64 random_;
};

// Some of the times are so large that a sum with them loses the others: people write them for what
// is not to happen.
Problem WithTimesFarApart(Problem problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (Operator& op : problem.operators) {
    for (double* time : {&op.accelerator_time, &op.cpu_time, &op.transfer_time}) {
      const bool often = time == &op.transfer_time;
      if (random() % (often ? 3 : 8) == 0) *time = 1e16 * static_cast<double>(1 + random() % 4);
    }
  }
  return problem;
}

struct Best {
  double contiguous = kInfinity;  // largest load
  double any = kInfinity;
  double latency = kInfinity;  // of one sample, in one piece (two in training) per accelerator
};

// Devices of a kind are alike: one placement is judged for all that differ by their numbers alone.
bool IsNumberedInOrder(const Problem& problem, const Placement& placement) {
  int next_accelerator = 0, next_cpu = problem.accelerators;
  for (int device : placement) {
    int& next = device < problem.accelerators ? next_accelerator : next_cpu;
    if (device > next) return false;
    if (device == next) ++next;
  }
  return true;
}

Best OfAllPlacements(const Problem& problem) {
  Best best;
  std::vector<int> pieces;
  for (const Operator& op : problem.operators) pieces.push_back(op.backward);
  Placement placement(problem.operators.size(), 0);
  const auto judge = [&] {
    const Judgement judgement = Judge(problem, placement);
    if (!judgement.violations.empty()) return;
    best.any = std::min(best.any, judgement.max_load);
    if (judgement.contiguous) best.contiguous = std::min(best.contiguous, judgement.max_load);
    best.latency = std::min(best.latency, Latency(problem, placement, &pieces));
  };
  while (true) {
    if (IsNumberedInOrder(problem, placement)) judge();
    size_t i = 0;
    while (i < placement.size() && ++placement[i] == problem.devices()) placement[i++] = 0;
    if (i == placement.size()) return best;
  }
}

class EveryPlacement : public testing::TestWithParam<int> {
 protected:
  static constexpr int kProblems = 400;
  static constexpr int kFew = 20;  // of methods that take a tenth of a second

  // The first `problems` of this parameter's.
  template <typename Check>
  void ForEach(int problems, const Check& check) {
    for (int i = 0; i < problems; ++i) {
      const uint64_t seed = GetParam() * kProblems + i;
      Problem problem = RandomProblem(seed).Make();
      ASSERT_TRUE(CheckProblem("random", &problem).ok());
      SCOPED_TRACE(absl::StrCat("problem ", seed, ": ", WriteProblem(problem)));
      check(problem, OfAllPlacements(problem));
      if (HasFailure()) return;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Random, EveryPlacement, testing::Range(0, 10));

// Else the tests below would say little.
TEST_P(EveryPlacement, TheProblemsAreOfAllKinds) {
  int without_answer = 0, contiguity_costs = 0, answers = 0;
  ForEach(kProblems, [&](const Problem& problem, const Best& best) {
    without_answer += best.any == kInfinity;
    contiguity_costs += best.any < best.contiguous;
    answers += best.contiguous < kInfinity;
  });
  EXPECT_GT(without_answer, kProblems / 50);
  EXPECT_GT(contiguity_costs, kProblems / 20);
  EXPECT_GT(answers, kProblems / 2);
}

TEST_P(EveryPlacement, NoneIsBetterThanTheExactMethods) {
  ForEach(kProblems, [](const Problem& problem, const Best& best) {
    const ClassGraph graph = ContiguousClasses(problem);
    const auto ideals = Ideals::List(graph.predecessors, 1000, nullptr);
    ASSERT_TRUE(ideals.has_value());
    const double bound = LoadBound(graph);
    EXPECT_LE(bound, best.contiguous);
    EXPECT_LE(LoadBound(ColorClasses(problem)), best.any);
    const Stages stages = BestStages(graph, *ideals, bound, kInfinity, {});
    ASSERT_EQ(stages.device.empty(), best.contiguous == kInfinity);
    if (stages.device.empty()) return;
    const Judgement judgement = Judge(problem, ToPlacement(graph, stages.device));
    EXPECT_TRUE(judgement.violations.empty());
    EXPECT_TRUE(judgement.contiguous);
    EXPECT_NEAR(judgement.max_load, best.contiguous, 1e-9);
  });
}

TEST_P(EveryPlacement, TimesThatAreFarApartHideNothing) {
  for (uint64_t seed = GetParam() * kFew; seed < (GetParam() + 1u) * kFew; ++seed) {
    const Problem problem = WithTimesFarApart(RandomProblem(seed).Make(), seed);
    SCOPED_TRACE(absl::StrCat("problem ", seed, ": ", WriteProblem(problem)));
    const Best best = OfAllPlacements(problem);
    if (best.contiguous == kInfinity) continue;
    const ClassGraph graph = ContiguousClasses(problem), colors = ColorClasses(problem);
    const auto ideals = Ideals::List(graph.predecessors, 1000, nullptr);
    const double bound = LoadBound(graph);
    EXPECT_LE(bound, best.contiguous * (1 + 1e-12));
    EXPECT_LE(LoadBound(colors), best.any * (1 + 1e-12));
    EXPECT_LE(LatencyBound(problem), best.latency * (1 + 1e-12));
    const Stages stages = BestStages(graph, *ideals, bound, kInfinity, {});
    ASSERT_FALSE(stages.device.empty());
    EXPECT_NEAR(Judge(problem, ToPlacement(graph, stages.device)).max_load, best.contiguous,
                1e-9 * best.contiguous);

    const WeightedGraph whole{1, &colors};
    const std::vector<int> start = DevicesOf(colors, ToPlacement(graph, stages.device));
    const SearchResult any = Search({&whole, 1}, problem, start, false, {.restarts = 4});
    ASSERT_FALSE(any.device.empty());
    EXPECT_NEAR(Judge(problem, ToPlacement(colors, any.device)).max_load, any.value,
                1e-9 * any.value);
    EXPECT_LE(any.value, best.contiguous * (1 + 1e-9));
    if (!ProofIsThere() || best.any == 0 || problem.devices() < 2) continue;
    const Proof proof = ProveMaxLoad(problem, colors, best.any * 1.1, 60, nullptr);
    EXPECT_TRUE(proof.finished);
    EXPECT_NEAR(proof.lower_bound, best.any, 1e-6 * best.any);
  }
}

// Annealing looks at far more placements than there are here; it has to find the best.
TEST_P(EveryPlacement, NoneIsBetterThanWhatIsFoundWithoutContiguity) {
  ForEach(kFew, [](const Problem& problem, const Best& best) {
    const ClassGraph graph = ColorClasses(problem);
    const WeightedGraph whole{1, &graph};
    // Where no core takes all, there may be nothing to begin with.
    const std::vector<int> on_last(graph.size(), problem.devices() - 1);
    const bool on_accelerator = problem.cpus == 0;
    for (const Class& c : graph.classes) {
      if (on_accelerator && !c.accelerator_supported) return;
    }
    const SearchResult found = Search({&whole, 1}, problem, on_last, false, {.restarts = 4});
    ASSERT_EQ(found.device.empty(), best.any == kInfinity);
    if (found.device.empty()) return;
    const Judgement judgement = Judge(problem, ToPlacement(graph, found.device));
    EXPECT_TRUE(judgement.violations.empty());
    EXPECT_NEAR(judgement.max_load, best.any, 1e-9);
    EXPECT_NEAR(found.value, best.any, 1e-9);
  });
}

TEST_P(EveryPlacement, NoneIsBelowTheProof) {
  if (!ProofIsThere()) GTEST_SKIP() << "built without Cbc (coinor-libcbc-dev)";
  ForEach(kFew, [](const Problem& problem, const Best& best) {
    // On one device there is nothing to choose, and all placements are as good as the known one.
    if (best.any == kInfinity || best.any == 0 || problem.devices() < 2) return;
    const ClassGraph graph = ColorClasses(problem);
    // From a value that can be beaten, and from the best one.
    const Proof better = ProveMaxLoad(problem, graph, best.any * 1.1, 60, nullptr);
    ASSERT_TRUE(better.finished);
    ASSERT_FALSE(better.device.empty());
    const Judgement judgement = Judge(problem, ToPlacement(graph, better.device));
    EXPECT_TRUE(judgement.violations.empty());
    EXPECT_NEAR(judgement.max_load, best.any, 1e-6 * best.any);
    EXPECT_NEAR(better.lower_bound, best.any, 1e-6 * best.any);
    const Proof none = ProveMaxLoad(problem, graph, best.any, 60, nullptr);
    EXPECT_TRUE(none.finished);
    EXPECT_TRUE(none.device.empty());
    EXPECT_NEAR(none.lower_bound, best.any, 1e-6 * best.any);
  });
}

TEST_P(EveryPlacement, NoneIsFasterForOneSample) {
  ForEach(kFew, [](const Problem& problem, const Best& best) {
    EXPECT_LE(LatencyBound(problem), best.latency * (1 + 1e-12));
    const ClassGraph graph = ColorClasses(problem);
    for (const Class& c : graph.classes) {
      if (problem.cpus == 0 && !c.accelerator_supported) return;
    }
    const SearchResult found = SearchLatency(problem, graph, true, {.restarts = 8});
    ASSERT_EQ(found.device.empty(), best.latency == kInfinity);
    if (found.device.empty()) return;
    const Placement placement = ToPlacement(graph, found.device);
    std::vector<int> pieces;
    for (const Operator& op : problem.operators) pieces.push_back(op.backward);
    EXPECT_TRUE(Judge(problem, placement).violations.empty());
    EXPECT_NEAR(Latency(problem, placement, &pieces), best.latency, 1e-9);
    EXPECT_NEAR(found.value, best.latency, 1e-9);
  });
}

}  // namespace
}  // namespace seqpoint::placement
