// Both ends in processes of their own, and SIGKILL for either in the middle of its work.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "daemon/ingest/inject_server.h"
#include "injection/ring/connection.h"
#include "tests/support/served_ring.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::ingest {
namespace {

constexpr int kThreads = 3;

// On a page that test and writer share: what the writer knows it has published.
struct Ledger {
  uint64_t calls_written[kThreads];
  uint64_t kernels_written[kThreads];
  uint64_t kernel_sum[kThreads];
  uint64_t events_written;
  uint64_t events_tried;
  uint32_t stop;
  uint32_t quiet;
};

uint64_t Load(uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
void Add(uint64_t& word) { __atomic_fetch_add(&word, 1, __ATOMIC_RELEASE); }

// A sum of these is equal for equal sets of numbers, and for no others that could come about here.
uint64_t Mix(uint64_t number) {
  number = (number + 1) * 0x9E3779B97F4A7C15u;
  return (number ^ number >> 29) * 0xBF58476D1CE4E5B9u;
}

Ledger* MakeLedger() {
  void* page =
      mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (page) Ledger{};
}

// The profiled process: threads that write calls and kernels in turn, one that writes events, one
// that keeps the connection. `pause`: between bursts of 32.
[[noreturn]] void RunWriter(const std::string& path, const injection::RingOptions& options,
                            Ledger* ledger, std::chrono::microseconds pause) {
  static injection::RingWriter ring;
  if (!ring.Create(options).ok()) _exit(1);
  std::vector<std::thread> threads;
  const auto stopped = [&] { return __atomic_load_n(&ledger->stop, __ATOMIC_ACQUIRE) != 0; };
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      uint64_t kernels = 0;
      for (uint64_t i = 0; !stopped(); ++i) {
        if (i % 2 == 0) {
          if (ring.WriteData(MakeCall(ring.NextCallSequence()))) Add(ledger->calls_written[t]);
        } else {
          const uint64_t kernel = kernels++;
          if (ring.WriteData(MakeKernel(kernel, t))) {
            ledger->kernel_sum[t] += Mix(kernel);
            Add(ledger->kernels_written[t]);
          }
        }
        if (i % 32 == 0 && pause.count() != 0) std::this_thread::sleep_for(pause);
      }
    });
  }
  threads.emplace_back([&] {
    while (!stopped()) {
      Add(ledger->events_tried);
      if (WriteClockStep(ring, ledger->events_tried - 1)) Add(ledger->events_written);
      if (pause.count() != 0) std::this_thread::sleep_for(pause);
    }
  });
  std::thread helper([&] {
    injection::Connection connection;
    for (;;) {
      if (!connection.Alive()) connection.Connect(path.c_str(), ring, "", 0, 1000);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  for (std::thread& thread : threads) thread.join();
  __atomic_store_n(&ledger->quiet, 1, __ATOMIC_RELEASE);
  for (;;) ::pause();
}

// What the records of one ring must look like, whoever reads it and however often it is killed.
struct Tally {
  uint64_t next_call = 0;  // calls may be missing, but never come twice or out of order
  uint64_t calls = 0;
  uint64_t calls_missing = 0;
  uint64_t kernels[kThreads] = {};
  uint64_t kernel_sum[kThreads] = {};
  uint64_t events = 0;
  uint64_t next_event = 0;
  uint64_t wrong = 0;
};

class TallySink : public RingSink {
 public:
  void OnEvent(uint64_t number, abi::EventType type, absl::Span<const uint8_t> payload) override {
    abi::ClockStepEvent event;
    memcpy(&event, payload.data(), sizeof event);
    tally.wrong += event.real_ns < tally.next_event;
    tally.next_event = event.real_ns + 1;
    ++tally.events;
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    for (const abi::DataRecord& record : records) {
      if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) {
        tally.wrong += record.call.sequence != tally.next_call;
        tally.next_call = record.call.sequence + 1;
        ++tally.calls;
      } else {
        const uint32_t thread = record.kernel.stream;
        if (thread >= kThreads) {
          ++tally.wrong;
          continue;
        }
        tally.kernel_sum[thread] += Mix(record.kernel.start_ns);
        ++tally.kernels[thread];
      }
    }
  }
  void OnCallsMissing(uint64_t first, uint64_t count) override {
    tally.wrong += first != tally.next_call;
    tally.next_call = first + count;
    tally.calls_missing += count;
  }

  Tally tally;
};

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

// A daemon for one ring. Its "store" is a file that holds tally and cursor and is replaced as one.
class Daemon : public InjectServer::Handler {
 public:
  Daemon(const std::string& directory, const std::string& store_path) : store_path_(store_path) {
    // Waits for a descheduled thread for however long the machine keeps it: the counts are exact.
    InjectServer::Options options;
    options.reader.hole_wait_ns = UINT64_MAX;
    auto server = InjectServer::Listen(directory, options, this);
    if (!server.ok()) {
      fprintf(stderr, "%s\n", server.status().ToString().c_str());
      _exit(3);
    }
    server_ = *std::move(server);
  }

  void RunOnce() {
    server_->RunOnce(1);
    if (process_.reader == nullptr) return;
    if (gone) process_.reader->SetProcessGone();
    process_.reader->Poll(sink_, NowNs());
    const Cursor cursor = process_.reader->cursor();
    Store(cursor);
    process_.reader->Release(cursor);
  }

  absl::Status OnProcess(AcceptedProcess process) override {
    process_ = std::move(process);
    std::ifstream file(store_path_, std::ios::binary);
    if (!file) return absl::OkStatus();
    std::stringstream bytes;
    bytes << file.rdbuf();
    const std::string stored = bytes.str();
    memcpy(&sink_.tally, stored.data(), sizeof sink_.tally);
    const auto cursor = Cursor::Parse(std::string_view(stored).substr(sizeof sink_.tally));
    if (!cursor.ok()) return cursor.status();
    return process_.reader->Resume(*cursor);
  }
  void OnGone(uint64_t) override { gone = true; }

  bool connected() const { return process_.reader != nullptr; }
  const Tally& tally() const { return sink_.tally; }
  RingStats stats() const { return process_.reader->stats(); }

  bool gone = false;

 private:
  void Store(const Cursor& cursor) {
    const std::string temporary = store_path_ + ".new";
    {
      std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
      file.write(reinterpret_cast<const char*>(&sink_.tally), sizeof sink_.tally);
      file << cursor.Serialize();
    }
    if (rename(temporary.c_str(), store_path_.c_str()) != 0) _exit(4);
  }

  const std::string store_path_;
  TallySink sink_;
  AcceptedProcess process_;
  std::unique_ptr<InjectServer> server_;
};

class RingProcessTest : public ::testing::Test {
 protected:
  RingProcessTest() : ledger_(MakeLedger()) {}
  ~RingProcessTest() override {
    if (writer_ > 0) Kill(writer_);
    munmap(ledger_, sizeof *ledger_);
  }

  std::string Directory() const { return parent_ + "/run"; }
  std::string StorePath() const { return parent_ + "/store"; }
  void StartWriter(const injection::RingOptions& options, std::chrono::microseconds pause) {
    *ledger_ = {};
    writer_ = fork();
    if (writer_ == 0) RunWriter(Directory() + "/inject.sock", options, ledger_, pause);
  }
  static void Kill(pid_t& pid) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  // Lets the writer's threads end, and the process live on.
  void Quieten() {
    __atomic_store_n(&ledger_->stop, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&ledger_->quiet, __ATOMIC_ACQUIRE) == 0) usleep(1000);
  }
  uint64_t CallsWritten() {
    uint64_t calls = 0;
    for (uint64_t& count : ledger_->calls_written) calls += Load(count);
    return calls;
  }

  Ledger* const ledger_;
  const TempFolder folder_;
  const std::string parent_ = folder_.path();
  pid_t writer_ = -1;
};

// Every published record is read. A thread publishes before it tells the ledger, so the reader may
// have one more than the ledger for each thread, never one less.
TEST_F(RingProcessTest, SigkillOfTheWriterInATightLoop) {
  std::mt19937 random(1);
  Daemon* daemon = nullptr;
  for (int round = 0; round < 25; ++round) {
    SCOPED_TRACE(round);
    unlink(StorePath().c_str());
    auto owned = std::make_unique<Daemon>(Directory(), StorePath());
    daemon = owned.get();
    StartWriter(round % 2 == 0 ? injection::RingOptions{} : injection::kSmallRing,
                std::chrono::microseconds(0));
    while (!daemon->connected()) daemon->RunOnce();
    const uint64_t until = NowNs() + 1'000'000 * (random() % 30);
    while (NowNs() < until) daemon->RunOnce();
    Kill(writer_);
    while (!daemon->gone) daemon->RunOnce();
    daemon->RunOnce();

    const Tally& tally = daemon->tally();
    const RingStats stats = daemon->stats();
    EXPECT_EQ(tally.wrong, 0u);
    EXPECT_GE(tally.calls, CallsWritten());
    EXPECT_LE(tally.calls, CallsWritten() + kThreads);
    for (int t = 0; t < kThreads; ++t) {
      EXPECT_GE(tally.kernels[t], ledger_->kernels_written[t]);
      EXPECT_LE(tally.kernels[t], ledger_->kernels_written[t] + 1);
    }
    EXPECT_GE(tally.events, ledger_->events_written);
    EXPECT_LE(tally.events, ledger_->events_written + 1);
    EXPECT_EQ(stats.rejected, 0u);
    EXPECT_LE(stats.lost, uint64_t{kThreads + 1});  // at most one in the hand of each thread
  }
}

// Nothing lost, nothing twice, while the daemon is killed again and again.
TEST_F(RingProcessTest, SigkillOfTheReaderAtRandomMoments) {
  StartWriter(injection::RingOptions{}, std::chrono::microseconds(500));
  std::mt19937 random(2);
  for (int kills = 0; kills < 30; ++kills) {
    pid_t reader = fork();
    if (reader == 0) {
      Daemon daemon(Directory(), StorePath());
      for (;;) daemon.RunOnce();
    }
    usleep(10'000 + random() % 70'000);
    Kill(reader);
    if (random() % 2 == 0) usleep(random() % 50'000);
  }
  Quieten();
  Daemon daemon(Directory(), StorePath());
  while (!daemon.connected()) daemon.RunOnce();
  daemon.RunOnce();

  const Tally& tally = daemon.tally();
  EXPECT_EQ(daemon.stats().records_dropped, 0u);
  EXPECT_EQ(daemon.stats().events_dropped, 0u);
  EXPECT_EQ(daemon.stats().lost, 0u);
  EXPECT_EQ(daemon.stats().rejected, 0u);
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.calls_missing, 0u);
  EXPECT_GT(tally.calls, 1000u);
  EXPECT_EQ(tally.calls, CallsWritten());
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(tally.kernels[t], ledger_->kernels_written[t]);
    EXPECT_EQ(tally.kernel_sum[t], ledger_->kernel_sum[t]);
  }
  EXPECT_EQ(tally.events, ledger_->events_written);
  EXPECT_EQ(tally.next_event, ledger_->events_tried);
}

// The same with the smallest ring and a flood: what arrived and what was dropped is what was sent.
TEST_F(RingProcessTest, SigkillOfTheReaderUnderAFlood) {
  StartWriter(injection::kSmallRing, std::chrono::microseconds(0));
  std::mt19937 random(3);
  for (int kills = 0; kills < 20; ++kills) {
    pid_t reader = fork();
    if (reader == 0) {
      Daemon daemon(Directory(), StorePath());
      for (;;) daemon.RunOnce();
    }
    usleep(10'000 + random() % 40'000);
    Kill(reader);
  }
  Quieten();
  Daemon daemon(Directory(), StorePath());
  while (!daemon.connected()) daemon.RunOnce();
  daemon.RunOnce();
  Kill(writer_);
  while (!daemon.gone) daemon.RunOnce();
  daemon.RunOnce();

  const Tally& tally = daemon.tally();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(tally.kernels[t], ledger_->kernels_written[t]);
    EXPECT_EQ(tally.kernel_sum[t], ledger_->kernel_sum[t]);
  }
  EXPECT_GT(daemon.stats().records_dropped, 0u);
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.events, ledger_->events_written);
  EXPECT_EQ(tally.events + daemon.stats().events_dropped, ledger_->events_tried);
  EXPECT_EQ(daemon.stats().rejected, 0u);
  EXPECT_EQ(tally.calls, CallsWritten());
  EXPECT_EQ(daemon.stats().lost, 0u);
}

}  // namespace
}  // namespace seqpoint::ingest
