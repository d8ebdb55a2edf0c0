// One job over two nodes and a hub, against the same job under one daemon.
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/jobs/rule_codec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;

ProcessRow RowOfRank(int rank) {
  ProcessRow row = TrainingProcess();
  row.process_id = 10 + rank;
  row.rank = rank;
  row.pid = 1000 + rank;
  row.host = absl::StrCat("node", rank / 2);
  row.start_ns = 5;
  row.text = absl::StrCat("rank=", rank, "\nworld_size=", kRanks, "\n");
  return row;
}

// A hub's job, and what a service does around it.
class Hub {
 public:
  explicit Hub(const JobOptions& options) : job(Row(), options) {}

  // Takes the reports of a node's job, over the wire.
  void Take(int node, Job& from) {
    ReportWriter writer;
    for (const Report& report : from.TakeReports()) writer.Add(report);
    const auto reports = ReadReports(writer.Serialize());
    ASSERT_TRUE(reports.ok()) << reports.status();
    for (const Report& report : *reports) {
      int64_t& id = ids_[{node, report.process_id}];
      if (const auto* const started = std::get_if<v1::ReportedProcess>(&report.what)) {
        id = 100 + static_cast<int64_t>(ids_.size());
        if (job.processes().empty()) {
          EXPECT_TRUE(job.SetReportedOptions(*started).ok());
        }
        job.AddReportedProcess({.process_id = id,
                                .job_id = 1,
                                .rank = started->rank(),
                                .incarnation = job.processes().NextIncarnation(started->rank()),
                                .pid = started->pid(),
                                .host = started->host(),
                                .ring_id = std::string(16, 'h'),
                                .text = started->hello(),
                                .start_ns = started->start_ns()});
      } else {
        const absl::Status status = job.OnReport(id, report.what);
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    for (const auto& [key, id] : ids_) {
      if (key.first == node) job.OnRead(id, true);
    }
    job.Advance();
  }

  // Tells a node's job what this one plans.
  void Lead(int node, Job& to) {
    for (const auto& [key, id] : ids_) {
      if (key.first != node) continue;
      const abi::Control* const control = job.TakeControl(id);
      if (control == nullptr) continue;
      const auto rule = job.EncodedRule();
      if (const auto orders = job.OrdersForNodes()) to.FollowOrders(*orders);
      to.FollowHub(key.second, rule ? DecodeRule(*rule) : std::nullopt, *control);
    }
  }

  Job job;

 private:
  std::map<std::pair<int, int64_t>, int64_t> ids_;
};

// Ranks of one synchronous training, each with its own batches, on the nodes that have them.
class Training {
 public:
  explicit Training(const std::vector<Job*>& node_of_rank) : nodes_(node_of_rank) {
    for (int rank = 0; rank < kRanks; ++rank) {
      processes_.emplace_back(30 + rank);
      Node(rank).AddProcess(RowOfRank(rank));
      processes_.back().Connect(Node(rank), 10 + rank);
    }
  }
  void Step() {
    std::vector<int64_t> lengths;
    for (FakeProcess& process : processes_) lengths.push_back(process.DrawLength());
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const int64_t time_ns = processes_[0].TimeOf(longest);
    for (size_t rank = 0; rank < kRanks; ++rank) processes_[rank].Iterate(lengths[rank], time_ns);
  }
  void End() {
    for (int rank = 0; rank < kRanks; ++rank) Node(rank).OnProcessEnd(10 + rank, true, 77);
  }
  FakeProcess& process(int rank) { return processes_[static_cast<size_t>(rank)]; }

 private:
  Job& Node(int rank) { return *nodes_[static_cast<size_t>(rank)]; }

  std::vector<Job*> nodes_;
  std::deque<FakeProcess> processes_;
};

TEST(JobReports, AJobOfTwoNodesHasTheAnswersOfOneDaemon) {
  // Without measurements, whose plan is each node's own.
  const JobOptions options = {.measurement_budget = 0};
  JobOptions reporting = options;
  reporting.reports = true;
  Job one(Row(), options), first(Row(), reporting), second(Row(), reporting);
  Hub hub(options);
  Training alone({&one, &one, &one, &one});
  Training together({&first, &first, &second, &second});
  ASSERT_TRUE(one.SetHorizon(AllLengths(200)).ok());
  ASSERT_TRUE(hub.job.SetHorizon(AllLengths(200)).ok());
  for (int i = 0; i < 500; ++i) {
    alone.Step();
    together.Step();
    // One node is heard more often than the other.
    if (i % 2 == 1) hub.Take(0, first);
    if (i % 9 == 8) hub.Take(1, second);
  }
  alone.End();
  together.End();
  hub.Take(0, first);
  hub.Take(1, second);

  v1::Job expected = one.Describe(true), seen = hub.job.Describe(true);
  EXPECT_EQ(seen.iterations(), 500);
  EXPECT_EQ(seen.state(), expected.state());
  EXPECT_EQ(seen.error(), "");
  EXPECT_EQ(seen.rule().boundary(), expected.rule().boundary());
  EXPECT_EQ(seen.rule().length(), expected.rule().length());
  ASSERT_EQ(seen.processes_size(), kRanks);
  EXPECT_EQ(seen.processes(3).rank(), 3);
  EXPECT_EQ(seen.processes(3).chip(), "GH100");
  const v1::Projection a = Project(one, AskTime())->projection();
  const v1::Projection b = Project(hub.job, AskTime())->projection();
  EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString()) << a.DebugString() << b.DebugString();
  EXPECT_EQ(GetSeqPoints(one)->iterations(), GetSeqPoints(hub.job)->iterations());
}

TEST(JobReports, ANodeThatIsHeardOnceAnotherOneIsOverIsInTheSameSteps) {
  const JobOptions options = {.measurement_budget = 0};
  JobOptions reporting = options;
  reporting.reports = true;
  Job one(Row(), options), first(Row(), reporting), second(Row(), reporting);
  Training alone({&one, &one, &one, &one});
  Training together({&first, &first, &second, &second});
  for (int i = 0; i < 500; ++i) {
    alone.Step();
    together.Step();
  }
  alone.End();
  together.End();
  Hub hub(options);
  hub.Take(1, second);
  EXPECT_EQ(hub.job.Describe(true).iterations(), 0);
  EXPECT_THAT(hub.job.Describe(true).error(),
              HasSubstr("2 of 4 ranks were not heard yet, the first one is rank 0"));
  hub.Take(0, first);

  const v1::Job seen = hub.job.Describe(true);
  EXPECT_EQ(seen.iterations(), 500);
  EXPECT_EQ(seen.state(), one.Describe(true).state());
  EXPECT_EQ(seen.error(), "");
  const v1::Projection a = Project(one, AskTime())->projection();
  const v1::Projection b = Project(hub.job, AskTime())->projection();
  EXPECT_EQ(a.SerializeAsString(), b.SerializeAsString()) << a.DebugString() << b.DebugString();
}

TEST(JobReports, RanksThatNoNodeReportsAreWaitedForAWhile) {
  const JobOptions options = {.measurement_budget = 0};
  JobOptions reporting = options;
  reporting.reports = true;
  Job first(Row(), reporting), elsewhere(Row(), reporting);
  Training training({&first, &first, &elsewhere, &elsewhere});
  for (int i = 0; i < 300; ++i) training.Step();
  training.End();
  Hub hub(options);
  hub.Take(0, first);
  constexpr int64_t kSecond = 1'000'000'000;
  hub.job.CheckRules(5 * kSecond);
  hub.job.CheckRules(94 * kSecond);
  EXPECT_EQ(hub.job.Describe(true).iterations(), 0);
  hub.job.CheckRules(95 * kSecond);
  EXPECT_EQ(hub.job.Describe(true).iterations(), 300);
  EXPECT_EQ(hub.job.Describe(true).error(), "");
}

TEST(JobReports, MeasurementsOfTwoNodesAreOneJobs) {
  constexpr int kSteps = 600;
  Job first(Row(), {.reports = true}), second(Row(), {.reports = true});
  Hub hub({});
  Training together({&first, &first, &second, &second});
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(kSteps);
  ASSERT_TRUE(hub.job.SetHorizon(horizon).ok());
  double flops = 0;
  for (int i = 0; i < kSteps; ++i) {
    together.Step();
    for (int rank = 0; rank < kRanks; ++rank) flops += together.process(rank).truth.back().flops;
    hub.Take(0, first);
    hub.Take(1, second);
  }
  together.End();
  hub.Take(0, first);
  hub.Take(1, second);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_FALSE(together.process(rank).measured_iterations.empty()) << rank;
  }
  v1::GetCountersRequest request;
  request.set_confidence(0.999);
  const auto counters = GetCounters(hub.job, request);
  ASSERT_TRUE(counters.ok()) << counters.status();
  ASSERT_GT(counters->counters_size(), 1);
  const v1::Estimate& total = counters->counters(1).projection().total();
  EXPECT_NEAR(total.value() / flops, 1, 0.02);
  EXPECT_LE(total.low(), flops);
  EXPECT_GE(total.high(), flops);
  const auto kernels = GetKernels(hub.job, {});
  ASSERT_TRUE(kernels.ok());
  ASSERT_GT(kernels->kernels_size(), 0);
  EXPECT_EQ(kernels->kernels(0).name(), "lstm_forward");
}

TEST(JobReports, TheHubsPlanIsOneForAllNodesUntilItIsLost) {
  Job first(Row(), {.reports = true}), second(Row(), {.reports = true});
  Hub hub({.measurement_budget = 16});
  Training together({&first, &first, &second, &second});
  const auto measured = [&] {
    size_t all = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      all += together.process(rank).measured_iterations.size();
    }
    return all;
  };
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      together.Step();
      hub.Take(0, first);
      hub.Take(1, second);
      hub.Lead(0, first);
      hub.Lead(1, second);
    }
  };
  ASSERT_TRUE(hub.job.SetHorizon(AllLengths(200)).ok());
  run(600);
  EXPECT_GE(measured(), 12u);
  EXPECT_LE(measured(), 16u) << "two nodes of 64 each would measure 128";
  // Each goes on with a plan of its own.
  first.LeaveHub();
  second.LeaveHub();
  for (int i = 0; i < 400; ++i) together.Step();
  EXPECT_GT(measured(), 32u);
  EXPECT_LE(measured(), 64u) << "each takes the share of its ranks";
  hub.Take(0, first);
  hub.Take(1, second);
  EXPECT_EQ(hub.job.Describe(true).iterations(), 999);  // the last one has no end yet
}

TEST(JobReports, OrdersOfTheHubsClientsReachTheNodes) {
  Job node(Row(), {.overhead_budget_share = 0.03, .reports = true});
  Hub hub({});
  node.AddProcess(RowOfRank(0));
  FakeProcess process(5);
  process.Connect(node, 10);
  const auto run = [&] {
    for (int i = 0; i < 100; ++i) {
      process.Iterate();
      hub.Take(0, node);
      hub.Lead(0, node);
    }
  };
  const auto order = [](Job& job, v1::ControlRequest::Action action) {
    v1::ControlRequest request;
    request.set_action(action);
    request.set_overhead_budget_share(0.5);
    ASSERT_TRUE(job.Control(request).ok());
  };
  const auto share = [](Job& job) { return job.Describe(true).overhead().budget_share(); };
  run();
  EXPECT_EQ(node.Describe(true).state(), v1::JOB_STATE_MARKING);
  order(hub.job, v1::ControlRequest::ACTION_PAUSE);
  run();
  EXPECT_EQ(node.Describe(true).state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(share(node), 0.03) << "the node's client said so before";
  // The last order holds, whoever gave it.
  order(node, v1::ControlRequest::ACTION_RESUME);
  run();
  EXPECT_EQ(node.Describe(true).state(), v1::JOB_STATE_MARKING);
  order(hub.job, v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  run();
  EXPECT_EQ(node.Describe(true).state(), v1::JOB_STATE_PAUSED) << "the hub's job is";
  EXPECT_EQ(share(node), 0.5);
}

TEST(JobReports, AnotherLoopOnANodeCountsWithoutLengths) {
  Job first(Row(), {.reports = true}), second(Row(), {.reports = true});
  Hub hub({});
  first.AddProcess(RowOfRank(0));
  second.AddProcess(RowOfRank(2));
  FakeProcess usual(5), other(6);
  usual.Connect(first, 10);
  other.Connect(second, 12);
  for (int i = 0; i < 300; ++i) {
    usual.Iterate();
    hub.Take(0, first);
    hub.Lead(0, first);
    if (i < 100) continue;  // it starts later
    other.IterateOther();
    hub.Take(1, second);
    hub.Lead(1, second);
  }
  first.OnProcessEnd(10, true, 77);
  second.OnProcessEnd(12, true, 77);
  hub.Take(0, first);
  hub.Take(1, second);
  FakeStore store;
  store.Take(hub.job);
  int with = 0, without = 0;
  for (const auto& [number, row] : store.iterations) {
    if (row.rank == 0) with += row.length_count;
    if (row.rank == 2) without += row.length_count == 0 ? 1 : 0;
  }
  EXPECT_EQ(with, 300);
  EXPECT_EQ(without, 200);
}

TEST(JobReports, ClocksAndMissingCallsReachTheHubWithoutANewLoss) {
  Job node(Row(), {.reports = true});
  Hub hub({});
  node.AddProcess(RowOfRank(0));
  FakeProcess process(5);
  process.Connect(node, 10);
  RingLosses losses = {.clock_kind = static_cast<uint32_t>(abi::ClockKind::kForeign)};
  node.OnLosses(10, losses);
  hub.Take(0, node);
  EXPECT_EQ(hub.job.Describe(true).clock_kind(), v1::CLOCK_KIND_FOREIGN);
  // The library counts what it dropped before the hole is read.
  losses.dropped = 5;
  node.OnLosses(10, losses);
  hub.Take(0, node);
  node.OnCallsMissing(10, 5);
  node.OnLosses(10, losses);
  hub.Take(0, node);
  ASSERT_EQ(hub.job.processes().size(), 1u);
  EXPECT_EQ(hub.job.processes().begin()->second->state.missing_calls(), 5);
  node.OnLosses(10, losses);
  EXPECT_TRUE(node.TakeReports().empty()) << "nothing is new";
}

TEST(JobReports, OneIterationIsAFewBytesOnTheWire) {
  Job node(Row(), {.measurement_budget = 0, .reports = true});
  node.AddProcess(RowOfRank(0));
  FakeProcess process(3);
  process.Connect(node, 10);
  for (int i = 0; i < 200; ++i) process.Iterate();
  ReportWriter writer;
  for (const Report& report : node.TakeReports()) writer.Add(report);
  writer.Clear();
  for (int i = 0; i < 1000; ++i) process.Iterate();
  for (const Report& report : node.TakeReports()) writer.Add(report);
  EXPECT_LT(writer.Serialize().size(), 1000 * 30);
}

TEST(JobReports, ReportsThatNoDaemonWritesAreRefused) {
  Job job(Row(), {});
  job.AddReportedProcess(RowOfRank(0));
  const auto refused = [&](const Report::What& what, const std::string& why) {
    EXPECT_THAT(std::string(job.OnReport(10, what).message()), testing::HasSubstr(why));
  };
  refused(v1::ReportedProcess(), "it has started before");
  refused(FinishedIteration(), "an iteration without a rule");
  refused(v1::ReportedRule(), "its rule is damaged");
  refused(abi::DataRecord(), "record 0 of a collective");
  refused(v1::ReportedEnd(), "an end without a time");
  v1::ReportedWork work;
  work.add_kernels("k");
  refused(work, "kernels without a time");
  v1::ReportedEvent boundary;
  boundary.set_type(static_cast<uint32_t>(abi::EventType::kBoundary));
  refused(boundary, "an event of an iteration");
  v1::ReportedEnd end;
  end.set_end_ns(5);
  ASSERT_TRUE(job.OnReport(10, end).ok());
  refused(end, "it has ended");
}

TEST(ReportCodec, IterationsComeBackAsTheyWere) {
  std::vector<FinishedIteration> all;
  for (uint64_t i = 0; i < 5; ++i) {
    FinishedIteration& iteration = all.emplace_back();
    iteration.set_number(i < 3 ? i : i + 7);  // a hole
    iteration.set_boundary_ns(1'700'000'000'000'000'000 + static_cast<int64_t>(i) * 1000);
    iteration.set_start_ns(i == 2 ? 0 : iteration.boundary_ns() + 77);
    iteration.set_duration_ns(i == 1 ? 0 : 990);
    iteration.set_first_length(static_cast<int64_t>(i));
    iteration.set_valid(i % 2 == 0 ? 3 : 1);
    iteration.set_distorted(i == 1);
    iteration.set_gpu_time(i == 3);
    iteration.set_ended(i != 4);
  }
  all[1].set_config_id(4);
  all[1].set_micro_batches(2);
  for (int64_t length : {5, 6}) all[1].add_micro_lengths()->set_first(length);
  all[3].set_stretch(9);
  all[3].set_stretch_ns(1 << 20);
  all[4].set_other_batches(3);
  all[4].set_other_duration_ns(44);
  all[4].set_rest_ns(12);
  all[4].set_cold(true);
  ReportWriter writer;
  for (const FinishedIteration& iteration : all) {
    writer.Add({.process_id = 7, .what = iteration});
    writer.Add({.process_id = 8, .what = iteration});
  }
  const auto read = ReadReports(writer.Serialize());
  ASSERT_TRUE(read.ok()) << read.status();
  std::map<int64_t, std::vector<FinishedIteration>> seen;
  for (const Report& report : *read) {
    seen[report.process_id].push_back(std::get<FinishedIteration>(report.what));
  }
  for (const int64_t process : {7, 8}) {
    ASSERT_EQ(seen[process].size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(seen[process][i].DebugString(), all[i].DebugString());
    }
  }
  writer.Clear();
  EXPECT_TRUE(writer.empty());
}

TEST(ReportCodec, ARuleAnEndAndAStartKeepTheirPlace) {
  ReportWriter writer;
  FinishedIteration iteration;
  writer.Add({.process_id = 7, .what = iteration});
  writer.Add({.process_id = 8, .what = v1::ReportedEnd()});
  iteration.set_number(1);
  writer.Add({.process_id = 7, .what = iteration});
  const auto read = ReadReports(writer.Serialize());
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 3u);
  EXPECT_TRUE(std::holds_alternative<v1::ReportedEnd>((*read)[1].what));
}

TEST(ReportCodec, DamagedBytesAreRefusedOrRead) {
  ReportWriter writer;
  FinishedIteration iteration;
  iteration.set_config_id(3);
  writer.Add({.process_id = 7, .what = iteration});
  writer.Add({.process_id = 7, .what = abi::DataRecord()});
  const std::string good = writer.Serialize();
  for (size_t i = 0; i < good.size(); ++i) {
    (void)ReadReports(good.substr(0, i));
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      (void)ReadReports(bad);
    }
  }
  v1::ReportBatch batch;
  batch.add_reports()->mutable_iterations()->add_boundary_ns(5);  // the other columns are shorter
  EXPECT_THAT(std::string(ReadReports(batch.SerializeAsString()).status().message()),
              testing::HasSubstr("report 0 of 1"));
}

}  // namespace
}  // namespace seqpoint::jobs
