#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/node_jobs.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr int kAllRanks = 8;
constexpr int kJobIterations = 6000;
constexpr char kInstructions[] = "sm__inst_executed.sum";

std::vector<std::string> WorkloadOf(const HubPart& part, int iterations, int slow) {
  return {"--model",          "transformer",
          "--parallel",       "tensor",
          "--epochs",         "1000",
          "--max-iterations", absl::StrCat(iterations),
          "--seed",           absl::StrCat(part.seed),
          "--slow",           absl::StrCat(slow, ":kernels:1.2@400-1000000")};
}

// A job's answers to what a person asks.
struct Answers {
  std::map<std::pair<int, int64_t>, int64_t> lengths;  // of a rank's iteration
  std::set<int64_t> seqpoints;                         // their lengths
  std::optional<v1::Projection> time, instructions;
  std::set<int> slow, reasons;  // ranks, and why
};

std::optional<v1::Projection> ProjectionOf(Api& api, const std::string& job,
                                           const std::string& metric) {
  v1::ProjectRequest request;
  request.set_job(job);
  request.set_metric(metric);
  const auto reply = api.Call(&v1::Profiler::Stub::Project, request);
  if (!reply || !reply->projection().has_so_far()) return std::nullopt;
  return reply->projection();
}

Answers AnswersOf(const NodeJobs& jobs, const std::string& daemon, const std::string& job) {
  Answers answers;
  Api api = jobs.Ask(daemon);
  for (int rank = 0; rank < kAllRanks; ++rank) {
    const auto iterations = api.Iterations(job, rank);
    if (!iterations) continue;
    for (const v1::Iteration& iteration : *iterations) {
      answers.lengths[{rank, iteration.number()}] =
          iteration.lengths_size() > 0 ? iteration.lengths(0) : -1;
    }
  }
  v1::GetSeqPointsRequest request;
  request.set_job(job);
  if (const auto reply = api.Call(&v1::Profiler::Stub::GetSeqPoints, request)) {
    for (const v1::SeqPoint& point : reply->seqpoints()) answers.seqpoints.insert(point.lengths(0));
  }
  answers.time = ProjectionOf(api, job, "");
  answers.instructions = ProjectionOf(api, job, kInstructions);
  v1::GetRanksRequest of_ranks;
  of_ranks.set_job(job);
  if (const auto reply = api.Call(&v1::Profiler::Stub::GetRanks, of_ranks)) {
    for (const v1::RankSummary& rank : reply->ranks()) {
      for (const v1::SlowEpisode& episode : rank.episodes()) {
        answers.slow.insert(rank.rank());
        answers.reasons.insert(episode.reason());
      }
    }
  }
  return answers;
}

// How many of `a` are not in `b`.
template <typename Set>
int64_t Missing(const Set& a, const Set& b) {
  return std::count_if(a.begin(), a.end(), [&](const auto& each) {
    return !std::binary_search(b.begin(), b.end(), each);
  });
}
template <typename Set>
int64_t Different(const Set& a, const Set& b) {
  return Missing(a, b) + Missing(b, a);
}

// `name`: of who answered as well as one daemon did.
void CompareAnswers(const std::string& name, const Answers& one, const Answers& two,
                    FigureTable& table) {
  const auto of = [&](const char* figure) { return absl::StrCat(name, ": ", figure); };
  table.Compare(of("iterations that the first has not, or with other lengths"),
                static_cast<double>(Different(one.lengths, two.lengths)), "iterations",
                Bound::kEqual, 0);
  table.Tell(of("SeqPoints"), static_cast<double>(two.seqpoints.size()), "");
  table.Tell(of("SeqPoints of lengths that the first has not"),
             static_cast<double>(Missing(two.seqpoints, one.seqpoints)), "");
  const auto compare = [&](const char* figure, const std::optional<v1::Projection>& a,
                           const std::optional<v1::Projection>& b) {
    if (!a || !b) return table.Leave(of(figure), "it is not known");
    const v1::Estimate &first = a->so_far(), &second = b->so_far();
    table.Tell(absl::StrCat(of(figure), ", less that of the first"),
               100 * (second.value() / first.value() - 1), "%");
    table.Compare(absl::StrCat(of(figure), ", intervals meet"),
                  first.low() <= second.high() && second.low() <= first.high(), "", Bound::kEqual,
                  1);
  };
  compare("time", one.time, two.time);
  compare("instructions", one.instructions, two.instructions);
  table.Compare(of("slow ranks that the first has not, or it alone"),
                static_cast<double>(Different(one.slow, two.slow)), "", Bound::kEqual, 0);
  table.Compare(of("slow ranks"), static_cast<double>(two.slow.size()), "", Bound::kEqual, 1);
  table.Tell(of("the reason is known"), !two.reasons.contains(v1::SLOW_REASON_UNSPECIFIED), "");
}

}  // namespace

// Two runs under one daemon are not equal either: what is measured depends on the time that a
// measurement took.
void CompareHubWithDaemon(const HubPart& part) {
  const auto run = [&](const std::string& name, int nodes) -> std::optional<Answers> {
    NodeJobs jobs(part.folder / name, {.nodes = nodes, .ranks_of_node = kAllRanks / nodes});
    if (!jobs.Run(name, WorkloadOf(part, kJobIterations, 5)) || !jobs.AwaitEnd(name)) {
      part.table.Leave(name, "the training failed");
      return std::nullopt;
    }
    return AnswersOf(jobs, nodes == 1 ? "node0" : "hub", name);
  };
  std::printf("\n%d ranks under one daemon, once more so, then on two nodes\n", kAllRanks);
  const auto one = run("one-daemon", 1), again = run("once-more", 1), two = run("two-nodes", 2);
  if (!one || !again || !two) return;
  CompareAnswers("once more", *one, *again, part.table);
  CompareAnswers("two nodes", *one, *two, part.table);
}

void LeaveNodesAlone(const HubPart& part, double seconds) {
  std::printf("\ntwo nodes whose hub is away for %.3g s\n", seconds);
  FigureTable& table = part.table;
  NodeJobs jobs(part.folder / "alone", {.nodes = 2, .ranks_of_node = 2});
  // At most 600 iterations a second are seen here: they go on until they are stopped.
  const auto workload = WorkloadOf(part, static_cast<int>(600 * (seconds + 60)), 3);
  std::vector<pid_t> ranks = {jobs.Start(0, "alone", workload), jobs.Start(1, "alone", workload)};
  const auto iterations = [&](const std::string& daemon) {
    const auto job = jobs.Job(daemon, "alone");
    return job ? static_cast<double>(job->iterations()) : NAN;
  };
  const auto measurements = [&](const std::string& daemon) {
    const auto job = jobs.Job(daemon, "alone");
    return job ? static_cast<double>(job->seqpoints().measurements()) : NAN;
  };
  absl::SleepFor(absl::Seconds(3));
  jobs.KillHub();
  const double before = measurements("node0") + measurements("node1");
  absl::SleepFor(absl::Seconds(seconds));
  table.Tell("alone: measurements of the nodes without their hub",
             measurements("node0") + measurements("node1") - before, "");
  jobs.StartHub();
  const absl::Time back = absl::Now();
  const double goal = std::min(iterations("node0"), iterations("node1"));
  while (absl::Now() - back < absl::Minutes(2) && !(iterations("hub") >= goal)) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  table.Tell("alone: until the hub has all iterations", absl::ToDoubleSeconds(absl::Now() - back),
             "s");
  absl::SleepFor(absl::Seconds(3));
  for (pid_t& pid : ranks) KillAndWait(&pid, SIGTERM);
  jobs.AwaitEnd("alone");
  int64_t reported = 0, missing = 0, other = 0;
  for (int rank = 0; rank < jobs.ranks(); ++rank) {
    const auto on_node = jobs.OnNode("alone", rank);
    const auto on_hub = on_node ? jobs.OnHub("alone", rank, on_node->size()) : std::nullopt;
    if (!on_hub) return table.Leave("alone: iterations", "a daemon does not answer");
    std::map<int64_t, const v1::Iteration*> by_number;
    for (const v1::Iteration& iteration : *on_hub) by_number[iteration.number()] = &iteration;
    other += static_cast<int64_t>(on_hub->size() - by_number.size());  // twice
    for (const v1::Iteration& iteration : *on_node) {
      const auto found = by_number.find(iteration.number());
      ++reported;
      if (found == by_number.end()) {
        ++missing;
      } else {
        other += found->second->start_ns() != iteration.start_ns() ||
                 found->second->duration_ns() != iteration.duration_ns();
      }
    }
  }
  if (reported == 0) return table.Leave("alone: iterations", "the training failed");
  table.Tell("alone: iterations of all ranks", static_cast<double>(reported), "");
  table.Compare("alone: lost", static_cast<double>(missing), "", Bound::kEqual, 0);
  table.Compare("alone: twice, or another", static_cast<double>(other), "", Bound::kEqual, 0);
  const auto job = jobs.Job("hub", "alone");
  if (!job) return table.Leave("alone: budget", "the hub does not answer");
  table.Compare("alone: measurements at the end, of those that were wanted",
                job->seqpoints().measurements() /
                    std::max(1.0, static_cast<double>(job->seqpoints().measurements_wanted())),
                "", Bound::kAtMost, 1);
}

}  // namespace seqpoint
