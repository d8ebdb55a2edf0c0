// Bad input from the daemon's side, or what stands in its place: training ends as it would without
// us, losses are counted, and a sentence names the thing, the value and the way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "injection/abi/hello.h"
#include "injection/abi/ring.h"
#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A socket at `path` that takes connections, receives one message on each, and answers as it is
// told. The descriptors that come with the messages are dropped with them.
class StrangeSocket {
 public:
  StrangeSocket(const std::string& path, int type, std::function<void(int fd)> answer)
      : answer_(std::move(answer)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    fd_ = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~StrangeSocket() {
    stop_ = true;
    thread_.join();
    for (const int client : clients_) close(client);
    close(fd_);
  }
  size_t connections() const { return connections_; }

 private:
  void Serve() {
    while (!stop_) {
      pollfd ready = {fd_, POLLIN, 0};
      if (poll(&ready, 1, 20) <= 0) continue;
      const int client = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      ++connections_;
      char hello[16384];
      static_cast<void>(!recv(client, hello, sizeof(hello), 0));
      answer_(client);
      clients_.push_back(client);
    }
  }

  std::function<void(int)> answer_;
  int fd_ = -1;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> connections_{0};
  std::vector<int> clients_;
  std::thread thread_;
};

void Welcome(int fd, uint32_t version, uint32_t status, const std::string& message) {
  abi::Welcome welcome = {};
  welcome.magic = abi::kHelloMagic;
  welcome.abi_version = version;
  welcome.status = status;
  welcome.text_bytes = static_cast<uint32_t>(message.size());
  std::string packet(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
  packet += message;
  static_cast<void>(!send(fd, packet.data(), packet.size(), MSG_NOSIGNAL));
}

// No puppet listens here.
class StrangeSocketTest : public InjectTest {
 protected:
  // Runs the trainer with and without us; returns what the library wrote to its log.
  std::string RunWithLog() {
    const std::string log = own_.path().string() + "/log";
    extra_ = {{"SEQPOINT_DIR", own_.path().string()}, {"SEQPOINT_LOG", log}};
    const ProgramResult profiled = Run({"iterations=100", "sync=10", "sleep_us=2000"});
    extra_.clear();
    const ProgramResult alone = Run({"iterations=100", "sync=10"}, false);
    EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
    EXPECT_EQ(profiled.output, alone.output);
    return ReadFile(log);
  }

  TempFolder own_;
  const std::string path_ = own_.path().string() + "/inject.sock";
};

TEST_F(StrangeSocketTest, NothingIsThere) {
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("No such file"),
                                  HasSubstr("seqpoint run"), HasSubstr("training goes on")));
}

TEST_F(StrangeSocketTest, AFileIsThere) {
  std::ofstream(path_) << "not a socket";
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("seqpoint run")));
}

TEST_F(StrangeSocketTest, ADirectoryIsThere) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("seqpoint run")));
}

TEST_F(StrangeSocketTest, AnotherKindOfSocketIsThere) {
  const StrangeSocket other(path_, SOCK_STREAM, [](int) {});
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("another program")));
}

TEST_F(StrangeSocketTest, ASocketThatNeverAnswers) {
  const StrangeSocket other(path_, SOCK_SEQPACKET, [](int) {});
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("no answer to the hello")));
}

TEST_F(StrangeSocketTest, ASocketThatTalksNonsense) {
  const StrangeSocket other(path_, SOCK_SEQPACKET, [](int fd) {
    static_cast<void>(!send(fd, "220 mail.example.org ESMTP", 26, MSG_NOSIGNAL));
  });
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("another program")));
}

TEST_F(StrangeSocketTest, ASocketThatHangsUp) {
  const StrangeSocket other(path_, SOCK_SEQPACKET, [](int fd) { shutdown(fd, SHUT_RDWR); });
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr(path_), HasSubstr("without an answer")));
}

TEST_F(StrangeSocketTest, ADaemonOfAnotherVersionThatRefuses) {
  const StrangeSocket daemon(path_, SOCK_SEQPACKET, [](int fd) {
    Welcome(fd, 9, EPROTO,
            "the library speaks ring version 1, this daemon 9; install equal versions");
  });
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr("version 1"), HasSubstr("daemon 9"),
                                  HasSubstr("install equal versions")));
  EXPECT_LE(daemon.connections(), 2u);  // a refusal is not asked for again and again
}

TEST_F(StrangeSocketTest, ADaemonOfAnotherVersionThatTakesEverything) {
  const StrangeSocket daemon(path_, SOCK_SEQPACKET, [](int fd) { Welcome(fd, 9, 0, ""); });
  EXPECT_THAT(RunWithLog(), AllOf(HasSubstr("ring version 9"),
                                  HasSubstr(absl::StrCat("this library ", abi::kAbiVersion)),
                                  HasSubstr("install equal versions")));
}

TEST_F(StrangeSocketTest, ARefusalWithoutAnEnd) {
  const StrangeSocket daemon(path_, SOCK_SEQPACKET,
                             [](int fd) { Welcome(fd, 1, 13, std::string(5000, '!')); });
  EXPECT_THAT(RunWithLog(), HasSubstr("!!!!"));
}

class HostileTest : public InjectTest {};

// A plan with every forbidden value at once.
abi::Control AbsurdControl(uint32_t generation) {
  abi::Control control = MarkControl(CopyRule(generation));
  control.plan_count = UINT32_MAX;
  control.config_count = UINT32_MAX;
  control.measurement_cap = UINT32_MAX;
  control.flush_interval_ms = UINT32_MAX;
  control.rule.watched_ops = UINT32_MAX;
  control.rule.length_count = UINT32_MAX;
  for (abi::LengthSource& source : control.rule.length) {
    source.pattern.op = static_cast<uint8_t>(abi::Op::kLaunch);
    source.pattern.every = UINT32_MAX;
    source.pattern.phase = UINT32_MAX;
    source.field = 255;
    source.fold = 255;
    source.lag = 255;
    source.digit_run = 255;
    source.ordinal = UINT32_MAX;
  }
  for (abi::PlanEntry& entry : control.plan) {
    entry = {{INT64_MIN, INT64_MIN}, {INT64_MAX, INT64_MAX}, 2, 0xffff, UINT32_MAX, 7};
  }
  for (abi::MetricConfig& config : control.config) {
    config.config_id = 2;
    config.metric_count = 0xff;
    config.text_bytes = UINT32_MAX;
    memset(config.names, 'x', sizeof(config.names));
    for (size_t i = 1; i < sizeof(config.names); i += 2) config.names[i] = '\n';
  }
  return control;
}

TEST_F(HostileTest, AbsurdPlansDoNoHarm) {
  std::vector<abi::Control> controls;
  controls.push_back(AbsurdControl(1));
  controls.push_back(AbsurdControl(2));
  controls.back().level = 200;
  controls.push_back(AbsurdControl(3));
  controls.back().rule.boundary.op = 255;
  controls.back().rule.step.op = 0;
  controls.back().rule.micro_batches = UINT32_MAX;
  // A length that is there, boxes that hold everything, and no end of quota.
  controls.push_back(AbsurdControl(4));
  controls.back().rule.length_count = 1;
  controls.back().rule.length[0] = CopyRule(4).length[0];
  for (abi::PlanEntry& entry : controls.back().plan) entry.config_id = abi::kConfigTrace;
  controls.push_back(AbsurdControl(5));
  controls.back().rule.step = controls.back().rule.boundary;
  controls.back().rule.confirm = controls.back().rule.boundary;
  size_t next = 0;
  int polls = 0;
  daemon_.Always([&](PuppetProcess& p) {
    if (++polls % 20 == 0) p.Send(controls[next++ % controls.size()]);
  });
  RunAndCompare({"iterations=600", "sync=7", "sleep_us=300", "nvtx=1"});
  EXPECT_GT(next, controls.size());
  EXPECT_EQ(process().stats.rejected, 0u);
}

TEST_F(HostileTest, RandomPlansDoNoHarm) {
  std::mt19937_64 random(7);
  uint32_t generation = 0;
  daemon_.Always([&](PuppetProcess& p) {
    abi::Control control;
    auto* words = reinterpret_cast<uint64_t*>(&control);
    for (size_t i = 0; i < sizeof(control) / sizeof(uint64_t); ++i) words[i] = random();
    // Mostly such that it is acted on.
    control.level = static_cast<uint8_t>(random() % 4);
    control.rule.generation = ++generation;
    if (random() % 2 == 0) control.rule.boundary = CopyRule(1).boundary;
    if (random() % 2 == 0) control.rule.step = CopyRule(1).step;
    if (random() % 2 == 0) control.rule.length[0] = CopyRule(1).length[0];
    control.rule.length_count = static_cast<uint32_t>(random() % 4);
    p.Send(control);
  });
  RunAndCompare({"iterations=600", "sync=7", "sleep_us=300", "nvtx=1"});
}

TEST_F(HostileTest, SharedMemoryFullOfRandomBytesDoesNoHarm) {
  std::mt19937_64 random(11);
  daemon_.Always([&](PuppetProcess& p) {
    auto* block = reinterpret_cast<volatile uint64_t*>(p.control_block());
    for (int i = 0; i < 200; ++i) block[random() % (sizeof(abi::ControlBlock) / 8)] = random();
    // The header of the ring stands before the control block.
    auto* header =
        reinterpret_cast<volatile uint64_t*>(reinterpret_cast<uint8_t*>(p.control_block()) - 4096);
    for (int i = 0; i < 5; ++i) header[random() % (sizeof(abi::RingHeader) / 8)] = random();
    // The directory and everything behind it.
    auto* lane = reinterpret_cast<volatile uint64_t*>(p.control_block() + 1);
    for (int i = 0; i < 200; ++i) lane[random() % (1 << 20)] = random();
  });
  daemon_.Start();
  const ProgramResult profiled = Run({"iterations=1000", "sync=7", "sleep_us=300"});
  daemon_.Stop();
  const ProgramResult alone = Run({"iterations=1000", "sync=7"}, false);
  EXPECT_EQ(profiled.exit_status, 0) << profiled.output;
  EXPECT_EQ(profiled.output, alone.output);
}

TEST_F(HostileTest, AStoppedDaemonCostsOnlyWhatTheRingCannotHold) {
  extra_ = {{"SEQPOINT_RING_BYTES", "65536"}};
  daemon_.OnCalls(200, [this](PuppetProcess&) { daemon_.Stall(3000); });
  RunAndCompare({"iterations=4000", "sleep_us=800", "layers=3"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // Learning, nobody there, learning again.
  ASSERT_EQ(process().rules.size(), 3u);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[1].level), abi::Level::kMark);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[2].level), abi::Level::kLearn);
  EXPECT_GT(process().calls_missing, 0u);
  EXPECT_EQ(process().stats.lost, 0u);
  // Each tried call is either here or missing, in each part.
  uint64_t before = 0;
  for (const abi::CallRecord& call : process().calls) {
    before += call.sequence < process().rules[1].call_sequence;
  }
  EXPECT_LT(before, process().rules[1].call_sequence);
  EXPECT_EQ(process().calls.size() + process().calls_missing, process().calls.back().sequence + 1);
}

TEST_F(HostileTest, AnotherDaemonTakesOverWithAnotherPlan) {
  SEQPOINT_NEEDS_TRACES();
  abi::Control first = MarkControl(CopyRule(3));
  AddEntry(&first, 100, 16, abi::kConfigTrace, 1);
  const std::string go = (directory_.path() / "go").string();
  daemon_.OnCalls(60, [first, go](PuppetProcess& p) {
    p.Send(first);
    std::ofstream(go + ".50") << "\n";
  });
  daemon_.Start();
  ProgramResult profiled;
  std::thread training([&] {
    profiled = Run({"iterations=2000", "lengths=16,32", "wait=50", "wait_again=1000", "go=" + go});
  });
  while (daemon_.progress() < 1000) usleep(1000);
  daemon_.Abandon();
  PuppetDaemon second(directory_.path().string());
  // Its rules count from another place; its plan wants something else.
  abi::Control other = MarkControl(FifthKernelRule(1));
  AddEntry(&other, 200, 32, abi::kConfigTrace, 2, 1);
  second.When([](const PuppetProcess&) { return true; },
              [other, go](PuppetProcess& p) {
                p.Send(other);
                std::ofstream(go + ".1000") << "\n";
              });
  second.Start();
  training.join();
  second.Stop();
  const ProgramResult alone = Run({"iterations=2000", "lengths=16,32"}, false);
  EXPECT_EQ(profiled.output, alone.output);
  ASSERT_EQ(second.process_count(), 1u);
  PuppetProcess& process = second.process(0);
  ASSERT_FALSE(process.rules.empty());
  EXPECT_EQ(process.rules.back().rule_generation, 1u);
  ASSERT_GT(process.steps.size(), 500u);
  // The library goes on counting its iterations.
  uint64_t expected = process.steps.front().iteration;
  EXPECT_GT(expected, 0u);
  for (const abi::StepEvent& step : process.steps) EXPECT_EQ(step.iteration, expected++);
  size_t measured = 0;
  for (const abi::DecisionEvent& decision : process.decisions) {
    measured += decision.config_id != 0 && decision.length[0] == 32;
  }
  EXPECT_EQ(measured, 2u);
}

TEST_F(HostileTest, EightRanksOfOneJob) {
  daemon_.Start();
  std::vector<ProgramResult> results(8);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.emplace_back([this, rank, &results] {
      std::map<std::string, std::string> environment = Environment(true);
      environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
      environment["WORLD_SIZE"] = "8";
      environment["SEQPOINT_RUN_ID"] = "run-1";
      results[static_cast<size_t>(rank)] = RunProgram(
          {SEQPOINT_INJECTION_TRAINER, "iterations=200", "layers=3", "sleep_us=1000"}, environment);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  daemon_.Stop();
  const ProgramResult alone = Run({"iterations=200", "layers=3"}, false);
  for (const ProgramResult& result : results) EXPECT_EQ(result.output, alone.output);
  ASSERT_EQ(daemon_.process_count(), 8u);
  std::set<std::string> seen;
  for (size_t i = 0; i < 8; ++i) {
    PuppetProcess& process = daemon_.process(i);
    EXPECT_EQ(process.fields["run_id"], "run-1");
    EXPECT_EQ(process.fields["world_size"], "8");
    seen.insert(process.fields["rank"]);
    EXPECT_EQ(process.calls.size(), 200u * 7 + 1);
    EXPECT_EQ(process.calls_missing, 0u);
    EXPECT_TRUE(process.stats.closed);
  }
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace seqpoint
