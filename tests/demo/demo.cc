// The main job, end to end: trains one epoch of a workload under `seqpoint run`, asks the daemon
// for projections on the way, and lays them beside the workload's own truth file, which the
// profiler never sees. Ends non-zero when a figure of docs/using/demo.md is missed.
//
// Everything runs in a folder of its own (sockets, store, truth); nothing of the user's is touched.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"
#include "tests/workloads/histograms.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string workload = "gnmt";
  std::string lengths;
  int batch = 32;
  std::string order = "shuffle";
  std::string readback = "1";
  bool nvtx = true;
  bool prefetch = false;
  int accumulate = 1;
  int eval_every = 0;
  bool backward_thread = false;
  bool graphs = false;
  std::string gpu;
  int seed = 1;
  int examples = 0;
  std::string json;
  bool real_gpu = false;
  bool quiet = false;
};

// Fewer say nothing of a projection: asked at 5 %, and in the whole epoch.
constexpr double kLeastIterationsAt5Percent = 150;
constexpr double kLeastIterations = 64;

struct Asked {
  double fraction = 0;  // as it was when the answer came
  double value = 0, low = 0, high = 0;
  std::string basis;
};

// ------------------------------------------------------------------------------------- the run

[[noreturn]] void Die(const std::string& message, int status = 1) {
  std::fprintf(stderr, "demo: %s\n", message.c_str());
  std::exit(status);
}

constexpr int kUsage = 2;

// A CSV of example lengths, as a user has one for the data set.
std::string WriteLengths(const Options& options, const fs::path& folder) {
  const std::string histogram = options.workload == "gnmt"  ? "multi30k"
                                : options.workload == "ds2" ? "librispeech"
                                                            : "alpaca";
  const int examples =
      options.examples > 0 ? options.examples : options.batch * options.accumulate * 4000;
  workload::Random random(static_cast<uint64_t>(options.seed));
  const auto table = workload::DrawLengths(histogram, examples, &random);
  if (!table.ok()) Die(std::string(table.status().message()));
  const fs::path path = folder / "lengths.csv";
  std::ofstream file(path);
  file << (table->front().size() == 2 ? "len_source,len_target\n" : "len\n");
  for (const auto& row : *table) file << absl::StrJoin(row, ",") << "\n";
  return path;
}

[[noreturn]] void DieWithLog(const fs::path& folder, const std::string& message) {
  std::ifstream log(folder / "run.log");
  std::stringstream text;
  text << log.rdbuf();
  Die(absl::StrCat(message, " (", (folder / "run.log").string(), "):\n", text.str()));
}

std::vector<std::string> TrainingCommand(const Options& options, const fs::path& bin,
                                         const std::string& lengths) {
  std::vector<std::string> command = {(bin / "seqpoint_workload").string(),
                                      "--model",
                                      options.workload,
                                      "--lengths",
                                      lengths,
                                      "--batch",
                                      absl::StrCat(options.batch),
                                      "--order",
                                      options.order,
                                      "--readback",
                                      options.readback,
                                      "--seed",
                                      absl::StrCat(options.seed),
                                      "--quiet"};
  if (options.nvtx) command.push_back("--nvtx");
  if (options.prefetch) command.push_back("--prefetch");
  if (options.backward_thread) command.push_back("--backward-thread");
  if (options.graphs) command.push_back("--graphs");
  if (options.accumulate > 1) {
    command.insert(command.end(), {"--accumulate", absl::StrCat(options.accumulate)});
  }
  if (options.eval_every > 0) {
    command.insert(command.end(), {"--eval-every", absl::StrCat(options.eval_every)});
  }
  return command;
}

Truth MustReadTruth(const fs::path& path) {
  std::optional<Truth> truth = ReadTruth(path);
  if (!truth) Die(absl::StrCat("cannot read ", path.string()));
  return *std::move(truth);
}

std::optional<Asked> AskTime(Api& api, const std::string& job, double iterations_total) {
  v1::ProjectRequest request;
  request.set_job(job);
  request.set_confidence(0.95);
  const auto reply = api.Call(&v1::Profiler::Stub::Project, request);
  if (!reply || !reply->projection().has_total()) return std::nullopt;
  const v1::Projection& p = reply->projection();
  return Asked{.fraction = static_cast<double>(p.iterations_so_far()) / iterations_total,
               .value = p.total().value(),
               .low = p.total().low(),
               .high = p.total().high(),
               .basis = p.basis()};
}

// ------------------------------------------------------------------------------------- judging

struct Figure {
  std::string name;
  std::string value;
  std::string goal;
  bool met;
};

class Judge {
 public:
  void Add(std::string name, std::string value, std::string goal, bool met) {
    figures_.push_back({std::move(name), std::move(value), std::move(goal), met});
  }
  bool Print() const {
    bool all = true;
    std::printf("\n  %-46s %-40s %s\n", "figure", "measured", "to reach");
    for (const Figure& figure : figures_) {
      std::printf("%s %-46s %-40s %s\n", figure.met ? " " : "!", figure.name.c_str(),
                  figure.value.c_str(), figure.goal.c_str());
      all = all && figure.met;
    }
    return all;
  }

 private:
  std::vector<Figure> figures_;
};

std::string Percent(double share) { return absl::StrFormat("%.3f %%", share * 100); }
std::string Seconds(double ns) { return absl::StrFormat("%.3f s", ns / 1e9); }

std::string Json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

// The found lengths are the program's own.
bool SameLengths(const Truth& truth, const std::vector<v1::Iteration>& iterations) {
  for (const v1::Iteration& iteration : iterations) {
    const auto number = static_cast<size_t>(iteration.number());
    if (number >= truth.iterations.size()) continue;
    const std::vector<int64_t> found(iteration.lengths().begin(), iteration.lengths().end());
    if (found != truth.iterations[number].lengths) return false;
  }
  return !iterations.empty();
}

int Run(Options options) {
  const auto started = std::chrono::steady_clock::now();
  const fs::path bin = BinaryDirectory();
  const fs::path build = bin.parent_path();
  TempFolder temp_folder;
  const fs::path& folder = temp_folder.path();
  const std::string lengths =
      options.lengths.empty() ? WriteLengths(options, folder) : options.lengths;
  if (!fs::exists(bin / "seqpoint_workload")) {
    Die("the workloads were not built (no nvcc): install the CUDA Toolkit 13 or set CUDA_HOME");
  }

  setenv("SEQPOINT_DIR", (folder / "run").c_str(), 1);
  setenv("XDG_STATE_HOME", (folder / "state").c_str(), 1);
  if (!options.real_gpu) {
    setenv("LD_LIBRARY_PATH", (build / "softgpu").c_str(), 1);
    if (!options.gpu.empty()) setenv("SWGPU_CONFIG", options.gpu.c_str(), 1);
    setenv("SWGPU_SEED", absl::StrCat(options.seed).c_str(), 1);
  }
  const std::vector<std::string> training = TrainingCommand(options, bin, lengths);
  const auto with_truth = [&](std::vector<std::string> command, const char* name) {
    command.insert(command.end(), {"--truth", (folder / name).string()});
    return command;
  };

  // The same training without us: what the run costs, and what it does.
  if (!options.real_gpu) setenv("SWGPU_SET", "clock.speed_cap=0", 1);
  int status = 0;
  waitpid(Spawn(with_truth(training, "alone.jsonl"), folder / "run.log"), &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) DieWithLog(folder, "training alone failed");

  // A model iteration lasts a few milliseconds; at four times that speed the daemon can follow, as
  // it can on a real GPU.
  if (!options.real_gpu) setenv("SWGPU_SET", "clock.speed_cap=4", 1);
  std::vector<std::string> command = {
      (bin / "seqpoint").string(), "run", "--job", "demo", "--run-id", "demo", "--lengths", lengths,
      "--batch", absl::StrCat(options.batch), "--order", options.order, "--epochs", "1",
      // Half a minute of training must pay for all measurements.
      "--overhead-budget", "10%", "--"};
  for (const std::string& part : with_truth(training, "truth.jsonl")) command.push_back(part);
  const pid_t pid = Spawn(command, folder / "run.log");

  // While it trains: ask at 5 % and at 25 % of the epoch. The daemon comes up first.
  for (int i = 0; i < 1000 && !fs::exists(folder / "run" / "api.sock"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  Api api(folder / "run" / "api.sock");
  std::map<double, Asked> asked;
  bool running = true;
  while (running) {
    running = waitpid(pid, &status, WNOHANG) == 0;
    v1::GetJobRequest request;
    request.set_job("demo@demo");
    const auto job = api.Call(&v1::Profiler::Stub::GetJob, request);
    if (job && job->job().has_time() && job->job().time().iterations_total() > 0) {
      const double total = static_cast<double>(job->job().time().iterations_total());
      for (const double fraction : {0.05, 0.25}) {
        if (asked.contains(fraction)) continue;
        if (static_cast<double>(job->job().iterations()) < fraction * total) continue;
        if (const auto answer = AskTime(api, "demo@demo", total)) asked[fraction] = *answer;
      }
      if (!options.quiet && isatty(2)) {
        std::fprintf(stderr, "\r%ld iterations, %ld unique lengths, %d measured   ",
                     static_cast<long>(job->job().iterations()),
                     static_cast<long>(job->job().unique_lengths()),
                     job->job().seqpoints().measurements());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!options.quiet && isatty(2)) std::fprintf(stderr, "\n");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    DieWithLog(folder, "the training run failed");
  }

  // Afterwards: everything else.
  v1::GetJobRequest job_request;
  job_request.set_job("demo@demo");
  std::optional<v1::GetJobReply> job;
  for (int i = 0; i < 100; ++i) {
    job = api.Call(&v1::Profiler::Stub::GetJob, job_request);
    if (job && job->job().end_ns() != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!job) Die(absl::StrCat("the daemon does not answer: ", api.error()));
  if (job->job().end_ns() == 0) Die("the daemon did not notice that the training ended");
  const Truth truth = MustReadTruth(folder / "truth.jsonl");
  const Truth alone = MustReadTruth(folder / "alone.jsonl");
  const double n_true = static_cast<double>(truth.iterations.size());
  if (n_true == 0) Die("the training made no iteration; give it more --examples", kUsage);
  if (const auto answer = AskTime(api, "demo@demo", n_true)) asked[1.0] = *answer;

  const auto listed = api.Iterations("demo@demo");
  if (!listed) Die(absl::StrCat("no iterations: ", api.error()));
  const std::vector<v1::Iteration>& iterations = *listed;
  const Boundaries boundaries = MatchBoundaries(truth, iterations);
  int measured = 0;
  for (const v1::Iteration& iteration : iterations) measured += !iteration.config().empty();

  v1::GetSeqPointsRequest points_request;
  points_request.set_job("demo@demo");
  const auto points = api.Call(&v1::Profiler::Stub::GetSeqPoints, points_request);
  v1::GetCountersRequest counters_request;
  counters_request.set_job("demo@demo");
  counters_request.set_confidence(0.999);
  const auto counters = api.Call(&v1::Profiler::Stub::GetCounters, counters_request);
  v1::GetKernelsRequest kernels_request;
  kernels_request.set_job("demo@demo");
  const auto kernels = api.Call(&v1::Profiler::Stub::GetKernels, kernels_request);

  // Figures.
  Judge judge;
  const v1::Rule& rule = job->job().rule();
  judge.Add("iterations (true, detected)",
            absl::StrFormat("%d, %d", truth.iterations.size(), boundaries.detected),
            "equal; the last may lack its end",
            std::abs(static_cast<double>(boundaries.detected) - n_true) <= 1);
  judge.Add("boundaries exact from iteration 31 on", Percent(boundaries.exact_share), "100 %",
            boundaries.exact_share == 1);
  judge.Add("boundaries of iterations 1-30, found later", Percent(boundaries.recovered_share),
            "100 %", boundaries.recovered_share == 1);
  const bool independent = options.workload == "fixed";
  judge.Add("length feature explains time", Percent(rule.explained_share()),
            independent ? "said to be independent" : ">= 95 %",
            independent ? rule.verdict() != v1::VERDICT_EXPLAINED : rule.explained_share() >= 0.95);
  const double undisturbed_ns = UndisturbedTimeNs(truth, alone, iterations);
  for (const auto& [fraction, answer] : asked) {
    const double error = answer.value / undisturbed_ns - 1;
    const bool covers = answer.low <= undisturbed_ns && undisturbed_ns <= answer.high;
    const bool few = fraction == 0.05 && answer.fraction * n_true < kLeastIterationsAt5Percent;
    const bool judged = fraction == 1 || (fraction == 0.05 && options.order == "shuffle" && !few);
    judge.Add(absl::StrFormat("epoch time asked at %.0f %%", fraction * 100),
              absl::StrFormat("%s (%+.3f %%, +-%.2f %% %s)", Seconds(answer.value), error * 100,
                              (answer.high - answer.low) / 2 / answer.value * 100,
                              covers ? "covers" : "misses"),
              few      ? "not judged: too few iterations"
              : judged ? "within 1 %"
                       : "-",
              !judged || std::abs(error) <= 0.01);
  }
  if (!asked.contains(0.05)) {
    const bool few = 0.05 * n_true < kLeastIterationsAt5Percent;
    judge.Add("epoch time asked at 5 %", "no answer",
              few ? "not judged: too few iterations" : "within 1 %", few);
  }
  std::string counters_json;
  for (const auto& [metric, value] : truth.counters) {
    const v1::Counter* found = nullptr;
    if (counters) {
      for (const v1::Counter& counter : counters->counters()) {
        if (counter.metric() == metric) found = &counter;
      }
    }
    if (found == nullptr || !found->complete()) {
      judge.Add(metric, "not measured", "within 1 %", false);
      continue;
    }
    const v1::Estimate& projected = found->projection().has_total() ? found->projection().total()
                                                                    : found->projection().so_far();
    const double error = value != 0 ? projected.value() / value - 1 : projected.value();
    const bool covers = projected.low() <= value && value <= projected.high();
    judge.Add(
        metric,
        absl::StrFormat("%+.3f %%, 99.9 %% interval %s", error * 100, covers ? "covers" : "misses"),
        "within 1 %, covers", std::abs(error) <= 0.01 && covers);
    absl::StrAppend(
        &counters_json, counters_json.empty() ? "" : ",",
        absl::StrFormat("{\"name\":%s,\"true\":%.17g,\"projected\":%.17g,\"low\":%.17g,"
                        "\"high\":%.17g}",
                        Json(metric), value, projected.value(), projected.low(), projected.high()));
  }
  judge.Add("iterations measured in detail", absl::StrCat(measured), "<= 64", measured <= 64);

  // Share of each of the true ten longest kernels.
  double kernel_total = 0, projected_total = 0;
  std::optional<double> worst_kernel;
  for (const auto& [name, time_ns] : truth.kernel_time) kernel_total += time_ns;
  if (options.graphs) {
    judge.Add("kernels' share of time", "not seen inside CUDA graphs",
              "not judged (docs/using/demo.md)", true);
  } else if (kernels && kernel_total > 0) {
    std::map<std::string, double> projected;
    for (const v1::Kernel& kernel : kernels->kernels()) {
      projected[FunctionName(kernel.name())] += kernel.duration_ns().value();
      projected_total += kernel.duration_ns().value();
    }
    std::vector<std::pair<double, std::string>> top;
    for (const auto& [name, time_ns] : truth.kernel_time) top.emplace_back(time_ns, name);
    std::sort(top.rbegin(), top.rend());
    worst_kernel = 0;
    for (size_t i = 0; i < top.size() && i < 10; ++i) {
      const double share = projected_total > 0 ? projected[top[i].second] / projected_total : 0;
      worst_kernel = std::max(*worst_kernel, std::abs(share - top[i].first / kernel_total));
    }
    judge.Add("top 10 kernels' share of time, worst error", Percent(*worst_kernel), "<= 1 %",
              *worst_kernel <= 0.01);
  } else if (kernel_total > 0) {
    judge.Add("top 10 kernels' share of time", "not traced: " + api.error(), "<= 1 %", false);
  }
  const v1::Losses& losses = job->job().losses();
  const int64_t lost = losses.ring_dropped() + losses.ring_lost() + losses.cupti_dropped() +
                       losses.rejected() + losses.invalid_timestamps();
  judge.Add("GPU work the same as without the profiler",
            truth.digest == alone.digest ? "yes" : "NO", "yes", truth.digest == alone.digest);
  judge.Add("epoch longer by being profiled",
            Percent(truth.epoch_time_ns / alone.epoch_time_ns - 1), "-", true);
  judge.Add("  of that, stops for measuring (not projected)",
            Percent((truth.epoch_time_ns - undisturbed_ns) / alone.epoch_time_ns), "-", true);
  judge.Add("records dropped, lost or rejected", absl::StrCat(lost), "0", lost == 0);

  const std::string readback = options.readback == "1"       ? "after each iteration"
                               : options.readback == "never" ? "never"
                                                             : "every 50 iterations";
  std::printf("a training like %s, %s order, loss read back %s%s, %s, on %s\n",
              options.workload.c_str(), options.order.c_str(), readback.c_str(),
              options.prefetch ? ", batches copied one step ahead" : "",
              options.nvtx ? "with NVTX ranges" : "without NVTX ranges",
              options.real_gpu ? "the GPU" : "the software GPU");
  std::printf("an iteration begins at %s\n", rule.boundary().c_str());
  std::printf("its length: %s%s\n", rule.length().c_str(),
              !SameLengths(truth, iterations) ? ""
              : truth.iterations[0].lengths.size() == 2
                  ? "\n            (the source and target length that the program itself logs)"
                  : "\n            (the length that the program itself logs)");
  std::printf("%s%s\n", rule.message().c_str(), rule.message().empty() ? "" : "\n");
  for (const auto& [fraction, answer] : asked) {
    std::printf("asked at %.1f %%: %s\n", answer.fraction * 100, answer.basis.c_str());
  }
  const bool met = judge.Print();
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();

  if (!options.json.empty()) {
    std::string asked_json, points_json;
    for (const auto& [fraction, answer] : asked) {
      absl::StrAppend(
          &asked_json, asked_json.empty() ? "" : ",",
          absl::StrFormat("{\"fraction\":%.4f,\"asked_at\":%.5f,\"value\":%.17g,"
                          "\"low\":%.17g,\"high\":%.17g}",
                          fraction, answer.fraction, answer.value, answer.low, answer.high));
    }
    if (points) {
      for (const v1::SeqPoint& point : points->seqpoints()) {
        absl::StrAppend(&points_json, points_json.empty() ? "" : ",", "{\"length\":[",
                        absl::StrJoin(point.lengths(), ","),
                        "],\"weight\":", absl::StrFormat("%.17g", point.weight()),
                        ",\"measured\":", point.measured(), "}");
      }
    }
    std::ofstream file(options.json);
    file << "{\"workload\":" << Json(options.workload)
         << ",\"iterations_true\":" << truth.iterations.size()
         << ",\"iterations_detected\":" << boundaries.detected
         << ",\"boundaries_exact\":" << boundaries.exact_share
         << ",\"boundaries_recovered\":" << boundaries.recovered_share
         << ",\"boundary_offset\":" << boundaries.launch_offset
         << ",\"key\":{\"feature\":" << Json(rule.length())
         << ",\"explained\":" << rule.explained_share() << "}"
         << ",\"unique_lengths\":" << job->job().unique_lengths() << ",\"seqpoints\":["
         << points_json << "],\"measured_iterations\":" << measured
         << ",\"epoch_time_true_ns\":" << absl::StrFormat("%.17g", truth.epoch_time_ns)
         << ",\"epoch_time_undisturbed_ns\":" << absl::StrFormat("%.17g", undisturbed_ns)
         << ",\"epoch_time_projected_ns\":[" << asked_json << "],\"counters\":[" << counters_json
         << "],\"kernels_time_error\":" << (worst_kernel ? absl::StrCat(*worst_kernel) : "null")
         << ",\"losses\":{\"ring_dropped\":" << losses.ring_dropped()
         << ",\"cupti_dropped\":" << losses.cupti_dropped() << ",\"rejected\":" << losses.rejected()
         << ",\"invalid_timestamps\":" << losses.invalid_timestamps()
         << ",\"distorted\":" << losses.distorted_iterations() << "},\"wall_s\":" << wall_s
         << ",\"all_met\":" << (met ? "true" : "false") << "}\n";
    if (!file) Die(absl::StrCat("cannot write ", options.json));
  }
  std::printf("\n%s; it took %.0f s%s\n",
              met ? "every figure met that has something to reach" : "figures marked ! were missed",
              wall_s, options.real_gpu ? "" : " (the epoch's seconds are the software GPU's own)");
  std::printf(
      "%d of the %.0f iterations were measured in detail: counters and kernels of the whole "
      "epoch are projected from them\n",
      measured, n_true);
  if (n_true < kLeastIterations) {
    std::printf(
        "the epoch of %.0f iterations is too short to judge the tool: it needs %.0f at least, and "
        "%.0f for all figures\n",
        n_true, kLeastIterations, kLeastIterationsAt5Percent / 0.05);
  }
  if (!met) {
    temp_folder.Keep();
    std::printf("kept: %s\n", folder.c_str());
  }
  std::printf(
      "next, your own: seqpoint run --lengths FILE --batch N --epochs E -- COMMAND "
      "(README.md)\n");
  return met ? 0 : 1;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  seqpoint::Options options;
  CLI::App app{"Trains one epoch under the profiler and lays its projection beside the truth",
               "./dev demo"};
  bool no_nvtx = false;
  app.add_option("--workload", options.workload, "training program")
      ->check(CLI::IsMember({"gnmt", "ds2", "transformer", "fixed"}))
      ->capture_default_str();
  app.add_option("--lengths", options.lengths,
                 "CSV with a header and one or two length columns per example")
      ->check(CLI::ExistingFile);
  app.add_option("--batch", options.batch)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--order", options.order)
      ->check(CLI::IsMember({"shuffle", "bucket", "sorted"}))
      ->capture_default_str();
  app.add_option("--readback", options.readback, "how often the loss is read back")
      ->check(CLI::IsMember({"1", "50", "never"}))
      ->capture_default_str();
  app.add_flag("--no-nvtx", no_nvtx, "the program marks nothing");
  app.add_flag("--prefetch", options.prefetch, "batches are copied one step ahead");
  app.add_option("--accumulate", options.accumulate, "micro-batches per optimiser step")
      ->check(CLI::Range(1, 64));
  app.add_option("--eval-every", options.eval_every, "an evaluation phase every N iterations")
      ->check(CLI::Range(1, 1'000'000));
  app.add_flag("--backward-thread", options.backward_thread, "backward on a second thread");
  app.add_flag("--graphs", options.graphs, "CUDA graphs per length bucket (transformer)");
  app.add_option("--gpu", options.gpu, "software GPU configuration (tests/softgpu/config/*.ini)")
      ->check(CLI::ExistingFile);
  app.add_option("--examples", options.examples, "examples drawn when no --lengths is given")
      ->check(CLI::Range(1, 100'000'000));
  app.add_option("--seed", options.seed)
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  app.add_option("--json", options.json, "write all figures here");
  app.add_flag("--quiet", options.quiet);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : seqpoint::kUsage;  // --help is no mistake
  }
  if (options.graphs && options.workload != "transformer") {
    seqpoint::Die("--graphs: only --workload transformer has CUDA graphs, not " + options.workload,
                  seqpoint::kUsage);
  }
  options.nvtx = !no_nvtx;
  if (access("/dev/nvidiactl", F_OK) == 0) options.real_gpu = true;
  return seqpoint::Run(std::move(options));
}
