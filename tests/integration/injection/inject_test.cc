// The injected library in a training process on the software GPU, with a scripted daemon: what it
// sees, marks, counts and traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "daemon/counters/metric_sets.h"
#include "tests/integration/injection/inject_fixture.h"

namespace seqpoint {
namespace {

using abi::Op;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(InjectTest, LearnsEveryCallInOrder) {
  RunAndCompare({"iterations=20", "lengths=16,32", "sync=5", "layers=3"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<Op, int> count;
  for (size_t i = 0; i < process().calls.size(); ++i) {
    const abi::CallRecord& call = process().calls[i];
    EXPECT_EQ(call.sequence, i);
    ++count[static_cast<Op>(call.op)];
  }
  EXPECT_EQ(count[Op::kCopyH2D], 20);
  EXPECT_EQ(count[Op::kMemset], 20);
  EXPECT_EQ(count[Op::kLaunch], 20 * (3 + 2));
  EXPECT_EQ(count[Op::kCopyD2H], 4);
  EXPECT_EQ(count[Op::kStreamSync], 4);
  EXPECT_EQ(count[Op::kContextSync], 1);
  EXPECT_EQ(process().calls_missing, 0u);

  // One iteration, call by call.
  const std::vector<abi::CallRecord>& calls = process().calls;
  size_t at = 0;
  while (static_cast<Op>(calls[at].op) != Op::kCopyH2D) ++at;
  EXPECT_EQ(calls[at].bytes, 16u * kBytesPerStep);
  EXPECT_EQ(static_cast<Op>(calls[at + 1].op), Op::kMemset);
  EXPECT_EQ(calls[at + 1].bytes, 4096u);
  const abi::CallRecord& launch = calls[at + 2];
  EXPECT_EQ(process().names[launch.name_id], "forward_layer");
  EXPECT_EQ(launch.grid_x, 16u);
  EXPECT_EQ(launch.grid_y, 1u);
  EXPECT_EQ(launch.block_x, 128u);
  EXPECT_NE(launch.stream, 0u);
  EXPECT_NE(launch.context, 0u);
  EXPECT_NE(launch.thread_id, 0u);
  EXPECT_GT(launch.api_ns, calls[at].api_ns);
  EXPECT_EQ(process().names[calls[at + 6].name_id], "adam");

  // Copies and memsets leave GPU times that join by correlation id.
  std::map<uint32_t, const abi::CopyRecord*> gpu;
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kCopy)) {
      gpu[record.copy.correlation_id] = &record.copy;
    }
  }
  ASSERT_EQ(gpu.count(calls[at].correlation_id), 1u);
  EXPECT_EQ(gpu[calls[at].correlation_id]->bytes, calls[at].bytes);
  EXPECT_GT(gpu[calls[at].correlation_id]->start_ns, calls[at].api_ns);
  EXPECT_EQ(process().CountRecords(abi::DataType::kCopy), 24u);
  EXPECT_EQ(process().CountRecords(abi::DataType::kMemset), 20u);
  EXPECT_TRUE(process().stats.closed);
}

TEST_F(InjectTest, MarksIterationsByItsRule) {
  daemon_.OnCalls(60, [](PuppetProcess& p) { p.Send(MarkControl(CopyRule(7))); });
  RunAndCompare({"iterations=300", "lengths=16,32,48", "sync=10", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);

  // Learning ended at the call that the rule event names, and nothing was learned behind it.
  ASSERT_EQ(process().rules.size(), 2u);
  const abi::RuleEvent& rule = process().rules[1];
  EXPECT_EQ(rule.rule_generation, 7u);
  EXPECT_EQ(static_cast<abi::Level>(rule.level), abi::Level::kMark);
  EXPECT_EQ(process().calls.size(), rule.call_sequence);

  // The daemon's replay of the learned calls and the marks together make exactly 300 iterations.
  uint64_t learned = 0;
  for (const abi::CallRecord& call : process().calls) {
    learned += process().names[call.name_id] == "adam";
  }
  ASSERT_GT(process().steps.size(), 200u);
  EXPECT_EQ(learned + process().steps.size(), 300u);

  // Every iteration has its begin, its length and its GPU start, in order.
  std::map<uint64_t, abi::BoundaryEvent> begin;
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    EXPECT_TRUE(begin.emplace(boundary.iteration, boundary).second);
    EXPECT_EQ(boundary.rule_generation, 7u);
  }
  std::map<uint32_t, uint64_t> gpu_start;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(abi::DataType::kCopy)) continue;
    gpu_start[record.copy.correlation_id] = record.copy.start_ns;
  }
  uint64_t expected = 0;
  for (const abi::StepEvent& step : process().steps) {
    EXPECT_EQ(step.iteration, expected++);
    if (begin.count(step.iteration) == 0) {
      EXPECT_EQ(step.iteration, 0u);  // open when the rule came
      continue;
    }
    EXPECT_EQ(step.valid, 1u);
    EXPECT_EQ(step.length[0] % (16 * kBytesPerStep), 0);
    EXPECT_GT(step.api_ns, begin[step.iteration].api_ns);
  }
  ASSERT_GE(process().clocks.size(), process().steps.size() - 1);
  uint64_t last = 0;
  for (const abi::ClockEvent& clock : process().clocks) {
    ASSERT_EQ(gpu_start.count(clock.correlation_id), 1u);
    EXPECT_GT(gpu_start[clock.correlation_id], last);
    last = gpu_start[clock.correlation_id];
  }
  EXPECT_GT(process().syncs.size(), 15u);
  for (const abi::SyncEvent& sync : process().syncs) EXPECT_GT(sync.end_ns, sync.begin_ns);
}

TEST_F(InjectTest, FindsIterationsByNvtxNamesWithNumbers) {
  abi::Rule rule = {};
  rule.generation = 1;
  rule.watched_ops = Bit(Op::kNvtxPush);
  rule.boundary.op = static_cast<uint8_t>(Op::kNvtxPush);
  rule.boundary.match = abi::kMatchName;
  rule.boundary.name_hash = abi::ShapeOfName("step 1, 2 tokens", 16).hash;
  rule.length_count = 1;
  rule.length[0].pattern = rule.boundary;
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kNameDigits);
  rule.length[0].digit_run = 1;
  daemon_.OnCalls(40, [rule](PuppetProcess& p) { p.Send(MarkControl(rule)); });
  RunAndCompare({"iterations=200", "lengths=5,9", "nvtx=1", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  int learned = 0;
  for (const abi::CallRecord& call : process().calls) {
    if (static_cast<Op>(call.op) != Op::kNvtxPush) continue;
    EXPECT_THAT(process().names[call.name_id],
                HasSubstr("step " + std::to_string(learned++) + ", "));
  }
  EXPECT_EQ(learned + process().boundaries.size(), 200u);
  // The numbers in the names do not fill the table of names for ever.
  EXPECT_LE(process().names.size(), static_cast<size_t>(learned) + 5);
  ASSERT_EQ(process().decisions.size(), process().boundaries.size());
  for (size_t i = 1; i < process().decisions.size(); ++i) {
    // 5 and 9 in turn.
    EXPECT_EQ(process().decisions[i].length[0] + process().decisions[i - 1].length[0], 14);
  }
  EXPECT_THAT(process().Message(abi::Feature::kNvtx), HasSubstr("watched"));
}

// The range tells where an iteration begins and the copy its length; launches tell the step alone.
abi::Rule NvtxRuleWithStep() {
  abi::Rule rule = CopyRule(1);
  rule.boundary = {};
  rule.boundary.op = static_cast<uint8_t>(Op::kNvtxPush);
  rule.clock = {};
  rule.watched_ops = Bit(Op::kCopyH2D) | Bit(Op::kNvtxPush) | Bit(Op::kLaunch);
  return rule;
}

TEST_F(InjectTest, LaunchesThatOnlyTellTheStepAreNotWatchedForEver) {
  abi::Control control = MarkControl(NvtxRuleWithStep());
  AddEntry(&control, 100, 16, abi::kConfigTrace, 20);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=3000", "lengths=16,32", "nvtx=1", "sleep_us=100"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // Each iteration has its step and its length all the same.
  ASSERT_GT(process().steps.size(), 2500u);
  for (size_t i = 2; i < process().steps.size(); ++i) {  // the rule came into the first
    EXPECT_EQ(process().steps[i].iteration, process().steps[i - 1].iteration + 1);
    EXPECT_EQ(process().steps[i].valid, 1u);
    EXPECT_EQ(process().steps[i].micro_batches, 1u);
    EXPECT_EQ(process().steps[i].length[0] + process().steps[i - 1].length[0], 48 * kBytesPerStep);
  }
  // 8 launches and a copy in each; the copy is always watched.
  ASSERT_FALSE(process().costs.empty());
  EXPECT_LT(process().costs.back().calls[static_cast<int>(abi::Level::kMark)],
            process().steps.size() * 9 / 3);
}

TEST_F(InjectTest, EvaluationThatComesLateIsToldApartAndSaid) {
  const abi::Control control = MarkControl(NvtxRuleWithStep());
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=3000", "lengths=16,32", "nvtx=1", "sleep_us=100", "evaluate_from=2000",
                 "evaluate_until=2300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // A few of 2,700 training iterations came before the rule; evaluation batches (300) between two
  // checks may be taken for iterations.
  EXPECT_GT(process().steps.size(), 2500u);
  EXPECT_LE(process().steps.size(), 2700u + 20);
  EXPECT_THAT(process().Message(abi::Feature::kEvaluation), HasSubstr("counts are upper bounds"));
}

// As mixed precision does where gradients overflow.
TEST_F(InjectTest, AStepThatIsLeftOutIsNoEvaluation) {
  const abi::Control control = MarkControl(NvtxRuleWithStep());
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=5000", "lengths=16,32", "layers=2", "nvtx=1", "sleep_us=100",
                 "evaluate_from=1000", "evaluate_until=1001", "evaluate_period=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_GT(process().steps.size(), 4900u);
  EXPECT_EQ(process().Message(abi::Feature::kEvaluation), "");
  ASSERT_FALSE(process().costs.empty());
  EXPECT_LT(process().costs.back().calls[static_cast<int>(abi::Level::kMark)],
            process().steps.size() * 4 / 2);
}

// Each of these phases may escape the checks; all of them together do not, and when one is met, the
// iterations of the others are doubtful, too.
TEST_F(InjectTest, ShortEvaluationsAreSeenAndWhatPassedUnseenIsSaid) {
  const abi::Control control = MarkControl(NvtxRuleWithStep());
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=7000", "lengths=16,32", "layers=2", "nvtx=1", "sleep_us=100",
                 "evaluate_from=2000", "evaluate_until=2010", "evaluate_period=510"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  const std::string message = process().Message(abi::Feature::kEvaluation);
  ASSERT_THAT(message, HasSubstr("counts are upper bounds"));
  const size_t at = message.find("seen late: ");
  ASSERT_NE(at, std::string::npos);
  unsigned long long doubtful = 0, first = 0, last = 0;
  ASSERT_EQ(sscanf(message.c_str() + at, "seen late: %llu of the iterations %llu to %llu",
                   &doubtful, &first, &last),
            3);
  EXPECT_LT(first, 2000u);  // where steps were taken for granted
  EXPECT_GT(last, 1500u);
  // But for those that were watched: the checks, and 256 where one met a phase's last batch alone.
  EXPECT_GE(doubtful, (last + 1 - first) / 2);
  EXPECT_LE(doubtful, last + 1 - first);
  // 6,900 train. From then on all are told apart.
  EXPECT_LE(process().steps.size(), 6900u + (last - 1500) / 500 * 10 + 10);
}

// As under `seqpoint run`: the driver brings the library, and the program's weak names are bound.
TEST_F(InjectTest, MarksReachALibraryThatTheDriverBrought) {
  extra_ = {{"LD_PRELOAD", ""}, {"CUDA_INJECTION64_PATH", SEQPOINT_INJECT_LIBRARY}};
  daemon_.Start();
  EXPECT_EQ(Run({"iterations=30", "lengths=5", "mark=2"}).exit_status, 0);
  daemon_.Stop();
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(std::count_if(process().calls.begin(), process().calls.end(),
                          [](const abi::CallRecord& call) {
                            return static_cast<Op>(call.op) == Op::kMark && call.grid_x == 10;
                          }),
            30);
}

TEST_F(InjectTest, AMarkBeforeCudaBeginsLeavesTimesAndGpuWork) {
  RunAndCompare({"iterations=30", "lengths=5", "mark=1", "attach=20"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  int marks = 0, launches = 0;
  for (const abi::CallRecord& call : process().calls) {
    launches += static_cast<Op>(call.op) == Op::kLaunch;
    if (static_cast<Op>(call.op) != Op::kMark) continue;
    ++marks;
    EXPECT_NE(call.flags & abi::kCallHostTime, 0);
  }
  EXPECT_EQ(marks, 31);  // one before
  EXPECT_GE(launches, 30 * 7);
  EXPECT_THAT(process().Message(abi::Feature::kCupti), HasSubstr("CUPTI version"));
}

TEST_F(InjectTest, TakesMarksOfTheProgramWithTwoLengths) {
  RunAndCompare({"iterations=30", "lengths=5", "mark=2"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  int marks = 0;
  for (const abi::CallRecord& call : process().calls) {
    if (static_cast<Op>(call.op) != Op::kMark) continue;
    ++marks;
    EXPECT_EQ(call.bytes, 5u);
    EXPECT_EQ(call.grid_x, 10u);
  }
  EXPECT_EQ(marks, 30);
}

TEST_F(InjectTest, AFrameworkTellsIterationsLengthsAndMicroBatches) {
  abi::Rule rule = {};
  rule.generation = 1;
  rule.watched_ops = Bit(Op::kForward) | Bit(Op::kFeature) | Bit(Op::kStep);
  rule.boundary.op = static_cast<uint8_t>(Op::kForward);
  rule.confirm = rule.boundary;
  rule.confirm.match = abi::kMatchName;
  rule.confirm.name_hash = abi::NameHash(abi::kForwardName, strlen(abi::kForwardName));
  rule.step.op = static_cast<uint8_t>(Op::kStep);
  rule.length_count = 1;
  rule.length[0].pattern.op = static_cast<uint8_t>(Op::kFeature);
  rule.length[0].pattern.match = abi::kMatchName;
  rule.length[0].pattern.name_hash = abi::NameHash("ids.shape[1]", 12);
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kNamePayload);
  rule.length[0].fold = static_cast<uint8_t>(abi::LengthFold::kSum);
  rule.micro_batches = 2;
  abi::Control control = MarkControl(rule);
  AddConfig(&control, 2, "gpu__time_duration.sum\nsm__inst_executed.sum");
  AddEntry(&control, 100, 48, 2, 3, /*unit=*/1);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=400", "lengths=16,32", "framework=1", "accumulate=2", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<std::string, int> learned;
  for (const abi::CallRecord& call : process().calls) {
    if (static_cast<Op>(call.op) == Op::kStep) ++learned["step"];
    if (static_cast<Op>(call.op) != Op::kFeature) continue;
    ++learned[process().names[call.name_id]];
    EXPECT_EQ(call.flags & abi::kCallHostTime, 0) << "there is a GPU";
  }
  EXPECT_EQ(learned["ids.shape[0]"], learned["ids.shape[1]"]);
  EXPECT_NEAR(learned["ids.shape[1]"], 2 * learned["step"], 2);
  ASSERT_GT(process().steps.size(), 100u);
  EXPECT_EQ(static_cast<size_t>(learned["step"]) + process().steps.size(), 200u);
  for (size_t i = 1; i < process().steps.size(); ++i) {
    EXPECT_EQ(process().steps[i].length[0], 48);
    EXPECT_EQ(process().steps[i].micro_batches, 2u);
  }
  int measured = 0;
  for (const CountersResult& counters : process().counters) {
    measured += counters.event.status == abi::kCountersOk;
  }
  EXPECT_EQ(measured, 3);
}

TEST_F(InjectTest, TellsWhichGpuItIs) {
  extra_ = {{"SWGPU_SET", "gpu.name=Test GPU,gpu.compute_major=8,gpu.compute_minor=6"}};
  abi::Control control = MarkControl(CopyRule(1));
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=200", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // First as the driver knows it, then with its chip: before any counter is wanted.
  ASSERT_EQ(process().devices.size(), 2u);
  for (const DeviceResult& device : process().devices) {
    EXPECT_EQ(device.name, "Test GPU");
    EXPECT_EQ(device.event.compute_major, 8);
    EXPECT_EQ(device.event.compute_minor, 6);
    EXPECT_GT(device.event.multiprocessors, 0u);
    EXPECT_GT(device.event.memory_bytes, 0u);
  }
  EXPECT_STREQ(process().devices[0].event.chip, "");
  EXPECT_STREQ(process().devices[1].event.chip, "GH100");
  EXPECT_THAT(process().Message(abi::Feature::kCounters), HasSubstr("can be collected by range"));
}

// By CUPTI's version and backend.
class ShippedSetsTest
    : public InjectTest,
      public testing::WithParamInterface<std::tuple<const char*, counters::Backend>> {};

TEST_P(ShippedSetsTest, AreAllBuilt) {
  const auto [version, backend] = GetParam();
  extra_ = {{"SWGPU_SET", std::string("cupti.version=") + version}};
  // One control block has not room for all.
  std::vector<abi::Control> controls;
  size_t configs = 0;
  for (const counters::MetricSet& set : counters::MetricSets("GH100", backend)) {
    for (const counters::OnePassConfig& config : set.configs) {
      if (configs++ % abi::kMaxConfigs == 0) {
        controls.push_back(MarkControl(CopyRule(1)));
        controls.back().counter_backend =
            static_cast<uint8_t>(backend == counters::Backend::kPm ? abi::CounterBackend::kPm
                                                                   : abi::CounterBackend::kRange);
      }
      std::string names;
      for (const counters::Metric& metric : config.metrics) {
        names += (names.empty() ? "" : "\n") + metric.name;
      }
      AddConfig(&controls.back(), config.config_id, names);
    }
  }
  for (size_t i = 0; i < controls.size(); ++i) {
    daemon_.When(
        [i](const PuppetProcess& process) {
          return process.configs.size() >= i * abi::kMaxConfigs;
        },
        [control = controls[i]](PuppetProcess& process) { process.Send(control); });
  }
  RunAndCompare({"iterations=600", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().configs.size(), configs);
  for (const ConfigResult& config : process().configs) {
    EXPECT_EQ(config.event.status, 0u) << config.event.config_id << ": " << config.message;
    EXPECT_EQ(config.event.passes, 1) << config.event.config_id;
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, ShippedSetsTest,
                         testing::Combine(testing::Values("28", "130001", "130100"),
                                          testing::Values(counters::Backend::kRange,
                                                          counters::Backend::kPm)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(counters::BackendName(std::get<1>(info.param)));
                         });

TEST_F(InjectTest, CollectsCountersOfWantedLengthsAndNoOthers) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum\ndram__bytes_read.sum\nsm__inst_executed.sum");
  AddConfig(&control, 3, "gpu__time_duration.sum\nsm__cycles_active.avg");
  AddEntry(&control, 100, 32, 2, 3);
  AddEntry(&control, 101, 48, 3, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=300", "lengths=16,32,48", "sleep_us=1000"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  for (const ConfigResult& config : process().configs) {
    EXPECT_EQ(config.event.status, 0u) << config.message;
    EXPECT_EQ(config.event.passes, 1);
  }
  EXPECT_EQ(process().configs.size(), 2u);

  std::map<int64_t, int> complete;
  for (const CountersResult& result : process().counters) {
    EXPECT_EQ(result.event.status, 0u);
    ++complete[result.event.length[0]];
    ASSERT_EQ(result.event.count, result.event.config_id == 2 ? 3 : 2);
    for (const double value : result.values) EXPECT_GT(value, 0);
    EXPECT_GT(result.event.stopped_ns, 0u);
  }
  EXPECT_EQ(complete, (std::map<int64_t, int>{{32 * kBytesPerStep, 3}, {48 * kBytesPerStep, 2}}));
  std::set<uint64_t> measured;
  for (const abi::DecisionEvent& decision : process().decisions) {
    if (decision.config_id != 0) measured.insert(decision.iteration);
  }
  EXPECT_EQ(measured.size(), 5u);
  // A measured iteration says so at its end.
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    if (measured.count(boundary.iteration - 1) != 0) {
      EXPECT_NE(boundary.flags & abi::kDistorted, 0) << boundary.iteration;
    }
  }
}

TEST_F(InjectTest, CountersAreThoseOfTheWholeIteration) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 16, 2, 2);
  AddEntry(&control, 101, 48, 2, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=200", "lengths=16,32,48", "sleep_us=500", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().counters.size(), 4u);
  for (const CountersResult& counters : process().counters) {
    const std::string key = "truth" + std::to_string(counters.event.length[0] / kBytesPerStep);
    ASSERT_EQ(counters.values.size(), 1u);
    EXPECT_NEAR(counters.values[0], std::stod(result.Value(key)), 1) << key;
  }
}

// The software GPU's truth of one kernel over the whole program, per launch.
double TruthPerLaunch(const std::filesystem::path& file, const std::string& kernel,
                      const std::string& field) {
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find("\"" + kernel + "\": {");
  const auto number = [&](const std::string& name) {
    const size_t found = at == std::string::npos ? at : text.find("\"" + name + "\": ", at);
    return found == std::string::npos ? -1 : std::stod(text.substr(found + name.size() + 4));
  };
  return number(field) / number("launches");
}

TEST_F(InjectTest, KernelsAreCountedOneByOne) {
  const std::filesystem::path truth = directory_.path() / "truth.json";
  extra_ = {{"SWGPU_SET", "noise.counters=0"}, {"SWGPU_TRUTH", truth.string()}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddConfig(&control, 3, "sm__inst_executed.sum\ndram__bytes_read.sum\ngpu__time_duration.sum",
            abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 2);
  AddEntry(&control, 101, 32, 2, 1);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=200", "lengths=32", "sleep_us=500", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_EQ(process().Message(abi::Feature::kRoofline), "");

  std::map<uint64_t, double> bytes;  // by iteration
  std::map<std::string, int> launches;
  for (const KernelResult& kernel : process().kernel_counters) {
    const std::string& name = process().names[kernel.event.name_id];
    EXPECT_EQ(kernel.event.config_id, 3);
    EXPECT_EQ(kernel.event.length[0], 32 * kBytesPerStep);
    EXPECT_EQ(kernel.event.kernels, 3u);
    EXPECT_EQ(kernel.event.missing, 0u);
    ASSERT_EQ(kernel.values.size(), 3u);
    launches[name] += static_cast<int>(kernel.event.launches);
    bytes[kernel.event.iteration] += kernel.values[1];
    EXPECT_NEAR(kernel.values[0] / kernel.event.launches,
                TruthPerLaunch(truth, name, "instructions"), 1)
        << name;
    EXPECT_NEAR(kernel.values[1] / kernel.event.launches,
                TruthPerLaunch(truth, name, "dram_read_bytes"), 1)
        << name;
    EXPECT_GT(kernel.values[2], 0);
  }
  EXPECT_EQ(launches,
            (std::map<std::string, int>{{"forward_layer", 12}, {"loss", 2}, {"adam", 2}}));
  EXPECT_EQ(bytes.size(), 2u);
  // The iteration's own event has the sums, and kernels together are the iteration.
  int of_kernels = 0;
  for (const CountersResult& counters : process().counters) {
    EXPECT_EQ(counters.event.status, 0u);
    const bool kernels = counters.event.config_id == 3;
    of_kernels += kernels;
    ASSERT_EQ(counters.values.size(), kernels ? 3u : 1u);
    EXPECT_NEAR(counters.values[kernels ? 1 : 0], std::stod(result.Value("truth32")), 1);
    if (!kernels) continue;
    EXPECT_NEAR(counters.values[1], bytes[counters.event.iteration], 1e-3);
    EXPECT_GT(counters.event.stopped_ns, 0u);
  }
  EXPECT_EQ(of_kernels, 2);
}

// Automatic ranges wait behind each kernel: where it waits for another rank's, for ever.
TEST_F(InjectTest, KernelsOfSeveralRanksAreNotMeasuredOneByOne) {
  extra_ = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 2);
  AddEntry(&control, 101, 32, 2, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=200", "lengths=32", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 2u);
  EXPECT_EQ(process().configs[0].event.status, 0u);
  EXPECT_EQ(process().configs[1].event.status, 27u);
  EXPECT_THAT(process().configs[1].message, HasSubstr("the job has several ranks"));
  EXPECT_THAT(process().Message(abi::Feature::kRoofline), HasSubstr("they would hang"));
  EXPECT_THAT(process().kernel_counters, IsEmpty());
  EXPECT_EQ(process().counters.size(), 2u);  // of iterations
}

TEST_F(InjectTest, KernelsBeyondTheRoomAreSaid) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 1);
  daemon_.OnCalls(2500, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=60", "lengths=32", "layers=2400", "sleep_us=2000"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(abi::Feature::kRoofline),
              HasSubstr("only the first 2000 kernels of an iteration"));
  ASSERT_EQ(process().kernel_counters.size(), 1u);
  EXPECT_EQ(process().kernel_counters[0].event.launches, 2000u);
  EXPECT_EQ(process().kernel_counters[0].event.missing, 402u);
}

TEST_F(InjectTest, KernelsInsideGraphsAreNotTakenForOthers) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 2);
  AddEntry(&control, 101, 32, 2, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=200", "lengths=32", "sleep_us=500", "replay=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(abi::Feature::kRoofline), HasSubstr("launches CUDA graphs"));
  EXPECT_THAT(process().kernel_counters, IsEmpty());
  // It is tried once, and other counters go on.
  int given_up = 0, complete = 0;
  for (const CountersResult& counters : process().counters) {
    given_up += counters.event.status == abi::kCountersAmbiguous;
    complete += counters.event.config_id == 2 && counters.event.status == 0;
  }
  EXPECT_EQ(given_up, 1);
  EXPECT_EQ(complete, 2);
}

TEST_F(InjectTest, ACaptureEndsTheMeasurementOfKernels) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 3);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=100", "lengths=32", "sleep_us=500", "capture_all=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().kernel_counters, IsEmpty());
  EXPECT_THAT(process().counters, Not(IsEmpty()));
  for (const CountersResult& counters : process().counters) {
    EXPECT_EQ(counters.event.status, static_cast<uint32_t>(abi::kCountersAmbiguous));
  }
  EXPECT_THAT(process().Message(abi::Feature::kRoofline), HasSubstr("a stream capture began"));
}

// Whatever the library does with CUPTI beside the program, a capture must survive it, and counters
// come nevertheless.
TEST_F(InjectTest, NoCaptureIsBrokenAndCountersCome) {
  extra_ = {{"SWGPU_SET", "cupti.decode_us=300"}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 32, 2, 40);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=200", "lengths=32", "capture_us=3000", "sleep_us=300"});
  EXPECT_EQ(result.exit_status, 0) << result.output;
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().configs.size(), 1u);
  EXPECT_EQ(process().configs[0].event.status, 0u) << process().configs[0].message;
  EXPECT_EQ(process().counters.size(), 40u);
  for (const CountersResult& result : process().counters) EXPECT_EQ(result.event.status, 0u);
}

TEST_F(InjectTest, LaunchesOfSeveralThreadsAreNeverMixedUp) {
  const std::filesystem::path truth = directory_.path() / "truth.json";
  extra_ = {{"SWGPU_SET", "noise.counters=0"}, {"SWGPU_TRUTH", truth.string()}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 3, "dram__bytes_read.sum", abi::Ranges::kKernels);
  AddEntry(&control, 100, 32, 3, 50);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=300", "lengths=32", "sleep_us=500", "threads=2"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().counters, Not(IsEmpty()));
  for (const KernelResult& kernel : process().kernel_counters) {
    const std::string& name = process().names[kernel.event.name_id];
    if (name == "forward_layer") continue;  // the threads launch others of that name
    EXPECT_NEAR(kernel.values[0] / kernel.event.launches,
                TruthPerLaunch(truth, name, "dram_read_bytes"), 1)
        << name;
  }
}

// Whatever CUPTI's first sample says, and wherever its decodes stop.
TEST_F(InjectTest, PmSamplingCountsAnIterationByItsTime) {
  extra_ = {{"SWGPU_SET",
             "noise.counters=0,cupti.pm_first_sample_factor=1000,cupti.pm_samples_per_decode=500"}};
  abi::Control control = MarkControl(CopyRule(1));
  control.counter_backend = static_cast<uint8_t>(abi::CounterBackend::kPm);
  AddConfig(&control, 2, "gpu__time_duration.sum\ndram__bytes_read.sum");
  AddEntry(&control, 100, 16, 2, 2);
  AddEntry(&control, 101, 48, 2, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result = RunAndCompare(
      {"iterations=800", "lengths=16,32,48", "sleep_us=500", "truth=1", "layers=300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  EXPECT_THAT(process().Message(abi::Feature::kCounters), HasSubstr("by PM sampling"));
  ASSERT_EQ(process().counters.size(), 4u);
  ASSERT_EQ(process().sampled.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const CountersResult& counters = process().counters[i];
    const abi::SampledEvent& sampled = process().sampled[i];
    EXPECT_EQ(sampled.iteration, counters.event.iteration);
    EXPECT_EQ(counters.event.status, 0u);
    const std::string key = "truth" + std::to_string(counters.event.length[0] / kBytesPerStep);
    ASSERT_EQ(counters.values.size(), 2u);
    // The time is that between two batch copies on the GPU.
    std::map<uint64_t, uint64_t> start_ns;
    for (const abi::ClockEvent& clock : process().clocks) {
      for (const abi::DataRecord& record : process().records) {
        if (record.type != static_cast<uint16_t>(abi::DataType::kCopy)) continue;
        if (record.copy.correlation_id != clock.correlation_id) continue;
        start_ns[clock.iteration] = record.copy.start_ns;
      }
    }
    const uint64_t number = counters.event.iteration;
    ASSERT_TRUE(start_ns.count(number) == 1 && start_ns.count(number + 1) == 1);
    const auto time_ns = static_cast<double>(start_ns[number + 1] - start_ns[number]);
    EXPECT_EQ(static_cast<double>(sampled.duration_ns), time_ns);
    EXPECT_LE(counters.values[0], time_ns * (1 + 1e-9));
    // Sampling began behind the copy: what is missing is told.
    EXPECT_GE(counters.values[0] * (1 + 1e-9), static_cast<double>(sampled.covered_ns));
    // Work is misplaced at the two ends only, by what their samples hold. The copy reads nothing.
    EXPECT_GT(sampled.edge_ns, 0u);
    const double truth = std::stod(result.Value(key));
    EXPECT_NEAR(
        counters.values[1], truth,
        truth * static_cast<double>(sampled.edge_ns) / static_cast<double>(sampled.covered_ns))
        << key;
  }
}

// PM sampling locks the GPU's clocks: no other iteration has a time of them that counts, and none
// has it after the last measurement. The configuration changes in between, under which its image
// must not be read any more.
TEST_F(InjectTest, PmSamplingLeavesTheTimesOfOtherIterationsAlone) {
  extra_ = {{"SWGPU_SET",
             "noise.kernel=0,noise.slow_share=0,noise.drift=0,noise.cpu=0,cupti.pm_slowdown=3"}};
  abi::Control control = MarkControl(CopyRule(1));
  control.counter_backend = static_cast<uint8_t>(abi::CounterBackend::kPm);
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 16, 2, 3);
  abi::Control other = MarkControl(CopyRule(1));
  other.counter_backend = control.counter_backend;
  AddConfig(&other, 3, "dram__bytes_write.sum\nsm__inst_executed.sum");
  AddEntry(&other, 101, 16, 3, 3);
  daemon_.OnCalls(60, [](PuppetProcess& p) { p.Send(MarkControl(CopyRule(1))); });
  daemon_.When([](const PuppetProcess& p) { return p.clocks.size() >= 50; },
               [control](PuppetProcess& p) { p.Send(control); });
  daemon_.When([](const PuppetProcess& p) { return p.counters.size() == 3; },
               [other](PuppetProcess& p) { p.Send(other); });
  RunAndCompare({"iterations=800", "lengths=16", "sleep_us=1000", "layers=300"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().counters.size(), 6u);
  for (const CountersResult& result : process().counters) EXPECT_EQ(result.event.status, 0u);
  EXPECT_EQ(process().Message(abi::Feature::kCounters).find("gave"), std::string::npos);

  std::map<uint32_t, uint64_t> copy_ns;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(abi::DataType::kCopy)) continue;
    copy_ns[record.copy.correlation_id] = record.copy.start_ns;
  }
  std::map<uint64_t, uint64_t> start_ns;
  for (const abi::ClockEvent& clock : process().clocks) {
    if (copy_ns.count(clock.correlation_id) != 0) {
      start_ns[clock.iteration] = copy_ns[clock.correlation_id];
    }
  }
  std::set<uint64_t> distorted;
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    if ((boundary.flags & abi::kDistorted) != 0) distorted.insert(boundary.iteration - 1);
  }
  std::vector<uint64_t> times_ns;
  uint64_t last = 0;
  for (const auto& [iteration, begin_ns] : start_ns) {
    if (start_ns.count(iteration + 1) == 0 || distorted.count(iteration) != 0) continue;
    times_ns.push_back(start_ns[iteration + 1] - begin_ns);
    last = iteration;
  }
  EXPECT_GT(times_ns.size(), 200u);
  EXPECT_GT(last, start_ns.rbegin()->first - 5);
  std::sort(times_ns.begin(), times_ns.end());
  EXPECT_LT(times_ns.back(), times_ns.front() * 3 / 2);
}

// The performance monitors of a GPU have one owner. The first job keeps them while a length of its
// plan may still come, and no longer; the second one asks for them until then.
TEST_F(InjectTest, TwoJobsOnOneGpuHaveCountersOneAfterTheOther) {
  const TempFolder folder;
  extra_ = {{"SWGPU_SET", "cupti.monitor_owner_file=" + (directory_.path() / "monitors").string()}};
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 16, 2, 3);
  abi::Control for_ever = control;
  AddEntry(&for_ever, 101, 999, 2, 1);
  std::atomic<size_t> first_has = 0, second_lacks = 0;
  daemon_.OnCalls(60, [for_ever](PuppetProcess& p) { p.Send(for_ever); });
  daemon_.When([&](const PuppetProcess&) { return second_lacks >= 3; },
               [control](PuppetProcess& p) { p.Send(control); });
  daemon_.Always([&](PuppetProcess& p) { first_has = p.counters.size(); });
  daemon_.Start();
  std::thread training([this] { Run({"iterations=6000", "lengths=16", "sleep_us=1000"}); });
  while (first_has < 3) usleep(1000);

  PuppetDaemon second(folder.path().string());
  second.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  second.Always([&](PuppetProcess& p) {
    second_lacks = static_cast<size_t>(
        std::count_if(p.counters.begin(), p.counters.end(),
                      [](const CountersResult& one) { return one.event.status == 26; }));
  });
  second.Start();
  extra_["SEQPOINT_DIR"] = folder.path().string();
  Run({"iterations=3000", "lengths=16", "sleep_us=1000"});
  second.Stop();
  training.join();
  daemon_.Stop();
  ASSERT_EQ(second.process_count(), 1u);
  EXPECT_THAT(second.process(0).Message(abi::Feature::kCounters), HasSubstr("asked for again"));
  EXPECT_EQ(std::count_if(second.process(0).counters.begin(), second.process(0).counters.end(),
                          [](const CountersResult& one) { return one.event.status == 0; }),
            3);
}

TEST_F(InjectTest, MeasuresAllMicroBatchesOfAnIteration) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  // Four micro-batches make an iteration; its length is their sum, known with the last one. The
  // range must be open before.
  abi::Rule rule = CopyRule(1);
  rule.confirm.op = static_cast<uint8_t>(Op::kLaunch);
  rule.confirm.match = abi::kMatchName;
  rule.confirm.name_hash = abi::NameHash("loss", 4);
  rule.length[0].fold = static_cast<uint8_t>(abi::LengthFold::kSum);
  rule.micro_batches = 4;
  abi::Control control = MarkControl(rule);
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 3 * 16 + 32, 2, 2);
  AddEntry(&control, 101, 999, 2, 1);  // never comes
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=1600", "accumulate=4", "sleep_us=500", "host_ns=20000000",
                     "truth=1", "lengths=16,16,16,32,16,16,16,48"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  int complete = 0, discarded = 0;
  for (const CountersResult& counters : process().counters) {
    if (counters.event.status == abi::kCountersDiscarded) {
      ++discarded;
      continue;
    }
    EXPECT_EQ(counters.event.status, 0u);
    EXPECT_EQ(counters.event.length[0], (3 * 16 + 32) * kBytesPerStep);
    ASSERT_EQ(counters.values.size(), 1u);
    EXPECT_NEAR(counters.values[0], std::stod(result.Value("truth32")), 1);
    ++complete;
  }
  EXPECT_EQ(complete, 2);
  EXPECT_GT(discarded, 0);
  std::map<uint64_t, std::vector<int64_t>> micro_batches;
  for (const abi::MicroBatchEvent& event : process().micro_batches) {
    EXPECT_EQ(event.index, micro_batches[event.iteration].size());
    EXPECT_EQ(event.valid, 1u);
    micro_batches[event.iteration].push_back(event.length[0]);
  }
  for (const abi::StepEvent& step : process().steps) {
    if (step.iteration == 0) continue;
    EXPECT_EQ(step.micro_batches, 4u);
    const std::vector<int64_t>& lengths = micro_batches[step.iteration];
    EXPECT_EQ(lengths.size(), 4u);
    EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), step.length[0]);
    for (const int64_t length : lengths) EXPECT_EQ(length % (16 * kBytesPerStep), 0);
  }
}

// The stops of measurements that came to nothing, and how many there were.
struct GivenUp {
  size_t windows = 0;
  uint64_t stopped_ns = 0;
};
GivenUp CountGivenUp(const PuppetProcess& process) {
  GivenUp result;
  for (const abi::WindowEvent& window : process.windows) {
    if ((window.flags & abi::kWindowGivenUp) == 0) continue;
    ++result.windows;
    result.stopped_ns += window.stopped_ns;
    EXPECT_GT(window.stopped_ns, 0u);
  }
  return result;
}

TEST_F(InjectTest, CountersAreWholeWhereTheLengthIsKnownOnlyBehindKernels) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  abi::Control control = MarkControl(FifthKernelRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum\nsm__inst_executed.sum");
  AddConfig(&control, 3, "dram__bytes_read.sum");
  AddEntry(&control, 100, 32, 2, 3, 1);
  AddEntry(&control, 101, 48, 3, 2, 1);
  AddEntry(&control, 102, 999, 2, 1, 1);  // never comes, and must not keep the others waiting
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result = RunAndCompare(
      {"iterations=600", "lengths=16,32,48,16,16", "sleep_us=300", "host_ns=20000000", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<int64_t, int> complete;
  size_t discarded = 0;
  for (const CountersResult& counters : process().counters) {
    if (counters.event.status == abi::kCountersDiscarded) {
      EXPECT_TRUE(counters.values.empty());
      ++discarded;
      continue;
    }
    EXPECT_EQ(counters.event.status, 0u);
    ++complete[counters.event.length[0]];
    const std::string key = "truth" + std::to_string(counters.event.length[0]);
    ASSERT_FALSE(counters.values.empty());
    EXPECT_NEAR(counters.values[0], std::stod(result.Value(key)), 1) << key;
  }
  EXPECT_EQ(complete, (std::map<int64_t, int>{{32, 3}, {48, 2}}));
  // Windows for nothing are counted and charged, and most iterations stay undisturbed.
  EXPECT_GT(discarded, 0u);
  EXPECT_EQ(CountGivenUp(process()).windows, discarded);
  EXPECT_LT(discarded, process().steps.size() / 8);
  size_t disturbed = 0;
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    disturbed += (boundary.flags & abi::kDistorted) != 0;
  }
  EXPECT_LE(disturbed, 2 * (discarded + 5) + 4);
  // Only what was measured says so.
  size_t measured = 0;
  for (const abi::DecisionEvent& decision : process().decisions) {
    measured += decision.config_id != 0;
  }
  EXPECT_EQ(measured, 5u);
}

TEST_F(InjectTest, VainWindowsCostAtMostAShareOfTheTime) {
  // A wanted length that never comes, and iterations so short that windows by lot would cost a few
  // per cent.
  abi::Control control = MarkControl(FifthKernelRule(1));
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 999, 2, 100, 1);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=3000", "lengths=16,32", "sleep_us=100", "host_ns=500000"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  const GivenUp vain = CountGivenUp(process());
  ASSERT_GT(vain.windows, 2u);
  const uint64_t time_ns = process().steps.back().api_ns - process().steps.front().api_ns;
  EXPECT_LT(vain.stopped_ns, time_ns / 100);
}

TEST_F(InjectTest, ALengthBeforeTheFirstKernelNeedsNoWindowAhead) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  // The range begins the iteration, its copy tells the length; nothing has run in between.
  abi::Rule rule = CopyRule(1);
  rule.boundary = {};
  rule.boundary.op = static_cast<uint8_t>(Op::kNvtxPush);
  rule.watched_ops = Bit(Op::kCopyH2D) | Bit(Op::kNvtxPush);
  rule.step = {};
  abi::Control control = MarkControl(rule);
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 48, 2, 3);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=200", "lengths=16,32,48", "nvtx=1", "sleep_us=500", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().counters.size(), 3u);
  for (const CountersResult& counters : process().counters) {
    EXPECT_EQ(counters.event.status, 0u);
    ASSERT_EQ(counters.values.size(), 1u);
    EXPECT_NEAR(counters.values[0], std::stod(result.Value("truth48")), 1);
  }
  EXPECT_EQ(CountGivenUp(process()).windows, 0u);
}

TEST_F(InjectTest, MeasuresWhereOnlyTheStepTellsTheLength) {
  extra_ = {{"SWGPU_SET", "noise.counters=0"}};
  // The length is the number of forward kernels, complete with the optimiser.
  abi::Rule rule = FifthKernelRule(1);
  rule.length[0].field = static_cast<uint8_t>(abi::LengthField::kCallCount);
  abi::Control control = MarkControl(rule);
  AddConfig(&control, 2, "dram__bytes_read.sum");
  AddEntry(&control, 100, 6, 2, 2, 1);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  const ProgramResult result =
      RunAndCompare({"iterations=200", "lengths=16", "layers=6", "sleep_us=500", "truth=1"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().counters.size(), 2u);
  for (const CountersResult& counters : process().counters) {
    EXPECT_EQ(counters.event.status, 0u);
    EXPECT_EQ(counters.event.length[0], 6);
    ASSERT_EQ(counters.values.size(), 1u);
    EXPECT_NEAR(counters.values[0], std::stod(result.Value("truth16")), 1);
  }
  size_t measured = 0;
  for (const abi::DecisionEvent& decision : process().decisions) {
    measured += decision.config_id == 2;
  }
  EXPECT_EQ(measured, 2u);
}

TEST_F(InjectTest, TracesAreWholeWhereTheLengthIsKnownOnlyBehindKernels) {
  SEQPOINT_NEEDS_TRACES();
  abi::Control control = MarkControl(FifthKernelRule(1));
  AddEntry(&control, 100, 32, abi::kConfigTrace, 2, 1);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=1000", "lengths=16,32,48", "layers=5", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<std::string, int> kernels;
  int whole = 0;
  for (const abi::WindowEvent& window : process().windows) {
    if (static_cast<abi::Level>(window.level) != abi::Level::kTrace || window.flags != 0) continue;
    ++whole;
    for (const abi::DataRecord& record : process().records) {
      if (record.type != static_cast<uint16_t>(abi::DataType::kKernel)) continue;
      if (record.kernel.start_ns < window.begin_ns) continue;
      if (record.kernel.start_ns > window.end_ns) continue;
      ++kernels[process().names[record.kernel.name_id]];
    }
  }
  EXPECT_EQ(whole, 2);
  EXPECT_EQ(kernels, (std::map<std::string, int>{{"forward_layer", 10}, {"loss", 2}, {"adam", 2}}));
}

TEST_F(InjectTest, TracesWantedIterationsInAWindow) {
  SEQPOINT_NEEDS_TRACES();
  abi::Control control = MarkControl(CopyRule(1));
  AddEntry(&control, 100, 32, abi::kConfigTrace, 2);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=200", "lengths=16,32,48", "layers=5", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  std::map<std::string, int> kernels;
  for (const abi::DataRecord& record : process().records) {
    if (record.type != static_cast<uint16_t>(abi::DataType::kKernel)) continue;
    const std::string& name = process().names[record.kernel.name_id];
    ++kernels[name];
    EXPECT_LT(record.kernel.start_ns, record.kernel.end_ns);
    if (name == "forward_layer") {
      EXPECT_EQ(record.kernel.grid_x, 32u);
    }
  }
  // Two iterations of length 32, whole and nothing else.
  EXPECT_EQ(kernels, (std::map<std::string, int>{{"forward_layer", 10}, {"loss", 2}, {"adam", 2}}));
  // The launches of these kernels, by correlation id.
  std::set<uint32_t> launches;
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kApi)) {
      launches.insert(record.api.correlation_id);
    }
  }
  for (const abi::DataRecord& record : process().records) {
    if (record.type == static_cast<uint16_t>(abi::DataType::kKernel)) {
      EXPECT_EQ(launches.count(record.kernel.correlation_id), 1u);
    }
  }
  int windows = 0;
  for (const abi::WindowEvent& window : process().windows) {
    if (static_cast<abi::Level>(window.level) != abi::Level::kTrace) continue;
    ++windows;
    EXPECT_GT(window.stopped_ns, 0u);
    EXPECT_LT(window.begin_ns, window.end_ns);
  }
  EXPECT_EQ(windows, 2);
}

TEST_F(InjectTest, LeavesEvaluationBatchesToTheRule) {
  abi::Control control = MarkControl(CopyRule(1));
  AddConfig(&control, 2, "gpu__time_duration.sum");
  AddEntry(&control, 100, 16, 2, 4);
  daemon_.OnCalls(60, [control](PuppetProcess& p) { p.Send(control); });
  RunAndCompare({"iterations=200", "lengths=16,32", "evaluate=10", "sleep_us=1000"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  // An evaluation batch looks like a training batch until no step comes: its measurement is
  // aborted, and the entry still gets its four.
  int complete = 0;
  for (const CountersResult& result : process().counters) {
    if (result.event.status == abi::kCountersOk) {
      ++complete;
    } else {
      EXPECT_EQ(result.event.status, abi::kCountersAborted);
    }
  }
  EXPECT_EQ(complete, 4);
  uint64_t expected = 0;
  for (const abi::StepEvent& step : process().steps) EXPECT_EQ(step.iteration, expected++);
}

TEST_F(InjectTest, SwitchesToLearningAndBackAtBoundaries) {
  abi::Control mark = MarkControl(CopyRule(1));
  abi::Control learn = mark;
  learn.level = static_cast<uint8_t>(abi::Level::kLearn);
  daemon_.OnCalls(60, [mark](PuppetProcess& p) { p.Send(mark); });
  daemon_.When([](const PuppetProcess& p) { return p.steps.size() > 20; },
               [learn](PuppetProcess& p) { p.Send(learn); });
  daemon_.When([](const PuppetProcess& p) { return p.rules.size() == 3 && p.steps.size() > 60; },
               [mark](PuppetProcess& p) { p.Send(mark); });
  RunAndCompare({"iterations=400", "lengths=16,32", "layers=3", "sleep_us=500"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().rules.size(), 4u);
  EXPECT_EQ(process().calls_missing, 0u);
  EXPECT_EQ(process().calls.size(), process().rules[3].call_sequence);
  // While it learns again, the matcher keeps counting, and a replay of the calls finds the same.
  abi::Matcher matcher;
  matcher.SetRule(mark.rule, process().rules[2].next_iteration, true);
  std::map<uint64_t, uint64_t> boundary_at;
  for (const abi::CallRecord& call : process().calls) {
    if (call.sequence < process().rules[2].call_sequence) continue;
    const std::string& name = process().names[call.name_id];
    abi::MatchEvent event = {};
    event.op = call.op;
    event.name_hash = abi::NameHash(name.data(), name.size());
    event.bytes = call.bytes;
    if ((matcher.OnEvent(event) & abi::kMatchedBoundary) != 0) {
      boundary_at[call.sequence] = matcher.result().iteration;
    }
  }
  EXPECT_GT(boundary_at.size(), 10u);
  size_t learned = 0;
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    if (static_cast<abi::Level>(boundary.level) != abi::Level::kLearn) continue;
    ++learned;
    ASSERT_EQ(boundary_at.count(boundary.call_sequence), 1u) << boundary.call_sequence;
    EXPECT_EQ(boundary_at[boundary.call_sequence], boundary.iteration);
  }
  EXPECT_EQ(learned, boundary_at.size());
  uint64_t expected = 0;
  for (const abi::StepEvent& step : process().steps) EXPECT_EQ(step.iteration, expected++);
}

TEST_F(InjectTest, TellsWhatWatchingTakes) {
  extra_ = {{"SWGPU_SET", "clock.mode=real"}};
  daemon_.OnCalls(60, [](PuppetProcess& p) { p.Send(MarkControl(CopyRule(1))); });
  RunAndCompare({"iterations=200", "sleep_us=500", "host_ns=0"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_FALSE(process().costs.empty());
  const abi::CostEvent& cost = process().costs.back();
  EXPECT_GT(cost.callback_ns, 0u);
  EXPECT_EQ(cost.calls[1], process().calls.size());
  // An iteration has ten calls; the copy and the eight launches are watched at mark, too.
  const uint64_t marked = 200 - cost.calls[1] / 10;
  EXPECT_GE(cost.calls[2], (marked - 2) * 9);
  EXPECT_LE(cost.calls[2], (marked + 1) * 10);
  EXPECT_EQ(cost.calls[3], 0u);
  EXPECT_GE(cost.spent_ns[1], cost.calls[1] * cost.callback_ns);
}

TEST_F(InjectTest, PausesReleasesAndComesBack) {
  abi::Control mark = MarkControl(CopyRule(1));
  abi::Control paused = mark;
  paused.level = static_cast<uint8_t>(abi::Level::kPaused);
  abi::Control released = mark;
  released.level = static_cast<uint8_t>(abi::Level::kReleased);
  daemon_.OnCalls(60, [mark](PuppetProcess& p) { p.Send(mark); });
  daemon_.When([](const PuppetProcess& p) { return p.steps.size() > 20; },
               [paused](PuppetProcess& p) { p.Send(paused); });
  daemon_.When([](const PuppetProcess& p) { return p.rules.size() == 3; },
               [released](PuppetProcess& p) { p.Send(released); });
  daemon_.When(
      [](const PuppetProcess& p) {
        return p.Message(abi::Feature::kCallbacks).find("released") != std::string::npos;
      },
      [mark](PuppetProcess& p) { p.Send(mark); });
  RunAndCompare({"iterations=1500", "lengths=16,32", "sleep_us=1000"});
  ASSERT_EQ(daemon_.process_count(), 1u);
  ASSERT_EQ(process().rules.size(), 5u);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[2].level), abi::Level::kPaused);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[3].level), abi::Level::kReleased);
  EXPECT_EQ(static_cast<abi::Level>(process().rules[4].level), abi::Level::kMark);
  size_t before = 0, between = 0, after = 0;
  for (const abi::BoundaryEvent& boundary : process().boundaries) {
    if (boundary.api_ns <= process().rules[2].api_ns) {
      ++before;
    } else if (boundary.api_ns < process().rules[4].api_ns) {
      ++between;
    } else {
      ++after;
    }
  }
  EXPECT_GT(before, 20u);
  EXPECT_EQ(between, 0u);
  EXPECT_GT(after, 20u);
}

}  // namespace
}  // namespace seqpoint
