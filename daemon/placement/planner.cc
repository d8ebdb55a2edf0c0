#include "daemon/placement/planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"
#include "daemon/placement/bound.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/exact.h"
#include "daemon/placement/ideals.h"
#include "daemon/placement/latency.h"
#include "daemon/placement/linear.h"
#include "daemon/placement/proof.h"
#include "daemon/placement/search.h"

namespace seqpoint::placement {
namespace {

// Sums in another order differ in the last digits. A share.
constexpr double kSame = 1e-9;
constexpr size_t kShownOperators = 5;
constexpr int kFewRestarts = 4;  // half a second for a hundred classes
// Each ideal has a bit for each class, and the list has three such tables while it grows.
constexpr int64_t kMostIdealBits = int64_t{1} << 30;

std::string OperatorsInWords(const Problem& problem, const Class& of) {
  std::string text = of.operators.size() == 1 ? "operator " : "operators ";
  const size_t shown = std::min(of.operators.size(), kShownOperators);
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", problem.operators[of.operators[i]].id);
  }
  if (shown < of.operators.size()) {
    absl::StrAppend(&text, " and ", of.operators.size() - shown, " more");
  }
  return text;
}

// Why a class can run nowhere; ok where each can run somewhere.
absl::Status CheckClasses(const Problem& problem, const ClassGraph& graph) {
  if (problem.devices() == 0) {
    return absl::FailedPreconditionError("there are no devices: neither accelerators nor cores");
  }
  if (problem.cpus > 0) return absl::OkStatus();
  for (const Class& of : graph.classes) {
    if (RunsOnAccelerator(graph, of)) continue;
    const std::string who = OperatorsInWords(problem, of);
    const std::string needs = of.operators.size() > 1 ? ", which sit together, need" : " needs";
    return absl::FailedPreconditionError(
        of.accelerator_supported
            ? absl::StrFormat("%s%s %.0f bytes; an accelerator has %.0f, and there is no core", who,
                              needs, of.memory_bytes, problem.memory_bytes)
            : absl::StrCat(who, " cannot run on an accelerator, and there is no core"));
  }
  return absl::OkStatus();
}

class Planner {
 public:
  Planner(const Problem& problem, const PlannerOptions& options)
      : problem_(problem), options_(options) {}

  absl::StatusOr<Plan> Make() {
    const ClassGraph classes = options_.contiguous && options_.objective == Objective::kThroughput
                                   ? ContiguousClasses(problem_)
                                   : ColorClasses(problem_);
    SEQPOINT_RETURN_IF_ERROR(CheckClasses(problem_, classes));
    plan_.optimal = LoadBound(classes) == kInfinity;
    if (plan_.optimal) return None();
    if (options_.objective == Objective::kLatency) {
      Latency(classes);
    } else if (options_.contiguous) {
      Contiguous(classes);
    } else {
      Anywhere(classes);
    }
    if (plan_.placement.empty()) return None();
    plan_.judgement = Judge(problem_, plan_.placement);
    plan_.value = Value(problem_, plan_.placement, options_);
    SEQPOINT_RETURN_IF_ERROR(CheckRules());
    // Two sums of the same may differ in the last digit.
    plan_.lower_bound = std::min(plan_.lower_bound, plan_.value);
    plan_.optimal = plan_.value - plan_.lower_bound <= kSame * plan_.value;
    return std::move(plan_);
  }

 private:
  absl::Status CheckRules() const {
    std::string broken;
    if (!plan_.judgement.violations.empty()) {
      broken = plan_.judgement.violations[0];
    } else if (plan_.value == kInfinity) {
      broken = "its pieces wait for each other";
    } else if (options_.objective == Objective::kThroughput && options_.contiguous &&
               !plan_.judgement.contiguous) {
      broken = "it is not contiguous";
    }
    if (broken.empty()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("the placement of the method ", plan_.method, " broke a rule: ", broken));
  }

  absl::Status None() const {
    if (plan_.stopped) {
      return absl::CancelledError("stopped before a placement was found");
    }
    std::string text = absl::StrFormat("no %splacement %s: %d accelerators have %.0f bytes each",
                                       options_.contiguous ? "contiguous " : "",
                                       plan_.optimal ? "keeps to the rules" : "was found",
                                       problem_.accelerators, problem_.memory_bytes);
    double needed = 0;
    for (const Operator& op : problem_.operators) needed += op.memory_bytes;
    absl::StrAppendFormat(&text, ", and all operators need %.0f", needed);
    return absl::FailedPreconditionError(text);
  }

  void Say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  void Take(const std::string& method, const ClassGraph& graph, const std::vector<int>& device) {
    plan_.method = method;
    plan_.placement = ToPlacement(graph, device);
  }

  // Where it keeps to the rules, and its load is smaller, or the same.
  void TakeBetter(const std::string& method, const ClassGraph& graph,
                  const std::vector<int>& device) {
    const Judgement judgement = Judge(problem_, ToPlacement(graph, device));
    if (!judgement.violations.empty() || judgement.max_load > Largest() * (1 + kSame)) return;
    Take(method, graph, device);
  }

  // A placement that is there at once, so that there is an answer whenever the search is stopped.
  void Begin(const ClassGraph& graph) {
    std::vector<std::pair<std::string, std::vector<int>>> simple;
    if (problem_.accelerators > 0) {
      for (const bool share : {true, false}) {
        simple.emplace_back("filled in order", FillInOrder(graph, share));
      }
    }
    if (problem_.cpus > 0) {
      simple.emplace_back("one core", std::vector<int>(graph.size(), problem_.accelerators));
    }
    for (const auto& [method, device] : simple) TakeBetter(method, graph, device);
  }

  void Contiguous(const ClassGraph& graph) {
    plan_.lower_bound = LoadBound(graph);
    Begin(graph);
    StagesOptions options = {.threads = options_.threads, .stop = options_.stop};
    Say("linearised");
    const Stages linear = BestLinearStages(graph, plan_.lower_bound, kInfinity, options);
    const double found = linear.device.empty() ? kInfinity : linear.load;
    if (!linear.device.empty()) TakeBetter("linearised", graph, linear.device);
    plan_.stopped = linear.stopped;
    if (plan_.stopped) return;
    Say("listing ideals");
    const int64_t most_ideals =
        std::min(options_.most_ideals, kMostIdealBits / std::max(graph.size(), 1));
    const std::optional<Ideals> ideals =
        Ideals::List(graph.predecessors, most_ideals, options_.stop);
    if (!ideals.has_value()) {
      plan_.stopped = options_.stop && options_.stop();
      if (!plan_.stopped) {
        plan_.notes.push_back(absl::StrCat("the graph has more than ", most_ideals,
                                           " ideals: linearised, not exact"));
        Improve(graph, /*contiguous=*/true, SearchOptions().restarts);
      }
      return;
    }
    options.progress = [&](double share) {
      Say(absl::StrFormat("exact, %d ideals: %.0f %%", ideals->size(), 100 * share));
    };
    const Stages exact =
        BestStages(graph, *ideals, plan_.lower_bound, found * (1 - kSame), options);
    plan_.lower_bound = std::max(plan_.lower_bound, exact.none_below);
    plan_.stopped = exact.stopped;
    if (plan_.stopped) return;
    plan_.optimal = true;
    if (exact.device.empty() && linear.device.empty()) return;  // there is none
    plan_.lower_bound = exact.device.empty() ? found : exact.load;
    Take("exact", graph, exact.device.empty() ? linear.device : exact.device);
  }

  // From the best contiguous placement on, where there is one.
  void Anywhere(const ClassGraph& graph) {
    Contiguous(ContiguousClasses(problem_));
    plan_.lower_bound = LoadBound(graph);
    plan_.optimal = false;
    if (!plan_.stopped) Improve(graph, /*contiguous=*/false, kFewRestarts);
    // For small graphs the proof is faster than the rest of the search.
    if (!plan_.stopped && !plan_.placement.empty()) Prove(graph);
    const bool proved = plan_.lower_bound >= Largest() * (1 - kSame);
    if (!plan_.stopped && !proved) Improve(graph, /*contiguous=*/false, SearchOptions().restarts);
  }

  // Load of the placement so far; infinite where there is none.
  double Largest() const {
    return plan_.placement.empty() ? kInfinity : Judge(problem_, plan_.placement).max_load;
  }

  // Where the time is enough, that there is no better one; else a better bound.
  void Prove(const ClassGraph& graph) {
    if (options_.proof_seconds <= 0) return;
    if (!ProofIsThere()) {
      plan_.notes.push_back("not proved: built without Cbc (coinor-libcbc-dev)");
      return;
    }
    Say(absl::StrFormat("proof, at most %g s", options_.proof_seconds));
    const double known = Largest();
    const Proof proof = ProveMaxLoad(problem_, graph, known, options_.proof_seconds, options_.stop);
    plan_.lower_bound = std::max(plan_.lower_bound, proof.lower_bound);
    plan_.stopped = options_.stop && options_.stop();
    if (proof.device.empty()) return;
    if (Judge(problem_, ToPlacement(graph, proof.device)).max_load < known) {
      Take("proof", graph, proof.device);
    }
  }

  // Changes the placement where the search finds a better one.
  void Improve(const ClassGraph& graph, bool contiguous, int restarts) {
    Say("search");
    const WeightedGraph whole = {.weight = 1, .graph = &graph};
    // A core takes all; without one each class runs on any accelerator (CheckClasses), and the
    // search finds its way out of one that is too full.
    const int takes_all = problem_.cpus > 0 ? problem_.accelerators : 0;
    const std::vector<int> start = plan_.placement.empty()
                                       ? std::vector<int>(graph.size(), takes_all)
                                       : DevicesOf(graph, plan_.placement);
    const SearchResult result =
        Search({&whole, 1}, problem_, start, contiguous, SearchFor(restarts));
    plan_.stopped = result.stopped;
    if (result.device.empty()) return;
    if (Judge(problem_, ToPlacement(graph, result.device)).max_load < Largest()) {
      Take("search", graph, result.device);
    }
  }

  void Latency(const ClassGraph& graph) {
    Say("search");
    plan_.lower_bound = LatencyBound(problem_);
    const SearchResult result = SearchLatency(problem_, graph, options_.contiguous,
                                              SearchFor(SearchOptions().restarts / 2));
    plan_.stopped = result.stopped;
    if (!result.device.empty()) Take("search", graph, result.device);
  }

  SearchOptions SearchFor(int restarts) const {
    SearchOptions options;
    options.restarts = restarts;
    options.threads = options_.threads;
    options.stop = options_.stop;
    options.found = [this](double value) { Say(absl::StrFormat("search: %.6g", value)); };
    return options;
  }

  const Problem& problem_;
  const PlannerOptions& options_;
  Plan plan_;
};

}  // namespace

double Value(const Problem& problem, const Placement& placement, const PlannerOptions& options) {
  if (options.objective == Objective::kThroughput) return Judge(problem, placement).max_load;
  if (!options.contiguous) return Latency(problem, placement);
  // One piece of the forward pass and one of the backward pass.
  std::vector<int> pieces;
  for (const Operator& op : problem.operators) pieces.push_back(op.backward ? 1 : 0);
  return Latency(problem, placement, &pieces);
}

absl::StatusOr<Plan> MakePlan(const Problem& problem, const PlannerOptions& options) {
  // More devices of a kind than there are operators stay empty, and cost time and memory.
  const int most = std::max(1, static_cast<int>(problem.operators.size()));
  if (problem.accelerators <= most && problem.cpus <= most) {
    return Planner(problem, options).Make();
  }
  Problem fewer = problem;
  fewer.accelerators = std::min(fewer.accelerators, most);
  fewer.cpus = std::min(fewer.cpus, most);
  SEQPOINT_ASSIGN_OR_RETURN(Plan plan, Planner(fewer, options).Make());
  for (int& device : plan.placement) {
    if (device >= fewer.accelerators) device += problem.accelerators - fewer.accelerators;
  }
  plan.judgement = Judge(problem, plan.placement);
  return plan;
}

}  // namespace seqpoint::placement
