// The ring side by side with memcpy into a plain buffer and with gRPC, in one run.
//
// Each iteration is a burst that fits into the default ring; threads time themselves, so that
// starting them and waiting for the other side between bursts does not count. The other side works
// meanwhile, in a process of its own, as the daemon does.
//
//   wall_ns   per record, mean over the writing threads
//   cpu_ns    per record, CPU time of the writing threads (gRPC's own threads not included)
//   process_cpu_ns  the same with every thread of the writing process
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/ingest/ring_reader.h"
#include "injection/ring/writer.h"
#include "tests/support/served_ring.h"
#ifdef SEQPOINT_RING_RIVAL
#include "tests/benchmark/ring_rival.h"
#endif

namespace seqpoint {
namespace {

constexpr uint64_t kBurstRecords = 160 * 1024;  // over all threads: 10 MiB

uint64_t ClockNs(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class CountingSink : public ingest::RingSink {
 public:
  void OnEvent(uint64_t, abi::EventType, absl::Span<const uint8_t>) override { ++events; }
  void OnData(absl::Span<const abi::DataRecord> batch) override { records += batch.size(); }
  void OnCallsMissing(uint64_t, uint64_t count) override { missing += count; }
  uint64_t events = 0;
  uint64_t records = 0;
  uint64_t missing = 0;
};

// Runs bursts over state.range(0) threads: `write_burst(thread, records)`.
void MeasureWriters(benchmark::State& state, const std::function<void(int, uint64_t)>& write_burst,
                    const std::function<void()>& wait_for_reader) {
  const int threads = static_cast<int>(state.range(0));
  const uint64_t per_thread = kBurstRecords / static_cast<uint64_t>(threads);
  uint64_t wall_ns = 0;
  uint64_t cpu_ns = 0;
  uint64_t process_cpu_ns = 0;
  for (auto _ : state) {
    std::atomic<uint64_t> burst_wall_ns = 0;
    std::atomic<uint64_t> burst_cpu_ns = 0;
    std::atomic<int> ready = 0;
    std::vector<std::thread> team;
    const uint64_t process_start_ns = ClockNs(CLOCK_PROCESS_CPUTIME_ID);
    for (int t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        ++ready;
        while (ready < threads) std::this_thread::yield();
        const uint64_t cpu_start_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
        const uint64_t start_ns = ClockNs(CLOCK_MONOTONIC);
        write_burst(t, per_thread);
        burst_wall_ns += ClockNs(CLOCK_MONOTONIC) - start_ns;
        burst_cpu_ns += ClockNs(CLOCK_THREAD_CPUTIME_ID) - cpu_start_ns;
      });
    }
    for (std::thread& thread : team) thread.join();
    process_cpu_ns += ClockNs(CLOCK_PROCESS_CPUTIME_ID) - process_start_ns;
    state.SetIterationTime(static_cast<double>(burst_wall_ns) / threads / 1e9);
    wall_ns += burst_wall_ns;
    cpu_ns += burst_cpu_ns;
    wait_for_reader();
  }
  const double records =
      static_cast<double>(per_thread) * threads * static_cast<double>(state.iterations());
  state.counters["wall_ns"] = static_cast<double>(wall_ns) / records;
  state.counters["cpu_ns"] = static_cast<double>(cpu_ns) / records;
  state.counters["process_cpu_ns"] = static_cast<double>(process_cpu_ns) / records;
}

// Records made beforehand: all that is measured is the way out of the process.
const abi::DataRecord& Kernel(uint64_t i) {
  constexpr uint64_t kSamples = 64;
  static const std::vector<abi::DataRecord> samples = [] {
    std::vector<abi::DataRecord> made;
    for (uint64_t k = 0; k < kSamples; ++k) {
      abi::DataRecord record = ingest::MakeKernel(1'700'000'000'000'000'000 + k * 2500, 7);
      record.kernel.end_ns = record.kernel.start_ns + 2100;
      record.kernel.name_id = static_cast<uint32_t>(k);
      record.kernel.correlation_id = static_cast<uint32_t>(1'000'000 + k);
      record.kernel.grid_x = 512;
      record.kernel.grid_y = record.kernel.grid_z = 1;
      record.kernel.block_x = 256;
      record.kernel.block_y = record.kernel.block_z = 1;
      record.kernel.registers_per_thread = 64;
      record.kernel.context = 1;
      record.kernel.dynamic_shared_bytes = 49'152;
      made.push_back(record);
    }
    return made;
  }();
  return samples[i % kSamples];
}

// Into a buffer of a chunk's size per thread, again and again: the most that memcpy can do.
void WriteMemcpy(benchmark::State& state) {
  constexpr size_t kRecords = abi::kDefaultChunkBytes / sizeof(abi::DataRecord);
  std::vector<std::vector<abi::DataRecord>> buffers(static_cast<size_t>(state.range(0)));
  for (auto& buffer : buffers) buffer.resize(kRecords);
  MeasureWriters(
      state,
      [&](int thread, uint64_t count) {
        abi::DataRecord* to = buffers[static_cast<size_t>(thread)].data();
        for (uint64_t i = 0; i < count; ++i) {
          memcpy(to + i % kRecords, &Kernel(i), sizeof(abi::DataRecord));
          benchmark::ClobberMemory();
        }
      },
      [] {});
}

// A process that reads the ring every millisecond, like the daemon.
class RingReaderProcess {
 public:
  explicit RingReaderProcess(int fd) {
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto reader = ingest::RingReader::Open(fd, {});
    if (!reader.ok()) _exit(1);
    CountingSink sink;
    for (;;) {
      (*reader)->Poll(sink, ClockNs(CLOCK_MONOTONIC));
      (*reader)->Release((*reader)->cursor());
      usleep(1000);
    }
  }
  ~RingReaderProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

bool IsDrained(const injection::RingWriter& ring) {
  const auto* base = reinterpret_cast<const uint8_t*>(ring.header());
  const auto* directory =
      reinterpret_cast<const abi::ChunkState*>(base + ring.header()->directory_offset);
  for (uint32_t i = 0; i < ring.header()->chunk_count; ++i) {
    if ((__atomic_load_n(&directory[i].state, __ATOMIC_ACQUIRE) & 3) != abi::kFree) return false;
  }
  return true;
}

void WriteRing(benchmark::State& state) {
  injection::RingWriter ring;
  if (!ring.Create(injection::RingOptions{}).ok()) return state.SkipWithError("no ring");
  RingReaderProcess reader(ring.fd());
  MeasureWriters(
      state,
      [&](int, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) ring.WriteData(Kernel(i));
      },
      [&] {
        while (!IsDrained(ring)) usleep(500);  // the threads' ends closed their chunks
      });
  state.counters["dropped"] = static_cast<double>(ring.header()->data_dropped);
  ring.Destroy();
}

void WriteRingCalls(benchmark::State& state) {
  injection::RingWriter ring;
  if (!ring.Create(injection::RingOptions{}).ok()) return state.SkipWithError("no ring");
  RingReaderProcess reader(ring.fd());
  MeasureWriters(
      state,
      [&](int, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
          ring.WriteData(ingest::MakeCall(ring.NextCallSequence()));
        }
      },
      [&] {
        while (!IsDrained(ring)) usleep(500);
      });
  state.counters["dropped"] = static_cast<double>(ring.header()->data_dropped);
  ring.Destroy();
}

#ifdef SEQPOINT_RING_RIVAL
std::string rival_address;

void MeasureRival(benchmark::State& state, RivalStream::Encoding encoding) {
  std::vector<std::unique_ptr<RivalStream>> streams;
  for (int64_t t = 0; t < state.range(0); ++t) {
    streams.push_back(std::make_unique<RivalStream>(rival_address, encoding));
  }
  MeasureWriters(
      state,
      [&](int thread, uint64_t count) {
        RivalStream& stream = *streams[static_cast<size_t>(thread)];
        for (uint64_t i = 0; i < count; ++i) stream.Write(Kernel(i));
      },
      [] { usleep(20'000); });
}

void WriteGrpcFields(benchmark::State& state) {
  MeasureRival(state, RivalStream::Encoding::kFields);
}
void WriteGrpcRaw(benchmark::State& state) { MeasureRival(state, RivalStream::Encoding::kRaw); }
#endif

// The reader alone, on one core: a full ring, from Poll to Release.
void MeasureReader(benchmark::State& state, bool calls) {
  const int threads = static_cast<int>(state.range(0));
  injection::RingWriter ring;
  if (!ring.Create(injection::RingOptions{}).ok()) return state.SkipWithError("no ring");
  auto reader = ingest::RingReader::Open(ring.fd(), {});
  if (!reader.ok()) return state.SkipWithError("no reader");
  std::vector<injection::ThreadChunk> chunks(static_cast<size_t>(threads));
  CountingSink sink;
  uint64_t written = 0;
  for (auto _ : state) {
    state.PauseTiming();
    for (uint64_t i = 0; i < kBurstRecords; ++i) {
      // Threads take turns of 16 calls.
      injection::ThreadChunk& chunk = chunks[i / 16 % chunks.size()];
      written +=
          ring.WriteData(calls ? ingest::MakeCall(ring.NextCallSequence()) : Kernel(i), &chunk);
    }
    state.ResumeTiming();
    (*reader)->Poll(sink, 1);
    (*reader)->Release((*reader)->cursor());
  }
  if (sink.records != written) state.SkipWithError("records are missing");
  state.SetItemsProcessed(static_cast<int64_t>(sink.records));
  ring.Destroy();
}
void ReadKernels(benchmark::State& state) { MeasureReader(state, false); }
void ReadCalls(benchmark::State& state) { MeasureReader(state, true); }

void WriteRingEvent(benchmark::State& state) {
  injection::RingWriter ring;
  if (!ring.Create(injection::RingOptions{}).ok()) return state.SkipWithError("no ring");
  const abi::BoundaryEvent event = {};
  for (auto _ : state) {
    ring.WriteEvent(abi::EventType::kBoundary, &event, sizeof event);
    ring.header()->lane_tail = ring.header()->lane_head;
  }
  ring.Destroy();
}

BENCHMARK(WriteMemcpy)->Arg(1)->Arg(4)->UseManualTime();
BENCHMARK(WriteRing)->Arg(1)->Arg(4)->UseManualTime();
BENCHMARK(WriteRingCalls)->Arg(1)->Arg(4)->UseManualTime();
#ifdef SEQPOINT_RING_RIVAL
BENCHMARK(WriteGrpcFields)->Arg(1)->Arg(4)->UseManualTime();
BENCHMARK(WriteGrpcRaw)->Arg(1)->Arg(4)->UseManualTime();
#endif
BENCHMARK(WriteRingEvent);
BENCHMARK(ReadKernels)->Arg(1)->Arg(4);
BENCHMARK(ReadCalls)->Arg(1)->Arg(4);

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
#ifdef SEQPOINT_RING_RIVAL
  seqpoint::rival_address = seqpoint::StartRivalServer();
#endif
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
