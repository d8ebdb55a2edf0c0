#include "daemon/jobs/job.h"
#include "daemon/queries/changed_run.h"
#include "daemon/queries/counters.h"
#include "daemon/queries/kernels.h"
#include "daemon/queries/playlist.h"
#include "daemon/queries/project.h"
#include "daemon/queries/roofline.h"
#include "daemon/queries/seqpoints.h"

#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/matcher.h"
#include "injection/abi/ring.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kBatch = 32;

// A training process and the library in it, as far as the daemon can see them: it runs ahead on the
// CPU, obeys the control block as the real library does, and knows the truth.
class FakeProcess {
 public:
  explicit FakeProcess(uint32_t seed) : random_(seed) {}

  struct Truth {
    int64_t length;
    int64_t time_ns;
    double flops;
  };

  void Connect(Job& job, int64_t process_id) {
    job_ = &job;
    id_ = process_id;
    Send(abi::EventType::kDevice, abi::DeviceEvent{.chip = "GH100"});
  }

  // One iteration: batch copy, `length` recurrent steps, loss, backward, optimiser.
  void Iterate() {
    const int64_t length = DrawLength();
    Iterate(length, TimeOf(length));
  }
  int64_t DrawLength() { return std::uniform_int_distribution<int64_t>(10, 40)(random_); }
  int64_t TimeOf(int64_t length) {
    const double noise = std::lognormal_distribution<double>(0, 0.003)(random_);
    return static_cast<int64_t>(noise * (2e5 + 1e5 * static_cast<double>(length)));
  }
  void Iterate(int64_t length, int64_t time_ns) {
    const auto begin_gpu_ns = gpu_ns_;
    measured_ = 0;
    Pass(length);
    Call(abi::Op::kLaunch, "adam", 0, 512);
    Call(abi::Op::kCopyD2H, "", 4);
    Call(abi::Op::kStreamSync, "", 0);
    gpu_ns_ = begin_gpu_ns + time_ns;
    truth.push_back({length, gpu_ns_ - begin_gpu_ns, 1e6 * static_cast<double>(length * length)});
    if (measured_ != 0) {
      late_.push_back({static_cast<uint16_t>(measured_),
                       measured_number_,
                       truth.size() - 1,
                       gpu_ns_,
                       {measured_length_[0], measured_length_[1]}});
    }
    while (!late_.empty() && late_.front().index + late_results < truth.size()) {
      Report(late_.front());
      late_.pop_front();
    }
    job_->OnRead(id_, true);
    job_->Advance();
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }

  // The same with four micro-batches; `batch`: all work on it. The first pass of a length takes 3
  // ms more.
  void Accumulate(std::optional<int64_t> batch = std::nullopt) {
    const auto begin_gpu_ns = gpu_ns_;
    measured_ = 0;
    int64_t sum = 0, new_lengths = 0;
    for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
      const int64_t length =
          batch ? *batch : std::geometric_distribution<int64_t>(0.05)(random_) + 10;
      if (micro_batch == 0) Call(abi::Op::kMemset, "", 1 << 20);
      Pass(length);
      sum += length;
      new_lengths += passed_.insert(length).second;
    }
    Call(abi::Op::kLaunch, "adam", 0, 512);
    Call(abi::Op::kCopyD2H, "", 4);
    Call(abi::Op::kStreamSync, "", 0);
    const double noise = std::lognormal_distribution<double>(0, 0.003)(random_);
    gpu_ns_ = begin_gpu_ns + static_cast<int64_t>(noise * (8e5 + 1e5 * static_cast<double>(sum))) +
              3'000'000 * new_lengths;
    truth.push_back({sum, gpu_ns_ - begin_gpu_ns, 1e6 * static_cast<double>(sum)});
    new_lengths_.push_back(new_lengths);
    if (measured_ != 0) Report({measured_, measured_number_, truth.size() - 1, gpu_ns_});
    job_->OnRead(id_, true);
    job_->Advance();
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }
  // An iteration that does not get to its end.
  void Begin() {
    Pass(DrawLength());
    job_->OnRead(id_, true);
    job_->Advance();
  }
  const std::vector<int64_t>& new_lengths() const { return new_lengths_; }  // per iteration

  // Copies on a stream of their own, and waits for these, or for the work, only where it is told
  // to.
  enum class Wait { kNever, kForCopies, kForWork };
  void IterateAhead(Wait wait = Wait::kNever) {
    const int64_t length = DrawLength();
    truth.push_back({length, TimeOf(length), 0});
    done_ns_ = std::max(done_ns_, api_ns_) + static_cast<uint64_t>(truth.back().time_ns);
    measured_ = 0;
    copy_stream_ = 2;
    Call(abi::Op::kCopyH2D, "", length * kBatch * 4);
    Call(abi::Op::kStreamWait, "", 0);
    for (const char* pass : {"forward", "backward"}) {
      for (int64_t i = 0; i < length; ++i) Call(abi::Op::kLaunch, pass, 0, 64);
    }
    Call(abi::Op::kLaunch, "adam", 0, 512);
    if (wait == Wait::kForCopies) {
      flags_ = abi::kCallNoEnd;
      Call(abi::Op::kStreamSync, "", 1000);
      flags_ = 0;
    }
    if (wait == Wait::kForWork) {
      api_ns_ = std::max(api_ns_, done_ns_);
      Call(abi::Op::kStreamSync, "", 1000);
      Send(abi::EventType::kSync, abi::SyncEvent{.iteration = matcher_.iteration()});
    }
    if (measured_ != 0) Report({measured_, measured_number_, truth.size() - 1, gpu_ns_});
    job_->OnRead(id_, true);
    job_->Advance();
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }

  // Another training loop: another model, whose length shows elsewhere.
  void IterateOther() {
    const int64_t length = std::uniform_int_distribution<int64_t>(10, 40)(random_);
    const auto begin_gpu_ns = gpu_ns_;
    measured_ = 0;
    Call(abi::Op::kMemset, "", 4096);
    Call(abi::Op::kCopyH2D, "", length * 8);
    Call(abi::Op::kCopyH2D, "", 640);
    for (int i = 0; i < 6; ++i) {
      Call(abi::Op::kLaunch, "attention_scores", 0, static_cast<uint32_t>(length));
      Call(abi::Op::kLaunch, "feed_forward", 0, 256);
    }
    Call(abi::Op::kLaunch, "cross_entropy", 0, 8);
    for (int i = 0; i < 6; ++i) {
      Call(abi::Op::kLaunch, "feed_forward_backward", 0, 256);
      Call(abi::Op::kLaunch, "attention_backward", 0, static_cast<uint32_t>(length));
    }
    Call(abi::Op::kLaunch, "sgd", 0, 64);
    Call(abi::Op::kCopyD2H, "", 4);
    Call(abi::Op::kStreamSync, "", 0);
    gpu_ns_ = begin_gpu_ns + 50'000 * length;
    truth.push_back({length, gpu_ns_ - begin_gpu_ns, 1e6 * static_cast<double>(length)});
    if (measured_ != 0) Report({measured_, measured_number_, truth.size() - 1, gpu_ns_});
    job_->OnRead(id_, true);
    job_->Advance();
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }

  void SayBatches(abi::BatchesCode code, const std::string& sentence) {
    const bool known = code != abi::kBatchUnknown;
    Send(abi::EventType::kFeature,
         abi::FeatureEvent{.feature = static_cast<uint16_t>(abi::Feature::kBatches),
                           .state = static_cast<uint16_t>(known ? abi::FeatureState::kReady
                                                                : abi::FeatureState::kIgnored),
                           .code = code,
                           .length = static_cast<uint32_t>(sentence.size())},
         sentence);
  }
  void SayLateEvaluation(const std::string& sentence) {
    Send(abi::EventType::kFeature,
         abi::FeatureEvent{.feature = static_cast<uint16_t>(abi::Feature::kEvaluation),
                           .state = static_cast<uint16_t>(abi::FeatureState::kFailed),
                           .length = static_cast<uint32_t>(sentence.size())},
         sentence);
  }
  void SayRank(int32_t rank, int32_t world_size) {
    Send(abi::EventType::kRank, abi::RankEvent{.rank = rank, .world_size = world_size});
  }

  // What the daemon does between records.
  void PassTime(int64_t duration_ns) {
    job_->CheckRules(static_cast<int64_t>(api_ns_));
    api_ns_ += static_cast<uint64_t>(duration_ns);
    job_->CheckRules(static_cast<int64_t>(api_ns_));
    job_->OnRead(id_, true);
    job_->Advance();
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }

  // Leaves CUPTI to another profiler (`end_ns` 0) and takes it again; the loop runs on unseen.
  void StandDown(uint64_t begin_ns, uint64_t end_ns) {
    const std::string holder = "torch.profiler";
    Send(abi::EventType::kStandDown,
         abi::StandDownEvent{.begin_ns = begin_ns,
                             .end_ns = end_ns,
                             .iteration = matcher_.iteration(),
                             .length = static_cast<uint32_t>(holder.size())},
         holder);
  }
  uint64_t api_ns() const { return api_ns_; }
  void TellCost(uint64_t learn_ns, uint64_t mark_ns) {
    Send(abi::EventType::kCost,
         abi::CostEvent{.calls = {0, 100, 200, 0}, .spent_ns = {0, learn_ns, mark_ns, 0}});
  }

  uint32_t stop_ns = 0;        // what one measurement costs
  size_t late_results = 0;     // iterations that a result takes
  bool deaf = false;           // nothing that it sends arrives
  int kernel_names = 0;        // different ones that a trace shows; 0: one
  bool whole_graphs = false;   // of a trace: CUPTI records graph launches, not their kernels
  bool loses_kernels = false;  // of each measurement one event
  bool no_numbers = false;     // values are NaN or infinite
  double range_extra_ns = 0;   // what ranges last longer than iterations; 0: they have no time
  static constexpr double kCyclesPerNs = 200;
  std::map<std::pair<int64_t, uint16_t>, int> kernel_measurements;  // by length, configuration
  std::vector<Truth> truth;
  std::vector<uint64_t> measured_iterations;

 private:
  // Forward and backward of a batch.
  void Pass(int64_t length) {
    Call(abi::Op::kCopyH2D, "", length * kBatch * 4);
    Call(abi::Op::kLaunch, "embedding", 0, static_cast<uint32_t>(length));
    for (int64_t i = 0; i < length; ++i) Call(abi::Op::kLaunch, "lstm_forward", 0, 64);
    Call(abi::Op::kLaunch, "loss", 0, 1);
    Call(abi::Op::kLaunch, "loss_backward", 0, 1);
    for (int64_t i = 0; i < length; ++i) Call(abi::Op::kLaunch, "lstm_backward", 0, 64);
    Call(abi::Op::kLaunch, "embedding_backward", 0, static_cast<uint32_t>(length));
  }

  void Obey(const abi::Control& control) {
    level_ = static_cast<abi::Level>(control.level);
    if (control.rule.generation != matcher_.rule().generation) {
      matcher_.SetRule(control.rule, matcher_.iteration(), /*inside=*/true);
    }
    Send(abi::EventType::kRule, abi::RuleEvent{.api_ns = api_ns_,
                                               .call_sequence = sequence_,
                                               .next_iteration = matcher_.iteration(),
                                               .rule_generation = control.rule.generation,
                                               .level = control.level});
    plan_.assign(control.plan, control.plan + control.plan_count);
    cap_ = control.measurement_cap;
  }

  template <typename T>
  void Send(abi::EventType type, const T& event, const std::string& tail = "") {
    std::vector<uint8_t> bytes(sizeof(event) + tail.size());
    std::memcpy(bytes.data(), &event, sizeof(event));
    std::memcpy(bytes.data() + sizeof(event), tail.data(), tail.size());
    if (!deaf) job_->OnEvent(id_, type, bytes);
  }

  uint32_t NameId(const std::string& name) {
    if (name.empty()) return 0;
    const auto [it, added] = names_.try_emplace(name, static_cast<uint32_t>(names_.size()) + 1);
    if (added) {
      Send(abi::EventType::kName,
           abi::NameEvent{.name_id = it->second,
                          .length = static_cast<uint32_t>(name.size()),
                          .name_hash = abi::NameHash(name.data(), name.size())},
           name);
    }
    return it->second;
  }

  void Call(abi::Op op, const std::string& name, int64_t bytes, uint32_t grid = 0) {
    api_ns_ += 3000;
    gpu_ns_ += 1;
    const abi::CallRecord call{.type = static_cast<uint16_t>(abi::DataType::kCall),
                               .op = static_cast<uint8_t>(op),
                               .flags = flags_,
                               .name_id = NameId(name),
                               .sequence = sequence_++,
                               .api_ns = api_ns_,
                               .grid_x = grid,
                               .grid_y = 1,
                               .grid_z = 1,
                               .stream = op == abi::Op::kCopyH2D ? copy_stream_ : 0,
                               .bytes = static_cast<uint64_t>(bytes),
                               .correlation_id = ++correlation_};
    if (level_ == abi::Level::kLearn) {
      abi::DataRecord record;
      record.call = call;
      if (!deaf) job_->OnData(id_, {&record, 1});
    }
    if (op == abi::Op::kCopyH2D || op == abi::Op::kCopyD2H) {
      abi::DataRecord record = {};
      record.copy = {.type = static_cast<uint16_t>(abi::DataType::kCopy),
                     .start_ns = static_cast<uint64_t>(gpu_ns_),
                     .end_ns = static_cast<uint64_t>(gpu_ns_) + 1,
                     .correlation_id = correlation_};
      if (!deaf) job_->OnData(id_, {&record, 1});
    }
    Match(call, name);
  }

  void Match(const abi::CallRecord& call, const std::string& name) {
    if (matcher_.rule().generation == 0) return;
    const abi::MatchEvent event{.op = call.op,
                                .grid_x = call.grid_x,
                                .grid_y = call.grid_y,
                                .grid_z = call.grid_z,
                                .name_hash = abi::NameHash(name.data(), name.size()),
                                .bytes = call.bytes};
    const uint32_t flags = matcher_.OnEvent(event);
    const abi::MatchResult& r = matcher_.result();
    if (flags & abi::kMatchedMicroLengths) {
      Send(abi::EventType::kMicroBatch,
           abi::MicroBatchEvent{.iteration = r.micro_iteration,
                                .length = {r.micro_length[0], r.micro_length[1]},
                                .valid = r.micro_valid,
                                .index = r.micro_index});
    }
    if (flags & abi::kMatchedStep) {
      Send(abi::EventType::kStep, abi::StepEvent{.iteration = r.step_iteration,
                                                 .api_ns = call.api_ns,
                                                 .length = {r.step_length[0], r.step_length[1]},
                                                 .valid = r.step_valid,
                                                 .micro_batches = r.step_micro_batches});
    }
    if (flags & abi::kMatchedBoundary) {
      Send(abi::EventType::kBoundary, abi::BoundaryEvent{.iteration = r.iteration,
                                                         .api_ns = call.api_ns,
                                                         .call_sequence = call.sequence,
                                                         .correlation_id = call.correlation_id});
    }
    if (flags & abi::kMatchedDecision) {
      for (abi::PlanEntry& entry : plan_) {
        if (measured_ != 0 || entry.quota == 0 || started_ >= cap_) continue;
        if (r.length[0] < entry.low[0] || r.length[0] > entry.high[0]) continue;
        --entry.quota;
        ++started_;
        measured_ = entry.config_id;
        measured_number_ = r.iteration;
        measured_length_[0] = r.length[0];
        measured_length_[1] = r.length[1];
      }
      Send(abi::EventType::kDecision, abi::DecisionEvent{.iteration = r.iteration,
                                                         .api_ns = call.api_ns,
                                                         .length = {r.length[0], r.length[1]},
                                                         .valid = r.valid,
                                                         .config_id = measured_});
    }
    if (flags & abi::kMatchedClock) {
      Send(abi::EventType::kClock, abi::ClockEvent{.iteration = r.iteration,
                                                   .api_ns = call.api_ns,
                                                   .correlation_id = call.correlation_id});
    }
  }

  struct Result {
    uint16_t config_id;
    uint64_t number;
    size_t index;  // in truth
    int64_t end_ns;
    int64_t length[2] = {0, 0};
  };
  // Single kernels: twice as much of everything for "gemm" as for "copy", more in longer
  // iterations.
  void ReportKernels(const Result& result) {
    const counters::Roofline roofline = counters::MakeRoofline("GH100");
    const auto config =
        std::find_if(roofline.configs.begin(), roofline.configs.end(),
                     [&](const auto& one) { return one.config_id == result.config_id; });
    ASSERT_NE(config, roofline.configs.end());
    const auto count = static_cast<uint16_t>(config->metrics.size());
    for (const uint32_t factor : {2, 1}) {
      if (factor == 1 && loses_kernels) continue;
      std::string values;
      for (const counters::Metric& metric : config->metrics) {
        const double value = no_numbers ? std::numeric_limits<double>::quiet_NaN()
                                        : KernelValue(metric.name) * factor *
                                              static_cast<double>(truth[result.index].length);
        values.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
      Send(abi::EventType::kKernelCounters,
           abi::KernelCountersEvent{.iteration = result.number,
                                    .length = {result.length[0], result.length[1]},
                                    .config_id = result.config_id,
                                    .count = count,
                                    .name_id = NameId(factor == 2 ? "gemm" : "copy"),
                                    .launches = 3 * factor,
                                    .kernels = 2},
           values);
    }
    Send(abi::EventType::kCounters,
         abi::CountersEvent{.iteration = result.number,
                            .length = {result.length[0], result.length[1]},
                            .config_id = result.config_id,
                            .count = count,
                            .stopped_ns = stop_ns},
         std::string(count * sizeof(double), '\0'));
  }
  static double KernelValue(const std::string& metric) {
    if (metric == "gpu__time_duration.sum") return 100;
    if (metric == "sm__cycles_elapsed.sum") return 1e4;
    if (metric == "dram__bytes_read.sum") return 6e4;
    if (metric == "dram__bytes_write.sum") return 2e4;
    if (metric == "dram__bytes.sum.peak_sustained_elapsed") return 1e5;
    if (metric == "sm__sass_thread_inst_executed_op_ffma_pred_on.sum") return 1e5;
    return 0;
  }

  void Report(const Result& result) {
    measured_iterations.push_back(result.index);
    const uint64_t end_ns = static_cast<uint64_t>(result.end_ns);
    if (MetricChoice::OfKernels(result.config_id)) {
      ++kernel_measurements[{result.length[0], result.config_id}];
      ReportKernels(result);
      return;
    }
    if (result.config_id == abi::kConfigTrace) {
      for (int k = 0; k < std::max(kernel_names, 1); ++k) {
        abi::DataRecord record = {};
        record.kernel = {.type = static_cast<uint16_t>(abi::DataType::kKernel),
                         .name_id = NameId(kernel_names == 0 ? "lstm_forward" : absl::StrCat(k)),
                         .start_ns = end_ns - 1000,
                         .end_ns = end_ns - 900};
        if (whole_graphs) {
          record = {};
          record.graph = {.type = static_cast<uint16_t>(abi::DataType::kGraph),
                          .start_ns = end_ns - 1000,
                          .end_ns = end_ns - 900};
        }
        if (!deaf) job_->OnData(id_, {&record, 1});
      }
      Send(abi::EventType::kWindow,
           abi::WindowEvent{.begin_ns = end_ns - 2000,
                            .end_ns = end_ns,
                            .iteration = result.number,
                            .stopped_ns = stop_ns,
                            .level = static_cast<uint8_t>(abi::Level::kTrace)});
      return;
    }
    std::string values;
    for (int i = 0; i < 7; ++i) {
      double value =
          no_numbers ? std::numeric_limits<double>::infinity() : truth[result.index].flops;
      if (range_extra_ns > 0 && (i == 0 || i == 6)) {  // the time, elapsed cycles
        value = (static_cast<double>(truth[result.index].time_ns) + range_extra_ns) *
                (i == 0 ? 1 : kCyclesPerNs);
      }
      values.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    Send(abi::EventType::kCounters,
         abi::CountersEvent{.iteration = result.number,
                            .config_id = result.config_id,
                            .count = 7,
                            .stopped_ns = stop_ns},
         values);
    Send(abi::EventType::kWindow,
         abi::WindowEvent{.begin_ns = end_ns - 2000,
                          .end_ns = end_ns,
                          .iteration = result.number,
                          .stopped_ns = stop_ns,
                          .level = static_cast<uint8_t>(abi::Level::kMark)});
  }

  std::deque<Result> late_;
  std::mt19937 random_;
  std::set<int64_t> passed_;
  std::vector<int64_t> new_lengths_;
  Job* job_ = nullptr;
  int64_t id_ = 0;
  abi::Level level_ = abi::Level::kLearn;
  abi::Matcher matcher_;
  std::vector<abi::PlanEntry> plan_;
  std::map<std::string, uint32_t> names_;
  uint64_t sequence_ = 0;
  uint64_t api_ns_ = 1'000'000;
  uint64_t done_ns_ = 0;  // all that IterateAhead launched
  int64_t gpu_ns_ = 2'000'000;
  uint32_t correlation_ = 0;
  uint64_t copy_stream_ = 0;
  uint8_t flags_ = 0;  // of the calls to come
  uint32_t started_ = 0, cap_ = 0;
  uint16_t measured_ = 0;
  uint64_t measured_number_ = 0;
  int64_t measured_length_[2] = {0, 0};
};

JobRow Row() {
  return {.job_id = 1, .name = "test", .run_id = "1", .state = v1::JOB_STATE_LEARNING};
}
ProcessRow TrainingProcess() {
  return {.process_id = 7, .job_id = 1, .ring_id = std::string(16, 'r'), .text = "rank=0\n"};
}

// Makes them two processes of the job, with a ring each.
void ConnectTwo(Job& job, FakeProcess& first, FakeProcess& second) {
  ProcessRow second_row = TrainingProcess();
  second_row.process_id = 8;
  second_row.incarnation = 1;
  job.AddProcess(TrainingProcess());
  job.AddProcess(second_row);
  first.Connect(job, 7);
  second.Connect(job, 8);
}

// As the daemon asks.
template <typename Request>
auto SnapshotFor(Job& job, const Request& request) {
  return job.TakeSnapshot(request.has_horizon() ? &request.horizon() : nullptr);
}
absl::StatusOr<v1::GetRooflineReply> GetRoofline(Job& job,
                                                 const v1::GetRooflineRequest& request = {}) {
  return queries::GetRoofline((*job.TakeSnapshot())->data(), request);
}
int64_t LengthOf(Job& job, const IterationRow& row) {
  return (*job.TakeSnapshot())->data().units.Of(row.length, 1)[0];
}
absl::StatusOr<v1::ProjectReply> Project(Job& job, const v1::ProjectRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::Project(**snapshot, request);
}
absl::StatusOr<v1::GetKernelsReply> GetKernels(Job& job, const v1::GetKernelsRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::GetKernels(**snapshot, request);
}
absl::StatusOr<v1::GetCountersReply> GetCounters(Job& job, const v1::GetCountersRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::GetCounters(**snapshot, request);
}
absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(Job& job) {
  return queries::GetSeqPoints(**job.TakeSnapshot());
}

// What FakeProcess draws from, each length as often.
v1::Horizon AllLengths(int64_t count) {
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
  for (int length = 10; length <= 40; ++length) {
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(length);
    entry.set_count(count);
  }
  return horizon;
}

v1::ProjectRequest AskTime() {
  v1::ProjectRequest request;
  request.set_confidence(0.95);
  return request;
}

// What the store would hold after every transaction so far.
class FakeStore {
 public:
  void Take(Job& job) {
    WriteBatch batch;
    job.TakeRows(batch);
    for (StateRow& row : batch.states) {
      if (row.bytes.empty()) {
        states_.erase(row.part);
      } else {
        states_[row.part] = std::move(row);
      }
    }
    for (NameRow& row : batch.names) names_.push_back(std::move(row));
    for (TraceSegmentRow& row : batch.trace_segments) {
      traces_[{row.process_id, row.number}] += row.records;
    }
    for (const IterationRow& row : batch.iterations) {
      EXPECT_TRUE(iterations.emplace(row.number + kRankStride * row.rank, row).second)
          << "twice: " << row.number;
    }
    for (const MeasurementRow& row : batch.measurements) ++measurements[row.number];
  }
  std::unique_ptr<Job> Restart(const std::vector<ProcessRow>& processes = {TrainingProcess()},
                               const JobOptions& options = {}) {
    std::vector<StateRow> states;
    for (const auto& [part, row] : states_) states.push_back(row);
    auto job = std::make_unique<Job>(Row(), options);
    std::vector<Job::StoredProcess> stored;
    for (const ProcessRow& row : processes) {
      stored.push_back({row, {}});
      for (const NameRow& name : names_) {
        if (name.process_id == row.process_id) stored.back().names.push_back(name);
      }
    }
    EXPECT_TRUE(job->Restore(states, stored).ok());
    for (const ProcessRow& row : processes) {
      const int64_t id = row.process_id;
      if (const auto number = job->LearnLog(id)) job->RestoreLearnLog(id, traces_[{id, *number}]);
      for (const int64_t number : job->OpenTraces(id)) job->RestoreTrace(id, traces_[{id, number}]);
      job->RepublishControl(id);
    }
    return job;
  }
  bool HasPart(const std::string& part) const { return states_.count(part) > 0; }
  static constexpr int64_t kRankStride = 1'000'000'000;
  std::map<int64_t, IterationRow> iterations;  // by number, ranks one after the other
  std::map<int64_t, int> measurements;

 private:
  std::map<std::string, StateRow> states_;
  std::vector<NameRow> names_;
  std::map<std::pair<int64_t, int64_t>, std::string> traces_;
};

TEST(Job, FindsEveryIterationWithItsLengthAndTime) {
  Job job(Row(), {});
  FakeProcess process(1);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) {
    process.Iterate();
    store.Take(job);
  }
  EXPECT_EQ(job.Describe(true).state(), v1::JOB_STATE_MARKING);
  job.OnProcessEnd(7, true, 1);
  store.Take(job);
  EXPECT_EQ(job.Describe(true).state(), v1::JOB_STATE_ENDED);
  ASSERT_EQ(store.iterations.size(), process.truth.size())
      << job.Describe(true).rule().DebugString();
  for (const auto& [number, row] : store.iterations) {
    const auto& truth = process.truth[static_cast<size_t>(number)];
    ASSERT_EQ(row.length_count, 1) << number;
    EXPECT_EQ(LengthOf(job, row), truth.length) << number;
    if (number + 1 < static_cast<int64_t>(process.truth.size())) {
      EXPECT_NEAR(static_cast<double>(row.duration_ns), static_cast<double>(truth.time_ns), 10)
          << number;
    }
  }
}

TEST(Job, ARunningJobSaysWhenItWillEnd) {
  for (const abi::ClockKind clock : {abi::ClockKind::kReal, abi::ClockKind::kForeign}) {
    Job job(Row(), {});
    FakeProcess process(3);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    job.OnLosses(7, {.clock_kind = static_cast<uint32_t>(clock)});
    for (int i = 0; i < 500; ++i) process.Iterate();
    // How long the run is is not known.
    EXPECT_FALSE(job.Describe(true).has_expected_end());
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(1000);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    const v1::Job running = job.Describe(true);
    for (int i = 500; i < 1000; ++i) process.Iterate();
    const auto truth = static_cast<int64_t>(process.api_ns());
    // A software GPU's clock is not the one on the wall.
    ASSERT_EQ(running.has_expected_end(), clock == abi::ClockKind::kReal);
    process.Iterate();  // the one before ends where it begins
    EXPECT_FALSE(job.Describe(true).has_expected_end());
    if (clock != abi::ClockKind::kReal) continue;
    const v1::ExpectedEnd& end = running.expected_end();
    EXPECT_LE(end.low_ns(), truth);
    EXPECT_GE(end.high_ns(), truth);
    EXPECT_LT(end.high_ns() - end.low_ns(), (truth - end.last_iteration_ns()) / 2);
  }
}

TEST(Job, MeasuresWithinItsCapAndProjectsCountersOfTheWholeRun) {
  Job job(Row(), {});
  FakeProcess process(2);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  double early = 0;
  for (int i = 0; i < 1000; ++i) {
    process.Iterate();
    if (i == 250) early = Project(job, AskTime())->projection().total().value();
  }
  double time_ns = 0, flops = 0;
  for (const auto& truth : process.truth) {
    time_ns += static_cast<double>(truth.time_ns);
    flops += truth.flops;
  }
  EXPECT_NEAR(early / time_ns, 1, 0.05);
  EXPECT_NEAR(Project(job, AskTime())->projection().total().value() / time_ns, 1, 0.005);
  EXPECT_LE(process.measured_iterations.size(), 64u);
  EXPECT_GE(process.measured_iterations.size(), 16u);

  v1::GetCountersRequest request;
  request.set_confidence(0.999);
  const auto counters = GetCounters(job, request);
  ASSERT_TRUE(counters.ok());
  const v1::Estimate& total = counters->counters(1).projection().total();
  EXPECT_NEAR(total.value() / flops, 1, 0.02);
  const auto kernels = GetKernels(job, {});
  ASSERT_TRUE(kernels.ok());
  EXPECT_EQ(kernels->kernels(0).name(), "lstm_forward");
}

TEST(Job, RatesAreOverTheTimeOfIterationsAndNotOfRanges) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.range_extra_ns = 20'000;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  double time_ns = 0, amount = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t length = process.DrawLength();
    process.Iterate(length, process.TimeOf(length) / 10);  // 120 to 420 us
    time_ns += static_cast<double>(process.truth.back().time_ns);
    amount += process.truth.back().flops;
  }
  const auto counters = GetCounters(job, {});
  ASSERT_TRUE(counters.ok());
  std::map<std::string, double> ratios;
  for (const v1::Counter& counter : counters->counters()) {
    if (counter.ratio()) ratios[counter.metric()] = counter.per_iteration().value();
  }
  EXPECT_NEAR(ratios["device memory read"] / (amount / time_ns), 1, 0.01);
  EXPECT_NEAR(
      ratios["multiprocessors active"] / (100 * amount / (time_ns * FakeProcess::kCyclesPerNs)), 1,
      0.01);
  EXPECT_NEAR(ratios["instructions per active cycle"], 1, 0.01);
  EXPECT_THAT(counters->sentence(), testing::HasSubstr("over the usual time of iterations"));
}

// Which kernels ran in them nobody knows; that iterations were traced, and how long they took, is.
TEST(Job, GraphsThatWereRecordedAsAWholeAreTracedAsSuch) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.whole_graphs = true;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 1000; ++i) process.Iterate();
  const auto kernels = GetKernels(job, {});
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  ASSERT_EQ(kernels->kernels_size(), 1);
  EXPECT_EQ(kernels->kernels(0).name(), "(CUDA graphs, recorded as a whole)");
  EXPECT_GT(kernels->measured_iterations(), 0);
  EXPECT_NEAR(kernels->kernels(0).launches(), 1000, 1);
  // Slow iterations that times do not show may add a little.
  EXPECT_NEAR(kernels->kernels(0).duration_ns().value(), 1000 * 100, 300);
}

TEST(Job, ARestartAtAnyMomentLosesAndDoublesNothing) {
  for (const int restart_every : {3, 17, 61}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeProcess process(3);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    store.Take(*job);
    for (int i = 0; i < 200; ++i) {
      process.Iterate();
      store.Take(*job);
      if (i % restart_every == restart_every - 1) {
        job = store.Restart();
        process.Connect(*job, 7);
      }
    }
    job->OnProcessEnd(7, true, 1);
    store.Take(*job);
    ASSERT_EQ(store.iterations.size(), process.truth.size()) << restart_every;
    for (const auto& [number, row] : store.iterations) {
      EXPECT_EQ(LengthOf(*job, row), process.truth[static_cast<size_t>(number)].length);
    }
    EXPECT_EQ(job->Describe(true).iterations(), 200);
    EXPECT_LE(process.measured_iterations.size(), 64u);
  }
}

TEST(Job, ARestartedJobAnswersAsItDidBefore) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(12);
  process.kernel_names = 200;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  const auto answers = [&] {
    v1::GetKernelsRequest kernels;
    kernels.set_limit(2);
    // The summary in Describe may be a little old before a restart.
    v1::Job described = job->Describe(false);
    return absl::StrCat(described.rule().DebugString(), described.losses().DebugString(),
                        Project(*job, AskTime())->DebugString(),
                        GetKernels(*job, kernels)->DebugString(),
                        GetCounters(*job, {})->DebugString(), GetSeqPoints(*job)->DebugString());
  };
  for (int i = 0; i < 2500; ++i) {
    process.Iterate();
    if (i % 3 == 0) store.Take(*job);
    if (i % 400 != 399) continue;
    store.Take(*job);
    const std::string before = answers();
    store.Take(*job);  // the questions may have made the plan anew
    job = store.Restart();
    process.Connect(*job, 7);
    job->OnRead(7, /*complete=*/false);  // it came back
    ASSERT_EQ(answers(), before) << i;
  }
  EXPECT_TRUE(store.HasPart("engine"));  // the log was folded into it
}

TEST(Job, SnapshotsAreOfTheMomentOfTheQuestionAndSharedUntilItChanges) {
  Job job(Row(), {});
  FakeProcess process(13);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto snapshot = *job.TakeSnapshot();
  EXPECT_EQ(*job.TakeSnapshot(), snapshot);
  const std::string before = queries::Project(*snapshot, AskTime())->DebugString();
  for (int i = 0; i < 200; ++i) process.Iterate();
  EXPECT_EQ(queries::Project(*snapshot, AskTime())->DebugString(), before);
  EXPECT_NE(*job.TakeSnapshot(), snapshot);
  EXPECT_EQ(queries::Project(**job.TakeSnapshot(), AskTime())->projection().iterations_so_far(),
            job.Describe(false).iterations());
}

TEST(Job, ASummaryThatIsMadeElsewhereIsDescribedOnceItIsThere) {
  Job job(Row(), {});
  FakeProcess process(14);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto so_far = [&] { return job.Describe(false).time().iterations_so_far(); };
  const int64_t first = so_far();
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.Describe(false);  // measurements make the summary void
  for (int i = 0; i < 100; ++i) process.Iterate();
  const auto due = job.TakeDueSummary();
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(job.TakeDueSummary(), nullptr);  // under way
  job.SetSummary(due->Summarise());
  EXPECT_GE(so_far(), first + 200);
  EXPECT_EQ(job.TakeDueSummary(), nullptr);

  // One that was begun before the horizon changed is not taken.
  for (int i = 0; i < 100; ++i) process.Iterate();
  const auto late = job.TakeDueSummary();
  ASSERT_NE(late, nullptr);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(1000);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  job.SetSummary(late->Summarise());
  EXPECT_EQ(job.Describe(false).time().iterations_total(), 1000);
}

TEST(Job, WhatIsStoredOfAnEndedJobIsItsEndAlsoWhenASummaryIsUnderWay) {
  Job job(Row(), {});
  FakeProcess process(14);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 2000; ++i) process.Iterate();  // all is measured: that makes summaries void
  job.Describe(false);
  for (int i = 0; i < 20; ++i) process.Iterate();
  const auto due = job.TakeDueSummary();
  ASSERT_NE(due, nullptr);
  for (int i = 0; i < 20; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 2'000'000'000'000'000'000);
  WriteBatch batch;
  job.TakeRows(batch);
  v1::Job stored;
  for (const StateRow& state : batch.states) {
    if (state.part != kSummaryPart) continue;
    ASSERT_TRUE(stored.ParseFromString(state.bytes));
  }
  ASSERT_GT(stored.iterations(), 0);
  EXPECT_EQ(stored.time().iterations_so_far(), stored.iterations());
  // The one that was under way is of before.
  job.SetSummary(due->Summarise());
  EXPECT_EQ(job.Describe(false).time().DebugString(), stored.time().DebugString());
  // The job as it is read from the store says the same.
  Job restored(batch.jobs.back(), {});
  std::vector<Job::StoredProcess> processes;
  for (const ProcessRow& row : batch.processes) {
    if (row.end_ns != 0) processes.push_back({.row = row, .names = {}});
  }
  ASSERT_TRUE(restored.Restore(batch.states, processes).ok());
  EXPECT_EQ(restored.Describe(false).time().DebugString(), stored.time().DebugString());
}

TEST(Job, ResultsThatComeAfterTheirIterationCountAllTheSame) {
  Job job(Row(), {});
  FakeProcess process(2);
  process.late_results = 3;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 600; ++i) process.Iterate();
  const v1::Job described = job.Describe(false);
  EXPECT_GE(process.measured_iterations.size(), 20u);
  EXPECT_EQ(described.seqpoints().measurements() +
                static_cast<int>(described.losses().refused_measurements()),
            static_cast<int>(process.measured_iterations.size()));
}

TEST(Job, MeasuresNoMoreThanTheOverheadBudgetPaysFor) {
  Job job(Row(), {});
  FakeProcess process(8);
  process.stop_ns = 10'000'000;
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 1000; ++i) process.Iterate();
  // 1,000 iterations of 2.7 ms: 1 % pays for two stops of 10 ms, and two are taken without a price.
  EXPECT_GE(process.measured_iterations.size(), 1u);
  EXPECT_LE(process.measured_iterations.size(), 4u);
  v1::Job described = job.Describe(false);
  EXPECT_NE(described.overhead().sentence().find("measurements wait"), std::string::npos);

  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_SET_OVERHEAD_BUDGET);
  request.set_overhead_budget_share(0.5);
  ASSERT_TRUE(job.Control(request).ok());
  for (int i = 0; i < 500; ++i) process.Iterate();
  EXPECT_GT(process.measured_iterations.size(), 20u);
  EXPECT_EQ(job.Describe(false).overhead().sentence(), "");
}

TEST(Job, ALoopThatChangesIsLearnedAnew) {
  for (const bool restart : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeProcess process(6);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(800);
    ASSERT_TRUE(job->SetHorizon(horizon).ok());
    FakeStore store;
    for (int i = 0; i < 200; ++i) process.Iterate();
    // Nothing that the rule knows comes any more.
    for (int i = 0; i < 20; ++i) process.IterateOther();
    EXPECT_EQ(job->Describe(true).state(), v1::JOB_STATE_MARKING);
    process.truth.resize(200);  // these are lost
    process.PassTime(7200'000'000'000);
    EXPECT_EQ(job->Describe(true).state(), v1::JOB_STATE_LEARNING);
    EXPECT_FALSE(job->Describe(true).trouble().empty());
    store.Take(*job);
    for (int i = 0; i < 400; ++i) {
      process.IterateOther();
      store.Take(*job);
      if (restart && i % 50 == 49) {
        job = store.Restart();
        process.Connect(*job, 7);
      }
    }
    job->OnProcessEnd(7, true, 1);
    store.Take(*job);
    const v1::Job described = job->Describe(true);
    EXPECT_NE(described.rule().sentence().find("learned anew"), std::string::npos);
    EXPECT_EQ(described.iterations(), 600) << described.DebugString();
    double time_ns = 0;
    for (const auto& truth : process.truth) time_ns += static_cast<double>(truth.time_ns);
    const auto reply = Project(*job, AskTime());
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->projection().iterations_total(), 800);
    EXPECT_NEAR(reply->projection().so_far().value() / time_ns, 1, 0.01);
    EXPECT_TRUE(GetCounters(*job, {}).ok());
  }
}

TEST(Job, AStateThatCannotBeReadStaysAsItIs) {
  Job job(Row(), {});
  const std::vector<StateRow> states = {
      {.job_id = 1, .part = "job", .version = kJobStateVersion + 1, .bytes = "of another version"}};
  EXPECT_FALSE(job.Restore(states, {{TrainingProcess(), {}}}).ok());
  EXPECT_NE(job.refused().find("version"), std::string::npos);
  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_PAUSE);
  EXPECT_FALSE(job.Control(request).ok());
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(5);
  EXPECT_FALSE(job.SetHorizon(horizon).ok());
  job.EndUnused(1);
  WriteBatch batch;
  job.TakeRows(batch);
  EXPECT_TRUE(batch.Empty());
  EXPECT_EQ(job.Describe(true).trouble(), job.refused());
  job.EndRefused(5);
  job.TakeRows(batch);
  ASSERT_EQ(batch.jobs.size(), 1u);
  EXPECT_EQ(batch.jobs[0].end_ns, 5);
  EXPECT_TRUE(batch.states.empty());
}

TEST(Job, UserLengthsOfTheDataSetGiveTheWholeRun) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon = AllLengths(40);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 40 * 31);
  EXPECT_EQ(reply->projection().horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  // 200,000 + 100,000 x 25 on average
  EXPECT_NEAR(reply->projection().total().value(), 40 * 31 * 2.7e6, 0.01 * 40 * 31 * 2.7e6);
}

TEST(Job, FirstOccurrencesAreThoseOfMicroBatches) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(6);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  ASSERT_TRUE(job->SetHorizon(horizon).ok());
  FakeStore store;
  store.Take(*job);
  for (int i = 0; i < 600; ++i) {
    process.Accumulate();
    store.Take(*job);
    if (i % 37 != 36) continue;
    job = store.Restart();
    process.Connect(*job, 7);
  }
  const v1::Projection projection = Project(*job, AskTime())->projection();
  job->OnProcessEnd(7, true, 1);
  store.Take(*job);
  ASSERT_EQ(store.iterations.size(), 600u) << job->Describe(true).rule().DebugString();
  for (const auto& [number, row] : store.iterations) {
    const auto n = static_cast<size_t>(number);
    EXPECT_EQ((row.flags & kIterationFirst) != 0, process.new_lengths()[n] > 0) << number;
  }
  EXPECT_THAT(projection.basis(), testing::HasSubstr("the first iteration of a length costs"));
}

TEST(Job, LengthsGiveNoTotalWhileItIsNotKnownHowManyBatchesAnIterationTakes) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
  const std::string why = "two optimisers take turns";
  process.SayBatches(abi::kBatchUnknown, why);
  for (int i = 0; i < 200; ++i) process.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().iterations_total(), 0);
  EXPECT_EQ(job.Describe(true).horizon().iterations(), 0);
  EXPECT_THAT(job.Describe(true).rule().sentence(), testing::HasSubstr(why));
  v1::ProjectRequest another = AskTime();
  *another.mutable_horizon() = AllLengths(20);
  EXPECT_THAT(std::string(Project(job, another).status().message()), testing::HasSubstr(why));
  another.mutable_horizon()->Clear();
  another.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  another.mutable_horizon()->set_iterations(700);
  EXPECT_EQ(Project(job, another)->projection().iterations_total(), 700);

  process.SayBatches(abi::kBatchEach, "each has its own");
  for (int i = 0; i < 2; ++i) process.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().iterations_total(), 40 * 31);
  EXPECT_EQ(job.Describe(true).rule().sentence(), "");
}

TEST(Job, SeveralPassesOverOneBatchTakeOneOfTheUsersBatches) {
  Job job(Row(), {});
  FakeProcess process(6);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
  process.SayBatches(abi::kBatchOne, "all passes have the same lengths");
  for (int i = 0; i < 300; ++i) process.Accumulate(process.DrawLength());
  const v1::Projection projection = Project(job, AskTime())->projection();
  EXPECT_EQ(projection.iterations_total(), 40 * 31);
  EXPECT_EQ(projection.horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  const double truth = 40 * 31 * (8e5 + 4e5 * 25) + 31 * 3e6;
  EXPECT_NEAR(projection.total().value() / truth, 1, 0.01);
  EXPECT_LE(projection.total().low(), truth);
  EXPECT_GE(projection.total().high(), truth);
  EXPECT_EQ(job.Describe(true).rule().sentence(), "");
}

TEST(Job, RanksThatAreToldLaterAreRanks) {
  for (const bool after_calls : {false, true}) {
    Job job(Row(), {});
    ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
    FakeProcess first(5), second(6);
    ConnectTwo(job, first, second);
    for (int i = 0; i < 200; ++i) {
      if (i == (after_calls ? 3 : 0)) {
        second.SayRank(1, 2);
        first.SayRank(0, 2);
      }
      const int64_t a = first.DrawLength(), b = second.DrawLength();
      const int64_t time_ns = first.TimeOf(std::max(a, b));
      first.Iterate(a, time_ns);
      second.Iterate(b, time_ns);
    }
    const v1::Projection projection = Project(job, AskTime())->projection();
    EXPECT_EQ(projection.iterations_total(), 40 * 31 / 2);
    EXPECT_THAT(projection.basis(), testing::HasSubstr("the slowest of 2 ranks"));
    v1::Job described = job.Describe(true);
    ASSERT_EQ(described.processes_size(), 2);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(described.processes(rank).rank(), rank);
      EXPECT_EQ(described.processes(rank).incarnation(), 0);
      EXPECT_EQ(described.processes(rank).world_size(), 2);
    }
    EXPECT_EQ(described.trouble(), "");
    second.SayRank(5, 2);  // no such rank
    EXPECT_EQ(job.Describe(true).processes(1).losses().rejected(), 1);
    job.OnProcessEnd(7, true, 1);
    job.OnProcessEnd(8, true, 1);
    EXPECT_EQ(job.Describe(true).iterations(), 200);
    // The log has the run's steps, as its figures do.
    FakeStore store;
    store.Take(job);
    int64_t steps = 0, time_ns = 0;
    for (const auto& [place, row] : store.iterations) {
      if (row.rank != kStepsRank) continue;
      ++steps;
      time_ns += row.duration_ns;
    }
    EXPECT_EQ(steps, 200);
    const double so_far = Project(job, AskTime())->projection().so_far().value();
    EXPECT_NEAR(static_cast<double>(time_ns) / so_far, 1, 0.02) << "the last one has no end";
  }
}

TEST(Job, LengthsThatAreDistributedOtherwiseAreTold) {
  for (const auto kind : {v1::Horizon::KIND_DISTRIBUTION, v1::Horizon::KIND_HISTOGRAM}) {
    for (const bool skewed : {false, true}) {
      Job job(Row(), {});
      FakeProcess process(4);
      job.AddProcess(TrainingProcess());
      process.Connect(job, 7);
      v1::Horizon horizon;
      horizon.set_kind(kind);
      const bool rows = kind == v1::Horizon::KIND_HISTOGRAM;
      horizon.set_batch(rows ? 0 : 16);
      for (int length = 10; length <= 40; ++length) {
        v1::LengthCount& entry = *horizon.add_histogram();
        entry.add_lengths(length);
        const double x = (length - 9) / 31.0, before = (length - 10) / 31.0;
        // As of batches of twice the size, or of half of it.
        const double share = rows ? std::sqrt(x) - std::sqrt(before) : x * x - before * before;
        entry.set_count(skewed ? std::llround(1000 * share) : 32);
      }
      ASSERT_TRUE(job.SetHorizon(horizon).ok());
      for (int i = 0; i < 420; ++i) process.Iterate();
      const std::string sentence = job.Describe(false).rule().sentence();
      EXPECT_EQ(sentence.find("distributed otherwise") != std::string::npos, skewed) << sentence;
      EXPECT_EQ(sentence.find("--batch missing") != std::string::npos, skewed && rows) << sentence;
      EXPECT_EQ(sentence.find("as of batches of about 8 examples, not 16") != std::string::npos,
                skewed && !rows)
          << sentence;
    }
  }
}

// Ranks of one synchronous training: each has a batch of its own, all wait for the longest.
class Ranks {
 public:
  explicit Ranks(int count) {
    for (int rank = 0; rank < count; ++rank) processes_.emplace_back(10 + rank);
  }

  std::vector<ProcessRow> Rows() const {
    std::vector<ProcessRow> rows;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      ProcessRow row = TrainingProcess();
      row.process_id = first_id + static_cast<int64_t>(rank);
      row.rank = static_cast<int32_t>(rank);
      row.text = absl::StrCat("rank=", rank, "\nworld_size=", processes_.size(), "\n");
      rows.push_back(row);
    }
    return rows;
  }
  void Join(Job& job) {
    for (const ProcessRow& row : Rows()) job.AddProcess(row);
    Connect(job);
  }
  void Connect(Job& job) {
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      processes_[rank].Connect(job, first_id + static_cast<int64_t>(rank));
    }
  }
  void Step(size_t last_rank = 1000) {
    std::vector<int64_t> lengths;
    for (FakeProcess& process : processes_) lengths.push_back(process.DrawLength());
    Step(lengths, last_rank);
  }
  // Of the ranks up to `last_rank`; the others are killed.
  void Step(const std::vector<int64_t>& lengths, size_t last_rank = 1000) {
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    int64_t time_ns = processes_[0].TimeOf(longest);
    bool first = false;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      first |= seen_.emplace(rank, lengths[rank]).second;
    }
    if (first) time_ns += first_ns;
    time_all_ns += static_cast<double>(time_ns);
    for (size_t rank = 0; rank < processes_.size() && rank <= last_rank; ++rank) {
      processes_[rank].Iterate(lengths[rank], time_ns);
      flops += processes_[rank].truth.back().flops;
    }
  }
  void End(Job& job, bool orderly = true) {
    for (const ProcessRow& row : Rows()) job.OnProcessEnd(row.process_id, orderly, 1);
  }

  FakeProcess& process(size_t rank) { return processes_[rank]; }
  int64_t first_id = 20;
  int64_t first_ns = 0;  // a rank's first batch of a length makes all others wait
  double time_all_ns = 0, flops = 0;

 private:
  std::deque<FakeProcess> processes_;
  std::set<std::pair<size_t, int64_t>> seen_;  // rank, length
};

TEST(Job, AStepOfSeveralRanksIsAsLongAsItsSlowestAndCountersAreOfAll) {
  Job job(Row(), {});
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.Join(job);
  for (int i = 0; i < 600; ++i) ranks.Step();
  ranks.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 600);
  EXPECT_EQ(job.Describe(true).rule().verdict(), v1::VERDICT_EXPLAINED);
  EXPECT_GT(job.Describe(true).rule().explained_share(), 0.97);
  const auto time = Project(job, AskTime());
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_NEAR(time->projection().total().value() / ranks.time_all_ns, 1, 0.002);
  EXPECT_THAT(time->projection().basis(), testing::HasSubstr("the slowest of 4 ranks"));

  v1::GetCountersRequest request;
  request.set_confidence(0.999);
  const auto counters = GetCounters(job, request);
  ASSERT_TRUE(counters.ok());
  const v1::Projection& instructions = counters->counters(1).projection();
  EXPECT_NEAR(instructions.total().value() / ranks.flops, 1, 0.02);
  EXPECT_LE(instructions.total().low(), ranks.flops);
  EXPECT_GE(instructions.total().high(), ranks.flops);
  EXPECT_THAT(instructions.basis(), testing::HasSubstr("the sum over 4 ranks"));
  // Each takes a share of what is measured.
  size_t measured = 0;
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_GE(ranks.process(rank).measured_iterations.size(), 8u) << rank;
    measured += ranks.process(rank).measured_iterations.size();
  }
  EXPECT_LE(measured, 64u);
  const auto seqpoints = GetSeqPoints(job);
  ASSERT_TRUE(seqpoints.ok());
  double weight = 0;
  for (const v1::SeqPoint& point : seqpoints->seqpoints()) {
    weight += point.weight();
    // By metric set it is as many.
    int by_set = 0;
    for (const v1::ConfigCount& config : point.configs()) by_set += config.measured();
    EXPECT_EQ(by_set, point.measured());
    ASSERT_EQ(point.configs_size(), 2);
    EXPECT_EQ(point.configs(0).config(), "utilisation");
    EXPECT_EQ(point.configs(1).config(), "trace");
    EXPECT_EQ(point.configs(0).wanted() + point.configs(1).wanted(), point.wanted());
  }
  EXPECT_NEAR(weight, 4 * 600, 1e-6);
}

TEST(Job, OfARankThatJoinsLaterTheBasisSaysWhatIsInNoStep) {
  Job job(Row(), {});
  FakeProcess first(3), second(4);
  job.AddProcess(TrainingProcess());
  first.Connect(job, 7);
  for (int i = 0; i < 300; ++i) first.Iterate();
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.rank = 1;
  row.text = "rank=1\n";
  job.AddProcess(row);
  second.Connect(job, 8);
  for (int i = 0; i < 100; ++i) {
    first.Iterate();
    second.Iterate();
  }
  const auto time = Project(job, AskTime());
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_THAT(time->projection().basis(),
              testing::HasSubstr("iterations came when their steps were over: a step counts "
                                 "without a rank that joins later"));
}

TEST(Job, EveryRankHasFirstOccurrencesOfItsOwn) {
  Job job(Row(), {});
  v1::Horizon horizon = AllLengths(80);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.first_ns = 3'000'000;  // as long as an iteration
  ranks.Join(job);
  v1::Estimate early;
  for (int i = 0; i < 620; ++i) {
    ranks.Step();
    if (i == 80) early = Project(job, AskTime())->projection().total();
  }
  ranks.End(job);
  const v1::Job end = job.Describe(true);
  EXPECT_GT(end.rule().explained_share(), 0.97);
  EXPECT_NEAR(end.time().total().value() / ranks.time_all_ns, 1, 0.002);
  EXPECT_NEAR(early.value() / ranks.time_all_ns, 1, 0.02);
  EXPECT_LE(early.low(), ranks.time_all_ns);
  EXPECT_GE(early.high(), ranks.time_all_ns);
}

TEST(Job, BatchesOfTheUsersAreSharedOutBetweenRanks) {
  Job job(Row(), {});
  v1::Horizon horizon = AllLengths(80);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.Join(job);
  for (int i = 0; i < 150; ++i) ranks.Step();
  auto reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 80 * 31 / 4);
  EXPECT_EQ(reply->projection().horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  // The longest of four: 40 - sum over k of (k / 31)^4.
  double longest = 40;
  for (int k = 1; k <= 30; ++k) longest -= std::pow(k / 31.0, 4);
  const double expected = 620 * (2e5 + 1e5 * longest);
  EXPECT_NEAR(reply->projection().total().value() / expected, 1, 0.01);
  EXPECT_LE(reply->projection().total().low(), expected);
  EXPECT_GE(reply->projection().total().high(), expected);

  // Two of them work on the same batches: twice as many steps.
  horizon.set_data_parallel(2);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 80 * 31 / 2);
}

TEST(Job, RanksThatWereKilledAtDifferentStepsAreInStepAgainWhenResumed) {
  Job job(Row(), {});
  Ranks ranks(3);
  ranks.Join(job);
  for (int i = 0; i < 150; ++i) ranks.Step();
  ranks.Step(/*last_rank=*/0);
  ranks.End(job, /*orderly=*/false);
  EXPECT_EQ(job.Describe(true).iterations(), 151);
  Ranks resumed(3);
  resumed.first_id = 40;
  for (int i = 0; i < 1000; ++i) resumed.process(0).DrawLength();  // another order
  resumed.Join(job);
  for (int i = 0; i < 200; ++i) resumed.Step();
  resumed.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 351);
  EXPECT_GT(job.Describe(true).rule().explained_share(), 0.97);
}

TEST(Job, ARestartedDaemonKnowsWhereEachRankWas) {
  const auto run = [](bool restarts) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeStore store;
    Ranks ranks(3);
    ranks.Join(*job);
    for (int i = 0; i < 300; ++i) {
      // Half a step is under way when the daemon is killed.
      ranks.Step();
      if (i % 7 == 0) ranks.process(0).Iterate();
      if (i % 7 == 3) {
        ranks.process(1).Iterate();
        ranks.process(2).Iterate();
      }
      store.Take(*job);
      if (restarts && i % 25 == 24) {
        job = store.Restart(ranks.Rows());
        ranks.Connect(*job);
      }
    }
    ranks.End(*job);
    store.Take(*job);
    const v1::Job end = job->Describe(false);
    return std::tuple(end.iterations(), end.iterations_duration_ns(), end.unique_lengths());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Job, ARankWithoutIterationsHoldsNobodyUp) {
  Job job(Row(), {});
  Ranks ranks(2);
  ranks.Join(job);
  const int64_t second = 1'000'000'000;
  for (int i = 0; i < 200; ++i) {
    ranks.process(0).Iterate();
    ranks.process(0).PassTime(second / 4);
    ranks.process(1).PassTime(0);
  }
  EXPECT_GT(job.Describe(true).iterations(), 100);
  ranks.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 200);
}

TEST(Job, APlaylistHasTheUsersLengthsAndTheIterationsOfTheRanks) {
  Job job(Row(), {});
  FakeProcess process(4);
  ProcessRow row = TrainingProcess();
  row.rank = 3;
  job.AddProcess(row);
  process.Connect(job, 7);
  for (int i = 0; i < 30; ++i) process.Iterate();
  EXPECT_EQ(queries::MakePlaylist(**job.TakeSnapshot(), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 270; ++i) process.Iterate();
  const auto playlist = queries::MakePlaylist(**job.TakeSnapshot(), {.points = 8});
  ASSERT_TRUE(playlist.ok()) << playlist.status();
  EXPECT_EQ(playlist->ranks, std::vector<int32_t>{3});
  double weight = 0;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) {
    weight += point.weight();
    ASSERT_EQ(point.lengths_size(), 1);
    const int64_t length = point.lengths(0);
    EXPECT_TRUE(std::any_of(process.truth.begin(), process.truth.end(), [&](const auto& truth) {
      return truth.length == length;
    })) << length;
    // 200,000 + 100,000 x length
    EXPECT_NEAR(point.expected_duration_ns() / (2e5 + 1e5 * static_cast<double>(length)), 1, 0.01);
  }
  EXPECT_NEAR(weight, static_cast<double>(job.Describe(false).iterations()), 1e-6);
}

TEST(Job, AQuestionAboutAnotherRunIsAboutAllOfIt) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 400; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  v1::ProjectRequest request = AskTime();
  request.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
  for (int length = 10; length <= 30; ++length) {  // shorter ones, and fewer than have run
    v1::LengthCount& entry = *request.mutable_horizon()->add_histogram();
    entry.add_lengths(length);
    entry.set_count(5);
  }
  const auto reply = Project(job, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->projection().iterations_total(), 105);
  EXPECT_NEAR(reply->projection().total().value(), 105 * 2.2e6, 0.01 * 105 * 2.2e6);
  EXPECT_FALSE(reply->projection().has_so_far());
  request.clear_horizon();
  request.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  request.mutable_horizon()->set_iterations(10'000);
  EXPECT_NEAR(Project(job, request)->projection().total().value(), 10'000 * 2.7e6,
              0.05 * 10'000 * 2.7e6);
}

TEST(Job, AShortRunIsStillCounted) {
  Job job(Row(), {});
  FakeProcess process(5);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 9; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/false, 1);
  const v1::Job described = job.Describe(true);
  EXPECT_EQ(described.state(), v1::JOB_STATE_LOST);
  EXPECT_GE(described.iterations(), 8);
}

TEST(Job, SaysWhyIterationsHaveNoTime) {
  for (const auto wait : {FakeProcess::Wait::kNever, FakeProcess::Wait::kForCopies}) {
    Job ahead(Row(), {}), timed(Row(), {});
    FakeProcess process(5), other(5);
    ahead.AddProcess(TrainingProcess());
    timed.AddProcess(TrainingProcess());
    process.Connect(ahead, 7);
    other.Connect(timed, 7);
    for (int i = 0; i < 100; ++i) {
      process.IterateAhead(wait);
      other.Iterate();
    }
    EXPECT_GE(ahead.Describe(true).iterations(), 90);
    EXPECT_THAT(ahead.Describe(true).rule().sentence(),
                testing::HasSubstr("the time of its iterations is not known: "));
    EXPECT_FALSE(Project(ahead, AskTime())->projection().has_per_1000_iterations());
    EXPECT_EQ(timed.Describe(true).rule().sentence(), "");
  }
}

// The loss is read in each tenth iteration, and a new daemon goes on in the middle.
TEST(Job, WhereTheHostWaitsNowAndThenTheWholeRunHasATime) {
  auto job = std::make_unique<Job>(Row(), JobOptions{.measurement_budget = 8});
  FakeProcess process(5);
  FakeStore store;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  ASSERT_TRUE(job->SetHorizon(AllLengths(32)).ok());
  for (int i = 0; i < 500; ++i) {
    process.IterateAhead(i % 10 == 9 ? FakeProcess::Wait::kForWork : FakeProcess::Wait::kNever);
    store.Take(*job);
    if (i != 333) continue;
    job = store.Restart({TrainingProcess()}, {.measurement_budget = 8});
    process.Connect(*job, 7);
  }
  const auto projected = Project(*job, AskTime());
  ASSERT_TRUE(projected.ok()) << projected.status();
  const v1::Projection& time = projected->projection();
  double truth_ns = 0, mean_ns = 0;
  for (const FakeProcess::Truth& one : process.truth) truth_ns += static_cast<double>(one.time_ns);
  for (int length = 10; length <= 40; ++length) mean_ns += (2e5 + 1e5 * length) / 31;
  const double total_ns = truth_ns + (992 - 500) * mean_ns;
  ASSERT_TRUE(time.has_total());
  EXPECT_LT(time.total().low(), total_ns);
  EXPECT_GT(time.total().high(), total_ns);
  EXPECT_LT(time.total().high(), 1.04 * time.total().low());
  const v1::Job described = job->Describe(true);
  EXPECT_THAT(described.rule().sentence(), testing::HasSubstr("10 at a time"));
  // Those before the first wait, in the stretches of eight measurements and of the restart, and
  // behind the last wait.
  EXPECT_LE(described.losses().untimed_iterations(), 120);
  EXPECT_GE(described.losses().untimed_iterations(), 20);
  for (const auto& [number, row] : store.iterations) EXPECT_EQ(row.duration_ns, 0) << number;
}

TEST(Job, OfTwoTrainingsOfARankTheFirstThatCameIsCounted) {
  Job job(Row(), {});
  FakeProcess first(5), second(6);
  ConnectTwo(job, first, second);
  first.Iterate();
  for (int i = 0; i < 50; ++i) second.Iterate();  // the rule is learned from this one
  for (int i = 0; i < 70; ++i) {
    first.Iterate();
    second.Iterate();
  }
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  for (int i = 0; i < 30; ++i) second.Iterate();
  job.OnProcessEnd(8, /*orderly=*/true, 2);
  EXPECT_EQ(job.Describe(true).iterations(), 71);
  EXPECT_THAT(job.Describe(true).trouble(), testing::HasSubstr("(150) are in the log"));
}

TEST(Job, AHelperThatCameFirstTakesNoIterationFromATraining) {
  Job job(Row(), {});
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.incarnation = 1;
  job.AddProcess(TrainingProcess());
  job.AddProcess(row);
  FakeProcess helper(5), training(6);
  helper.Connect(job, 7);
  training.Connect(job, 8);
  for (int i = 0; i < 100; ++i) training.Iterate();
  job.OnProcessEnd(8, /*orderly=*/true, 1);
  EXPECT_EQ(job.Describe(true).iterations(), 100);
  for (int i = 0; i < 50; ++i) helper.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 2);
  EXPECT_EQ(job.Describe(true).iterations(), 150);
  EXPECT_EQ(job.Describe(true).trouble(), "");
}

TEST(Job, IterationsWhoseRecordsWereLostAreCounted) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  process.deaf = true;  // the ring is full
  for (int i = 0; i < 100; ++i) process.Iterate();
  process.deaf = false;
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(false);
  EXPECT_EQ(described.iterations(), 500);
  EXPECT_GE(described.losses().ring_lost(), 99);
  EXPECT_GE(described.losses().untimed_iterations(), 99);
  double truth = 0;
  for (const auto& iteration : process.truth) truth += static_cast<double>(iteration.time_ns);
  const v1::Projection time = Project(job, AskTime())->projection();
  EXPECT_LE(time.so_far().low(), truth);
  EXPECT_GE(time.so_far().high(), truth);
}

TEST(Job, TheLastIterationHasNoEndAndIsNoLoss) {
  for (const bool over : {false, true}) {
    Job job(Row(), {});
    FakeProcess process(8);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 300; ++i) process.Iterate();
    if (over) job.OnProcessEnd(7, /*orderly=*/true, 1);
    EXPECT_EQ(job.Describe(false).losses().untimed_iterations(), 0);
  }
}

TEST(Job, WhatAnIncarnationLeftUndoneIsNotMissingOnceAnotherWentOn) {
  constexpr char kMissing[] = "what began behind them has no end";
  Job job(Row(), {});
  FakeProcess killed(8), resumed(9);
  job.AddProcess(TrainingProcess());
  killed.Connect(job, 7);
  for (int i = 0; i < 300; ++i) killed.Iterate();
  killed.Begin();
  job.OnProcessEnd(7, /*orderly=*/false, 1);
  EXPECT_THAT(Project(job, AskTime())->projection().basis(), testing::HasSubstr(kMissing));
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.incarnation = 1;
  job.AddProcess(row);
  resumed.Connect(job, 8);
  for (int i = 0; i < 200; ++i) resumed.Iterate();
  EXPECT_EQ(Project(job, AskTime())->projection().basis().find(kMissing), std::string::npos);
  // Behind the last iteration of a run that had all of them there is at most an evaluation.
  resumed.Begin();
  job.OnProcessEnd(8, /*orderly=*/true, 2);
  EXPECT_THAT(Project(job, AskTime())->projection().basis(), testing::HasSubstr(kMissing));
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(job.Describe(false).iterations());
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  EXPECT_TRUE(Project(job, AskTime())->projection().has_total());
  EXPECT_EQ(Project(job, AskTime())->projection().basis().find(kMissing), std::string::npos);
}

TEST(Job, IterationsThatWereLostBetweenOthersAreAmongThoseThatAreCounted) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  for (const int after : {100, 0}) {
    process.deaf = true;
    for (int i = 0; i < 100; ++i) process.Iterate();
    process.deaf = false;
    for (int i = 0; i < after; ++i) process.Iterate();
  }
  job.OnLosses(7, {.dropped = 40, .events_dropped = 40});
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(false);
  ASSERT_EQ(described.losses().uncounted_processes(), 1);
  EXPECT_THAT(described.trouble(), testing::HasSubstr(absl::StrCat(
                                       "after the ", described.iterations(), " iterations")));
}

TEST(Job, OfARunThatHasEndedNothingIsSaidUntilThen) {
  Job job(Row(), {});
  FakeProcess process(8);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  for (const int length : {1'000, 1'001, 5'003}) {
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(length);
    entry.set_count(100);
  }
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  for (int i = 0; i < 300; ++i) process.Iterate();
  EXPECT_THAT(job.Describe(false).rule().sentence(),
              testing::HasSubstr("until then only the number of iterations is used"));
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  job.Advance();
  EXPECT_THAT(job.Describe(false).rule().sentence(),
              testing::AllOf(testing::HasSubstr("; only the number of iterations is used"),
                             testing::Not(testing::HasSubstr("until then"))));
}

TEST(Job, ARunThatEndedWhileNoDaemonReadItIsALowerBoundEverywhere) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  process.kernel_names = 3;
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) {
    process.Iterate();
    store.Take(*job);
  }
  // The daemon is killed; the run goes on, and ends before the next one is there.
  job = store.Restart();
  EXPECT_THAT(job->Describe(false).trouble(), testing::HasSubstr("has not come back"));
  job->OnProcessEnd(7, /*orderly=*/false, 1);
  const auto check = [](Job& job) {
    const v1::Job described = job.Describe(true);
    EXPECT_THAT(described.trouble(), testing::HasSubstr("ended while no daemon read it"));
    EXPECT_THAT(described.trouble(), testing::HasSubstr("lower bounds"));
    EXPECT_EQ(described.losses().uncounted_processes(), 1);
    EXPECT_TRUE(std::isinf(described.time().so_far().high()));
    EXPECT_FALSE(described.time().has_total());
    const auto time = Project(job, AskTime());
    ASSERT_TRUE(time.ok());
    EXPECT_TRUE(std::isinf(time->projection().so_far().high()));
    EXPECT_THAT(time->projection().basis(), testing::HasSubstr("lower bounds"));
    EXPECT_EQ(time->losses().uncounted_processes(), 1);
    const auto snapshot = *job.TakeSnapshot();
    v1::GetCountersRequest counters_request;
    counters_request.set_confidence(0.95);
    const auto counters = queries::GetCounters(*snapshot, counters_request);
    ASSERT_TRUE(counters.ok()) << counters.status();
    EXPECT_EQ(counters->losses().uncounted_processes(), 1);
    for (const v1::Counter& counter : counters->counters()) {
      if (!counter.has_projection()) continue;
      EXPECT_TRUE(std::isinf(counter.projection().so_far().high())) << counter.metric();
    }
    v1::GetKernelsRequest kernels_request;
    kernels_request.set_confidence(0.95);
    const auto kernels = queries::GetKernels(*snapshot, kernels_request);
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    for (const v1::Kernel& kernel : kernels->kernels()) {
      EXPECT_TRUE(std::isinf(kernel.duration_ns().high())) << kernel.name();
    }
    const auto playlist = queries::MakePlaylist(*snapshot, {.points = 8});
    ASSERT_TRUE(playlist.ok()) << playlist.status();
    EXPECT_THAT(playlist->reply.sentence(), testing::HasSubstr("lower bounds"));
  };
  check(*job);
  store.Take(*job);
  ProcessRow ended = TrainingProcess();
  ended.end_ns = 1;
  ended.lost = true;
  check(*store.Restart({ended}));
}

TEST(Job, CallsThatWereDroppedWhileIterationsAreCountedByThemMakeALowerBound) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 6; ++i) process.Iterate();
  // Two that nobody saw: their numbers would be the library's, which does not count yet.
  process.deaf = true;
  for (int i = 0; i < 2; ++i) process.Iterate();
  process.deaf = false;
  job->OnCallsMissing(7, 24);
  job->OnLosses(7, {.dropped = 24});
  for (int i = 0; i < 300; ++i) process.Iterate();
  EXPECT_EQ(job->Describe(false).state(), v1::JOB_STATE_MARKING);
  store.Take(*job);
  job->OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job->Describe(true);
  EXPECT_THAT(described.trouble(), testing::HasSubstr("lost 24 calls while its iterations were"));
  EXPECT_THAT(described.trouble(), testing::HasSubstr("lower bounds"));
  EXPECT_EQ(described.losses().uncounted_processes(), 1);
  EXPECT_TRUE(std::isinf(described.time().so_far().high()));
  EXPECT_EQ(store.Restart()->Describe(false).losses().uncounted_processes(), 1);
}

TEST(Job, TheTimeOfCallsThatWereDroppedIsInNoIteration) {
  for (const bool restarted : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    v1::Horizon horizon;
    horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
    horizon.set_iterations(346);
    ASSERT_TRUE(job->SetHorizon(horizon).ok());
    FakeProcess process(8);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    for (int i = 0; i < 6; ++i) process.Iterate();
    process.deaf = true;  // from the begin of iteration 6 on
    for (int i = 0; i < 40; ++i) process.Iterate();
    process.deaf = false;
    job->OnCallsMissing(7, 2000);
    job->OnLosses(7, {.dropped = 2000});
    if (restarted) {
      store.Take(*job);
      job = store.Restart();
      process.Connect(*job, 7);
    }
    for (int i = 0; i < 300; ++i) process.Iterate();
    job->OnProcessEnd(7, /*orderly=*/true, 1);
    store.Take(*job);
    double truth = 0;
    for (const auto& iteration : process.truth) truth += static_cast<double>(iteration.time_ns);
    const v1::Projection time = Project(*job, AskTime())->projection();
    EXPECT_LE(time.total().low(), truth);
    EXPECT_GE(time.total().high(), truth);
    EXPECT_NEAR(time.per_1000_iterations().value() / truth, 1000. / 346, 0.1);
    EXPECT_TRUE(std::isinf(time.so_far().high()));
    EXPECT_EQ(time.remaining().low(), 0) << "what is missing may have run";
    EXPECT_EQ(store.iterations[5].flags & kIterationDistorted, kIterationDistorted);
    EXPECT_EQ((*job->TakeSnapshot())->data().counted_to, 5);
    ProcessRow ended = TrainingProcess();
    ended.end_ns = 1;
    EXPECT_EQ((*store.Restart({ended})->TakeSnapshot())->data().counted_to, 5);
  }
}

TEST(Job, WhereEvaluationMayBeAmongTheIterationsNothingIsSaidOfAWholeRun) {
  const std::string why = "some of its iterations may be evaluation";
  for (const bool unread : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    ASSERT_TRUE(job->SetHorizon(AllLengths(20)).ok());
    FakeProcess process(8);
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    job->OnLosses(7, {.clock_kind = static_cast<uint32_t>(abi::ClockKind::kReal)});
    for (int i = 0; i < 300; ++i) process.Iterate();
    EXPECT_TRUE(job->Describe(true).has_expected_end());
    process.SayLateEvaluation(why);
    for (int i = 0; i < 10; ++i) process.Iterate();
    EXPECT_FALSE(job->Describe(true).has_expected_end());
    FakeStore store;
    store.Take(*job);
    if (unread) job = store.Restart();
    const v1::Projection time = Project(*job, AskTime())->projection();
    EXPECT_FALSE(time.has_total());
    EXPECT_FALSE(time.has_remaining());
    EXPECT_FALSE(time.has_per_1000_iterations());
    EXPECT_EQ(time.has_so_far(), !unread) << "neither end is known";
    EXPECT_EQ(time.so_far().low(), 0);
    EXPECT_THAT(time.basis(), testing::HasSubstr(why));
    EXPECT_FALSE(job->Describe(true).time().has_total());
    v1::ProjectRequest another = AskTime();
    *another.mutable_horizon() = AllLengths(30);
    EXPECT_FALSE(Project(*job, another)->projection().has_total());
    const auto counters = GetCounters(*job, {});
    ASSERT_TRUE(counters.ok()) << counters.status();
    ASSERT_GT(counters->counters_size(), 0);
    for (const v1::Counter& counter : counters->counters()) {
      EXPECT_FALSE(counter.has_per_iteration()) << counter.metric();
      EXPECT_FALSE(counter.projection().has_total()) << counter.metric();
    }
    const auto kernels = GetKernels(*job, {});
    EXPECT_EQ(kernels.ok(), !unread);
    if (!unread) {
      EXPECT_EQ(kernels->kernels(0).duration_ns().low(), 0);
    }
    const auto snapshot = *job->TakeSnapshot();
    EXPECT_THAT(std::string(queries::ProjectChange(*snapshot, {}, 0.95, 0).status().message()),
                testing::HasSubstr(why));
    EXPECT_EQ(snapshot->data().counted_to, 0);
  }
}

TEST(Job, WhatWasReadBeforeTheEndThatNobodyReadIsCounted) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 400; ++i) process.Iterate();
  store.Take(*job);
  EXPECT_GT((*job->TakeSnapshot())->data().counted_to, 1 << 30);
  job = store.Restart();
  job->OnProcessEnd(7, /*orderly=*/false, 1);
  EXPECT_EQ((*job->TakeSnapshot())->data().counted_to, 400);
}

TEST(Job, WhereTheLibraryCountsOnlyTheLastEventsCanHideIterations) {
  for (const bool goes_on : {true, false}) {
    Job job(Row(), {});
    FakeProcess process(8);
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 300; ++i) process.Iterate();
    process.deaf = true;
    for (int i = 0; i < 10; ++i) process.Iterate();
    process.deaf = false;
    job.OnCallsMissing(7, 100);
    job.OnLosses(7, {.dropped = 40, .events_dropped = 40});
    EXPECT_EQ(job.Describe(false).losses().uncounted_processes(), 0) << "it may go on";
    for (int i = 0; goes_on && i < 5; ++i) process.Iterate();
    job.OnProcessEnd(7, /*orderly=*/true, 1);
    const v1::Job described = job.Describe(false);
    EXPECT_EQ(described.losses().uncounted_processes(), goes_on ? 0 : 1);
    EXPECT_EQ(std::isinf(described.time().so_far().high()), !goes_on);
    EXPECT_THAT(described.trouble(),
                testing::HasSubstr(goes_on ? "were dropped" : "lost its last records"));
  }
}

TEST(Job, AProcessThatCameBackIsReadOn) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeProcess process(8);
  job->AddProcess(TrainingProcess());
  process.Connect(*job, 7);
  FakeStore store;
  for (int i = 0; i < 300; ++i) process.Iterate();
  store.Take(*job);
  job = store.Restart();
  EXPECT_EQ(job->Describe(false).losses().uncounted_processes(), 1);
  process.Connect(*job, 7);
  for (int i = 0; i < 10; ++i) process.Iterate();
  job->OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job->Describe(false);
  EXPECT_EQ(described.losses().uncounted_processes(), 0);
  EXPECT_EQ(described.trouble(), "");
  EXPECT_TRUE(std::isfinite(described.time().so_far().high()));
}

TEST(Job, CuptiThatIsLeftToAnotherToolIsAStateOfItsOwn) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  v1::ControlRequest request;
  request.set_action(v1::ControlRequest::ACTION_RELEASE_CUPTI);
  ASSERT_TRUE(job.Control(request).ok());
  EXPECT_EQ(job.Describe(false).state(), v1::JOB_STATE_RELEASED);
  request.set_action(v1::ControlRequest::ACTION_RESUME);
  ASSERT_TRUE(job.Control(request).ok());
  EXPECT_EQ(job.Describe(false).state(), v1::JOB_STATE_LEARNING);
}

TEST(Job, WatchingComesOffTheOverheadBudgetAndIsShown) {
  const auto measured = [](uint64_t watching_ns) {
    Job job(Row(), {});
    FakeProcess process(8);
    process.stop_ns = 500'000;
    job.AddProcess(TrainingProcess());
    process.Connect(job, 7);
    for (int i = 0; i < 600; ++i) {
      process.TellCost(watching_ns / 2, watching_ns / 2);
      process.Iterate();
    }
    const v1::Overhead overhead = job.Describe(false).overhead();
    EXPECT_LE(overhead.spent_share(), 0.0105);
    if (watching_ns > 0) {
      EXPECT_GE(overhead.spent_size(), 2);
      EXPECT_EQ(overhead.spent(0).what(), "watching at learn");
      EXPECT_EQ(overhead.spent(0).count(), 100);
      EXPECT_TRUE(overhead.spent(0).estimated());
    }
    return process.measured_iterations.size();
  };
  const size_t all = measured(0);
  const size_t some = measured(uint64_t{1} << 40);  // more than the budget
  EXPECT_GT(some, all / 3);
  EXPECT_LT(some, all * 3 / 4);
}

TEST(Job, SaysForWhomCuptiWasLeftToTheEnd) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  process.StandDown(process.api_ns(), 0);
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  EXPECT_THAT(job.Describe(true).trouble(),
              testing::AllOf(testing::HasSubstr("torch.profiler"),
                             testing::HasSubstr("until the process ended")));
}

TEST(Job, SaysHowLongCuptiWasLeftToAnotherProfiler) {
  Job job(Row(), {});
  FakeProcess process(7);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 300; ++i) process.Iterate();
  const uint64_t begin_ns = process.api_ns();
  process.StandDown(begin_ns, 0);
  EXPECT_EQ(job.Describe(true).processes(0).stands_down_for(), "torch.profiler");
  EXPECT_NE(job.Describe(false).trouble().find("torch.profiler"), std::string::npos);
  const int64_t stood_down_ns = 2'000'000'000;
  process.PassTime(stood_down_ns);
  process.StandDown(begin_ns, begin_ns + stood_down_ns);
  for (int i = 0; i < 100; ++i) process.Iterate();
  job.OnProcessEnd(7, /*orderly=*/true, 1);
  const v1::Job described = job.Describe(true);
  EXPECT_EQ(described.iterations(), 400);
  EXPECT_EQ(described.processes(0).stands_down_for(), "");
  EXPECT_EQ(described.processes(0).stood_down_duration_ns(), stood_down_ns);
  EXPECT_EQ(described.trouble(), "");
  EXPECT_NE(described.rule().sentence().find("left to torch.profiler for 2 s around iteration"),
            std::string::npos)
      << described.rule().sentence();
  EXPECT_NE(described.rule().sentence().find("were not seen"), std::string::npos);
}

TEST(Job, BadRequestsNameTheValueAndWhatThereIs) {
  Job job(Row(), {});
  EXPECT_EQ(Project(job, AskTime()).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  horizon.add_histogram()->add_lengths(-3);
  const absl::Status status = job.SetHorizon(horizon);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("-3"), std::string::npos);
}

// In whatever order the batches come.
TEST(Job, EpochsOfANumberOfIterationsHaveAsManyEach) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  for (const auto& [epochs, each] :
       {std::pair(3, 200), std::pair(7, 0), std::pair(1, 600), std::pair(0, 0)}) {
    horizon.set_epochs(epochs);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    const auto snapshot = job.TakeSnapshot();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ((*snapshot)->data().epoch_iterations, each) << epochs;
  }
}

// Which lengths an epoch has is not known of shuffled batches; how many it has is.
TEST(Job, EpochsOfShuffledBatchesHaveAsManyEach) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
  horizon.set_epochs(3);
  v1::LengthCount& entry = *horizon.add_histogram();
  entry.add_lengths(20);
  // The histogram is of all epochs; of more iterations than were said nothing tells the epoch.
  for (const auto& [batches, each] : {std::pair(600, 200), std::pair(601, 0), std::pair(150, 0)}) {
    entry.set_count(batches);
    ASSERT_TRUE(job.SetHorizon(horizon).ok());
    EXPECT_EQ(job.Describe(false).horizon().iterations(), batches);
    const auto snapshot = job.TakeSnapshot();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    EXPECT_EQ((*snapshot)->data().epoch_iterations, each) << batches;
  }
}

TEST(Job, LengthsAndCountsThatOverflowAreRefused) {
  Job job(Row(), {});
  FakeProcess process(4);
  job.AddProcess(TrainingProcess());
  process.Connect(job, 7);
  for (int i = 0; i < 200; ++i) process.Iterate();
  const auto ask = [&](int64_t length, int64_t count, int64_t epochs) {
    v1::ProjectRequest request = AskTime();
    request.mutable_horizon()->set_kind(v1::Horizon::KIND_HISTOGRAM);
    request.mutable_horizon()->set_epochs(epochs);
    for (const int64_t value : {int64_t{20}, length}) {
      v1::LengthCount& entry = *request.mutable_horizon()->add_histogram();
      entry.add_lengths(value);
      entry.set_count(count);
    }
    const absl::Status asked = Project(job, request).status();
    EXPECT_EQ(job.SetHorizon(request.horizon()).ok(),
              asked.code() != absl::StatusCode::kInvalidArgument);
    return std::string(asked.message());
  };
  EXPECT_THAT(ask(INT64_MAX, 1, 1), testing::HasSubstr("9223372036854775807 is more than"));
  EXPECT_THAT(ask(30, INT64_MAX, 1), testing::HasSubstr("check the counts"));
  EXPECT_THAT(ask(30, 1 << 20, INT64_MAX), testing::HasSubstr("check the counts"));
  // A length that is none in the feature's units: bytes of a copy, 128 of each.
  EXPECT_NE(ask(kMaxLength, 1, 1), "");
}

TEST(Job, MoreKernelsThanFitAreOneEntryAndNoTimeIsLost) {
  for (const bool restart : {false, true}) {
    auto job = std::make_unique<Job>(Row(), JobOptions{.measurement_budget = 2});
    FakeProcess process(2);
    process.kernel_names = 5000;
    job->AddProcess(TrainingProcess());
    process.Connect(*job, 7);
    FakeStore store;
    for (int i = 0; i < 100; ++i) process.Iterate();
    if (restart) {
      store.Take(*job);
      job = store.Restart();
    }
    const auto kernels = GetKernels(*job, {});
    ASSERT_TRUE(kernels.ok()) << kernels.status();
    EXPECT_EQ(kernels->kernels_size(), 256 + 1);
    EXPECT_EQ(kernels->kernel_names(), 5000);
    const v1::Kernel& others = kernels->kernels(256);
    EXPECT_EQ(others.name(), "(others)");
    // Every kernel takes the same.
    EXPECT_NEAR(others.share(), (5000.0 - 256) / 5000, 1e-6);
    v1::GetKernelsRequest few;
    few.set_limit(3);
    const auto three = GetKernels(*job, few);
    ASSERT_TRUE(three.ok()) << three.status();
    ASSERT_EQ(three->kernels_size(), 3);
    EXPECT_NEAR(three->kernels(0).share(), 1.0 / 5000, 1e-6);
  }
}

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
      job.Describe(true).trouble(),
      "a configuration of the metric set \"own\" (sm__cycles_active.sum) cannot be collected: "
      "two passes");
  tell("GH100");  // another GPU of the same job has other names
  EXPECT_EQ(wanted(), "");
  EXPECT_THAT(job.Describe(true).trouble(), testing::HasSubstr("runs on GH100"));
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
  const absl::StatusOr<MetricChoice> again = MetricChoice::Restore(choice.Save());
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

TEST(Job, HostilePayloadsAreRejectedAndCounted) {
  Job job(Row(), {});
  job.AddProcess(TrainingProcess());
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> payload(random() % 128);
    for (uint8_t& byte : payload) byte = static_cast<uint8_t>(random());
    job.OnEvent(7, static_cast<abi::EventType>(random() % 20), payload);
    abi::DataRecord record;
    for (uint8_t& byte : record.bytes) byte = static_cast<uint8_t>(random());
    record.type = static_cast<uint16_t>(random() % 12);
    job.OnData(7, {&record, 1});
    if (i % 100 == 0) job.Advance();
  }
  job.OnProcessEnd(7, false, 1);
  EXPECT_GT(job.Describe(true).losses().rejected(), 0);
}

TEST(Job, WhatAHostileProcessCountsNeverTurnsNegative) {
  Job job({.job_id = 1, .name = "x", .run_id = "1"}, {});
  for (const int64_t id : {7, 8, 9}) {
    job.AddProcess({.process_id = id, .job_id = 1, .rank = static_cast<int32_t>(id)});
    job.OnLosses(id, {.dropped = UINT64_MAX,
                      .lost = UINT64_MAX,
                      .rejected = UINT64_MAX,
                      .cupti_dropped = UINT64_MAX,
                      .invalid_timestamps = UINT64_MAX});
    for (int i = 0; i < 3; ++i) {
      const abi::WindowEvent window = {.stopped_ns = UINT64_MAX - 1};
      job.OnEvent(id, abi::EventType::kWindow,
                  {reinterpret_cast<const uint8_t*>(&window), sizeof window});
    }
  }
  const v1::Job described = job.Describe(true);
  const v1::Losses& losses = described.losses();
  for (const int64_t count :
       {losses.ring_dropped(), losses.ring_lost(), losses.rejected(), losses.cupti_dropped(),
        losses.invalid_timestamps(), described.overhead().stopped_duration_ns()}) {
    EXPECT_EQ(count, int64_t{1} << 62);
  }
}

}  // namespace
}  // namespace seqpoint::jobs
