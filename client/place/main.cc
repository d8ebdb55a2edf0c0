// `seqpoint-place`: splits a graph of operators over devices (docs/placement.md). `seqpoint place`
// starts it.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/help.h"
#include "client/options.h"
#include "client/place/place_text.h"
#include "client/plain_text.h"
#include "client/progress.h"
#include "client/whole_file.h"
#include "daemon/base/json_string.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/split_json.h"

namespace seqpoint::client {
namespace {

using placement::Objective;
using placement::Placement;
using placement::Plan;
using placement::PlannerOptions;
using placement::Problem;
using Clock = std::chrono::steady_clock;

constexpr int kExitNoAnswer = 1;
constexpr int kExitUsage = 2;
constexpr int kMostThreads = 64;
constexpr double kMostProofSeconds = 86'400;
// An answer that comes sooner needs no progress; a line that changes more often is not read.
constexpr auto kQuiet = std::chrono::seconds(1);
constexpr auto kBetweenLines = std::chrono::milliseconds(100);

std::atomic<bool> interrupted = false;

void Interrupt(int) { interrupted = true; }

// The next one ends the program at once.
void WaitForInterrupt() {
  struct sigaction action = {};
  action.sa_handler = &Interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": it is a folder"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  return text;
}

// The last line of the terminal, while planning takes long.
class PlanProgress {
 public:
  void Say(const std::string& what) {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + kBetweenLines;
    if (!line_.visible()) line_.Show();
    line_.Draw(Cut(absl::StrCat("seqpoint place: ", what, " (Ctrl-C: the best so far)"),
                   static_cast<size_t>(std::max(line_.width(), 1))));
  }

 private:
  Progress line_{/*wanted=*/true};
  Clock::time_point next_ = Clock::now() + kQuiet;
};

class Place {
 public:
  Place() : app_("Split a graph of operators over accelerators and CPU cores.", "seqpoint place") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_help_flag("-h,--help", "print this help");
    app_.set_version_flag("--version", SEQPOINT_VERSION, "print the version");
    app_.add_option("FILE", file_, "the problem, published JSON")->required();
    app_.add_option("--devices", accelerators_, "accelerators; default: those of the file")
        ->transform(WholeNumber(0, placement::kMostDevices))
        ->type_name("N");
    app_.add_option("--memory", memory_, "of each accelerator, such as 16GiB; default: the file's")
        ->transform(ByteSize())
        ->type_name("SIZE");
    app_.add_option("--cpus", cpus_, "CPU cores; default: those of the file")
        ->transform(WholeNumber(0, placement::kMostDevices))
        ->type_name("N");
    AddChoice(&app_, "--objective", &objective_, {"throughput", "latency"},
              "throughput (default): the slowest device of a pipeline; latency: one sample alone");
    auto* any = app_.add_flag("--any", any_, "devices may be left and come back to");
    app_.add_flag("--contiguous", contiguous_, "each device is one stage (default)")->excludes(any);
    app_.add_option("--proof", proof_seconds_,
                    "with --any: try so long to prove that there is no better placement; "
                    "default 30, 0: not at all")
        ->check(CLI::Range(0.0, kMostProofSeconds))
        ->type_name("SECONDS");
    app_.add_option("--threads", threads_, "default: as many as there are processors")
        ->transform(WholeNumber(1, kMostThreads))
        ->type_name("N");
    app_.add_option("--against", against_, "another split to compare with, published JSON")
        ->type_name("SPLIT");
    app_.add_option("-o,--output", output_,
                    "write the placement there, published JSON; -: print it")
        ->type_name("OUT");
    app_.add_option("--dot", dot_, "write the graph for Graphviz, a color for each device")
        ->type_name("FILE");
    app_.add_flag("--json", json_, "print the answer as JSON");
    app_.footer(R"(
LOAD           time of a device for each sample: COMPUTE and COMMUNICATION together
COMMUNICATION  transfers in and out, each output once for each accelerator; free for cores
OF SLOWEST     share of the largest load, which is the time per sample
COMPARED WITH  one accelerator with everything; equal layers: as many operators on each, in order;
               one more accelerator: what another one would bring

Exit codes: 0 ok, also when Ctrl-C ended the search with the best so far; 1 no answer; 2 wrong
usage. Formats and methods: docs/placement.md.)");
  }

  int Main(std::vector<std::string> arguments) {
    const std::vector<std::string> words = arguments;
    json_ = std::find(words.begin(), words.end(), "--json") != words.end();
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
      const std::string sentence = UsageSentence(app_, error, /*separated=*/false, words);
      return Fail(absl::InvalidArgumentError(absl::StrCat(sentence, "; see seqpoint place --help")),
                  kExitUsage);
    }
    const absl::Status status = Run();
    return status.ok() ? 0 : Fail(status, kExitNoAnswer);
  }

 private:
  int Fail(const absl::Status& status, int code) const {
    const std::string sentence = Printable(std::string(status.message()));
    fprintf(stderr, "seqpoint place: %s\n", sentence.c_str());
    if (json_) {
      printf("{\"error\": {\"code\": \"%s\", \"message\": %s}}\n",
             absl::StatusCodeToString(status.code()).c_str(), JsonString(sentence).c_str());
    }
    return code;
  }

  absl::Status Run() {
    absl::StatusOr<std::string> text = ReadWhole(file_);
    if (!text.ok()) return text.status();
    absl::StatusOr<Problem> problem = placement::ReadProblem(*text, file_);
    if (!problem.ok()) return problem.status();
    if (accelerators_ >= 0) problem->accelerators = accelerators_;
    if (cpus_ >= 0) problem->cpus = cpus_;
    if (memory_ >= 0) problem->memory_bytes = memory_;
    Placement against;
    if (!against_.empty()) {
      text = ReadWhole(against_);
      if (!text.ok()) return text.status();
      absl::StatusOr<Placement> split = placement::ReadSplit(*text, against_, *problem);
      if (!split.ok()) return split.status();
      against = *std::move(split);
    }
    return Answer(*std::move(problem), against);
  }

  absl::Status Answer(Problem problem, const Placement& against) {
    PlaceAnswer answer;
    answer.source = file_;
    answer.options.objective =
        objective_ == "latency" ? Objective::kLatency : Objective::kThroughput;
    answer.options.contiguous = !any_;
    answer.options.proof_seconds = proof_seconds_;
    answer.alternatives = ObviousAlternatives(problem, answer.options);
    if (!against.empty()) {
      answer.alternatives.push_back(Judged(against_, problem, against, answer.options));
    }
    if (absl::Status status = MakePlans(problem, &answer); !status.ok()) return status;
    answer.problem = std::move(problem);
    absl::Status status = Write(answer);
    if (!status.ok()) return status;
    const std::string text = json_ ? PlaceJson(answer) : PlaceText(answer);
    if (output_ != "-") status = WriteWhole("-", text);
    return status;
  }

  // The plan, and what one more accelerator would bring.
  absl::Status MakePlans(const Problem& problem, PlaceAnswer* answer) const {
    PlanProgress progress;
    PlannerOptions options = answer->options;
    options.threads = threads_ > 0 ? threads_ : Processors();
    options.stop = [] { return interrupted.load(); };
    options.progress = [&](const std::string& what) { progress.Say(what); };
    WaitForInterrupt();
    const Clock::time_point begin = Clock::now();
    absl::StatusOr<Plan> plan = placement::MakePlan(problem, options);
    if (!plan.ok()) {
      return absl::Status(plan.status().code(),
                          absl::StrCat(file_, ": ", std::string(plan.status().message())));
    }
    answer->seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    answer->plan = *std::move(plan);
    if (answer->plan.stopped || problem.accelerators >= placement::kMostDevices) {
      return absl::OkStatus();
    }
    Problem larger = problem;
    ++larger.accelerators;
    options.proof_seconds = 0;
    options.progress = [&](const std::string& what) {
      progress.Say(absl::StrCat("one more accelerator: ", what));
    };
    plan = placement::MakePlan(larger, options);
    if (plan.ok() && !plan->stopped) {
      answer->alternatives.push_back({.name = "one more accelerator", .value = plan->value});
    }
    return absl::OkStatus();
  }

  static int Processors() {
    const unsigned processors = std::thread::hardware_concurrency();
    return std::clamp(static_cast<int>(processors), 1, kMostThreads);
  }

  absl::Status Write(const PlaceAnswer& answer) const {
    const Plan& plan = answer.plan;
    absl::Status status;
    if (!output_.empty()) {
      status = WriteWhole(output_,
                          placement::WriteSplit(answer.problem, plan.placement, plan.judgement));
    }
    if (!dot_.empty()) status.Update(WriteWhole(dot_, PlaceDot(answer.problem, plan.placement)));
    return status;
  }

  CLI::App app_;
  std::string file_, objective_ = "throughput", against_, output_, dot_;
  int accelerators_ = -1, cpus_ = -1, threads_ = 0;  // not said
  double memory_ = -1;                               // bytes; not said
  double proof_seconds_ = 30;
  bool any_ = false, contiguous_ = false, json_ = false;
};

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  const int code = seqpoint::client::Place().Main(std::vector<std::string>(argv + 1, argv + argc));
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
  fprintf(stderr, "seqpoint place: the answer could not be written to standard output: %s\n",
          strerror(errno));
  return code == 0 ? 1 : code;
}
