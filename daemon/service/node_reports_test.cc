// A hub reads the batches of its nodes.
#include <array>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <pqxx/pqxx>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "daemon/base/descriptors.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/jobs/rule_codec.h"
#include "daemon/store/sqlite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/ring.h"
#include "tests/support/daemon_in_process.h"
#include "tests/support/private_postgres.h"

namespace seqpoint::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Node final : public NodeReports::Listener {
 public:
  void OnStored(int64_t sequence) override {
    absl::MutexLock lock(&mutex_);
    stored_ = sequence;
  }
  void OnPlan(v1::Plan) override {}
  void OnTraceRequest(v1::TraceRequest) override {}

  bool AwaitStored(int64_t sequence) {
    for (int i = 0; i < 2000; ++i) {
      {
        absl::MutexLock lock(&mutex_);
        if (stored_ >= sequence) return true;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  static v1::NodeHello Hello(int64_t first = 1, int64_t last = 0, char id = 'n') {
    v1::NodeHello hello;
    hello.set_node_id(std::string(16, id));
    hello.set_host("node1");
    hello.set_version("9.9");
    hello.set_oldest_format(NodeReports::kFormat);
    hello.set_newest_format(NodeReports::kFormat);
    hello.set_abi_version(abi::kAbiVersion);
    hello.set_first_sequence(first);
    hello.set_last_sequence(last);
    return hello;
  }

 private:
  absl::Mutex mutex_;
  int64_t stored_ ABSL_GUARDED_BY(mutex_) = 0;
};

v1::Batch BatchOf(int64_t sequence, const std::vector<jobs::Report>& reports) {
  jobs::ReportWriter writer;
  for (const jobs::Report& report : reports) writer.Add(report);
  v1::Batch batch;
  batch.set_sequence(sequence);
  batch.set_frame(ToZstdFrame(writer.Serialize()));
  return batch;
}

jobs::Report StartOf(int64_t process, const std::string& job, const std::string& ring_of = "ring") {
  v1::ReportedProcess started;
  started.set_job(job);
  started.set_run_id("1");
  started.set_rank(static_cast<int32_t>(process));
  started.set_pid(4000);
  started.set_host("node1");
  started.set_start_ns(1'700'000'000'000'000'000);
  std::string ring = absl::StrCat(ring_of, " ", process);
  ring.resize(16, '.');
  started.set_ring_id(ring);
  return {process, started};
}

jobs::Report RuleOf(int64_t process) {
  iterations::LearnedRule learned;
  learned.rule.generation = 1;
  learned.rule.boundary.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
  learned.rule.step.op = static_cast<uint8_t>(abi::Op::kLaunch);
  learned.rule.length_count = 1;
  learned.rule.length[0].pattern.op = static_cast<uint8_t>(abi::Op::kCopyH2D);
  learned.confidence = 1;
  v1::ReportedRule rule;
  *rule.mutable_rule() = jobs::EncodeRule(learned);
  rule.set_number_offset(0);
  return {process, rule};
}

jobs::Report IterationOf(int64_t process, int64_t number) {
  constexpr int64_t kStepNs = 10'000'000;
  jobs::FinishedIteration iteration;
  iteration.set_number(static_cast<uint64_t>(number));
  iteration.set_first_length(16 + number % 7);
  iteration.set_valid(1);
  iteration.set_boundary_ns(1'700'000'000'000'000'000 + number * kStepNs);
  iteration.set_start_ns(iteration.boundary_ns());
  iteration.set_duration_ns(kStepNs);
  iteration.set_gpu_time(true);
  iteration.set_ended(true);
  return {process, iteration};
}

jobs::Report EndOf(int64_t process) {
  v1::ReportedEnd end;
  end.set_orderly(true);
  end.set_end_ns(1'700'000'001'000'000'000);
  return {process, end};
}

class LateClock final : public Clock {
 public:
  int64_t WallNs() const override { return Clock::WallNs() + late_ns_ + set_forward_ns_; }
  int64_t MonotonicNs() const override { return Clock::MonotonicNs() + late_ns_; }
  void Advance(absl::Duration by) { late_ns_ += absl::ToInt64Nanoseconds(by); }
  // The time of day alone, as somebody who sets it.
  void SetForward(absl::Duration by) { set_forward_ns_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> late_ns_ = 0, set_forward_ns_ = 0;
};

class NodeReportsTest : public DaemonTest {
 protected:
  NodeReportsTest() {
    options_.takes_nodes = true;
    options_.clock = &clock_;
  }

  static absl::StatusOr<v1::Job> End(Daemon& daemon, const std::string& job) {
    v1::ControlRequest request;
    request.set_job(job);
    request.set_action(v1::ControlRequest::ACTION_END_WAITING);
    auto reply = daemon.backend().Control(request);
    if (!reply.ok()) return reply.status();
    return reply->job();
  }
  static v1::Job OnlyJob(Daemon& daemon) { return daemon.backend().ListJobs({})->jobs(0); }
  static bool AwaitLive(Daemon& daemon, int processes) {
    for (int i = 0; i < 2000 && OnlyJob(daemon).live_processes() != processes; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return OnlyJob(daemon).live_processes() == processes;
  }

  static std::vector<std::string> JobNames(Daemon& daemon) {
    std::vector<std::string> names;
    const auto list = daemon.backend().ListJobs({});
    for (const v1::Job& job : list->jobs()) names.push_back(job.name());
    return names;
  }

  LateClock clock_;
};

TEST_F(NodeReportsTest, DamagedRowsOfAJobAreSaidByItAloneAndTheHubGoesOn) {
  if (const std::string missing = PrivatePostgres::Missing(); !missing.empty()) {
    std::cout << "skipped: " << missing << "\n";
    GTEST_SKIP() << missing;
  }
  PrivatePostgres server;
  ASSERT_TRUE(server.Start() && server.CreateDatabase("hub")) << server.Log();
  options_.store_path = server.AddressOf("hub");
  constexpr int64_t kIterations = 20;
  const std::string id(16, 'n');
  const auto job = [](Daemon& hub, const std::string& name) {
    v1::GetJobRequest request;
    request.set_job(name);
    return hub.backend().GetJob(request)->job();
  };
  {
    Node node;
    auto hub = Start();
    ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
    const auto offer = [&](int64_t sequence, std::vector<jobs::Report> reports) {
      for (int64_t i = (sequence - 1) * kIterations; i < sequence * kIterations; ++i) {
        for (const int64_t process : {0, 1}) reports.push_back(IterationOf(process, i));
      }
      return hub->nodes()->Offer(id, BatchOf(sequence, reports)).ok() && node.AwaitStored(sequence);
    };
    jobs::Report second = StartOf(1, "b");
    std::get<v1::ReportedProcess>(second.what).set_rank(0);
    ASSERT_TRUE(offer(1, {StartOf(0, "a"), RuleOf(0), second, RuleOf(1)}));
    {
      pqxx::connection connection(server.AddressOf("hub"));
      pqxx::work transaction(connection);
      const pqxx::result damaged = transaction.exec(absl::StrCat(
          "UPDATE seqpoint.iteration_block SET bytes = 'x' WHERE job_id = ", job(*hub, "a").id()));
      ASSERT_GT(damaged.affected_rows(), 0u);
      transaction.commit();
    }
    ASSERT_TRUE(offer(2, {}));
    EXPECT_THAT(job(*hub, "a").error(), HasSubstr("damaged and were set aside"));
    EXPECT_EQ(job(*hub, "b").error(), "");
    ASSERT_TRUE(offer(3, {}));
    hub->nodes()->Disconnect(id, &node);
  }
  auto hub = Start();
  EXPECT_THAT(job(*hub, "a").error(), HasSubstr("damaged and were set aside"));
  EXPECT_EQ(job(*hub, "a").iterations(), 3 * kIterations);
  EXPECT_THAT(job(*hub, "b").error(), Not(HasSubstr("damaged")));
  v1::ListIterationsRequest request;
  request.set_page_size(1'000);
  request.set_job("b");
  const auto rows = hub->backend().ListIterations(request);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->iterations_size(), 3 * kIterations);
  request.set_job("a");
  const absl::Status lacks = hub->backend().ListIterations(request).status();
  EXPECT_TRUE(absl::IsDataLoss(lacks)) << lacks;
}

TEST_F(NodeReportsTest, ABatchIsTakenOnceHoweverOftenItComes) {
  Node node;
  {
    auto hub = Start();
    const auto hello = hub->nodes()->Connect(node.Hello(), &node);
    ASSERT_TRUE(hello.ok()) << hello.status();
    EXPECT_EQ(hello->acknowledged(), 0);
    EXPECT_EQ(hello->next_sequence(), 1);
    const std::string id(16, 'n');
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
    ASSERT_TRUE(node.AwaitStored(1));
    EXPECT_TRUE(absl::IsDataLoss(hub->nodes()->Offer(id, BatchOf(3, {}))));
    hub->nodes()->Disconnect(id, &node);
  }
  auto hub = Start();
  const auto hello = hub->nodes()->Connect(node.Hello(1, 1), &node);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->next_sequence(), 1) << "the proof that it is the same outbox";
  EXPECT_EQ(hello->acknowledged(), 0) << "the node must not forget it before";
  // The processes of before go on.
  const std::string id(16, 'n');
  Node again;
  hub->nodes()->Disconnect(id, &node);
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(1, 1), &again).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
  EXPECT_TRUE(again.AwaitStored(1));
  hub->nodes()->Disconnect(id, &again);
  const auto after = hub->nodes()->Connect(node.Hello(2, 2), &node);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->acknowledged(), 1);
  EXPECT_EQ(after->next_sequence(), 2) << "what the node has no more was acknowledged";
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(2, {EndOf(0), EndOf(1)})).ok());
  ASSERT_TRUE(node.AwaitStored(2));
  EXPECT_THAT(JobNames(*hub), ElementsAre("a"));
  EXPECT_EQ(hub->backend().ListJobs({})->jobs(0).state(), v1::JOB_STATE_ENDED);
  EXPECT_EQ(hub->backend().ListJobs({})->jobs(0).process_count(), 2);
  hub->nodes()->Disconnect(id, &node);
}

// Two nodes with a rank each. A step takes 40 ms; 1,000 of them are more than those of 10 s.
class BacklogTest : public NodeReportsTest {
 protected:
  static constexpr int64_t kBefore = 100, kFirst = 110, kAll = 1'100;
  static constexpr int64_t kStepNs = 40'000'000;

  static std::vector<jobs::Report> Iterations(int64_t rank, int64_t begin, int64_t end) {
    std::vector<jobs::Report> reports;
    for (int64_t i = begin; i < end; ++i) {
      jobs::Report& report = reports.emplace_back(IterationOf(rank, i));
      auto& iteration = std::get<jobs::FinishedIteration>(report.what);
      iteration.set_start_ns(1'700'000'000'000'000'000 + i * kStepNs);
      iteration.set_boundary_ns(iteration.start_ns());
      iteration.set_duration_ns(kStepNs);
    }
    return reports;
  }
  static v1::NodeHello HelloOf(int64_t rank, int64_t first, int64_t last) {
    return Node::Hello(first, last, rank == 0 ? 'n' : 'o');
  }
  // The node's batch is in the store.
  bool Send(Daemon& hub, int64_t rank, int64_t sequence, const std::vector<jobs::Report>& reports) {
    const std::string id = HelloOf(rank, 1, 0).node_id();
    return hub.nodes()->Offer(id, BatchOf(sequence, reports)).ok() &&
           nodes_[rank].AwaitStored(sequence);
  }
  // Both nodes have reported kBefore iterations when the hub goes.
  void TrainUntilTheHubGoes() {
    auto hub = Start();
    for (const int64_t rank : {0, 1}) {
      ASSERT_TRUE(hub->nodes()->Connect(HelloOf(rank, 1, 0), &nodes_[rank]).ok());
      ASSERT_TRUE(Send(*hub, rank, 1, {StartOf(rank, "a"), RuleOf(rank)}));
    }
    for (const int64_t rank : {0, 1}) {
      ASSERT_TRUE(Send(*hub, rank, 2, Iterations(rank, 0, kBefore)));
    }
    Disconnect(*hub);
  }
  // The node is back with the first batch of what it kept.
  bool Return(Daemon& hub, int64_t rank) {
    return hub.nodes()->Connect(HelloOf(rank, 3, 4), &nodes_[rank]).ok() &&
           Send(hub, rank, 3, Iterations(rank, kBefore, kFirst));
  }
  bool SendRest(Daemon& hub, int64_t rank) {
    return Send(hub, rank, 4, Iterations(rank, kFirst, kAll));
  }
  void Disconnect(Daemon& hub) {
    for (const int64_t rank : {0, 1}) {
      hub.nodes()->Disconnect(HelloOf(rank, 1, 0).node_id(), &nodes_[rank]);
    }
  }
  // The hub's turns of so many seconds of its clock.
  void Pass(int64_t seconds) {
    for (int64_t i = 0; i < seconds; ++i) {
      clock_.Advance(absl::Seconds(1));
      absl::SleepFor(absl::Milliseconds(30));
    }
  }
  static v1::Job Details(Daemon& hub) {
    v1::GetJobRequest request;
    request.set_job("a");
    return hub.backend().GetJob(request)->job();
  }
  static v1::Projection Project(Daemon& hub) {
    v1::ProjectRequest request;
    request.set_job("a");
    const auto reply = hub.backend().Project(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->projection() : v1::Projection();
  }
  static void ExpectAllStepsKnown(Daemon& hub) {
    EXPECT_EQ(Details(hub).iterations(), kAll);
    const v1::Projection projection = Project(hub);
    const double all_ns = static_cast<double>(kAll * kStepNs);
    EXPECT_NEAR(projection.so_far().low(), all_ns, all_ns / 1000);
    EXPECT_NEAR(projection.so_far().high(), all_ns, all_ns / 1000);
    EXPECT_THAT(projection.basis(), HasSubstr("of 7 lengths"));
    EXPECT_THAT(projection.basis(), Not(HasSubstr("when their steps were over")));
  }

  std::array<Node, 2> nodes_;
};

TEST_F(BacklogTest, StepsWaitForTheNodeThatComesLast) {
  TrainUntilTheHubGoes();
  auto hub = Start();
  ASSERT_TRUE(Return(*hub, 0) && SendRest(*hub, 0));
  Pass(60);
  EXPECT_EQ(Details(*hub).iterations(), kBefore) << "rank 1 may still come";
  ASSERT_TRUE(Return(*hub, 1));
  Pass(60);
  EXPECT_EQ(Details(*hub).iterations(), kFirst) << "more of rank 1 may come";
  ASSERT_TRUE(SendRest(*hub, 1));
  ExpectAllStepsKnown(*hub);
  Disconnect(*hub);
}

TEST_F(BacklogTest, StepsWaitWhileAStoppedHubReadsWhatCame) {
  TrainUntilTheHubGoes();
  auto hub = Start();
  ASSERT_TRUE(Return(*hub, 0) && Return(*hub, 1) && SendRest(*hub, 0));
  clock_.Advance(absl::Hours(1));
  absl::SleepFor(absl::Milliseconds(500));  // some turns
  EXPECT_EQ(Details(*hub).iterations(), kFirst);
  ASSERT_TRUE(SendRest(*hub, 1));
  ExpectAllStepsKnown(*hub);
  Disconnect(*hub);
}

TEST_F(BacklogTest, AJobGoesOnWithoutANodeThatStaysAway) {
  TrainUntilTheHubGoes();
  auto hub = Start();
  ASSERT_TRUE(Return(*hub, 0) && SendRest(*hub, 0));
  Pass(60);
  EXPECT_EQ(Details(*hub).iterations(), kBefore);
  for (int i = 0; i < 1'000 && Details(*hub).iterations() == kBefore; ++i) Pass(1);
  EXPECT_EQ(Details(*hub).iterations(), kAll);
  ASSERT_TRUE(Return(*hub, 1) && SendRest(*hub, 1));
  EXPECT_THAT(Project(*hub).basis(), HasSubstr("1000 iterations came when their steps were over"));
  Disconnect(*hub);
}

TEST_F(NodeReportsTest, AJobSaysThatReportsOfItsNodeWereLost) {
  constexpr int64_t kBefore = 10, kAfter = 40;
  const std::string id(16, 'n');
  Node node;
  auto hub = Start();
  const auto job = [&](const std::string& name) {
    v1::GetJobRequest request;
    request.set_job(name);
    return hub->backend().GetJob(request)->job();
  };
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  jobs::Report second = StartOf(1, "b");
  std::get<v1::ReportedProcess>(second.what).set_rank(0);
  std::vector<jobs::Report> reports = {StartOf(0, "a"), RuleOf(0), second, RuleOf(1)};
  for (int64_t i = 0; i < kBefore; ++i) {
    for (const int64_t process : {0, 1}) reports.push_back(IterationOf(process, i));
  }
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, reports)).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  EXPECT_EQ(job("a").error(), "");
  hub->nodes()->Disconnect(id, &node);

  // The node does not have batches 2 to 4 any more.
  const auto hello = hub->nodes()->Connect(node.Hello(5, 4), &node);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->next_sequence(), 5);
  const auto says = [&](const std::string& name, const std::string& what) {
    for (int i = 0; i < 1000 && !absl::StrContains(job(name).error(), what); ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return job(name).error();
  };
  EXPECT_THAT(says("a", "never came"), HasSubstr("3 batches of reports of rank 0 never came"));
  EXPECT_THAT(job("a").error(), HasSubstr("counts as running"));
  reports.clear();
  for (int64_t i = kAfter - kBefore; i < kAfter; ++i) reports.push_back(IterationOf(0, i));
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(5, reports)).ok());
  ASSERT_TRUE(node.AwaitStored(5));
  EXPECT_EQ(job("a").iterations(), kAfter);
  EXPECT_EQ(job("a").losses().untimed_iterations(), kAfter - 2 * kBefore);
  EXPECT_EQ(job("a").losses().uncounted_processes(), 0);
  EXPECT_THAT(job("a").error(), Not(HasSubstr("counts as running")));

  // Nothing came of the other one: it ended meanwhile, or its iterations are long.
  v1::ControlRequest end;
  end.set_action(v1::ControlRequest::ACTION_END_WAITING);
  end.set_job("a");
  EXPECT_FALSE(hub->backend().Control(end).ok()) << "it was heard of since";
  end.set_job("b");
  clock_.Advance(absl::Minutes(5));
  EXPECT_FALSE(hub->backend().Control(end).ok());
  clock_.Advance(absl::Minutes(6));
  EXPECT_TRUE(hub->backend().Control(end).ok());
  EXPECT_EQ(job("b").state(), v1::JOB_STATE_LOST);
  EXPECT_EQ(job("b").losses().uncounted_processes(), 1);
  EXPECT_THAT(job("b").error(), HasSubstr("was not heard of since reports of its node were lost"));
  hub->nodes()->Disconnect(id, &node);
  hub.reset();
  hub = Start();
  EXPECT_THAT(job("b").error(), HasSubstr("3 batches of reports of rank 0 never came"));
}

TEST_F(NodeReportsTest, LostBatchesOfTwoNodesAddUpAndALostRuleIsSaid) {
  const std::string id(16, 'n'), other_id(16, 'o');
  Node node, other;
  auto hub = Start();
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(1, 0, 'o'), &other).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
  ASSERT_TRUE(hub->nodes()->Offer(other_id, BatchOf(1, {StartOf(2, "a")})).ok());
  ASSERT_TRUE(node.AwaitStored(1) && other.AwaitStored(1));
  hub->nodes()->Disconnect(id, &node);
  hub->nodes()->Disconnect(other_id, &other);
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(5, 4), &node).ok());
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(4, 3, 'o'), &other).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(5, {IterationOf(0, 7)})).ok());
  ASSERT_TRUE(hub->nodes()->Offer(other_id, BatchOf(4, {IterationOf(2, 7)})).ok());
  ASSERT_TRUE(node.AwaitStored(5) && other.AwaitStored(4));
  EXPECT_THAT(OnlyJob(*hub).error(), HasSubstr("5 batches of reports of ranks 0, 1, 2 never came"));
  EXPECT_THAT(OnlyJob(*hub).error(), HasSubstr("none is counted here since then"));
  hub->nodes()->Disconnect(id, &node);
  hub->nodes()->Disconnect(other_id, &other);
}

// Its daemon was started between taking the id and telling it.
TEST_F(NodeReportsTest, AProcessThatComesUnderANewNodeIdIsNotCountedTwice) {
  options_.ingest.prune_interval = absl::Milliseconds(20);
  const std::string id(16, 'n'), new_id(16, 'm');
  Node node;
  auto hub = Start();
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(
      hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a"), EndOf(0)})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  hub->nodes()->Disconnect(id, &node);
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(1, 1, 'm'), &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(new_id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
  ASSERT_TRUE(hub->nodes()->Offer(new_id, BatchOf(2, {StartOf(2, "b")})).ok());
  ASSERT_TRUE(node.AwaitStored(2));
  v1::GetJobRequest request;
  request.set_job("a");
  const auto job = [&] { return hub->backend().GetJob(request)->job(); };
  EXPECT_EQ(job().processes_size(), 2);
  EXPECT_EQ(job().live_processes(), 1);
  clock_.Advance(absl::Minutes(1));
  for (int i = 0; i < 1000 && job().live_processes() > 0; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(job().live_processes(), 0) << "nobody reports its end";
  hub->nodes()->Disconnect(new_id, &node);
}

TEST_F(NodeReportsTest, WhatCannotBeIsSkippedAndTheRestIsTaken) {
  auto hub = Start();
  Node node;
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  const std::string id(16, 'n');
  v1::Batch damaged;
  damaged.set_sequence(1);
  damaged.set_frame("no zstd frame");
  ASSERT_TRUE(hub->nodes()->Offer(id, damaged).ok());
  jobs::Report bad_name = StartOf(0, "a@b"), no_ring = StartOf(1, "c");
  std::get<v1::ReportedProcess>(no_ring.what).clear_ring_id();
  ASSERT_TRUE(
      hub->nodes()->Offer(id, BatchOf(2, {bad_name, no_ring, EndOf(77), StartOf(2, "good")})).ok());
  ASSERT_TRUE(node.AwaitStored(2));
  EXPECT_THAT(JobNames(*hub), ElementsAre("good"));
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, NodesThatDoNotFitAreRefusedWithASentence) {
  auto hub = Start();
  Node node, other;
  const auto error = [&](const v1::NodeHello& hello) {
    return std::string(hub->nodes()->Connect(hello, &other).status().message());
  };
  v1::NodeHello hello = node.Hello();
  hello.set_oldest_format(7);
  hello.set_newest_format(9);
  EXPECT_THAT(error(hello), HasSubstr("writes batches of the formats 7 to 9"));
  hello = node.Hello();
  hello.set_abi_version(99);
  EXPECT_THAT(error(hello), HasSubstr("has events of ABI 99"));
  hello = node.Hello();
  hello.set_node_id("short");
  EXPECT_THAT(error(hello), HasSubstr("a node id of 5 bytes"));
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  EXPECT_THAT(error(node.Hello()), HasSubstr("two daemons with copies of one store"));
  const std::string id(16, 'n');
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a")})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  hub->nodes()->Disconnect(id, &node);
  EXPECT_THAT(error(node.Hello(1, 0)), HasSubstr("was replaced by an older copy"));
}

TEST_F(NodeReportsTest, ProcessesAndNewJobsOfANodeAreBounded) {
  auto hub = Start();
  Node node;
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  constexpr auto kProcesses = static_cast<int64_t>(kMostProcesses);
  std::vector<jobs::Report> reports;
  for (int64_t process = 0; process < kProcesses + 10; ++process) {
    reports.push_back(StartOf(process, "large"));
  }
  ASSERT_TRUE(hub->nodes()->Offer(node.Hello().node_id(), BatchOf(1, reports)).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  const auto nodes = hub->backend().ListNodes({});
  ASSERT_EQ(nodes->nodes_size(), 1);
  EXPECT_EQ(nodes->nodes(0).live_processes(), kProcesses);

  reports.clear();
  for (int64_t process = 0; process < kProcesses; ++process) reports.push_back(EndOf(process));
  for (int64_t job = 0; job < NodeReports::kMostNewJobs + 10; ++job) {
    reports.push_back(StartOf(kProcesses + 10 + job, absl::StrCat("job", job)));
    reports.push_back(EndOf(kProcesses + 10 + job));
  }
  ASSERT_TRUE(hub->nodes()->Offer(node.Hello().node_id(), BatchOf(2, reports)).ok());
  ASSERT_TRUE(node.AwaitStored(2));
  v1::ListJobsRequest all;
  all.set_page_size(10'000);
  EXPECT_EQ(hub->backend().ListJobs(all)->jobs_size(), NodeReports::kMostNewJobs);  // and "large"
  hub->nodes()->Disconnect(node.Hello().node_id(), &node);
}

TEST_F(NodeReportsTest, NodesAreBoundedAndTheLongestGoneGivesWay) {
  auto hub = Start();
  Node node;
  const auto hello_of = [&](size_t number) {
    v1::NodeHello hello = node.Hello();
    const std::string name = absl::StrCat(number);
    hello.set_node_id(name + std::string(16 - name.size(), '.'));
    return hello;
  };
  for (size_t i = 0; i < NodeReports::kMostNodes; ++i) {
    ASSERT_TRUE(hub->nodes()->Connect(hello_of(i), &node).ok()) << i;
  }
  const v1::NodeHello one_more = hello_of(NodeReports::kMostNodes);
  const auto refused = hub->nodes()->Connect(one_more, &node);
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("give this node another hub"));
  hub->nodes()->Disconnect(hello_of(7).node_id(), &node);
  EXPECT_TRUE(hub->nodes()->Connect(one_more, &node).ok());
  for (size_t i = 0; i <= NodeReports::kMostNodes; ++i) {
    hub->nodes()->Disconnect(hello_of(i).node_id(), &node);
  }
}

TEST_F(NodeReportsTest, ANodeHasNoMoreThanItsWindowOnTheWay) {
  auto hub = Start();
  Node node;
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  const std::string id(16, 'n');
  v1::Batch batch;
  batch.set_frame(std::string(NodeReports::kWindowBytes + 1, 'x'));
  batch.set_sequence(1);
  const absl::Status status = hub->nodes()->Offer(id, batch);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, AJobWhoseNodeIsAwayCanBeEndedAndDeleted) {
  auto hub = Start();
  Node node;
  const std::string id(16, 'n');
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(End(*hub, "a").status())) << "its node is connected";
  hub->nodes()->Disconnect(id, &node);
  EXPECT_TRUE(absl::IsFailedPrecondition(End(*hub, "a").status())) << "it may be back soon";
  EXPECT_EQ(OnlyJob(*hub).error(), "");
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(OnlyJob(*hub).error(), HasSubstr("away: node node1 with ranks 0, 1"));
  const auto ended = End(*hub, "a");
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->live_processes(), 0);
  EXPECT_EQ(ended->state(), v1::JOB_STATE_LOST);
  v1::DeleteJobRequest request;
  request.set_job("a");
  EXPECT_TRUE(hub->backend().DeleteJob(request).ok());
  // The node comes back with more of it.
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(2, 2), &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(2, {EndOf(0), EndOf(1), StartOf(2, "b")})).ok());
  ASSERT_TRUE(node.AwaitStored(2));
  EXPECT_THAT(JobNames(*hub), ElementsAre("b"));
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, ARankThatGoesOnElsewhereIsOverOnTheNodeThatIsAway) {
  options_.ingest.prune_interval = absl::Milliseconds(20);
  auto hub = Start();
  Node node, other;
  const std::string id(16, 'n'), other_id(16, 'o');
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(1, 0, 'o'), &other).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(1, "a")})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  hub->nodes()->Disconnect(id, &node);
  clock_.Advance(absl::Minutes(1));
  ASSERT_TRUE(hub->nodes()->Offer(other_id, BatchOf(1, {StartOf(0, "a", "new")})).ok());
  ASSERT_TRUE(other.AwaitStored(1));
  EXPECT_TRUE(AwaitLive(*hub, 2)) << "rank 1 may come back with its node";
  clock_.SetForward(absl::Hours(49));
  absl::SleepFor(absl::Milliseconds(200));  // ten rounds of what ends lost processes
  EXPECT_EQ(OnlyJob(*hub).live_processes(), 2) << "only the time of day was set";
  clock_.Advance(absl::Hours(25));
  EXPECT_TRUE(AwaitLive(*hub, 1)) << "no node is away for a day";
  hub->nodes()->Disconnect(other_id, &other);
}

TEST_F(NodeReportsTest, ProcessesOfANodeThatTookAnotherIdAreOverUnlessItWasACopy) {
  options_.ingest.prune_interval = absl::Milliseconds(20);
  auto hub = Start();
  Node node, other;
  const std::string id(16, 'n'), other_id(16, 'o');
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a")})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  v1::NodeHello hello = node.Hello(1, 0, 'o');
  hello.set_former_node_id(id);
  ASSERT_TRUE(hub->nodes()->Connect(hello, &other).ok());
  clock_.Advance(absl::Minutes(1));
  absl::SleepFor(absl::Milliseconds(200));  // ten rounds of what ends lost processes
  EXPECT_EQ(OnlyJob(*hub).live_processes(), 1) << "the other one has a copy of this node's store";
  hub->nodes()->Disconnect(id, &node);
  clock_.Advance(absl::Minutes(1));
  EXPECT_TRUE(AwaitLive(*hub, 0));
  hub->nodes()->Disconnect(other_id, &other);
}

TEST_F(NodeReportsTest, AnOlderCopyOfAStoreIsRefusedHoweverFarItGrows) {
  Node node;
  const std::string id(16, 'n');
  const v1::Batch others = BatchOf(2, {StartOf(0, "a"), EndOf(0), StartOf(1, "b", "later")});
  {
    auto hub = Start();
    ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {})).ok());
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(2, {StartOf(0, "a"), StartOf(1, "a")})).ok());
    ASSERT_TRUE(node.AwaitStored(2));
    hub->nodes()->Disconnect(id, &node);
  }
  // Its store was set back to batch 1, and gave number and process of batch 2 again. It stays
  // refused, whenever the hub was started.
  for (int start = 0; start < 2; ++start) {
    auto hub = Start();
    const auto older = hub->nodes()->Connect(node.Hello(2, 1), &node);
    EXPECT_TRUE(absl::IsOutOfRange(older.status())) << older.status();
    for (int connection = 0; connection < 2; ++connection) {
      const auto grown = hub->nodes()->Connect(node.Hello(2, 9), &node);
      ASSERT_TRUE(grown.ok()) << grown.status();
      EXPECT_EQ(grown->next_sequence(), 2);
      EXPECT_EQ(grown->acknowledged(), 1) << "a node must not forget what was not compared";
      const absl::Status refused = hub->nodes()->Offer(id, others);
      EXPECT_TRUE(absl::IsOutOfRange(refused)) << refused;
      hub->nodes()->Disconnect(id, &node);
    }
    ASSERT_EQ(hub->backend().ListJobs({})->jobs_size(), 1);
    EXPECT_EQ(OnlyJob(*hub).live_processes(), 2);
  }
  // Under its new id it sends what it has; the process that the hub knows is not taken twice.
  auto hub = Start();
  const std::string new_id(16, 'm');
  v1::NodeHello hello = node.Hello(2, 9, 'm');
  hello.set_former_node_id(id);
  ASSERT_TRUE(hub->nodes()->Connect(hello, &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(new_id, others).ok());
  ASSERT_TRUE(hub->nodes()->Offer(new_id, BatchOf(3, {})).ok());
  ASSERT_TRUE(node.AwaitStored(3));
  EXPECT_THAT(JobNames(*hub), ::testing::UnorderedElementsAre("a", "b"));
  const auto list = hub->backend().ListJobs({});
  for (const v1::Job& job : list->jobs()) {
    EXPECT_EQ(job.process_count(), job.name() == "a" ? 2 : 1);
    EXPECT_EQ(job.live_processes(), job.process_count()) << job.name();
  }
  hub->nodes()->Disconnect(new_id, &node);
}

TEST_F(NodeReportsTest, ACopyThatComesBesideItsNodeDoesNotHarmIt) {
  auto hub = Start();
  Node node, copy;
  const std::string id(16, 'n');
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a")})).ok());
  const auto refused = hub->nodes()->Connect(node.Hello(1, 0), &copy);
  EXPECT_TRUE(absl::IsOutOfRange(refused.status())) << refused.status();
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(2, {EndOf(0)})).ok());
  EXPECT_TRUE(node.AwaitStored(2));
  hub->nodes()->Disconnect(id, &node);
  EXPECT_TRUE(hub->nodes()->Connect(node.Hello(3, 2), &node).ok());
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, AHubOfAnEarlierVersionReadsTheCursorAndMovesIt) {
  Node node;
  const std::string id(16, 'n');
  {
    auto hub = Start();
    ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a")})).ok());
    ASSERT_TRUE(node.AwaitStored(1));
    hub->nodes()->Disconnect(id, &node);
  }
  {
    auto store = OpenStore();
    EXPECT_EQ(*store->LoadCursor(id), "1") << "it reads a number and nothing else";
    WriteBatch moved;
    moved.cursors.push_back({.ring_id = id, .bytes = "2"});
    ASSERT_TRUE(store->Write(moved).ok());
  }
  // Nobody knows the checksum of batch 2: nothing can be compared.
  auto hub = Start();
  const auto hello = hub->nodes()->Connect(node.Hello(2, 3), &node);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(hello->acknowledged(), 2);
  EXPECT_EQ(hello->next_sequence(), 3);
  ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(3, {EndOf(0)})).ok());
  ASSERT_TRUE(node.AwaitStored(3));
  EXPECT_EQ(OnlyJob(*hub).live_processes(), 0);
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, ANumberThatIsGivenAgainEndsTheProcessThatHadIt) {
  auto hub = Start();
  Node node;
  const std::string id(16, 'n');
  ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
  ASSERT_TRUE(
      hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), StartOf(0, "b", "later")})).ok());
  ASSERT_TRUE(node.AwaitStored(1));
  const auto jobs = hub->backend().ListJobs({});
  ASSERT_EQ(jobs->jobs_size(), 2);
  for (const v1::Job& job : jobs->jobs()) {
    EXPECT_EQ(job.live_processes(), job.name() == "a" ? 0 : 1) << job.name();
  }
  hub->nodes()->Disconnect(id, &node);
}

TEST_F(NodeReportsTest, ABatchWaitsForAStoreThatDoesNotGiveItsJobNow) {
  Node node;
  const std::string id(16, 'n');
  {
    auto hub = Start();
    ASSERT_TRUE(hub->nodes()->Connect(node.Hello(), &node).ok());
    ASSERT_TRUE(hub->nodes()->Offer(id, BatchOf(1, {StartOf(0, "a"), EndOf(0)})).ok());
    ASSERT_TRUE(node.AwaitStored(1));
    hub->nodes()->Disconnect(id, &node);
  }
  auto store = OpenStore();
  JobRegistry registry(store.get(), {}, &clock_);
  ASSERT_TRUE(registry.Recover().ok());  // an ended job is only in the store
  NodeReports reports(store.get(), &registry, &clock_);
  ASSERT_TRUE(reports.Connect(node.Hello(2, 3), &node).ok());
  ASSERT_TRUE(reports.Offer(id, BatchOf(2, {StartOf(7, "b"), StartOf(1, "a")})).ok());
  ASSERT_TRUE(reports.Offer(id, BatchOf(3, {EndOf(1)})).ok());

  auto database = *Database::Open(options_.store_path, "");
  ASSERT_TRUE(database->Exec("ALTER TABLE state RENAME TO away").ok());
  absl::MutexLock lock(&registry.mutex());
  for (int round = 0; round < 2; ++round) {
    EXPECT_FALSE(reports.Poll()) << "the store is not asked again at once";
    EXPECT_THAT(reports.Cursors(), IsEmpty()) << "the node must not forget what waits";
    EXPECT_THAT(registry.loaded(), IsEmpty()) << "the batch is taken as a whole";
  }
  ASSERT_TRUE(database->Exec("ALTER TABLE away RENAME TO state").ok());
  reports.Poll();
  ASSERT_EQ(reports.Cursors().size(), 2u);
  EXPECT_EQ(reports.Cursors().back().sequence, 3);
  const auto job = registry.FindRun("a", "1");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ((*job)->processes().OfRank(1).size(), 1u);
  EXPECT_FALSE((*job)->processes().OfRank(1)[0]->alive()) << "batch 3 came behind it";
  EXPECT_EQ(registry.loaded().size(), 2u);
  reports.Disconnect(id, &node);
}

}  // namespace
}  // namespace seqpoint::service
