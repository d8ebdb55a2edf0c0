// How soon, how often and how rightly a slow rank is named, what its cost is said to be, and that
// nobody is named where nobody is slow: whole jobs of real processes on the software GPU. Other
// parts, only when they are named: passes shared by ranks, what-ifs, deaths at random moments, and
// memory over a long run (ranks_parts.h).
//
//   ranks_benchmark [--parts LIST] [--parallel LIST] [--changes LIST] [--faults 200] [--even 20]
//                   [--seed 1] [--speed 4] [--json FILE]
//
// Random faults and seeds are others than those that anything was tuned on: --seed chooses them.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/benchmark/ranks_parts.h"
#include "tests/support/figure_table.h"
#include "tests/support/rank_jobs.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

// A fault that makes iterations longer by less than this share harms nobody.
constexpr double kHarmless = 0.005;
// Every eighth iteration is observed while nothing is suspicious.
constexpr int64_t kBetweenObserved = 8;

struct Fault {
  std::string name;             // "kernels +20 %"
  std::vector<std::string> at;  // option and value, without the iterations
  v1::SlowReason reason = v1::SLOW_REASON_UNSPECIFIED;
  int rank = -1;  // -1: a link
};

Fault Kernels(int rank, double factor) {
  return {absl::StrFormat("kernels +%.0f %%", 100 * (factor - 1)),
          {"--slow", absl::StrFormat("%d:kernels:%.3f", rank, factor)},
          v1::SLOW_REASON_CLOCKS,
          rank};
}
Fault SingleKernel(int rank, double factor) {
  return {absl::StrFormat("one kernel x %.2f", factor),
          {"--slow", absl::StrFormat("%d:layernorm:%.3f", rank, factor)},
          v1::SLOW_REASON_KERNELS,
          rank};
}
Fault Host(int rank, double factor) {
  return {absl::StrFormat("late host +%.0f %%", 100 * (factor - 1)),
          {"--late", absl::StrFormat("%d:host:%.3f", rank, factor)},
          v1::SLOW_REASON_HOST,
          rank};
}
Fault Loader(int rank, double ms) {
  return {absl::StrFormat("loader +%.2g ms", ms),
          {"--loader", absl::StrFormat("%d:%.3f", rank, ms)},
          v1::SLOW_REASON_LOADER,
          rank};
}
Fault Link(int a, int b, double factor) {
  return {absl::StrFormat("link / %.2g", 1 / factor),
          {"--link", absl::StrFormat("%d-%d:%.3f", a, b, factor)},
          v1::SLOW_REASON_LINK,
          -1};
}

// A job in which one fault acts from an iteration on.
struct Trial {
  std::string name;
  std::string parallel;
  bool host_bound = false;
  int ranks = 4;
  int iterations = 700;
  int first = 100;
  uint64_t seed = 1;
  double speed_cap = 1;
  std::vector<std::string> more;  // options of the workload
};

RankJobOptions OptionsOf(const Trial& trial, const Fault* fault) {
  RankJobOptions options{.name = trial.name, .ranks = trial.ranks};
  options.workload = {"--model",          "transformer",
                      "--parallel",       trial.parallel,
                      "--epochs",         "100",
                      "--max-iterations", absl::StrCat(trial.iterations),
                      "--seed",           absl::StrCat(trial.seed)};
  options.workload.insert(options.workload.end(), trial.more.begin(), trial.more.end());
  // Bound by its host: little work for the GPU, much for the host.
  if (trial.host_bound) {
    options.workload.insert(options.workload.end(),
                            {"--hidden", "256", "--batch", "8", "--launch-us", "20"});
  }
  if (fault != nullptr) {
    options.workload.push_back(fault->at[0]);
    options.workload.push_back(
        absl::StrFormat("%s@%d-%d", fault->at[1], trial.first, trial.iterations + 1000));
  }
  options.settings = {absl::StrCat("clock.speed_cap=", trial.speed_cap),
                      absl::StrCat("noise.seed=", trial.seed)};
  return options;
}

enum class Outcome { kRight, kUnknownReason, kMissed, kWrong };

struct Answer {
  Outcome outcome = Outcome::kMissed;
  int64_t named = -1;  // iterations after the fault began
  int64_t late = 0;    // it began so many earlier than said, and "or before" was not said
  v1::SlowReason reason = v1::SLOW_REASON_UNSPECIFIED;
  std::string text;
  double cost = NAN, cost_low = NAN, cost_high = NAN;
};

Answer Judge(const v1::GetRanksReply& reply, const Fault& fault, int first) {
  Answer answer;
  answer.text = reply.summary();
  const v1::SlowEpisode* right = nullptr;
  bool wrong = false;
  for (const v1::RankSummary& rank : reply.ranks()) {
    for (const v1::SlowEpisode& episode : rank.episodes()) {
      if (rank.rank() == fault.rank && episode.named_iteration() >= first) {
        if (right == nullptr) right = &episode;
      } else {
        wrong = true;
      }
    }
  }
  const v1::SlowLink* link = nullptr;
  for (const v1::SlowLink& of : reply.links()) {
    if (fault.reason == v1::SLOW_REASON_LINK && of.named_iteration() >= first) {
      if (link == nullptr) link = &of;
    } else {
      wrong = true;
    }
  }
  if (link != nullptr) {
    answer.named = link->named_iteration() - first;
    answer.reason = v1::SLOW_REASON_LINK;
  } else if (right != nullptr) {
    answer.named = right->named_iteration() - first;
    if (!right->maybe_before()) answer.late = right->first_iteration() - first;
    answer.reason = right->reason();
    if (right->has_cost()) {
      answer.cost = right->cost().value();
      answer.cost_low = right->cost().low();
      answer.cost_high = right->cost().high();
    }
  }
  if (right != nullptr && answer.reason == v1::SLOW_REASON_UNSPECIFIED) {
    absl::StrAppend(&answer.text, "; reason ", right->reason_message());
  }
  if (wrong) {
    answer.outcome = Outcome::kWrong;
  } else if (answer.named >= 0) {
    answer.outcome = answer.reason == fault.reason                  ? Outcome::kRight
                     : answer.reason == v1::SLOW_REASON_UNSPECIFIED ? Outcome::kUnknownReason
                                                                    : Outcome::kWrong;
  }
  return answer;
}

const char* Word(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRight:
      return "right";
    case Outcome::kUnknownReason:
      return "rank right, reason unknown";
    case Outcome::kMissed:
      return "not named";
    case Outcome::kWrong:
      return "WRONG";
  }
  return "";
}

class Benchmark {
 public:
  Benchmark(RankJobs* jobs, FigureTable* table, std::vector<std::string> parallelisms,
            uint64_t seed, double speed)
      : jobs_(*jobs),
        table_(*table),
        parallelisms_(std::move(parallelisms)),
        seed_(seed),
        speed_(speed) {}

  // Every kind and size on every parallelism.
  void Detection() {
    std::printf("\niterations until a fault is named, from iteration 100 on\n");
    for (const std::string& parallel : parallelisms_) {
      for (const double share : {0.2, 0.05, 0.02}) {
        Detect(parallel, Kernels(2, 1 + share), false, share);
      }
      Detect(parallel, Host(1, 1.2), true, 0.2);
      Detect(parallel, Loader(3, 3), false, 0.2);
      Detect(parallel, Link(0, 1, 0.5), false, 0.2);
    }
  }

  void RandomFaults(int count) {
    std::printf("\n%d random faults\n", count);
    std::mt19937_64 random(seed_ * 7919 + 1);
    const auto draw = [&](double low, double high) {
      return std::uniform_real_distribution<double>(low, high)(random);
    };
    std::map<Outcome, int> outcomes;
    int late = 0, harmless = 0;
    for (int i = 0; i < count; ++i) {
      Trial trial = NewTrial(parallelisms_[random() % parallelisms_.size()]);
      const int rank = static_cast<int>(random() % 4);
      const double size = draw(0.05, 0.5);
      Fault fault;
      switch (random() % 5) {
        case 0:
          fault = Kernels(rank, 1 + size);
          break;
        case 1:
          fault = SingleKernel(rank, 1 + 4 * size);
          break;
        case 2:
          fault = Host(rank, 1 + size);
          trial.host_bound = true;
          break;
        case 3:
          fault = Loader(rank, 10 * size);
          break;
        default:
          fault = Link(rank, (rank + 1) % 4, 1 / (1 + 2 * size));
          break;
      }
      trial.first = 100 + static_cast<int>(random() % 200);
      trial.iterations = trial.first + 800;
      const Answer answer = Ask(trial, fault);
      ++outcomes[answer.outcome];
      late += answer.late > kBetweenObserved;
      std::string text = answer.text;
      if (answer.outcome == Outcome::kMissed) {
        const double effect = TrueEffect(trial, fault);
        harmless += std::abs(effect) < kHarmless;
        text = absl::StrFormat("iterations take %.2f %% longer", 100 * effect);
      }
      std::printf("%3d  %-8s %-18s rank %2d from %3d  %-26s %s\n", i, trial.parallel.c_str(),
                  fault.name.c_str(), fault.rank, trial.first, Word(answer.outcome), text.c_str());
      std::fflush(stdout);
    }
    const auto share = [&](Outcome outcome) { return 100.0 * outcomes[outcome] / count; };
    table_.Compare("random faults: rank and reason right", share(Outcome::kRight), "%",
                   Bound::kAtLeast, 97.5);
    table_.Tell("random faults: rank right, reason unknown", share(Outcome::kUnknownReason), "%");
    table_.Tell("random faults: not named", share(Outcome::kMissed), "%");
    table_.Tell("random faults: not named, and iterations take less than 0.5 % longer",
                100.0 * harmless / count, "%");
    table_.Compare("random faults: wrong", share(Outcome::kWrong), "%", Bound::kAtMost, 0);
    table_.Compare("random faults: began earlier than said", 100.0 * late / count, "%",
                   Bound::kAtMost, 0);
  }

  void FalseAlarms(int count) {
    std::printf("\n%d even jobs of 10,000 iterations, two to four ranks\n", count);
    int alarms = 0, judged = 0;
    for (int i = 0; i < count; ++i) {
      const auto turn = static_cast<size_t>(i);
      Trial trial = NewTrial(parallelisms_[turn % parallelisms_.size()]);
      trial.ranks = 2 + static_cast<int>(turn / parallelisms_.size() % 3);
      // Three ranks cannot share the default width's eight heads.
      if (trial.ranks == 3 && trial.parallel == "tensor") trial.more = {"--hidden", "768"};
      trial.iterations = 10'000;
      trial.speed_cap = 20;
      if (!jobs_.Run(OptionsOf(trial, nullptr))) {
        std::printf("%s failed: see %s\n", trial.name.c_str(), jobs_.Log(trial.name).c_str());
        continue;
      }
      const auto reply = jobs_.Ranks(trial.name);
      if (!reply) continue;
      ++judged;
      int64_t named = reply->links_size();
      int even = 0;
      for (const v1::RankSummary& rank : reply->ranks()) {
        named += rank.episode_count();
        even += rank.course() == v1::RANK_COURSE_EVEN;
      }
      alarms += named > 0;
      std::printf("%3d  %-8s %d of %d ranks even, %lld iterations with timed collectives; %s\n", i,
                  trial.parallel.c_str(), even, trial.ranks,
                  static_cast<long long>(reply->iterations()), reply->summary().c_str());
      std::fflush(stdout);
    }
    table_.Compare("even jobs of 10,000 iterations that ended well", judged, "jobs", Bound::kEqual,
                   count);
    table_.Compare(absl::StrCat("false alarms in ", judged, " jobs of 10,000 even iterations"),
                   alarms, "jobs", Bound::kAtMost, 0);
  }

  // What a slow rank costs, as a share of the time of the iterations in which it is slow: against
  // the same job without it, both without the profiler. Slow from the start, and from an iteration
  // on before which the ranks were even.
  void Costs() {
    std::printf("\ncost of a slow rank\n");
    for (const std::string& parallel : parallelisms_) {
      for (const int first : {0, 500}) CostFrom(parallel, first);
    }
  }

  // A rank that never comes, and one that dies.
  void Standstills() {
    std::printf("\nranks that do not come\n");
    for (const auto& [option, what] :
         std::vector<std::pair<std::string, std::string>>{{"--hang", "hangs"}, {"--die", "dies"}}) {
      Trial trial = NewTrial("data");
      trial.speed_cap = 1;
      RankJobOptions options = OptionsOf(trial, nullptr);
      options.workload.push_back(option);
      options.workload.push_back("2@200");
      options.by_hand = true;
      const pid_t pid = jobs_.Start(options);
      double found_s = NAN;
      std::string text;
      // The iterations before the fault take 3 s.
      for (int tenth = 0; tenth < 500 && text.empty(); ++tenth) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const auto reply = jobs_.Ranks(trial.name);
        if (reply && reply->has_standstill()) {
          text = reply->standstill().message();
          found_s = tenth / 10.0 - 3;
        }
      }
      pid_t running = pid;
      KillAndWait(&running, SIGTERM);
      std::printf("%s: %s\n", what.c_str(), text.c_str());
      table_.Compare(absl::StrCat("a rank that ", what, ": said after"), found_s, "s",
                     Bound::kAtMost, 30);
    }
  }

 private:
  Trial NewTrial(const std::string& parallel) {
    ++jobs_run_;
    return {.name = absl::StrCat("trial", jobs_run_),
            .parallel = parallel,
            .seed = seed_ * 1000 + static_cast<uint64_t>(jobs_run_),
            .speed_cap = speed_};
  }

  Answer Ask(const Trial& trial, const Fault& fault) {
    if (!jobs_.Run(OptionsOf(trial, &fault))) {
      std::printf("%s failed: see %s\n", trial.name.c_str(), jobs_.Log(trial.name).c_str());
      return {};
    }
    const auto reply = jobs_.Ranks(trial.name);
    return reply ? Judge(*reply, fault, trial.first) : Answer{};
  }

  // By how much iterations take longer with the fault: the job with and without it, and without the
  // profiler. NAN: a job failed.
  double TrueEffect(Trial trial, const Fault& fault) {
    trial.first = 0;
    trial.speed_cap = 20;
    double times_ns[2];
    for (const bool faulty : {false, true}) {
      trial.name += "-alone";
      if (!jobs_.RunAlone(OptionsOf(trial, faulty ? &fault : nullptr))) return NAN;
      times_ns[faulty] = jobs_.TrainTimeNs(trial.name);
    }
    return times_ns[1] / times_ns[0] - 1;
  }

  std::string Effect(const Trial& trial, const Fault& fault) {
    return absl::StrFormat("iterations take %.2f %% longer", 100 * TrueEffect(trial, fault));
  }

  void CostFrom(const std::string& parallel, int first) {
    Trial trial = NewTrial(parallel);
    trial.first = first;
    trial.iterations = first + 1500;
    const Fault fault = Kernels(2, 1.2);
    const Answer answer = Ask(trial, fault);
    double times_ns[2];
    for (const bool faulty : {false, true}) {
      trial.name += "-alone";
      if (!jobs_.RunAlone(OptionsOf(trial, faulty ? &fault : nullptr))) return;
      const auto truth = ReadTruth(jobs_.TruthFile(trial.name, 0));
      if (!truth || truth->iterations.size() <= static_cast<size_t>(first)) return;
      times_ns[faulty] = static_cast<double>(truth->iterations.back().begin_ns -
                                             truth->iterations[first].begin_ns);
    }
    const double truth = 1 - times_ns[false] / times_ns[true];
    const bool covers = answer.cost_low <= truth && truth <= answer.cost_high;
    const std::string figure =
        absl::StrCat(parallel, ", slow from ", first == 0 ? "the start" : absl::StrCat(first));
    std::printf("%-24s true %.2f %%, said %.2f %% (%.2f to %.2f %%): %s\n", figure.c_str(),
                100 * truth, 100 * answer.cost, 100 * answer.cost_low, 100 * answer.cost_high,
                covers                    ? "covers"
                : std::isnan(answer.cost) ? "not known"
                                          : "DOES NOT COVER");
    std::fflush(stdout);
    table_.Compare(absl::StrCat(figure, ": cost of a slow rank, relative error"),
                   std::abs(answer.cost / truth - 1) * 100, "%", Bound::kAtMost, 5);
    table_.Compare(absl::StrCat(figure, ": the interval holds the true cost"), covers ? 1 : 0, "",
                   Bound::kEqual, 1);
  }

  void Detect(const std::string& parallel, const Fault& fault, bool host_bound, double share) {
    Trial trial = NewTrial(parallel);
    trial.host_bound = host_bound;
    trial.speed_cap = 1;
    if (share < 0.05) trial.iterations = 2000;
    const Answer answer = Ask(trial, fault);
    const std::string text =
        answer.outcome == Outcome::kMissed ? Effect(trial, fault) : answer.text;
    std::printf("%-8s %-18s %-26s after %4lld  %s\n", parallel.c_str(), fault.name.c_str(),
                Word(answer.outcome), static_cast<long long>(answer.named), text.c_str());
    std::fflush(stdout);
    const std::string figure = absl::StrCat(parallel, ", ", fault.name);
    const double named = answer.named < 0 ? NAN : static_cast<double>(answer.named);
    if (share < 0.05) {
      table_.Tell(absl::StrCat(figure, ": named after"), named, "iterations");
    } else {
      table_.Compare(absl::StrCat(figure, ": named after"), named, "iterations", Bound::kAtMost,
                     share < 0.2 ? 200 : 20);
    }
    table_.Compare(absl::StrCat(figure, ": rank and reason right"),
                   answer.outcome == Outcome::kRight ? 1 : 0, "", Bound::kEqual, 1);
  }

  RankJobs& jobs_;
  FigureTable& table_;
  const std::vector<std::string> parallelisms_;
  const uint64_t seed_;
  const double speed_;
  int jobs_run_ = 0;
};

int Main(int argc, char** argv) {
  CLI::App app{"Slow ranks, links and lengths: what is said of them, beside the truth."};
  std::string parts = "detection,costs,standstills,random,even", json;
  std::vector<std::string> parallelisms = {"data", "sharded", "pipeline", "tensor"};
  std::vector<std::string> changes = {"without-slow-rank", "balance-lengths", "bucket-size",
                                      "bandwidth", "ranks"};
  int faults = 200, even = 20, rounds = 12, iterations = 3000;
  uint64_t seed = 1;
  double speed = 4, minutes = 6;
  app.add_option("--parts", parts,
                 "some of detection,costs,standstills,random,even,counters,whatif,soak,memory")
      ->capture_default_str();
  app.add_option("--parallel", parallelisms, "how the ranks share the work")
      ->delimiter(',')
      ->check(CLI::IsMember(parallelisms))
      ->capture_default_str();
  app.add_option("--faults", faults, "random faults")->capture_default_str();
  app.add_option("--even", even, "even jobs")->capture_default_str();
  app.add_option("--rounds", rounds, "of the soak")->capture_default_str();
  app.add_option("--iterations", iterations, "of the what-ifs' jobs")->capture_default_str();
  app.add_option("--changes", changes, "the what-ifs that are judged")
      ->delimiter(',')
      ->check(CLI::IsMember(changes))
      ->capture_default_str();
  app.add_option("--minutes", minutes, "of the job whose memory is watched")->capture_default_str();
  app.add_option("--seed", seed, "of noise, lengths and faults")->capture_default_str();
  app.add_option("--speed", speed,
                 "of random faults and costs: virtual time by wall time at most; reasons need time")
      ->capture_default_str();
  app.add_option("--json", json, "writes the figures to this file, too");
  CLI11_PARSE(app, argc, argv);
  const std::vector<std::string> words = absl::StrSplit(parts, ',');
  const std::set<std::string> wanted(words.begin(), words.end());

  TempFolder folder;
  RankJobs jobs(folder.path());
  FigureTable table;
  Benchmark benchmark(&jobs, &table, parallelisms, seed, speed);
  if (wanted.contains("detection")) benchmark.Detection();
  if (wanted.contains("costs")) benchmark.Costs();
  if (wanted.contains("standstills")) benchmark.Standstills();
  if (wanted.contains("random")) benchmark.RandomFaults(faults);
  if (wanted.contains("even")) benchmark.FalseAlarms(even);
  const RanksPart part = {.jobs = jobs, .table = table, .seed = seed};
  if (wanted.contains("counters")) MeasureCounters(part);
  if (wanted.contains("memory")) WatchRanksMemory(part, minutes);
  if (wanted.contains("whatif")) {
    JudgeRanksWhatIf(part, iterations, {changes.begin(), changes.end()});
  }
  if (wanted.contains("soak")) SoakRanks(part, rounds);
  std::printf("\n%d figures with something to reach were missed, %d were not measured\n",
              table.missed(), table.left());
  if (!json.empty() && !table.WriteJson(json)) {
    std::perror(json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) { return seqpoint::Main(argc, argv); }
