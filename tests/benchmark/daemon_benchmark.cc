// The daemon's throughput on one core, from the ring to the commit: the steps of its ingest thread,
// one after the other in one thread, while another process fills a real ring.
//
//   daemon_benchmark [trace|learn|iterations]... [--records N] [--iterations N]
//
//   trace        kernel records of level trace, by default 50 M
//   learn        calls of a training loop until its rule is learned, then while it is verified
//   iterations   a job at level mark, 10 M iterations; memory and states after each million
//
// Rates are per second of CPU time of the daemon's steps alone (wall time beside it). Stores go to
// the directory that TMPDIR names.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "daemon/ingest/ring_reader.h"
#include "daemon/jobs/job.h"
#include "daemon/store/store.h"
#include "injection/abi/matcher.h"
#include "injection/ring/writer.h"
#include "tests/iterations/synthetic_stream.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

constexpr int64_t kProcessId = 1;

double NowS(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double ResidentMb() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "daemon_benchmark: %s\n", what.c_str());
  std::exit(1);
}

// The daemon's side of one process.
class Ingest final : public ingest::RingSink {
 public:
  explicit Ingest(const injection::RingWriter& ring)
      : job_({.job_id = 1, .name = "bench", .run_id = "1", .start_ns = 1}, {}) {
    auto store = Store::Open(folder_.path() / "store.db", {});
    if (!store.ok()) Die(std::string(store.status().message()));
    store_ = *std::move(store);
    auto reader = ingest::RingReader::Open(ring.fd(), {});
    if (!reader.ok()) Die(std::string(reader.status().message()));
    reader_ = *std::move(reader);
    job_.AddProcess({.process_id = kProcessId,
                     .job_id = 1,
                     .ring_id = reader_->ring_id(),
                     .text = "rank=0\n",
                     .start_ns = 1});
  }

  // Reads what is there.
  void Poll() {
    Timer timer(this);
    const ingest::PollResult result =
        reader_->Poll(*this, static_cast<uint64_t>(NowS(CLOCK_MONOTONIC) * 1e9));
    records_ += result.records;
    events_ += result.events;
    const ingest::RingStats stats = reader_->stats();
    job_.OnLosses(kProcessId, {.dropped = stats.events_dropped + stats.records_dropped,
                               .lost = stats.lost,
                               .rejected = stats.rejected});
    job_.OnRead(kProcessId, !result.waiting);
    job_.Advance();
  }
  void Commit() {
    Timer timer(this);
    batch_ = {};
    job_.TakeRows(batch_);
    for (const StateRow& row : batch_.states) state_bytes_[row.part] = row.bytes.size();
    const ingest::Cursor cursor = reader_->cursor();
    batch_.cursors.push_back({.ring_id = cursor.ring_id, .bytes = cursor.Serialize()});
    if (const absl::Status status = store_->Write(batch_); !status.ok()) {
      Die(std::string(status.message()));
    }
    reader_->Release(cursor);
  }

  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    job_.OnEvent(kProcessId, type, payload);
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    job_.OnData(kProcessId, records);
  }
  void OnCallsMissing(uint64_t, uint64_t) override { Die("a call is missing"); }

  jobs::Job& job() { return job_; }
  uint64_t records() const { return records_; }
  uint64_t events() const { return events_; }
  double cpu_s() const { return cpu_s_; }
  double wall_s() const { return wall_s_; }
  const std::map<std::string, size_t>& state_bytes() const { return state_bytes_; }

 private:
  class Timer {
   public:
    explicit Timer(Ingest* ingest)
        : ingest_(ingest), cpu_s_(NowS(CLOCK_THREAD_CPUTIME_ID)), wall_s_(NowS(CLOCK_MONOTONIC)) {}
    ~Timer() {
      ingest_->cpu_s_ += NowS(CLOCK_THREAD_CPUTIME_ID) - cpu_s_;
      ingest_->wall_s_ += NowS(CLOCK_MONOTONIC) - wall_s_;
    }

   private:
    Ingest* const ingest_;
    const double cpu_s_, wall_s_;
  };

  const TempFolder folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ingest::RingReader> reader_;
  jobs::Job job_;
  WriteBatch batch_;
  std::map<std::string, size_t> state_bytes_;
  uint64_t records_ = 0, events_ = 0;
  double cpu_s_ = 0, wall_s_ = 0;
};

std::unique_ptr<injection::RingWriter> MakeRing() {
  auto ring = std::make_unique<injection::RingWriter>();
  if (const injection::Status status = ring->Create({}); !status.ok()) Die(status.message);
  return ring;
}

template <typename Event>
void WriteEvent(injection::RingWriter& ring, abi::EventType type, const Event& event,
                const std::string& tail = "") {
  if (!ring.WriteEvent(type, &event, sizeof(event), tail.data(), tail.size())) {
    Die("the lane is full");
  }
}

void WriteName(injection::RingWriter& ring, uint32_t name_id, const std::string& name) {
  WriteEvent(ring, abi::EventType::kName,
             abi::NameEvent{.name_id = name_id,
                            .length = static_cast<uint32_t>(name.size()),
                            .name_hash = abi::NameHash(name.data(), name.size())},
             name);
}

// ------------------------------------------------------------------------------------------ trace

void MeasureTrace(uint64_t records) {
  constexpr int kPerPoll = 20'000, kPollsPerCommit = 5;
  const auto ring = MakeRing();
  Ingest ingest(*ring);
  for (uint32_t id = 1; id <= 40; ++id) WriteName(*ring, id, "kernel_" + std::to_string(id));
  WriteEvent(*ring, abi::EventType::kRule,
             abi::RuleEvent{.level = static_cast<uint8_t>(abi::Level::kTrace)});
  std::mt19937_64 random(1);
  abi::DataRecord record = {};
  abi::KernelRecord& kernel = record.kernel;
  kernel.type = static_cast<uint16_t>(abi::DataType::kKernel);
  kernel.stream = 7;
  kernel.grid_y = kernel.grid_z = kernel.block_y = kernel.block_z = 1;
  kernel.block_x = 256;
  kernel.context = 1;
  uint64_t time_ns = 1'700'000'000'000'000'000, written = 0;
  for (int poll = 1; written < records; ++poll) {
    for (int i = 0; i < kPerPoll; ++i, ++written) {
      const uint64_t bits = random();
      kernel.name_id = 1 + bits % 40;
      kernel.start_ns = time_ns += 500 + (bits >> 20) % 3'000;
      kernel.end_ns = time_ns += 2'000 + (bits >> 40) % 100'000;
      kernel.correlation_id += 3;
      kernel.grid_x = 1u << (kernel.name_id % 8);
      if (!ring->WriteData(record)) Die("the ring is full");
    }
    ingest.Poll();
    if (poll % kPollsPerCommit == 0) ingest.Commit();
  }
  ingest.Commit();
  std::printf("trace       %.2f M records/s of CPU (wall %.2f), %llu records, %.0f MB resident\n",
              static_cast<double>(ingest.records()) / ingest.cpu_s() * 1e-6,
              static_cast<double>(ingest.records()) / ingest.wall_s() * 1e-6,
              static_cast<unsigned long long>(ingest.records()), ResidentMb());
  ring->Destroy();
}

// ------------------------------------------------------------------------------------------ learn

// Until the rule is known and half a million calls beyond; without a rule, all of the stream.
void MeasureLearning(const char* what, const iterations::SyntheticStream& stream) {
  constexpr size_t kPerPoll = 5'000, kPollsPerCommit = 10;
  constexpr size_t kVerifiedCalls = 500'000;
  const auto ring = MakeRing();
  Ingest ingest(*ring);
  for (uint32_t id = 1; id < stream.names.size(); ++id) WriteName(*ring, id, stream.names[id]);
  double learned_s = 0;
  uint64_t learned_calls = 0;
  size_t end = stream.calls.size();
  for (size_t at = 0, polls = 0; at < end;) {
    for (const size_t stop = std::min(at + kPerPoll, end); at < stop; ++at) {
      abi::DataRecord record;
      record.call = stream.calls[at];
      record.call.sequence = ring->NextCallSequence();
      if (!ring->WriteData(record)) Die("the ring is full");
    }
    ingest.Poll();
    if (++polls % kPollsPerCommit == 0) ingest.Commit();
    if (learned_calls == 0 && ingest.job().Describe(false).has_rule()) {
      ingest.Commit();
      learned_s = ingest.cpu_s();
      learned_calls = ingest.records();
      end = std::min(end, at + kVerifiedCalls);
    }
  }
  ingest.Commit();
  if (learned_calls == 0) {
    std::printf("learn       %.2f M calls/s of CPU, %llu calls without a rule; %s\n",
                static_cast<double>(ingest.records()) / ingest.cpu_s() * 1e-6,
                static_cast<unsigned long long>(ingest.records()), what);
  } else {
    std::printf(
        "learn       %.2f M calls/s of CPU until the rule is known (%llu calls), then %.2f M "
        "calls/s; %s\n",
        static_cast<double>(learned_calls) / learned_s * 1e-6,
        static_cast<unsigned long long>(learned_calls),
        static_cast<double>(ingest.records() - learned_calls) / (ingest.cpu_s() - learned_s) * 1e-6,
        what);
  }
  ring->Destroy();
}

void MeasureLearning() {
  MeasureLearning("4 layers, a launch per step",
                  iterations::MakeSyntheticStream({.iterations = 1000, .layers = 4}));
  iterations::SyntheticStream wide = iterations::MakeSyntheticStream({.iterations = 1000,
                                                                      .layers = 16,
                                                                      .recurrent = false,
                                                                      .per_tensor_optimiser = true,
                                                                      .readback_every = 0});
  MeasureLearning("16 layers, an optimiser launch per tensor", wide);
  // The same calls in no order: every analysis is for nothing.
  std::shuffle(wide.calls.begin(), wide.calls.end(), std::mt19937_64(1));
  if (wide.calls.size() > 1'000'000) wide.calls.resize(1'000'000);
  MeasureLearning("calls in no order", wide);
}

// ------------------------------------------------------------------------------------- iterations

// A training process and the library in it: obeys the control block, and writes what the library
// writes.
class Trainer {
 public:
  explicit Trainer(injection::RingWriter& ring) : ring_(ring) {}

  void Obey(const abi::Control& control) {
    learning_ = control.level == static_cast<uint8_t>(abi::Level::kLearn);
    if (control.rule.generation != matcher_.rule().generation) {
      matcher_.SetRule(control.rule, matcher_.iteration(), /*inside=*/true);
    }
    WriteEvent(ring_, abi::EventType::kRule,
               abi::RuleEvent{.api_ns = api_ns_,
                              .next_iteration = matcher_.iteration(),
                              .rule_generation = control.rule.generation,
                              .level = control.level});
    plan_.assign(control.plan, control.plan + control.plan_count);
    cap_ = control.measurement_cap;
  }

  void Iterate() {
    const int64_t length = std::uniform_int_distribution<int64_t>(10, 200)(random_);
    const double noise = std::lognormal_distribution<double>(0, 0.01)(random_);
    const auto end_ns =
        gpu_ns_ + static_cast<uint64_t>(noise * (2e5 + 1e5 * static_cast<double>(length)));
    measured_ = 0;
    Call(abi::Op::kCopyH2D, "", static_cast<uint64_t>(length) * 128);
    for (const char* kernel : {"embedding", "lstm", "attention", "loss", "lstm_backward", "adam"}) {
      Call(abi::Op::kLaunch, kernel, 0, static_cast<uint32_t>(length));
    }
    Call(abi::Op::kCopyD2H, "", 4);
    Call(abi::Op::kStreamSync, "", 0);
    gpu_ns_ = end_ns;
    api_ns_ = end_ns;
    if (measured_ != 0) ReportCounters(length);
  }

 private:
  struct Name {
    uint32_t id;
    uint64_t hash;
  };
  const Name& NameOf(const char* text) {
    const auto [it, added] = names_.try_emplace(text);
    if (added && *text != 0) {
      it->second = {static_cast<uint32_t>(names_.size()), abi::NameHash(text, std::strlen(text))};
      WriteName(ring_, it->second.id, text);
    }
    return it->second;
  }

  void Call(abi::Op op, const char* name, uint64_t bytes, uint32_t grid = 0) {
    api_ns_ += 3000;
    const Name& known = NameOf(name);
    abi::DataRecord record = {};
    record.call = {.type = static_cast<uint16_t>(abi::DataType::kCall),
                   .op = static_cast<uint8_t>(op),
                   .name_id = known.id,
                   .api_ns = api_ns_,
                   .grid_x = grid,
                   .grid_y = 1,
                   .grid_z = 1,
                   .bytes = bytes,
                   .correlation_id = ++correlation_};
    if (learning_) {
      record.call.sequence = ring_.NextCallSequence();
      if (!ring_.WriteData(record)) Die("the ring is full");
    }
    const uint32_t flags = matcher_.rule().generation == 0
                               ? 0
                               : matcher_.OnEvent({.op = static_cast<uint8_t>(op),
                                                   .grid_x = grid,
                                                   .grid_y = 1,
                                                   .grid_z = 1,
                                                   .name_hash = known.hash,
                                                   .bytes = bytes});
    if (flags != 0) OnMatched(flags, record.call.sequence);
    // At mark the kind of the clock event stays on.
    const bool copy = op == abi::Op::kCopyH2D || (learning_ && op == abi::Op::kCopyD2H);
    if (!copy) return;
    abi::DataRecord stamp = {};
    stamp.copy = {.type = static_cast<uint16_t>(abi::DataType::kCopy),
                  .start_ns = gpu_ns_,
                  .end_ns = gpu_ns_ + 1000,
                  .correlation_id = correlation_};
    if (!ring_.WriteData(stamp)) Die("the ring is full");
  }

  void OnMatched(uint32_t flags, uint64_t sequence) {
    const abi::MatchResult& r = matcher_.result();
    if ((flags & abi::kMatchedStep) != 0) {
      abi::StepEvent step = r.step;
      step.api_ns = api_ns_;
      WriteEvent(ring_, abi::EventType::kStep, step);
    }
    if ((flags & abi::kMatchedBoundary) != 0) {
      WriteEvent(ring_, abi::EventType::kBoundary,
                 abi::BoundaryEvent{.iteration = r.iteration,
                                    .api_ns = api_ns_,
                                    .call_sequence = sequence,
                                    .correlation_id = correlation_,
                                    .rule_generation = matcher_.rule().generation,
                                    .level = static_cast<uint8_t>(abi::Level::kMark)});
    }
    if ((flags & abi::kMatchedDecision) != 0) {
      for (abi::PlanEntry& entry : plan_) {
        // Traces would need windows; counters are the more frequent measurement anyway.
        if (entry.config_id <= abi::kConfigTrace || entry.quota == 0 || started_ >= cap_) continue;
        if (r.length[0] < entry.low[0] || r.length[0] > entry.high[0]) continue;
        --entry.quota;
        ++started_;
        measured_ = entry.config_id;
        measured_number_ = r.iteration;
        break;
      }
      WriteEvent(ring_, abi::EventType::kDecision,
                 abi::DecisionEvent{.iteration = r.iteration,
                                    .api_ns = api_ns_,
                                    .length = {r.length[0], r.length[1]},
                                    .valid = r.valid,
                                    .config_id = measured_});
    }
    if ((flags & abi::kMatchedClock) != 0) {
      WriteEvent(ring_, abi::EventType::kClock,
                 abi::ClockEvent{
                     .iteration = r.iteration, .api_ns = api_ns_, .correlation_id = correlation_});
    }
  }

  void ReportCounters(int64_t length) {
    const std::vector<double> values(7, 1e6 * static_cast<double>(length));
    WriteEvent(
        ring_, abi::EventType::kCounters,
        abi::CountersEvent{.iteration = measured_number_,
                           .config_id = measured_,
                           .count = static_cast<uint16_t>(values.size())},
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)));
  }

  injection::RingWriter& ring_;
  std::mt19937_64 random_{1};
  abi::Matcher matcher_;
  bool learning_ = true;
  std::vector<abi::PlanEntry> plan_;
  uint32_t cap_ = 0, started_ = 0;
  uint16_t measured_ = 0;
  uint64_t measured_number_ = 0;
  std::map<std::string, Name> names_;
  uint64_t api_ns_ = 1'700'000'000'000'000'000, gpu_ns_ = api_ns_;
  uint32_t correlation_ = 0;
};

void MeasureIterations(uint64_t iterations) {
  // At 20 iterations a second 50 ms hold one; at the fastest that a lane takes, hundreds.
  constexpr uint64_t kPerCommit = 200;
  const auto ring = MakeRing();
  Ingest ingest(*ring);
  Trainer trainer(*ring);
  double cpu_s = 0;
  const uint64_t print_every = std::max<uint64_t>(iterations / 10, 1);
  for (uint64_t i = 1; i <= iterations; ++i) {
    trainer.Iterate();
    if (i % kPerCommit != 0) continue;
    ingest.Poll();
    if (const abi::Control* control = ingest.job().TakeControl(kProcessId)) trainer.Obey(*control);
    ingest.Commit();
    if (i % print_every != 0) continue;
    const v1::Job job = ingest.job().Describe(false);
    size_t state_bytes = 0;
    for (const auto& [part, bytes] : ingest.state_bytes()) state_bytes += bytes;
    std::printf("iterations  %9lld: %.0f MB resident, states %.0f kB; %.0f iterations/s of CPU\n",
                static_cast<long long>(job.iterations()), ResidentMb(),
                static_cast<double>(state_bytes) / 1e3,
                static_cast<double>(print_every) / (ingest.cpu_s() - cpu_s));
    std::fflush(stdout);
    cpu_s = ingest.cpu_s();
    // The open iteration and those that wait for a stamp are still to come.
    if (i - static_cast<uint64_t>(job.iterations()) > 100) Die("iterations are missing");
  }
  ring->Destroy();
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  uint64_t records = 50'000'000, iterations = 10'000'000;
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--records" && i + 1 < argc) {
      records = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "--iterations" && i + 1 < argc) {
      iterations = std::strtoull(argv[++i], nullptr, 10);
    } else if (argument == "trace" || argument == "learn" || argument == "iterations") {
      parts.push_back(argument);
    } else {
      std::fprintf(stderr, "daemon_benchmark: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (parts.empty()) parts = {"trace", "learn", "iterations"};
  for (const std::string& part : parts) {
    if (part == "trace") seqpoint::MeasureTrace(records);
    if (part == "learn") seqpoint::MeasureLearning();
    if (part == "iterations") seqpoint::MeasureIterations(iterations);
  }
  return 0;
}
