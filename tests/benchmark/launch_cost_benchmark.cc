// The additional cost of a launch with the library in the process, when nobody watches launches:
// level mark, and a rule that only a batch copy begins and ends. Real mode of the software GPU.
//
//   launch_cost_benchmark [--pairs 40] [--blocks 50] [--launches 5000]
//
// A pair is the same program with and without the library, side by side; they time blocks of
// launches in turn, so that both see the same machine. Where code and data happen to lie differs
// from process to process by more than the library costs, so many pairs are started. Printed is the
// median over all pairs of blocks, and its 95 % interval from the pairs.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/inject_server.h"
#include "daemon/ingest/ring_reader.h"
#include "tests/support/api.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

// A daemon that puts every process to level mark, with a rule for which only batch copies are
// watched.
class MarkingDaemon : private ingest::InjectServer::Handler, private ingest::RingSink {
 public:
  MarkingDaemon() {
    auto server = ingest::InjectServer::Listen(directory(), {}, this);
    if (!server.ok()) Die(std::string(server.status().message()));
    server_ = *std::move(server);
    thread_ = std::thread([this] { Serve(); });
  }
  ~MarkingDaemon() override {
    stop_ = true;
    thread_.join();
    reader_.reset();
    server_.reset();
  }
  std::string directory() const { return folder_.path().string(); }
  bool marking() const { return marking_; }

  [[noreturn]] static void Die(const std::string& why) {
    std::fprintf(stderr, "launch_cost_benchmark: %s\n", why.c_str());
    std::exit(1);
  }

 private:
  void Serve() {
    while (!stop_) {
      server_->RunOnce(5);
      if (reader_ == nullptr) continue;
      timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      const auto now_ns =
          static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
      writer_->Heartbeat(now_ns);
      reader_->Poll(*this, now_ns);
      reader_->Release(reader_->cursor());
    }
  }
  absl::Status OnProcess(ingest::AcceptedProcess process) override {
    reader_ = std::move(process.reader);
    writer_ = std::make_unique<ingest::ControlWriter>(reader_->control_block());
    auto control = std::make_unique<abi::Control>();
    *control = {};
    control->level = static_cast<uint8_t>(abi::Level::kMark);
    control->flush_interval_ms = 100;
    control->rule.generation = 1;
    control->rule.watched_ops = 1u << static_cast<uint32_t>(abi::Op::kCopyH2D);
    control->rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
    control->rule.clock = control->rule.boundary;
    writer_->Write(*control);
    return absl::OkStatus();
  }
  void OnGone(uint64_t) override {}
  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    if (type != abi::EventType::kRule || payload.size() < sizeof(abi::RuleEvent)) return;
    abi::RuleEvent event;
    std::memcpy(&event, payload.data(), sizeof(event));
    marking_ = event.level == static_cast<uint8_t>(abi::Level::kMark);
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    for (const abi::DataRecord& record : records) {
      if (marking_ && record.type == static_cast<uint16_t>(abi::DataType::kCall)) ++late_calls_;
    }
    // The records of the batch in which the level changed may still be calls.
    if (late_calls_ > 100'000) Die("launches are watched");
  }
  void OnCallsMissing(uint64_t, uint64_t) override {}

  const TempFolder folder_;
  std::unique_ptr<ingest::InjectServer> server_;
  std::unique_ptr<ingest::RingReader> reader_;
  std::unique_ptr<ingest::ControlWriter> writer_;
  std::atomic<bool> stop_{false}, marking_{false};
  uint64_t late_calls_ = 0;
  std::thread thread_;
};

// The launcher, with a pipe to ask for a block and one for its time.
class TimedLauncher {
 public:
  TimedLauncher(bool injected, const std::string& directory, int blocks, int launches) {
    int ask[2], answer[2];
    if (pipe(ask) != 0 || pipe(answer) != 0) MarkingDaemon::Die("no pipe");
    const auto bin = BinaryDirectory();
    const std::string build = bin.parent_path().string();
    std::vector<std::string> command = {"/usr/bin/env", "LD_LIBRARY_PATH=" + build + "/softgpu",
                                        "SEQPOINT_DIR=" + directory,
                                        // Kernels of no length: the queue is never full.
                                        "SWGPU_SET=clock.mode=real,gpu.kernel_min_ns=10,"
                                        "gpu.kernel_gap_ns=0,gpu.launch_latency_ns=10"};
    if (injected) command.push_back("LD_PRELOAD=" + build + "/lib/libseqpoint_inject.so");
    command.push_back((bin / "seqpoint_launcher").string());
    command.push_back("pairs=" + std::to_string(blocks));
    command.push_back("block=" + std::to_string(launches));
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ask[0], 0);
      dup2(answer[1], 1);
      for (const int fd : {ask[0], ask[1], answer[0], answer[1]}) close(fd);
      std::vector<char*> argv;
      for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ask[0]);
    close(answer[1]);
    ask_ = ask[1];
    answer_ = fdopen(answer[0], "r");
  }
  ~TimedLauncher() {
    close(ask_);
    fclose(answer_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  // CPU time of the next block.
  double BlockNs() {
    unsigned long long ns = 0;
    if (write(ask_, "\n", 1) != 1 || fscanf(answer_, "%llu", &ns) != 1) {
      MarkingDaemon::Die("a launcher ended early");
    }
    return static_cast<double>(ns);
  }

 private:
  pid_t pid_;
  int ask_;
  FILE* answer_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

int Main(int pairs, int blocks, int launches) {
  constexpr int kWarmUp = 5;
  std::vector<double> differences, medians, plain_ns;
  for (int pair = 0; pair < pairs; ++pair) {
    MarkingDaemon daemon;
    TimedLauncher plain(false, daemon.directory(), blocks + kWarmUp, launches);
    TimedLauncher with(true, daemon.directory(), blocks + kWarmUp + 1000, launches);
    // Until the library is at level mark, its program does blocks that do not count.
    for (int i = 0; !daemon.marking(); ++i) {
      if (i == 1000) MarkingDaemon::Die("the library did not come to level mark");
      with.BlockNs();
    }
    std::vector<double> of_pair;
    for (int block = 0; block < blocks + kWarmUp; ++block) {
      // Who is first changes, too.
      double with_ns = block % 2 == 0 ? with.BlockNs() : 0;
      const double without_ns = plain.BlockNs();
      if (block % 2 != 0) with_ns = with.BlockNs();
      if (block < kWarmUp) continue;
      of_pair.push_back((with_ns - without_ns) / launches);
      plain_ns.push_back(without_ns / launches);
    }
    differences.insert(differences.end(), of_pair.begin(), of_pair.end());
    medians.push_back(Median(of_pair));
  }
  // The median of the pairs' medians, and the order statistics that hold it with 95 %.
  std::sort(medians.begin(), medians.end());
  const double half = 0.98 * std::sqrt(static_cast<double>(pairs));
  const auto at = [&](double rank) {
    return medians[static_cast<size_t>(std::clamp(rank, 0.0, pairs - 1.0))];
  };
  std::printf("a launch without the library   %.1f ns of CPU time\n", Median(plain_ns));
  std::printf(
      "difference with it             %+.2f ns (95 %%: %+.2f to %+.2f), %d pairs of programs, "
      "%zu of blocks of %d launches\n",
      Median(differences), at(pairs / 2.0 - half), at(pairs / 2.0 + half), pairs,
      differences.size(), launches);
  return 0;
}

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  int pairs = 40, blocks = 50, launches = 5000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    const int value = std::atoi(argv[i + 1]);
    if (option == "--pairs" && value > 0) {
      pairs = value;
    } else if (option == "--blocks" && value > 0) {
      blocks = value;
    } else if (option == "--launches" && value > 0) {
      launches = value;
    } else {
      std::fprintf(stderr, "launch_cost_benchmark: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  signal(SIGPIPE, SIG_IGN);
  return seqpoint::Main(pairs, blocks, launches);
}
