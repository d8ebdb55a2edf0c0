// Death at random moments, again and again, with real processes on the software GPU.
//
//   soak [daemon|training|unseen]... [--rounds 30] [--seed N]
//
//   daemon    one training run; the daemon is killed (SIGKILL) at random moments and started again
//             after 0.1 to 5 s, by default 30 times. At the end the log of iterations is the truth
//             file's, each number once; what was measured and traced is what these iterations did;
//             no loss is counted; the training's work is what it is without a profiler.
//   training  30 programs that train are killed at random moments, in turn one that is learned from
//             and measured, and one of which everything is traced. What the dead program's ring
//             shows as published, the daemon has read; and what it read is in the store, once.
//
//   unseen    30 short training runs; the daemon is killed at a random moment of each, and started
//             again while it runs or after its end. Where not all of its iterations are known,
//             every figure says so.
//
// Until the rule is known a daemon stays away for at most a second: a program whose daemon is gone
// for 2 s stops sending its calls, by design.
//
// Ends with 1 and one line for each thing that does not hold; its folder is then kept.
#include <cupti.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/store/store.h"
#include "injection/abi/records.h"
#include "tests/support/api.h"
#include "tests/support/ring_view.h"
#include "tests/support/temp_folder.h"
#include "tests/support/truth.h"

namespace seqpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Iterations per round of the daemon's soak. At half speed there are about 65 a second, and a round
// takes 3.6 s in the mean.
constexpr int kIterationsPerRound = 280;
constexpr char kSpeed[] = "SWGPU_SET=clock.speed_cap=0.5";
// Noise of a counter is 0.3 %, of the truth's sums none.
constexpr double kCounterTolerance = 0.02;

class Soak {
 public:
  explicit Soak(uint32_t seed) : random_(seed) {}
  ~Soak() {
    KillAndWait(&daemon_, SIGKILL);
    if (failures_ > 0) temp_folder_.Keep();
  }

  void KillDaemons(int rounds);
  void KillTrainings(int rounds);
  void EndUnseen(int rounds);
  int failures() const { return failures_; }
  const fs::path& folder() const { return folder_; }

 private:
  struct Calls {
    std::set<uint64_t> learned;                        // sequences in the learn log
    std::map<int64_t, std::vector<uint32_t>> kernels;  // iteration -> correlation ids
    std::vector<uint32_t> launches;                    // correlation ids of traced launches
  };

  void Expect(bool holds, const std::string& what) {
    if (holds) return;
    ++failures_;
    std::printf("soak: NOT SO: %s\n", what.c_str());
    std::fflush(stdout);
  }
  template <typename A, typename B>
  void ExpectEqual(const A& a, const B& b, const std::string& what) {
    Expect(a == static_cast<A>(b), absl::StrCat(what, ": ", a, ", not ", b));
  }
  milliseconds Between(int low_ms, int high_ms) {
    return milliseconds(std::uniform_int_distribution<int>(low_ms, high_ms)(random_));
  }

  void StartDaemon() { daemon_ = SpawnDaemon(folder_); }
  pid_t Start(const std::string& job, bool injected, const std::string& environment,
              std::vector<std::string> program) {
    const fs::path build = bin_.parent_path();
    std::vector<std::string> command = {"/usr/bin/env",
                                        "LD_LIBRARY_PATH=" + (build / "softgpu").string(),
                                        "SEQPOINT_DIR=" + (folder_ / "run").string(),
                                        "SEQPOINT_JOB=" + job,
                                        "SEQPOINT_RUN_ID=1",
                                        environment};
    if (injected) {
      command.push_back("LD_PRELOAD=" + (build / "lib/libseqpoint_inject.so").string());
    }
    program[0] = (bin_ / program[0]).string();
    command.insert(command.end(), program.begin(), program.end());
    return Spawn(command, folder_ / (job + ".log"));
  }
  static bool Ended(pid_t pid) {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }

  std::optional<v1::Job> GetJob(const std::string& name) {
    Api api(folder_ / "run" / "api.sock");
    v1::GetJobRequest request;
    request.set_job(name);
    const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
    if (!reply) return std::nullopt;
    return reply->job();
  }
  v1::Job EndedJob(const std::string& name) {
    for (int i = 0; i < 300; ++i) {
      const auto job = GetJob(name);
      if (job && job->end_ns() != 0) return *job;
      std::this_thread::sleep_for(milliseconds(100));
    }
    Expect(false, "job " + name + " ends");
    return {};
  }

  void ExpectNoLosses(const v1::Job& job) {
    const v1::Losses& losses = job.losses();
    ExpectEqual(losses.ring_dropped() + losses.ring_lost() + losses.rejected() +
                    losses.cupti_dropped() + losses.invalid_timestamps(),
                0, "losses: " + losses.ShortDebugString());
  }
  void CheckIterations(const Truth& truth, const v1::Job& job);
  void CheckStore(const Truth& truth, const v1::Job& job);
  std::string Ask(const std::string& command, const std::string& job);
  Calls ReadCalls(Store& store, int64_t job_id);

  std::mt19937 random_;
  TempFolder temp_folder_;
  const fs::path& folder_ = temp_folder_.path();
  const fs::path bin_ = BinaryDirectory();
  pid_t daemon_ = 0;
  int failures_ = 0;
};

// ----------------------------------------------------------------------------------------- daemon

void Soak::KillDaemons(int rounds) {
  const std::vector<std::string> program = {"seqpoint_workload",
                                            "--model",
                                            "gnmt",
                                            "--batch",
                                            "32",
                                            "--drop-last",
                                            "--epochs",
                                            "1000",
                                            "--max-iterations",
                                            absl::StrCat(rounds * kIterationsPerRound + 200),
                                            "--quiet",
                                            "--truth"};
  const auto with_truth = [&](const char* file) {
    std::vector<std::string> options = program;
    options.push_back((folder_ / file).string());
    return options;
  };
  StartDaemon();
  pid_t training = Start("job", true, kSpeed, with_truth("job.jsonl"));
  bool learned = false;
  for (int round = 0; round < rounds; ++round) {
    std::this_thread::sleep_for(Between(100, 2000));
    if (!learned) {
      const auto job = GetJob("job");
      learned = job && job->state() == v1::JOB_STATE_MARKING;
      // The question took a moment that is not random.
      std::this_thread::sleep_for(Between(0, 200));
    }
    KillAndWait(&daemon_, SIGKILL);
    const milliseconds away = learned ? Between(100, 5000) : Between(100, 1000);
    std::this_thread::sleep_for(away);
    Expect(!Ended(training), "the training outlasts the rounds");
    StartDaemon();
    std::printf("soak: daemon killed %d times, away for %lld ms%s\n", round + 1,
                static_cast<long long>(away.count()), learned ? "" : ", while it learned");
    std::fflush(stdout);
  }
  int status = 0;
  waitpid(training, &status, 0);
  ExpectEqual(status, 0, "status of the training");

  const v1::Job job = EndedJob("job");
  const auto truth = ReadTruth(folder_ / "job.jsonl");
  Expect(truth.has_value(), "the truth file can be read");
  if (!truth) return;
  CheckIterations(*truth, job);
  KillAndWait(&daemon_, SIGTERM);
  CheckStore(*truth, job);

  pid_t alone = Start("alone", false, "SWGPU_SET=clock.speed_cap=0", with_truth("alone.jsonl"));
  waitpid(alone, &status, 0);
  const auto alone_truth = ReadTruth(folder_ / "alone.jsonl");
  Expect(alone_truth && alone_truth->digest == truth->digest && !truth->digest.empty(),
         "the training did the same work as without a profiler");
  std::printf("soak: daemon: %zu iterations, digest %s\n", truth->iterations.size(),
              truth->digest.c_str());
}

// The log is the truth's, number for number.
void Soak::CheckIterations(const Truth& truth, const v1::Job& job) {
  ExpectNoLosses(job);
  ExpectEqual(job.iterations(), truth.iterations.size(), "iterations of the job");
  Api api(folder_ / "run" / "api.sock");
  const auto iterations = api.Iterations("job");
  Expect(iterations.has_value(), "the iterations are listed");
  if (!iterations) return;
  ExpectEqual(iterations->size(), truth.iterations.size(), "iterations in the log");
  // Equal true lengths have equal lengths in the feature's units, and the other way round.
  std::map<std::vector<int64_t>, std::vector<int64_t>> told, meant;
  for (size_t i = 0; i < iterations->size() && i < truth.iterations.size(); ++i) {
    const v1::Iteration& iteration = (*iterations)[i];
    const TrueIteration& expected = truth.iterations[i];
    ExpectEqual(iteration.number(), i, "number of an iteration");
    Expect(iteration.boundary_ns() >= expected.begin_ns &&
               iteration.boundary_ns() <= expected.forward_ns,
           absl::StrCat("iteration ", i, " begins where it does"));
    const std::vector<int64_t> lengths(iteration.lengths().begin(), iteration.lengths().end());
    Expect(told.try_emplace(expected.lengths, lengths).first->second == lengths &&
               meant.try_emplace(lengths, expected.lengths).first->second == expected.lengths,
           absl::StrCat("the lengths of iteration ", i, " are its own"));
    if (failures_ > 20) return;
  }
}

// The stored counters and traces agree with the truth of their iterations.
void Soak::CheckStore(const Truth& truth, const v1::Job& job) {
  auto store = Store::Open(folder_ / "store.db", {});
  Expect(store.ok(), "the store opens");
  if (!store.ok()) return;
  const int64_t job_id = std::atoll(job.id().c_str());
  const auto configs = (*store)->ReadConfigs(job_id);
  const auto measurements = (*store)->ReadMeasurements(job_id);
  Expect(configs.ok() && measurements.ok(), "measurements can be read");
  std::set<int64_t> measured;
  int values = 0;
  for (const MeasurementRow& row : *measurements) {
    measured.insert(row.number);
    if (!row.complete || row.number >= static_cast<int64_t>(truth.iterations.size())) continue;
    const auto config = std::find_if(configs->begin(), configs->end(), [&](const ConfigRow& c) {
      return c.config_id == row.config_id;
    });
    for (size_t i = 0; config != configs->end() && i < config->metrics.size(); ++i) {
      const auto& counters = truth.iterations[static_cast<size_t>(row.number)].counters;
      const auto expected = counters.find(config->metrics[i]);
      if (expected == counters.end() || i >= row.values.size()) continue;
      ++values;
      Expect(std::abs(row.values[i] - expected->second) <= kCounterTolerance * expected->second,
             absl::StrCat(config->metrics[i], " of iteration ", row.number, ": ", row.values[i],
                          ", not ", expected->second));
    }
  }
  const Calls calls = ReadCalls(**store, job_id);
  for (const auto& [number, kernels] : calls.kernels) {
    if (number < 0 || number >= static_cast<int64_t>(truth.iterations.size())) continue;
    measured.insert(number);
    ExpectEqual(kernels.size(), truth.iterations[static_cast<size_t>(number)].kernels,
                absl::StrCat("kernels of traced iteration ", number));
  }
  Expect(measured.size() <= 64,
         absl::StrCat("at most 64 iterations are measured, not ", measured.size()));
  std::printf("soak: %zu iterations measured; laid beside the truth: %d counters, %zu traces\n",
              measured.size(), values, calls.kernels.size());
}

// --------------------------------------------------------------------------------------- training

Soak::Calls Soak::ReadCalls(Store& store, int64_t job_id) {
  Calls calls;
  std::set<uint32_t> kernels;
  const auto traces = store.ListTraces(job_id);
  Expect(traces.ok(), "traces are listed");
  if (!traces.ok()) return calls;
  for (const auto& [rank, number] : *traces) {
    const auto segments = store.ReadTrace(job_id, rank, number);
    Expect(segments.ok(), "a trace can be read");
    if (!segments.ok()) continue;
    for (const TraceSegmentRow& segment : *segments) {
      for (size_t at = 0; at < segment.records.size(); at += sizeof(abi::DataRecord)) {
        abi::DataRecord record;
        std::memcpy(&record, segment.records.data() + at, sizeof(record));
        switch (static_cast<abi::DataType>(record.type)) {
          case abi::DataType::kCall:
            Expect(calls.learned.insert(record.call.sequence).second, "a call is stored once");
            break;
          case abi::DataType::kKernel:
            Expect(kernels.insert(record.kernel.correlation_id).second, "a kernel is stored once");
            calls.kernels[number].push_back(record.kernel.correlation_id);
            break;
          case abi::DataType::kApi:
            if (record.api.cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) {
              calls.launches.push_back(record.api.correlation_id);
            }
            break;
          default:
            break;
        }
      }
    }
  }
  return calls;
}

// ---------------------------------------------------------------------------------------- unseen

void Soak::EndUnseen(int rounds) {
  int unseen = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string name = absl::StrCat("unseen-", round);
    const fs::path truth_file = folder_ / (name + ".jsonl");
    StartDaemon();
    pid_t training =
        Start(name, true, kSpeed,
              {"seqpoint_workload", "--model", "gnmt", "--batch", "32", "--epochs", "1000",
               "--max-iterations", "250", "--quiet", "--truth", truth_file.string()});
    // There is no job before its process has come, and then nothing is said of it.
    for (int i = 0; i < 1000 && !GetJob(name); ++i) std::this_thread::sleep_for(milliseconds(10));
    std::this_thread::sleep_for(Between(0, 4500));
    KillAndWait(&daemon_, SIGKILL);
    const bool outlasts = round % 2 == 0;
    if (!outlasts) {
      std::this_thread::sleep_for(Between(100, 1000));
      StartDaemon();
    }
    int status = 0;
    waitpid(training, &status, 0);
    ExpectEqual(status, 0, name + ": status of the training");
    if (outlasts) StartDaemon();
    const v1::Job job = EndedJob(name);
    const auto truth = ReadTruth(truth_file);
    Expect(truth.has_value(), name + ": the truth file can be read");
    const auto iterations = static_cast<int64_t>(truth ? truth->iterations.size() : 0);
    Expect(job.iterations() <= iterations, name + ": no iteration that was none");
    const bool known = job.iterations() == iterations;
    if (!known) {
      ++unseen;
      Expect(job.losses().uncounted_processes() > 0 && !job.error().empty(),
             absl::StrCat(name, ": ", job.iterations(), " of ", iterations,
                          " and a word: ", job.losses().ShortDebugString()));
      Expect(!job.has_time() || std::isinf(job.time().so_far().high()),
             name + ": what is known is a lower bound");
      for (const char* const command : {"project", "kernels", "counters", "playlist"}) {
        const std::string out = Ask(command, name);
        Expect(out.find("lower bound") != std::string::npos || out.find("error") == 0,
               absl::StrCat(name, ": ", command, " says so: ", out));
      }
    }
    std::printf("soak: %s: %lld of %lld iterations known%s\n", name.c_str(),
                static_cast<long long>(job.iterations()), static_cast<long long>(iterations),
                known ? "" : ", and said so");
    std::fflush(stdout);
    KillAndWait(&daemon_, SIGTERM);
  }
  std::printf("soak: unseen: %d of %d runs ended unseen\n", unseen, rounds);
}

// The command's output on both streams; "error" and more where it has no answer.
std::string Soak::Ask(const std::string& command, const std::string& job) {
  const std::string line =
      absl::StrCat((bin_ / "seqpoint").string(), " --no-start --socket ",
                   (folder_ / "run/api.sock").string(), " ", command, " ", job, " 2>&1");
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string out;
  char text[4096];
  for (size_t n; (n = fread(text, 1, sizeof(text), pipe)) > 0;) out.append(text, n);
  return pclose(pipe) == 0 ? out : "error: " + out;
}

// -------------------------------------------------------------------------------------- training

void Soak::KillTrainings(int rounds) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm"}) {
    fs::remove(absl::StrCat((folder_ / "store.db").string(), suffix), ignored);
  }
  StartDaemon();
  struct Dead {
    std::string name;
    bool traced;
    v1::Job job;
    abi::RingHeader header;
  };
  std::vector<Dead> dead;
  for (int round = 0; round < rounds; ++round) {
    const bool traced = round % 2 == 1;
    const std::string name = absl::StrCat("killed-", round);
    pid_t pid = traced ? Start(name, true, "SWGPU_SET=clock.mode=real",
                               {"seqpoint_launcher", "rate=20000", "seconds=600"})
                       : Start(name, true, "SWGPU_SET=clock.speed_cap=2",
                               {"seqpoint_workload", "--model", "gnmt", "--batch", "32", "--epochs",
                                "1000", "--max-iterations", "100000", "--quiet"});
    std::unique_ptr<RingView> ring;
    for (int i = 0; i < 500 && ring == nullptr; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
      ring = RingView::Of(pid);
    }
    Expect(ring != nullptr, "the program has a ring");
    // Records written before the ring was handed over are lost with the program.
    for (int i = 0; i < 1000 && !GetJob(name); ++i) std::this_thread::sleep_for(milliseconds(10));
    bool tracing = false;
    for (int i = 0; traced && i < 300 && !tracing; ++i) {
      std::this_thread::sleep_for(milliseconds(100));
      const auto job = GetJob(name);
      if (!job || job->state() != v1::JOB_STATE_MARKING) continue;
      tracing = job->processes_size() > 0 && job->processes(0).level() == v1::LEVEL_TRACE;
      Api api(folder_ / "run" / "api.sock");
      v1::ControlRequest request;
      request.set_job(name);
      request.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
      request.set_level(v1::LEVEL_TRACE);
      api.Call(&v1::Profiler::Stub::Control, request);
    }
    Expect(tracing == traced, "the program comes to level trace");
    std::this_thread::sleep_for(Between(50, 2500));
    KillAndWait(&pid, SIGKILL);
    if (ring == nullptr) continue;
    const v1::Job job = EndedJob(name);
    ring->Published();
    const uint64_t published = ring->Count();
    const abi::RingHeader header = ring->Header();

    // The daemon's own words in its log, to be laid beside the dead program's memory.
    std::ifstream log(folder_ / "daemon.log");
    unsigned long long events = 0, records = 0;
    const std::string begin = absl::StrCat("process of job ", name, "@1 vanished: ");
    for (std::string line; std::getline(log, line);) {
      const size_t at = line.find(begin);
      if (at == std::string::npos) continue;
      std::sscanf(line.c_str() + at + begin.size(), "%llu events and %llu records", &events,
                  &records);
    }
    ExpectEqual(records, published, name + ": data records read");
    // Each thread may leave one event unpublished: the one that it was writing.
    Expect(events <= header.lane_number && events + 4 >= header.lane_number,
           absl::StrCat(name, ": ", events, " events read of ", header.lane_number));
    ExpectEqual(header.lane_dropped + header.data_dropped, 0u, name + ": dropped");
    ExpectEqual(job.losses().rejected(), 0, name + ": rejected");
    std::printf("soak: %s: %llu records, %llu events, %lld iterations\n", name.c_str(), records,
                events, static_cast<long long>(job.iterations()));
    std::fflush(stdout);
    dead.push_back({name, traced, job, header});
  }
  KillAndWait(&daemon_, SIGTERM);

  auto store = Store::Open(folder_ / "store.db", {});
  Expect(store.ok(), "the store opens");
  if (!store.ok()) return;
  for (const Dead& one : dead) {
    const int64_t job_id = std::atoll(one.job.id().c_str());
    const auto rows = (*store)->ReadIterations(job_id, 0, 0, 1'000'000);
    Expect(rows.ok(), "iterations can be read");
    if (rows.ok()) {
      ExpectEqual(rows->size(), one.job.iterations(), one.name + ": iterations in the store");
      for (size_t i = 0; i < rows->size(); ++i) {
        if ((*rows)[i].number == static_cast<int64_t>(i)) continue;
        Expect(false, absl::StrCat(one.name, ": iteration ", i, " is there"));
        break;
      }
    }
    const Calls calls = ReadCalls(**store, job_id);
    if (one.job.iterations() == 0 && !one.job.has_rule()) {
      // Killed while it was learned from: every call is in the log. The one in hand may not be.
      Expect(calls.learned.size() + 1 >= one.header.call_sequence,
             absl::StrCat(one.name, ": ", calls.learned.size(), " calls in the store of ",
                          one.header.call_sequence));
    }
    if (!one.traced) continue;
    // Each launch leaves two records, its own and the kernel's. Of the last launches one may have
    // been handed over and the other not.
    std::set<uint32_t> kernels;
    for (const auto& [number, ids] : calls.kernels) kernels.insert(ids.begin(), ids.end());
    Expect(!kernels.empty(), one.name + ": kernels are in the store");
    size_t alone = 0;
    for (const uint32_t id : calls.launches) alone += kernels.erase(id) == 0;
    Expect(alone + kernels.size() <= 1,
           absl::StrCat(one.name, ": of ", calls.launches.size(), " launches ", alone,
                        " have no kernel, and ", kernels.size(), " kernels have no launch"));
  }
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  int rounds = 30;
  uint32_t seed = std::random_device()();
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    } else if (argument == "daemon" || argument == "training" || argument == "unseen") {
      parts.push_back(argument);
    } else {
      std::fprintf(stderr, "soak: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (parts.empty()) parts = {"daemon", "training", "unseen"};
  std::printf("soak: seed %u\n", seed);
  int failures = 0;
  for (const std::string& part : parts) {
    seqpoint::Soak soak(seed);
    if (part == "daemon") soak.KillDaemons(rounds);
    if (part == "training") soak.KillTrainings(rounds);
    if (part == "unseen") soak.EndUnseen(rounds);
    failures += soak.failures();
    if (soak.failures() > 0) std::printf("soak: see %s\n", soak.folder().c_str());
  }
  std::printf("soak: %s\n", failures == 0 ? "everything holds" : "FAILED");
  return failures == 0 ? 0 : 1;
}
