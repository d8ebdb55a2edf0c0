// Tests of Job share this: a training process as the daemon sees it (FakeProcess), what the store
// would hold (FakeStore), and questions as the daemon asks them.
#ifndef TESTS_SUPPORT_JOB_FIXTURE_H_
#define TESTS_SUPPORT_JOB_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/queries/counters.h"
#include "daemon/queries/kernels.h"
#include "daemon/queries/project.h"
#include "daemon/queries/roofline.h"
#include "daemon/queries/seqpoints.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/matcher.h"
#include "injection/abi/ring.h"
#include "tests/iterations/synthetic_stream.h"

namespace seqpoint::jobs {

inline constexpr int64_t kBatch = 32;

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

  // The parameters are copied, and nothing else; takes this long.
  void SetUp(int64_t time_ns) {
    const auto begin_gpu_ns = gpu_ns_;
    for (int i = 0; i < 50; ++i) Call(abi::Op::kCopyH2D, "", 1 << 20);
    gpu_ns_ = begin_gpu_ns + time_ns;
    BeRead();
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
    if (next_reduction) Reduce();
    Optimise();
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
    BeRead();
  }

  // The same with four micro-batchs; `batch`: all work on it. The first pass of a length takes 3 ms
  // more.
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
    Optimise();
    const double noise = std::lognormal_distribution<double>(0, 0.003)(random_);
    gpu_ns_ = begin_gpu_ns + static_cast<int64_t>(noise * (8e5 + 1e5 * static_cast<double>(sum))) +
              3'000'000 * new_lengths;
    truth.push_back({sum, gpu_ns_ - begin_gpu_ns, 1e6 * static_cast<double>(sum)});
    new_lengths_.push_back(new_lengths);
    EndIteration();
  }
  // Iteration `index` of a made-up stream, all of whose calls take the same time.
  void Iterate(const iterations::SyntheticStream& stream, size_t index) {
    const uint32_t begin = index == 0 ? 0 : stream.iterations[index - 1].end;
    const int64_t begin_gpu_ns = gpu_ns_;
    measured_ = 0;
    for (uint32_t i = begin; i < stream.iterations[index].end; ++i) {
      const abi::CallRecord& call = stream.calls[i];
      Call(call, stream.names[call.name_id]);
    }
    truth.push_back({stream.iterations[index].length[0], gpu_ns_ - begin_gpu_ns, 0});
    EndIteration();
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
    EndIteration();
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
    EndIteration();
  }

  void SayBatches(abi::BatchesCode code, const std::string& message) {
    const bool known = code != abi::kBatchUnknown;
    SayFeature(abi::Feature::kBatches,
               known ? abi::FeatureState::kReady : abi::FeatureState::kIgnored, message, code);
  }
  void SayLateEvaluation(const std::string& message) {
    SayFeature(abi::Feature::kEvaluation, abi::FeatureState::kFailed, message);
  }
  void SayRank(int32_t rank, int32_t world_size) {
    Send(abi::EventType::kRank, abi::RankEvent{.rank = rank, .world_size = world_size});
  }

  void SayCommunicator(int32_t rank, int32_t ranks) {
    next_reduction = 0;
    Send(abi::EventType::kCommunicator,
         abi::CommunicatorEvent{.communicator = 1, .rank = rank, .ranks = ranks, .hash = 0xABC});
    const std::string text = "AllReduce\nncclFloat32\nRing\nSimple";
    Send(abi::EventType::kCollectiveKind,
         abi::CollectiveKindEvent{
             .kind = 1, .peer = -1, .length = static_cast<uint32_t>(text.size())},
         text);
  }

  // What the daemon does between records.
  void PassTime(int64_t duration_ns) {
    job_->CheckRules(static_cast<int64_t>(api_ns_));
    api_ns_ += static_cast<uint64_t>(duration_ns);
    job_->CheckRules(static_cast<int64_t>(api_ns_));
    BeRead();
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
  bool labels = false;         // a batch is two copies
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
  // Iterate() sums gradients up over the ranks of SayCommunicator(); this is the number of the next
  // such collective.
  std::optional<uint32_t> next_reduction;
  bool timed = false;    // with the GPU's times of the collectives
  int64_t waits_ns = 0;  // in each of them, for other ranks

 private:
  // The library records it from the start on, and says 0 of the iteration until it has a rule.
  void Reduce() {
    abi::DataRecord record = {};
    record.arrivals = {.type = static_cast<uint16_t>(abi::DataType::kArrivals),
                       .communicator = 1,
                       .count = 1,
                       .base_ns = api_ns_,
                       .iteration = level_ >= abi::Level::kMark ? matcher_.iteration() : 0};
    record.arrivals.sequence[0] = *next_reduction;
    record.arrivals.kind[0] = 1;
    record.arrivals.timed = timed ? 1 : 0;
    if (!deaf) job_->OnCollectives(id_, record);
    if (timed && !deaf) {
      const auto start_ns = static_cast<uint64_t>(gpu_ns_);
      const uint64_t iteration = record.arrivals.iteration;
      record = {};
      record.collective = {.type = static_cast<uint16_t>(abi::DataType::kCollective),
                           .communicator = 1,
                           .kind = 1,
                           .iteration = iteration,
                           .gpu_start_ns = start_ns,
                           .gpu_end_ns = start_ns + 10'000 + static_cast<uint64_t>(waits_ns),
                           .sequence = *next_reduction};
      job_->OnCollectives(id_, record);
    }
    ++*next_reduction;
  }
  void SayFeature(abi::Feature feature, abi::FeatureState state, const std::string& message,
                  abi::BatchesCode code = {}) {
    Send(abi::EventType::kFeature,
         abi::FeatureEvent{.feature = static_cast<uint16_t>(feature),
                           .state = static_cast<uint16_t>(state),
                           .code = code,
                           .length = static_cast<uint32_t>(message.size())},
         message);
  }
  void EndIteration() {
    if (measured_ != 0) Report({measured_, measured_number_, truth.size() - 1, gpu_ns_});
    BeRead();
  }
  // The daemon reads the ring, and its orders arrive.
  void BeRead() {
    job_->OnRead(id_, true);
    job_->Advance();
    for (const Job::WantedLog& wanted : job_->WantedLogs()) {  // nothing is stored
      const auto size = static_cast<size_t>(wanted.end - wanted.begin);
      job_->SetLog(wanted.process_id, wanted.begin, std::vector<KnownLengths>(size));
    }
    if (const abi::Control* control = job_->TakeControl(id_)) Obey(*control);
  }

  // Forward and backward of a batch.
  void Pass(int64_t length) {
    Call(abi::Op::kCopyH2D, "", length * kBatch * 4);
    if (labels) Call(abi::Op::kCopyH2D, "", kBatch * 4);
    Call(abi::Op::kLaunch, "embedding", 0, static_cast<uint32_t>(length));
    for (int64_t i = 0; i < length; ++i) Call(abi::Op::kLaunch, "lstm_forward", 0, 64);
    Call(abi::Op::kLaunch, "loss", 0, 1);
    Call(abi::Op::kLaunch, "loss_backward", 0, 1);
    for (int64_t i = 0; i < length; ++i) Call(abi::Op::kLaunch, "lstm_backward", 0, 64);
    Call(abi::Op::kLaunch, "embedding_backward", 0, static_cast<uint32_t>(length));
  }

  void Optimise() {
    Call(abi::Op::kLaunch, "adam", 0, 512);
    Call(abi::Op::kCopyD2H, "", 4);
    Call(abi::Op::kStreamSync, "", 0);
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
    Call({.op = static_cast<uint8_t>(op),
          .flags = flags_,
          .grid_x = grid,
          .grid_y = 1,
          .grid_z = 1,
          .stream = op == abi::Op::kCopyH2D ? copy_stream_ : 0,
          .bytes = static_cast<uint64_t>(bytes)},
         name);
  }
  // It gets its time and its numbers.
  void Call(abi::CallRecord call, const std::string& name) {
    api_ns_ += 3000;
    gpu_ns_ += 1;
    call.type = static_cast<uint16_t>(abi::DataType::kCall);
    call.name_id = NameId(name);
    call.sequence = sequence_++;
    call.api_ns = api_ns_;
    call.correlation_id = ++correlation_;
    const auto op = static_cast<abi::Op>(call.op);
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
    if (flags & abi::kMatchedMicroLengths) Send(abi::EventType::kMicroBatch, r.micro_batch);
    if (flags & abi::kMatchedStep) {
      abi::StepEvent step = r.step;
      step.api_ns = call.api_ns;
      Send(abi::EventType::kStep, step);
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

  void SendWindow(const Result& result, abi::Level level) {
    const auto end_ns = static_cast<uint64_t>(result.end_ns);
    Send(abi::EventType::kWindow, abi::WindowEvent{.begin_ns = end_ns - 2000,
                                                   .end_ns = end_ns,
                                                   .iteration = result.number,
                                                   .stopped_ns = stop_ns,
                                                   .level = static_cast<uint8_t>(level)});
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
      SendWindow(result, abi::Level::kTrace);
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
    SendWindow(result, abi::Level::kMark);
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

inline JobRow Row() {
  return {.job_id = 1, .name = "test", .run_id = "1", .state = v1::JOB_STATE_LEARNING};
}
inline ProcessRow TrainingProcess() {
  return {.process_id = 7, .job_id = 1, .ring_id = std::string(16, 'r'), .text = "rank=0\n"};
}

// Makes them two processes of the job, with a ring each.
inline void ConnectTwo(Job& job, FakeProcess& first, FakeProcess& second) {
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
inline absl::StatusOr<v1::GetRooflineReply> GetRoofline(
    Job& job, const v1::GetRooflineRequest& request = {}) {
  return queries::GetRoofline((*job.TakeSnapshot())->data(), request);
}
inline int64_t LengthOf(Job& job, const IterationRow& row) {
  return (*job.TakeSnapshot())->data().units.Of(row.length, 1)[0];
}
inline absl::StatusOr<v1::ProjectReply> Project(Job& job, const v1::ProjectRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::Project(**snapshot, request);
}
inline absl::StatusOr<v1::GetKernelsReply> GetKernels(Job& job,
                                                      const v1::GetKernelsRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::GetKernels(**snapshot, request);
}
inline absl::StatusOr<v1::GetCountersReply> GetCounters(Job& job,
                                                        const v1::GetCountersRequest& request) {
  const auto snapshot = SnapshotFor(job, request);
  if (!snapshot.ok()) return snapshot.status();
  return queries::GetCounters(**snapshot, request);
}
inline absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints(Job& job) {
  return queries::GetSeqPoints(**job.TakeSnapshot());
}

// What FakeProcess draws from, each length as often.
inline v1::Horizon AllLengths(int64_t count) {
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_DISTRIBUTION);
  for (int length = 10; length <= 40; ++length) {
    v1::LengthCount& entry = *horizon.add_histogram();
    entry.add_lengths(length);
    entry.set_count(count);
  }
  return horizon;
}

inline v1::ProjectRequest AskTime() {
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
    auto job = std::make_unique<Job>(Row(), options);
    EXPECT_TRUE(Restore(*job, processes).ok());
    return job;
  }
  absl::Status Restore(Job& job,
                       const std::vector<ProcessRow>& processes = {TrainingProcess()}) const {
    std::vector<StateRow> states;
    for (const auto& [part, row] : states_) states.push_back(row);
    std::vector<Job::StoredProcess> stored;
    for (const ProcessRow& row : processes) {
      stored.push_back({row, {}});
      for (const NameRow& name : names_) {
        if (name.process_id == row.process_id) stored.back().names.push_back(name);
      }
    }
    if (absl::Status status = job.Restore(states, stored); !status.ok()) return status;
    for (const ProcessRow& row : processes) {
      const int64_t id = row.process_id;
      for (const int64_t number : job.WantedSegments(id)) {
        const auto segment = traces_.find({id, number});
        job.RestoreSegment(id, number, segment == traces_.end() ? "" : segment->second);
      }
      job.RepublishControl(id);
    }
    return absl::OkStatus();
  }
  // The parts of the stored state, to be damaged.
  std::map<std::string, StateRow>& states() { return states_; }
  bool HasPart(const std::string& part) const { return states_.count(part) > 0; }
  static constexpr int64_t kRankStride = 1'000'000'000;
  std::map<int64_t, IterationRow> iterations;  // by number, ranks one after the other
  std::map<int64_t, int> measurements;

 private:
  std::map<std::string, StateRow> states_;
  std::vector<NameRow> names_;
  std::map<std::pair<int64_t, int64_t>, std::string> traces_;
};

}  // namespace seqpoint::jobs

#endif  // TESTS_SUPPORT_JOB_FIXTURE_H_
