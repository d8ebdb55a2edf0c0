// What a job collects: metric sets, operators, the roofline.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/queries/counters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

absl::Status SetMetrics(Job& job, const std::vector<std::string>& sets,
                        v1::CounterBackend backend = v1::COUNTER_BACKEND_UNSPECIFIED) {
  v1::PrepareJobRequest request;
  for (const std::string& set : sets) request.add_metric_sets(set);
  request.set_counter_backend(backend);
  auto choice = MetricChoice::From(request, job.metrics());
  return choice.ok() ? job.SetMetrics(*std::move(choice)) : choice.status();
}

TEST(Job, MetricSetsAreChosenBeforeTheFirstProcess) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  EXPECT_THAT(std::string(SetMetrics(*job, {"everything"}).message()),
              testing::HasSubstr("\"everything\"; there are: utilisation, flops"));
  ASSERT_TRUE(SetMetrics(*job, {"cache", "utilisation"}).ok());
  FakeProcess process(2);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  EXPECT_EQ(SetMetrics(*job, {"cache"}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(SetMetrics(*job, {"cache", "utilisation"}, v1::COUNTER_BACKEND_PM).code(),
            absl::StatusCode::kFailedPrecondition);
  FakeStore store;
  for (int i = 0; i < 600; ++i) {
    process.Iterate();
    store.Take(*job);
  }
  job = store.Restart();
  EXPECT_TRUE(SetMetrics(*job, {"cache", "utilisation"}).ok());
  EXPECT_TRUE(SetMetrics(*job, {}, v1::COUNTER_BACKEND_RANGE).ok()) << "the sets it has";
  EXPECT_EQ(SetMetrics(*job, {}, v1::COUNTER_BACKEND_PM).code(),
            absl::StatusCode::kFailedPrecondition);
  const auto counters = GetCounters(*job, {});
  ASSERT_TRUE(counters.ok());
  std::map<std::string, bool> complete;
  for (const v1::Counter& counter : counters->counters()) {
    EXPECT_TRUE(complete.emplace(counter.metric(), counter.complete()).second) << counter.metric();
  }
  EXPECT_TRUE(complete["lts__t_sectors_lookup_hit.sum"]);
  EXPECT_TRUE(complete["sm__inst_executed.sum"]);
  EXPECT_TRUE(complete["L2 traffic"]);
  EXPECT_EQ(counters->chip(), "GH100");
  EXPECT_EQ(counters->backend(), v1::COUNTER_BACKEND_RANGE);
}

TEST(Job, ConfigurationsAreThoseOfTheChip) {
  Job job(Row(), JobOptions{});
  v1::PrepareJobRequest request;
  request.add_metric_sets("memory");
  request.add_metric_sets("own");
  v1::MetricSet& own = *request.add_own_metric_sets();
  own.set_name("own");
  own.add_configurations()->add_metrics("sm__cycles_active.sum");
  v1::MetricRatio& sum = *own.add_ratios();
  sum.set_name("twice");
  v1::MetricTerm& term = *sum.add_numerator();
  term.set_metric("sm__cycles_active.sum");
  term.set_weight(2);
  ASSERT_TRUE(job.SetMetrics(*MetricChoice::From(request)).ok());
  job.AddProcess(TrainingProcess());
  const auto tell = [&](const char* chip) {
    abi::DeviceEvent event = {};
    std::strncpy(event.chip, chip, sizeof(event.chip) - 1);
    std::vector<uint8_t> bytes(sizeof(event));
    std::memcpy(bytes.data(), &event, sizeof(event));
    job.OnEvent(7, abi::EventType::kDevice, bytes);
    job.Advance();
  };
  const auto wanted = [&] {
    job.RepublishControl(7);
    const abi::Control* control = job.TakeControl(7);
    std::string names;
    for (uint32_t i = 0; i < control->config_count; ++i) {
      const abi::MetricConfig& config = control->config[i];
      EXPECT_EQ(std::count(config.names, config.names + config.text_bytes, '\n'),
                config.metric_count);
      names.append(config.names, config.text_bytes);
    }
    return names;
  };
  EXPECT_EQ(wanted(), "") << "before the chip is known";
  tell("");  // the driver's name comes first
  EXPECT_EQ(wanted(), "");
  tell("GB203");
  EXPECT_EQ(wanted(),
            "gpu__time_duration.sum\ndram__bytes_op_read.sum\ndram__bytes_op_write.sum\n"
            "dram__bytes.sum.peak_sustained_elapsed\nsm__cycles_active.sum\n");
  // What cannot be collected is said, and planned no more.
  const auto answer = [&](uint16_t config_id, uint32_t status, const std::string& why) {
    const abi::ConfigEvent event{.config_id = config_id,
                                 .passes = static_cast<uint16_t>(status == 0 ? 1 : 2),
                                 .status = status,
                                 .length = static_cast<uint32_t>(why.size())};
    std::vector<uint8_t> bytes(sizeof(event) + why.size());
    std::memcpy(bytes.data(), &event, sizeof(event));
    std::memcpy(bytes.data() + sizeof(event), why.data(), why.size());
    job.OnEvent(7, abi::EventType::kConfig, bytes);
    job.Advance();
  };
  answer(counters::kFirstOwnConfigId, 27, "two passes");
  EXPECT_EQ(
      job.Describe(true).error(),
      "a configuration of the metric set \"own\" (sm__cycles_active.sum) cannot be collected: "
      "two passes");
  tell("GH100");  // another GPU of the same job has other names
  EXPECT_EQ(wanted(), "");
  EXPECT_THAT(job.Describe(true).error(), testing::HasSubstr("runs on GH100"));
}

// The lengths whose operators a process is asked to record.
std::vector<int64_t> OperatorsIn(const abi::Control* control) {
  std::vector<int64_t> lengths;
  for (uint32_t i = 0; control != nullptr && i < control->plan_count; ++i) {
    const abi::PlanEntry& entry = control->plan[i];
    if (entry.config_id != abi::kConfigOperators) continue;
    EXPECT_EQ(entry.low[0], entry.high[0]);  // a recording is of one length
    lengths.push_back(entry.low[0]);
  }
  return lengths;
}

TEST(Job, OperatorsOfTheHeaviestSeqPointsAreRecordedByRankZero) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeStore store;
  ProcessRow second_row = TrainingProcess();
  second_row.process_id = 8;
  second_row.ring_id = std::string(16, 's');
  second_row.rank = 1;
  second_row.text = "rank=1\nworld_size=2\n";
  FakeProcess first(3), second(4);
  job->AddProcess(TrainingProcess());
  job->AddProcess(second_row);
  first.Connect(*job, 7);
  second.Connect(*job, 8);
  const auto asked = [&](int64_t process) {
    job->RepublishControl(process);
    return OperatorsIn(job->TakeControl(process));
  };
  for (int i = 0; i < 300; ++i) {
    first.Iterate();
    second.Iterate();
  }
  EXPECT_THAT(asked(7), testing::IsEmpty());  // nobody wanted them
  job->RecordOperators("/runs/a.operators");
  for (int i = 0; i < 3; ++i) {
    first.Iterate();
    second.Iterate();
  }
  const std::vector<int64_t> lengths = asked(7);
  EXPECT_EQ(lengths.size(), 8u);
  for (const int64_t length : lengths) {
    EXPECT_TRUE(std::any_of(first.truth.begin(), first.truth.end(), [&](const auto& iteration) {
      return iteration.length * kBatch * 4 == length;
    })) << length;
  }
  EXPECT_THAT(asked(8), testing::IsEmpty());
  EXPECT_EQ(job->Describe(true).operators_folder(), "/runs/a.operators");
  store.Take(*job);
  job = store.Restart({TrainingProcess(), second_row});
  EXPECT_EQ(job->Describe(true).operators_folder(), "/runs/a.operators");
}

v1::PrepareJobRequest WithRoofline() {
  v1::PrepareJobRequest request;
  request.set_roofline(true);
  return request;
}

TEST(Job, KernelsArePlacedOnTheRoofline) {
  Job job(Row(), {.overhead_budget_share = 1});
  ASSERT_TRUE(job.SetMetrics(*MetricChoice::From(WithRoofline())).ok());
  job.AddProcess(TrainingProcess());
  FakeProcess process(3);
  process.Connect(job, 7);
  v1::GetRooflineRequest request;
  EXPECT_THAT(std::string(GetRoofline(job, request).status().message()),
              testing::HasSubstr("no kernel was measured by itself yet"));
  for (int i = 0; i < 1500; ++i) process.Iterate();

  // Each of four lengths once with each configuration.
  const size_t configs = job.metrics().roofline().configs.size();
  EXPECT_EQ(process.kernel_measurements.size(), 4 * configs);
  for (const auto& [measured, count] : process.kernel_measurements) EXPECT_EQ(count, 1);
  const auto check = [&](Job& of) {
    const absl::StatusOr<v1::GetRooflineReply> reply = GetRoofline(of, request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->kernels_size(), 2);
    EXPECT_EQ(reply->chip(), "GH100");
    EXPECT_EQ(reply->lengths_size(), 4);
    for (const v1::RooflineLength& length : reply->lengths()) {
      EXPECT_EQ(length.measured_iterations(), static_cast<int>(configs));
      EXPECT_EQ(length.wanted_iterations(), static_cast<int>(configs));
    }
    const v1::RooflineKernel& kernel = reply->kernels(0);
    EXPECT_EQ(kernel.name(), "gemm");
    EXPECT_EQ(kernel.launches(), 4 * 6);
    EXPECT_DOUBLE_EQ(kernel.share(), 2.0 / 3);
    EXPECT_TRUE(kernel.complete());
    EXPECT_DOUBLE_EQ(kernel.operations_per_byte(), 2e5 / 8e4);
    EXPECT_DOUBLE_EQ(kernel.operations_per_s(), 2e5 / 100e-9);
    EXPECT_DOUBLE_EQ(kernel.bytes_per_s(), 8e4 / 100e-9);
    EXPECT_DOUBLE_EQ(kernel.memory_share(), 0.8);
    EXPECT_NEAR(kernel.compute_share(), 2e5 / (256 * 1e4), 1e-12);
    EXPECT_DOUBLE_EQ(kernel.roof_share(), 0.8);
    EXPECT_EQ(kernel.bound(), v1::BOUND_MEMORY);
    ASSERT_GE(reply->roofs_size(), 1);
    EXPECT_DOUBLE_EQ(reply->roofs(0).per_s(), 1e5 / 100e-9);
  };
  check(job);
  // It lasts, and other figures are as without.
  FakeStore store;
  store.Take(job);
  const std::unique_ptr<Job> restored = store.Restart();
  check(*restored);
  v1::ProjectRequest time = AskTime();
  EXPECT_TRUE(Project(job, time).ok());
  EXPECT_TRUE(GetKernels(job, v1::GetKernelsRequest()).ok());
  request.set_limit(1);
  EXPECT_EQ(GetRoofline(job, request)->kernels_size(), 1);
  EXPECT_EQ(GetRoofline(job, request)->kernel_names(), 2);
}

TEST(Job, AnIterationThatLacksAKernelIsNotUsed) {
  Job job(Row(), {.overhead_budget_share = 1});
  ASSERT_TRUE(job.SetMetrics(*MetricChoice::From(WithRoofline())).ok());
  job.AddProcess(TrainingProcess());
  FakeProcess process(3);
  process.loses_kernels = true;
  process.Connect(job, 7);
  for (int i = 0; i < 1500; ++i) process.Iterate();
  EXPECT_FALSE(GetRoofline(job).ok());
  // And not tried for ever.
  int tried = 0;
  for (const auto& [measured, count] : process.kernel_measurements) tried += count;
  const auto configs = static_cast<int>(job.metrics().roofline().configs.size());
  EXPECT_GE(tried, 4 * configs);
  EXPECT_LE(tried, 2 * 4 * configs + 1);
}

TEST(Job, ARooflineMustBeAskedForAndPossible) {
  Job job(Row(), {});
  EXPECT_THAT(std::string(GetRoofline(job).status().message()),
              testing::HasSubstr("seqpoint run --roofline"));
  v1::PrepareJobRequest request = WithRoofline();
  request.set_counter_backend(v1::COUNTER_BACKEND_PM);
  EXPECT_THAT(std::string(MetricChoice::From(request).status().message()),
              testing::HasSubstr("range backend only"));
  // Too much together: the sets go on.
  request = WithRoofline();
  for (const char* set : {"flops", "cache", "speed-of-light"}) request.add_metric_sets(set);
  MetricChoice choice = *MetricChoice::From(request);
  ASSERT_TRUE(choice.SetChip("GH100").ok());
  EXPECT_FALSE(choice.set().configs.empty());
  EXPECT_TRUE(choice.roofline().configs.empty());
  EXPECT_THAT(choice.no_roofline(), testing::HasSubstr("ask for fewer sets"));
}

TEST(Job, SetsThatAreTooManySaySoAlsoAfterARestart) {
  v1::PrepareJobRequest request = WithRoofline();
  for (const char* set : {"flops", "memory", "cache", "speed-of-light", "tensor"}) {
    request.add_metric_sets(set);
  }
  MetricChoice choice = *MetricChoice::From(request);
  EXPECT_FALSE(choice.SetChip("GH100").ok());
  const absl::StatusOr<MetricChoice> again = MetricChoice::Restore(choice.state());
  ASSERT_TRUE(again.ok()) << again.status();
  for (const MetricChoice& each : {choice, *again}) {
    EXPECT_THAT(each.no_counters(), testing::HasSubstr("13 configurations on GH100"));
    EXPECT_EQ(each.no_roofline(), each.no_counters());
    EXPECT_TRUE(each.set().configs.empty());
  }
  Job job(Row(), {});
  ASSERT_TRUE(job.SetMetrics(choice).ok());
  EXPECT_THAT(std::string(GetRoofline(job).status().message()),
              testing::HasSubstr("13 configurations on GH100"));
}

TEST(Job, ValuesThatAreNoNumbersAreNone) {
  Job job(Row(), {.overhead_budget_share = 1});
  ASSERT_TRUE(job.SetMetrics(*MetricChoice::From(WithRoofline())).ok());
  job.AddProcess(TrainingProcess());
  FakeProcess process(3);
  process.no_numbers = true;
  process.Connect(job, 7);
  for (int i = 0; i < 1500; ++i) process.Iterate();
  EXPECT_FALSE(process.measured_iterations.empty());
  EXPECT_FALSE(GetRoofline(job).ok());
  const auto snapshot = job.TakeSnapshot();
  ASSERT_TRUE(snapshot.ok());
  const auto reply = queries::GetCounters(**snapshot, {});
  for (int i = 0; reply.ok() && i < reply->counters_size(); ++i) {
    EXPECT_FALSE(reply->counters(i).has_per_iteration()) << reply->counters(i).metric();
  }
}

}  // namespace
}  // namespace seqpoint::jobs
