// The overhead ladder: what a training loop costs more with the library in its process, at each
// level, and what the governor lets a whole run spend. docs/using/figures.md has the figures.
//
//   overhead_benchmark [--gpu software|real] [--jobs launch,compute,graph,run] [--rounds 10]
//                      [--blocks 6] [--block-ms 40] [--beside NAME=COMMAND]... [--no-governor]
//                      [--json FILE] [--markdown FILE] [--merge FILE]...
//
// With --gpu real the CUDA libraries are those that the environment finds. In each round every rung
// has a process (the levels share one, which the daemon in this program switches); blocks of a rung
// and of the program without us are timed in turn. On the software GPU, whose launches cost next to
// nothing, the launch-bound loop spends 2 us of its own before each, so that shares mean something.
// A rung's figure is the median over the rounds of the medians over their blocks; its 95 % interval
// comes from the rounds, each of which has processes of its own, because where code and data lie
// differs from process to process.
//
// The job "run" is the launch-bound loop under `seqpoint run`, with all that it does by itself once
// it has found the iterations: with NVTX ranges, with a batch that is copied, with neither.
//
// --beside runs the same loop under another tool (COMMAND is put in front), --merge takes rows that
// another program measured: {"rows": [...]}, each as in this program's own JSON.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/abi/matcher.h"
#include "simdjson.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kIterationCycle = 4;  // of overhead_job
constexpr double kComputeKernelNs = 250'000, kGraphKernelNs = 4'000;
// Windows forty times as dear as the software GPU has them, so that there is something to govern.
constexpr char kDearWindows[] =
    "clock.speed_cap=4,cupti.range_ns=1600000,cupti.pass_ns=4000000,cupti.flush_ns=800000";
constexpr int kGovernorExamples = 64 * 1000;

struct Options {
  std::string gpu = "software";
  std::string jobs = "launch,compute,graph,run";
  int rounds = 10, blocks = 6, block_ms = 40;
  std::vector<std::string> beside, merge;
  bool no_governor = false;
  std::string json, markdown;
  bool real() const { return gpu == "real"; }
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "overhead_benchmark: %s\n", why.c_str());
  std::exit(1);
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// ------------------------------------------------------------------------------------- the ladder

// The level that the daemon of a round sets in the process.
enum class Wanted { kLearn, kMark, kMarkLaunches, kTrace, kCounters, kReleased };

// A daemon that puts one process to the levels of the ladder, one after the other.
class Daemon : private ingest::InjectServer::Handler, private ingest::RingSink {
 public:
  Daemon() {
    auto server = ingest::InjectServer::Listen(directory(), {}, this);
    if (!server.ok()) Die(std::string(server.status().message()));
    server_ = *std::move(server);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Daemon() override {
    stop_ = true;
    thread_.join();
    reader_.reset();
    server_.reset();
  }
  std::string directory() const { return folder_.path().string(); }

  void Want(Wanted wanted) {
    const std::lock_guard lock(mutex_);
    auto control = std::make_unique<abi::Control>();
    *control = {};
    control->flush_interval_ms = 100;
    abi::Rule& rule = control->rule;
    const auto bit = [](abi::Op op) { return 1u << static_cast<uint32_t>(op); };
    if (wanted != Wanted::kLearn) {
      rule.generation = static_cast<uint32_t>(wanted);
      rule.watched_ops = bit(abi::Op::kCopyH2D);
      rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
      rule.clock = rule.boundary;
      rule.length_count = 1;
      rule.length[0].pattern = rule.boundary;
      rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kBytes);
    }
    control->level = static_cast<uint8_t>(wanted == Wanted::kLearn      ? abi::Level::kLearn
                                          : wanted == Wanted::kTrace    ? abi::Level::kTrace
                                          : wanted == Wanted::kReleased ? abi::Level::kReleased
                                                                        : abi::Level::kMark);
    if (wanted == Wanted::kMarkLaunches) {
      rule.watched_ops |= bit(abi::Op::kLaunch);
      rule.step.op = static_cast<uint8_t>(abi::Op::kLaunch);
      rule.step.match = abi::kMatchName;
      rule.step.name_hash = abi::NameHash("adam", 4);
    }
    if (wanted == Wanted::kCounters) {
      const std::string names = "gpu__time_duration.sum\ndram__bytes_read.sum";
      abi::MetricConfig& config = control->config[control->config_count++];
      config.config_id = 2;
      config.metric_count = 2;
      config.text_bytes = static_cast<uint32_t>(names.size());
      std::memcpy(config.names, names.data(), names.size());
      control->plan[control->plan_count++] = {
          {INT64_MIN, INT64_MIN}, {INT64_MAX, INT64_MAX}, 2, 0, UINT32_MAX, 1};
      control->measurement_cap = UINT32_MAX;
      control->overhead_permille = 1000;
    }
    counters_ = 0;
    in_effect_ = false;
    wanted_ = wanted;
    level_ = control->level;
    generation_ = rule.generation;
    control_ = std::move(control);
    // It begins at level learn.
    in_effect_ = wanted == Wanted::kLearn && last_.level == level_;
    if (writer_ != nullptr) writer_->Write(*control_);
  }
  // The process does what was wanted last.
  bool in_effect() const { return in_effect_; }
  // Iterations whose counters came since then.
  int counters() const { return counters_; }
  std::string error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  void Serve() {
    while (!stop_) {
      server_->RunOnce(2);
      const std::lock_guard lock(mutex_);
      if (reader_ == nullptr) continue;
      writer_->Heartbeat(NowNs());
      reader_->Poll(*this, NowNs());
      reader_->Release(reader_->cursor());
    }
  }
  absl::Status OnProcess(ingest::AcceptedProcess process) override {
    const std::lock_guard lock(mutex_);
    reader_ = std::move(process.reader);
    writer_ = std::make_unique<ingest::ControlWriter>(reader_->control_block());
    if (control_ != nullptr) writer_->Write(*control_);
    return absl::OkStatus();
  }
  void OnGone(uint64_t) override {}
  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    if (type == abi::EventType::kRule && payload.size() >= sizeof(abi::RuleEvent)) {
      abi::RuleEvent event;
      std::memcpy(&event, payload.data(), sizeof(event));
      last_ = event;
      const bool as_wanted = event.level == level_ && event.rule_generation == generation_;
      // Released is said by the feature, counters by the first of them.
      if (as_wanted && wanted_ != Wanted::kReleased && wanted_ != Wanted::kCounters) {
        in_effect_ = true;
      }
    } else if (type == abi::EventType::kCounters) {
      abi::CountersEvent event;
      std::memcpy(&event, payload.data(), sizeof(event));
      if (event.status != 0) return;
      ++counters_;
      if (wanted_ == Wanted::kCounters) in_effect_ = true;
    } else if (type == abi::EventType::kFeature) {
      abi::FeatureEvent event;
      std::memcpy(&event, payload.data(), sizeof(event));
      const std::string message(reinterpret_cast<const char*>(payload.data()) + sizeof(event),
                                event.length);
      if (wanted_ == Wanted::kReleased && message.find("released") != std::string::npos) {
        in_effect_ = true;
      }
      if (event.state == static_cast<uint16_t>(abi::FeatureState::kFailed)) error_ = message;
    }
  }
  void OnData(absl::Span<const abi::DataRecord>) override {}
  void OnCallsMissing(uint64_t, uint64_t) override {}

  const TempFolder folder_;
  mutable std::mutex mutex_;
  std::unique_ptr<ingest::InjectServer> server_;
  std::unique_ptr<ingest::RingReader> reader_;
  std::unique_ptr<ingest::ControlWriter> writer_;
  std::unique_ptr<abi::Control> control_;
  Wanted wanted_ = Wanted::kLearn;
  uint8_t level_ = 0;
  uint32_t generation_ = 0;
  abi::RuleEvent last_ = {};
  std::string error_;
  std::atomic<bool> stop_{false}, in_effect_{false};
  std::atomic<int> counters_{0};
  std::thread thread_;
};

struct Block {
  double wall_ns = 0, cpu_ns = 0, kernels = 0, launches = 0;
};

// overhead_job with pipes to ask for a block of iterations and to hear its time.
class Job {
 public:
  Job(const std::vector<std::string>& command, std::vector<std::string> environment) {
    int ask[2], answer[2];
    if (pipe2(ask, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0) Die("no pipe");
    std::vector<std::string> words = {"/usr/bin/env"};
    words.insert(words.end(), environment.begin(), environment.end());
    words.insert(words.end(), command.begin(), command.end());
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);  // a tool may start the job as a child of its own
      dup2(ask[0], 0);
      dup2(answer[1], 1);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ask[0]);
    close(answer[1]);
    ask_ = ask[1];
    answer_ = fdopen(answer[0], "r");
    // Other tools talk, too.
    char line[512];
    while (std::fgets(line, sizeof(line), answer_) != nullptr) {
      if (std::strcmp(line, "ready\n") == 0) return;
    }
    Die(absl::StrCat("the job ended before it began: ", command[0]));
  }
  ~Job() {
    close(ask_);
    fclose(answer_);
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Block Run(int iterations) {
    const std::string line = absl::StrCat(iterations, "\n");
    Block block;
    if (write(ask_, line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        std::fscanf(answer_, "%lf %lf %lf %lf", &block.wall_ns, &block.cpu_ns, &block.kernels,
                    &block.launches) != 4) {
      Die("a job ended early");
    }
    return block;
  }

 private:
  pid_t pid_;
  int ask_;
  FILE* answer_;
};

struct Figure {
  double median = 0, low = 0, high = 0;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The median, and the order statistics that hold it with 95 %.
Figure FigureOf(std::vector<double> values) {
  Figure figure;
  if (values.empty()) return figure;
  figure.median = Median(values);
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double half = 0.98 * std::sqrt(n);
  const auto at = [&](double rank) {
    return values[static_cast<size_t>(std::clamp(std::round(rank), 0.0, n - 1))];
  };
  figure.low = at((n - 1) / 2 - half);
  figure.high = at((n - 1) / 2 + half);
  return figure;
}

struct Row {
  std::string job, rung;
  Figure percent;       // of the iteration's time
  Figure iteration_us;  // longer
  Figure launch_ns;     // of the launching thread's CPU time, per call that launches
  double plain_iteration_us = 0;
  double launches_per_iteration = 0;
  double launches_per_s = 0;  // of the program without us
  int rounds = 0, blocks = 0;
};

// Differences of one rung, per round.
struct Rounds {
  std::vector<double> percent, iteration_us, launch_ns, plain_us;
  double launches = 0, kernels = 0;  // of an iteration
};

const std::vector<std::pair<std::string, Wanted>>& Levels() {
  static const std::vector<std::pair<std::string, Wanted>> levels = {
      {"learn", Wanted::kLearn},
      {"mark", Wanted::kMark},
      {"mark, every launch watched", Wanted::kMarkLaunches},
      {"trace", Wanted::kTrace},
      {"counters, one iteration after the other", Wanted::kCounters},
      {"released", Wanted::kReleased}};
  return levels;
}

class Ladder {
 public:
  explicit Ladder(const Options& options) : options_(options), bin_(BinaryDirectory()) {
    library_ = (bin_.parent_path() / "lib" / "libseqpoint_inject.so").string();
    if (options.real()) return;
    settings_ = {"LD_LIBRARY_PATH=" + (bin_.parent_path() / "softgpu").string(),
                 // Kernels are as long as asked for, and the queue is never what is waited for.
                 "SWGPU_SET=clock.mode=real,gpu.kernel_min_ns=10,gpu.kernel_gap_ns=0,"
                 "gpu.launch_latency_ns=10,gpu.queue_depth=4096,noise.kernel=0,"
                 "noise.slow_share=0,noise.drift=0,noise.search_ns=0"};
  }

  std::vector<Row> Measure(const std::string& kind) {
    const double kernel_ns = kind == "compute" ? kComputeKernelNs : kGraphKernelNs;
    const std::string rounds = kind == "launch" ? "0" : std::to_string(Calibrate(kind, kernel_ns));
    command_ = {(bin_ / "overhead_job").string(), "kind=" + kind, "rounds=" + rounds};
    std::map<std::string, Rounds> found;
    std::vector<std::string> order;
    for (int round = 0; round < options_.rounds; ++round) {
      Job plain(command_, Environment({}));
      if (round == 0) ChooseBlock(&plain);
      const auto compare = [&](const std::string& rung, Job* job) {
        if (round == 0) order.push_back(rung);
        Compare(job, &plain, &found[rung]);
      };
      // The same program against itself: what of the figures is noise.
      {
        Job same(command_, Environment({}));
        same.Run(kIterationCycle);
        compare("not loaded", &same);
      }
      {
        Job disabled(command_, Environment({"SEQPOINT_DISABLE=1", "LD_PRELOAD=" + library_}));
        disabled.Run(kIterationCycle);
        compare("loaded, SEQPOINT_DISABLE=1", &disabled);
      }
      // Without a daemon the library stops watching after 2 s.
      const TempFolder empty;
      const fs::path& nowhere = empty.path();
      Job idle(command_,
               Environment({"SEQPOINT_DIR=" + nowhere.string(), "LD_PRELOAD=" + library_}));
      const uint64_t idle_from_ns = NowNs() + 2'500'000'000;
      {
        Daemon daemon;
        Job job(command_,
                Environment({"SEQPOINT_DIR=" + daemon.directory(), "LD_PRELOAD=" + library_}));
        for (const auto& [rung, wanted] : Levels()) {
          daemon.Want(wanted);
          if (!Reach(&daemon, &job)) {
            if (round == 0) {
              std::fprintf(stderr, "%s: \"%s\" could not be reached: %s\n", kind.c_str(),
                           rung.c_str(), daemon.error().c_str());
            }
            continue;
          }
          job.Run(iterations_);
          compare(rung, &job);
        }
      }
      while (NowNs() < idle_from_ns) idle.Run(kIterationCycle);
      compare("loaded, no daemon", &idle);
      {
        const std::string tracer =
            (bin_.parent_path() / "lib" / "libseqpoint_overhead_tracer.so").string();
        Job traced(command_, Environment({"CUDA_INJECTION64_PATH=" + tracer}));
        traced.Run(iterations_);
        compare("another tracer, all calls and kernels, records thrown away", &traced);
      }
      for (const std::string& beside : options_.beside) {
        const std::pair<std::string, std::string> tool =
            absl::StrSplit(beside, absl::MaxSplits('=', 1));
        std::vector<std::string> command = absl::StrSplit(tool.second, ' ', absl::SkipEmpty());
        command.insert(command.end(), command_.begin(), command_.end());
        Job other(command, Environment({}));
        other.Run(iterations_);
        compare(tool.first, &other);
      }
      std::fprintf(stderr, "%s: round %d of %d\n", kind.c_str(), round + 1, options_.rounds);
    }
    std::vector<Row> rows;
    for (const std::string& rung : order) rows.push_back(MakeRow(kind, rung, found[rung]));
    return rows;
  }

  // The whole way: `seqpoint run` and its daemon, which learns, measures and then marks.
  std::vector<Row> MeasureRun() {
    const std::vector<std::pair<std::string, std::vector<std::string>>> loops = {
        {"NVTX ranges", {"nvtx=1", "copy=0"}},
        {"NVTX ranges, batch copy", {"nvtx=1"}},
        {"batch copy", {}},
        {"neither", {"copy=0"}}};
    std::map<std::string, Rounds> found;
    for (int round = 0; round < options_.rounds; ++round) {
      for (const auto& [rung, more] : loops) {
        command_ = {(bin_ / "overhead_job").string(), "kind=launch", "rounds=0"};
        command_.insert(command_.end(), more.begin(), more.end());
        Job plain(command_, Environment({}));
        if (round == 0) ChooseBlock(&plain);
        const TempFolder temp_folder;
        const fs::path& folder = temp_folder.path();
        std::vector<std::string> command = {(bin_ / "seqpoint").string(),
                                            "run",
                                            "--quiet",
                                            "--iterations",
                                            "1000000",
                                            "--job",
                                            "loop",
                                            "--run-id",
                                            "1",
                                            "--"};
        command.insert(command.end(), command_.begin(), command_.end());
        {
          Job job(command, Environment({"SEQPOINT_DIR=" + (folder / "run").string(),
                                        "XDG_STATE_HOME=" + (folder / "state").string()}));
          if (MarksIterations(folder / "run" / "api.sock", &job)) {
            Compare(&job, &plain, &found[rung]);
          } else {
            std::fprintf(stderr, "run: no iterations were found with %s\n", rung.c_str());
          }
        }
      }
      std::fprintf(stderr, "run: round %d of %d\n", round + 1, options_.rounds);
    }
    std::vector<Row> rows;
    for (const auto& [rung, more] : loops) rows.push_back(MakeRow("run", rung, found[rung]));
    return rows;
  }

 private:
  std::vector<std::string> Environment(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"-u", "CUDA_INJECTION64_PATH", "-u", "NVTX_INJECTION64_PATH"};
    all.insert(all.end(), settings_.begin(), settings_.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // As many iterations as make a block.
  void ChooseBlock(Job* plain) {
    plain->Run(kIterationCycle);
    const double iteration_ns = plain->Run(4 * kIterationCycle).wall_ns / (4 * kIterationCycle);
    const double wanted = options_.block_ms * 1e6 / iteration_ns / kIterationCycle;
    iterations_ = kIterationCycle * std::max(1, static_cast<int>(std::lround(wanted)));
  }

  // Blocks of the job and of the loop without us, in turn.
  void Compare(Job* job, Job* plain, Rounds* rounds) {
    std::vector<double> percent, iteration_us, launch_ns;
    for (int block = 0; block < options_.blocks; ++block) {
      // Who is first changes, too.
      Block with;
      if (block % 2 == 0) with = job->Run(iterations_);
      const Block without = plain->Run(iterations_);
      if (block % 2 != 0) with = job->Run(iterations_);
      percent.push_back(100 * (with.wall_ns / without.wall_ns - 1));
      iteration_us.push_back((with.wall_ns - without.wall_ns) / iterations_ / 1e3);
      launch_ns.push_back((with.cpu_ns - without.cpu_ns) / without.launches);
      rounds->plain_us.push_back(without.wall_ns / iterations_ / 1e3);
      rounds->launches = without.launches / iterations_;
      rounds->kernels = without.kernels / iterations_;
    }
    rounds->percent.push_back(Median(percent));
    rounds->iteration_us.push_back(Median(iteration_us));
    rounds->launch_ns.push_back(Median(launch_ns));
  }

  Row MakeRow(const std::string& job, const std::string& rung, const Rounds& of) const {
    Row row;
    row.job = job;
    row.rung = rung;
    row.percent = FigureOf(of.percent);
    row.iteration_us = FigureOf(of.iteration_us);
    row.launch_ns = FigureOf(of.launch_ns);
    row.plain_iteration_us = Median(of.plain_us);
    row.launches_per_iteration = of.launches;
    row.launches_per_s = of.kernels / row.plain_iteration_us * 1e6;
    row.rounds = static_cast<int>(of.percent.size());
    row.blocks = options_.blocks;
    return row;
  }

  // Runs the job until the daemon has a rule, and as long again as the library takes to know what
  // it need not watch (StepWatch::kLearned) and most measurements take.
  bool MarksIterations(const fs::path& socket, Job* job) {
    constexpr int kSettled = 1000;
    const uint64_t deadline_ns = NowNs() + 30'000'000'000;
    Api api(socket);
    v1::GetJobRequest request;
    request.set_job("loop@1");
    while (NowNs() < deadline_ns) {
      job->Run(10 * kIterationCycle);
      const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
      if (!reply || reply->job().state() != v1::JOB_STATE_MARKING) continue;
      job->Run(kSettled);
      return true;
    }
    return false;
  }

  bool Reach(Daemon* daemon, Job* job) {
    const uint64_t deadline_ns = NowNs() + 5'000'000'000;
    while (!daemon->in_effect()) {
      if (NowNs() > deadline_ns) return false;
      job->Run(kIterationCycle);
    }
    return true;
  }

  unsigned Calibrate(const std::string& kind, double kernel_ns) {
    if (!options_.real()) return static_cast<unsigned>(kernel_ns / 4);
    std::string command = "/usr/bin/env";
    for (const std::string& word : Environment({})) absl::StrAppend(&command, " '", word, "'");
    absl::StrAppend(&command, " ", (bin_ / "overhead_job").string(), " kind=", kind,
                    " rounds=1 calibrate=", kernel_ns);
    FILE* pipe = popen(command.c_str(), "r");
    unsigned rounds = 0;
    if (pipe == nullptr || std::fscanf(pipe, "%u", &rounds) != 1) Die("no kernel could be timed");
    pclose(pipe);
    return rounds;
  }

  const Options& options_;
  const fs::path bin_;
  std::string library_;
  std::vector<std::string> settings_, command_;
  int iterations_ = 0;
};

// ----------------------------------------------------------------------------------- the governor

struct Governed {
  double budget = 0;
  Figure percent;    // longer than without us
  double stops = 0;  // what the daemon counted, as a share
  int measurements = 0;
};

// A whole run under the daemon, at a budget. Virtual time on the software GPU: exact, and the costs
// are those of its model of CUPTI.
class Governor {
 public:
  explicit Governor(const Options& options) : options_(options), bin_(BinaryDirectory()) {}

  std::vector<Governed> Measure() {
    const TempFolder temp_folder;
    const fs::path& folder = temp_folder.path();
    setenv("XDG_STATE_HOME", (folder / "state").c_str(), 1);
    unsetenv("CUDA_INJECTION64_PATH");
    unsetenv("NVTX_INJECTION64_PATH");
    if (!options_.real()) {
      setenv("LD_LIBRARY_PATH", (bin_.parent_path() / "softgpu").c_str(), 1);
      setenv("SWGPU_SEED", "1", 1);
    }
    const std::string lengths = WriteLengths(folder);
    training_ = {(bin_ / "seqpoint_workload").string(),
                 "--model",
                 "gnmt",
                 "--lengths",
                 lengths,
                 "--batch",
                 "64",
                 "--nvtx",
                 "--quiet"};
    const int repeats = options_.real() ? std::max(3, options_.rounds / 3) : 1;
    std::vector<Governed> all;
    for (const double budget : {0.002, 0.01, 0.05}) {
      Governed governed;
      governed.budget = budget;
      std::vector<double> percent;
      for (int repeat = 0; repeat < repeats; ++repeat) {
        const double alone_ns = Alone(folder);
        percent.push_back(100 * (Under(folder, lengths, budget, &governed) / alone_ns - 1));
      }
      governed.percent = FigureOf(percent);
      std::fprintf(stderr, "governor: budget %.1f %% done\n", 100 * budget);
      all.push_back(governed);
    }
    return all;
  }

 private:
  std::string WriteLengths(const fs::path& folder) {
    const fs::path path = folder / "lengths.csv";
    std::ofstream file(path);
    std::mt19937 random(1);
    std::gamma_distribution<double> length(4, 6);
    file << "len\n";
    for (int i = 0; i < kGovernorExamples; ++i) {
      file << 1 + static_cast<int>(std::min(79.0, length(random))) << "\n";
    }
    return path;
  }

  double EpochNs(std::vector<std::string> command, const fs::path& folder) {
    command.insert(command.end(), {"--truth", (folder / "truth.jsonl").string()});
    int status = 0;
    waitpid(Spawn(command, folder / "run.log"), &status, 0);
    const auto truth = ReadTruth(folder / "truth.jsonl");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !truth) {
      std::ifstream log(folder / "run.log");
      std::stringstream text;
      text << log.rdbuf();
      Die("a run of the governor failed:\n" + text.str());
    }
    return truth->epoch_time_ns;
  }

  double Alone(const fs::path& folder) {
    if (!options_.real()) setenv("SWGPU_SET", "clock.speed_cap=0", 1);
    return EpochNs(training_, folder);
  }

  double Under(const fs::path& folder, const std::string& lengths, double budget,
               Governed* governed) {
    const TempFolder run_folder;
    const fs::path& run = run_folder.path();
    setenv("SEQPOINT_DIR", (run / "run").c_str(), 1);
    setenv("XDG_STATE_HOME", (run / "state").c_str(), 1);
    if (!options_.real()) setenv("SWGPU_SET", kDearWindows, 1);
    std::vector<std::string> command = {(bin_ / "seqpoint").string(),
                                        "run",
                                        "--job",
                                        "governor",
                                        "--run-id",
                                        "1",
                                        "--lengths",
                                        lengths,
                                        "--batch",
                                        "64",
                                        "--epochs",
                                        "1",
                                        "--overhead-budget",
                                        absl::StrFormat("%.2f%%", 100 * budget),
                                        "--"};
    command.insert(command.end(), training_.begin(), training_.end());
    const double epoch_ns = EpochNs(command, folder);
    Api api(run / "run" / "api.sock");
    v1::GetJobRequest request;
    request.set_job("governor@1");
    const auto job = api.Call(&v1::Profiler::Stub::GetJob, request);
    if (job) {
      governed->stops = job->job().overhead().spent_share();
      governed->measurements = job->job().seqpoints().measurements();
    }
    return epoch_ns;
  }

  const Options& options_;
  const fs::path bin_;
  std::vector<std::string> training_;
};

// ------------------------------------------------------------------------------------------ output

std::string Json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}
std::string Json(const Figure& figure) {
  return absl::StrFormat("{\"median\": %.6g, \"low\": %.6g, \"high\": %.6g}", figure.median,
                         figure.low, figure.high);
}

std::string ToJson(const Options& options, const std::string& command, const std::vector<Row>& rows,
                   const std::vector<Governed>& governed) {
  std::string json = absl::StrCat("{\n\"schema\": 1, \"gpu\": ", Json(options.gpu),
                                  ", \"command\": ", Json(command), ",\n\"rows\": [\n");
  const char* comma = "";
  for (const Row& row : rows) {
    absl::StrAppend(&json, comma, "{\"job\": ", Json(row.job), ", \"rung\": ", Json(row.rung),
                    ", \"percent\": ", Json(row.percent),
                    ", \"iteration_us\": ", Json(row.iteration_us),
                    ", \"launch_ns\": ", Json(row.launch_ns),
                    absl::StrFormat(", \"plain_iteration_us\": %.6g, \"launches_per_iteration\": "
                                    "%.6g, \"kernels_per_s\": %.6g, \"rounds\": %d, \"blocks\": "
                                    "%d}",
                                    row.plain_iteration_us, row.launches_per_iteration,
                                    row.launches_per_s, row.rounds, row.blocks));
    comma = ",\n";
  }
  absl::StrAppend(&json, "\n],\n\"governor\": [\n");
  comma = "";
  for (const Governed& run : governed) {
    absl::StrAppend(&json, comma, absl::StrFormat("{\"budget\": %.6g, \"percent\": ", run.budget),
                    Json(run.percent),
                    absl::StrFormat(", \"stops_share\": %.6g, \"measurements\": %d}", run.stops,
                                    run.measurements));
    comma = ",\n";
  }
  return json + "\n]\n}\n";
}

std::string ToMarkdown(const std::vector<Row>& rows, const std::vector<Governed>& governed) {
  const auto cell = [](const Figure& f) {
    return absl::StrFormat("%+.2f (%+.2f to %+.2f)", f.median, f.low, f.high);
  };
  std::string text;
  std::string job;
  for (const Row& row : rows) {
    if (row.job != job) {
      job = row.job;
      absl::StrAppendFormat(
          &text,
          "\n%s: an iteration takes %.0f us, %.0f launching calls, %.0f kernels/s; "
          "%d rounds of %d blocks\n\n"
          "| | %% of the iteration (95 %%) | us an iteration | CPU ns a launch |\n"
          "|---|---|---|---|\n",
          job, row.plain_iteration_us, row.launches_per_iteration, row.launches_per_s, row.rounds,
          row.blocks);
    }
    absl::StrAppend(&text, "| ", row.rung, " | ", cell(row.percent), " | ", cell(row.iteration_us),
                    " | ", cell(row.launch_ns), " |\n");
  }
  if (governed.empty()) return text;
  absl::StrAppend(
      &text,
      "\n| overhead budget | stops, as the daemon counts them | run longer than without "
      "us, % | measurements |\n|---|---|---|---|\n");
  for (const Governed& run : governed) {
    absl::StrAppendFormat(&text, "| %.1f %% | %.3f %% | %s | %d |\n", 100 * run.budget,
                          100 * run.stops, cell(run.percent), run.measurements);
  }
  return text;
}

// Rows of another program, for instance of PyTorch's profiler.
void Merge(const std::string& path, std::vector<Row>* rows) {
  simdjson::dom::parser parser;
  simdjson::dom::element file;
  if (auto error = parser.load(path).get(file); error != simdjson::SUCCESS) {
    Die(absl::StrCat(path, ": ", simdjson::error_message(error)));
  }
  try {
    const auto figure = [](const simdjson::dom::element& row, const char* name) {
      Figure found;
      simdjson::dom::element value;
      if (row[name].get(value) != simdjson::SUCCESS) return found;
      found.median = double(value["median"]);
      found.low = double(value["low"]);
      found.high = double(value["high"]);
      return found;
    };
    for (const simdjson::dom::element element : simdjson::dom::array(file["rows"])) {
      Row row;
      row.job = std::string(std::string_view(element["job"]));
      row.rung = std::string(std::string_view(element["rung"]));
      row.percent = figure(element, "percent");
      row.iteration_us = figure(element, "iteration_us");
      row.launch_ns = figure(element, "launch_ns");
      row.plain_iteration_us = double(element["plain_iteration_us"]);
      row.launches_per_iteration = double(element["launches_per_iteration"]);
      row.launches_per_s = double(element["kernels_per_s"]);
      row.rounds = static_cast<int>(int64_t(element["rounds"]));
      row.blocks = static_cast<int>(int64_t(element["blocks"]));
      rows->push_back(row);
    }
  } catch (const simdjson::simdjson_error& error) {
    Die(absl::StrCat(path, ": a row lacks something: ", error.what()));
  }
  std::stable_sort(rows->begin(), rows->end(),
                   [](const Row& a, const Row& b) { return a.job < b.job; });
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("What a training loop costs more with the library in its process.");
  app.add_option("--gpu", options.gpu, "software, or real: CUDA's libraries as the environment has")
      ->check(CLI::IsMember({"software", "real"}));
  app.add_option("--jobs", options.jobs, "of launch, compute, graph, run, with commas; or none");
  app.add_option("--rounds", options.rounds, "each with new processes")->check(CLI::Range(1, 1000));
  app.add_option("--blocks", options.blocks, "of each rung in a round")->check(CLI::Range(1, 1000));
  app.add_option("--block-ms", options.block_ms, "how long a block takes")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--beside", options.beside, "NAME=COMMAND: the same loop under another tool");
  app.add_option("--merge", options.merge, "JSON with rows of another program");
  app.add_flag("--no-governor", options.no_governor, "only the ladder");
  app.add_option("--json", options.json, "file for the result");
  app.add_option("--markdown", options.markdown, "file for the tables");
  CLI11_PARSE(app, argc, argv);
  signal(SIGPIPE, SIG_IGN);

  std::vector<Row> rows;
  Ladder ladder(options);
  const std::vector<std::string> jobs = absl::StrSplit(options.jobs, ',', absl::SkipEmpty());
  for (const std::string& job : jobs) {
    if (job == "none") break;
    for (const Row& row : job == "run" ? ladder.MeasureRun() : ladder.Measure(job)) {
      rows.push_back(row);
    }
  }
  for (const std::string& path : options.merge) Merge(path, &rows);
  std::vector<Governed> governed;
  if (!options.no_governor) governed = Governor(options).Measure();

  std::string command = "./dev bench overhead";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&command, " ", argv[i]);
  const std::string markdown = ToMarkdown(rows, governed);
  std::printf("%s", markdown.c_str());
  if (!options.markdown.empty()) std::ofstream(options.markdown) << markdown;
  if (!options.json.empty()) {
    std::ofstream(options.json) << ToJson(options, command, rows, governed);
  }
  return 0;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) { return seqpoint::Main(argc, argv); }
