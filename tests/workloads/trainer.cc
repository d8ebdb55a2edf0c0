#include "tests/workloads/trainer.h"

#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/workloads/batching.h"
#include "tests/workloads/feeder.h"
#include "tests/workloads/gpu.h"
#include "tests/workloads/models.h"
#include "tests/workloads/operations.h"
#include "tests/workloads/tape.h"
#include "tests/workloads/truth.h"

namespace seqpoint::workload {
namespace {

constexpr size_t kActivationChunkBytes = size_t{256} << 20;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr uint64_t kCheckpointWriteNs = 5'000'000;
constexpr uint64_t kEvaluationSeed = 0x65766121;
// Examples of the evaluation set are other ones than those trained on.
constexpr uint64_t kEvaluationIds = uint64_t{1} << 40;

class NvtxRange {
 public:
  NvtxRange(bool enabled, const char* name) : enabled_(enabled) {
    if (enabled_) nvtxRangePushA(name);
  }
  ~NvtxRange() {
    if (enabled_) nvtxRangePop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool enabled_;
};

// Runs a function on another thread while the caller waits.
class SecondThread {
 public:
  SecondThread() : thread_([this] { Loop(); }) {}
  ~SecondThread() {
    Run(nullptr);
    thread_.join();
  }
  // An empty function ends the thread.
  void Run(std::function<void()> function) {
    std::unique_lock lock(mutex_);
    function_ = std::move(function);
    pending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !pending_; });
  }

 private:
  void Loop() {
    for (bool running = true; running;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return pending_; });
      running = function_ != nullptr;
      if (running) function_();
      pending_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> function_;
  bool pending_ = false;
  std::thread thread_;
};

// A little work in a context of its own, such as a preprocessing library's.
class SideContext {
 public:
  explicit SideContext(uint64_t host_ns_per_launch) : context_(CreateContext()) {
    const Context training = SwitchContext(context_);
    queue_.stream = CreateStream();
    queue_.host_ns_per_launch = host_ns_per_launch;
    data_ = static_cast<float*>(DeviceAlloc(kFloats * sizeof(float)));
    SwitchContext(training);
  }
  void Step() {
    const Context training = SwitchContext(context_);
    FillZero(queue_, data_, kFloats);
    Synchronize(queue_.stream);
    SwitchContext(training);
  }

 private:
  static constexpr size_t kFloats = 1 << 16;
  Context context_;
  Queue queue_;
  float* data_;
};

// A process that does CPU work beside the training, as a data loader's worker does.
pid_t ForkHelper() {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("seqpoint_workload: --fork-helper: fork");
    std::exit(1);
  }
  if (child > 0) return child;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 20'000'000; ++i) sum += Mix(i);
  // The sum is used, so that the work is not optimised away.
  std::exit(sum == 0 ? 1 : 0);
}

// The micro-batches of each iteration over all epochs, and the evaluation set.
struct Schedule {
  std::vector<Batch> batches;
  struct Iteration {
    size_t first;  // of `batches`
    size_t count;
    int epoch;
  };
  std::vector<Iteration> iterations;
  std::vector<Batch> evaluation;
};

Schedule MakeSchedule(const Options& options, const LengthTable& table) {
  Schedule schedule;
  Random random(Mix(options.model.seed) + 1);
  const auto limit = static_cast<size_t>(options.max_iterations);
  const auto accumulate = static_cast<size_t>(options.accumulate);
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    if (limit > 0 && schedule.iterations.size() >= limit) break;
    std::vector<Batch> batches = MakeEpoch(table, options.model.batch, options.order,
                                           options.pad_multiple, options.drop_last, 0, &random);
    for (size_t begin = 0; begin < batches.size(); begin += accumulate) {
      const size_t count = std::min(accumulate, batches.size() - begin);
      schedule.iterations.push_back({schedule.batches.size() + begin, count, epoch});
    }
    std::move(batches.begin(), batches.end(), std::back_inserter(schedule.batches));
  }
  if (limit > 0 && schedule.iterations.size() > limit) {
    schedule.iterations.resize(limit);
    const Schedule::Iteration& last = schedule.iterations.back();
    schedule.batches.resize(last.first + last.count);
  }
  if (options.eval_every > 0) {
    Random evaluation(Mix(options.model.seed) ^ kEvaluationSeed);
    LengthTable held_out;
    for (int i = 0; i < options.eval_batches * options.model.batch; ++i) {
      held_out.push_back(table[evaluation.Below(table.size())]);
    }
    schedule.evaluation = MakeEpoch(held_out, options.model.batch, Order::kSorted,
                                    options.pad_multiple, false, kEvaluationIds, &evaluation);
  }
  return schedule;
}

class Trainer {
 public:
  Trainer(const Options& options, Model* model, const Schedule& schedule, Queue queue, Truth* truth)
      : options_(options),
        model_(model),
        schedule_(schedule),
        queue_(queue),
        truth_(truth),
        operations_(options.operations_file),
        arena_(kActivationChunkBytes),
        tape_(queue_, &arena_),
        optimizer_(&model->parameters(), static_cast<float>(options.learning_rate),
                   options.foreach),
        feeder_(model, queue.stream, options.prefetch,
                static_cast<uint64_t>(options.load_us * 1000)) {
    if (options.backward_thread) backward_thread_ = std::make_unique<SecondThread>();
    if (options.second_context) {
      side_context_ = std::make_unique<SideContext>(queue.host_ns_per_launch);
    }
    loss_ = static_cast<float*>(DeviceAlloc(sizeof(float)));
    host_loss_ = static_cast<float*>(PinnedAlloc(sizeof(float)));
    MemsetZero(queue_.stream, loss_, sizeof(float));
    optimizer_.Start(queue_.stream);
  }

  // Returns the last training loss.
  float Run() {
    std::vector<const Batch*> batches;
    const auto first = static_cast<size_t>(options_.resume_at);
    for (size_t i = schedule_.iterations[first].first; i < schedule_.batches.size(); ++i) {
      batches.push_back(&schedule_.batches[i]);
    }
    feeder_.Start(batches);
    for (size_t i = first; i < schedule_.iterations.size(); ++i) {
      Iteration(i);
      const size_t done = i + 1;
      if (options_.checkpoint_every > 0 &&
          done % static_cast<size_t>(options_.checkpoint_every) == 0) {
        Checkpoint(done);
      }
      if (options_.eval_every > 0 && done % static_cast<size_t>(options_.eval_every) == 0) {
        Evaluate(done);
      }
    }
    return ReadLoss();
  }

 private:
  void Iteration(size_t number) {
    const Schedule::Iteration& iteration = schedule_.iterations[number];
    BeginPhase(Phase::Kind::kIteration, number, &schedule_.batches[iteration.first],
               iteration.count, iteration.epoch);
    NvtxRange range(options_.nvtx, "iteration");
    for (size_t micro = 0; micro < iteration.count; ++micro) {
      const DeviceBatch batch = feeder_.Next();
      if (options_.graphs) {
        RunGraph(batch, micro, iteration.count);
      } else {
        MicroBatch(batch, micro, iteration.count);
      }
    }
    if (side_context_ != nullptr) side_context_->Step();
    const auto every = static_cast<size_t>(options_.readback_every);
    if (every > 0 && (number + 1) % every == 0) {
      const float loss = ReadLoss();
      if (!options_.quiet && (number + 1) % 100 == 0) {
        std::printf("iteration %zu of %zu, loss %.4f\n", number + 1, schedule_.iterations.size(),
                    static_cast<double>(loss));
      }
    }
  }

  void BeginPhase(Phase::Kind kind, size_t number, const Batch* batches, size_t count, int epoch) {
    Phase phase;
    phase.kind = kind;
    phase.number = static_cast<int64_t>(number);
    phase.epoch = epoch;
    for (size_t i = 0; i < count; ++i) {
      phase.batch += static_cast<int>(batches[i].examples.size());
      phase.lengths.resize(batches[i].lengths.size());
      phase.micro_lengths.push_back(batches[i].lengths);
      for (size_t d = 0; d < phase.lengths.size(); ++d) phase.lengths[d] += batches[i].lengths[d];
    }
    truth_->Begin(std::move(phase), queue_.stream);
  }

  // Everything of an iteration that belongs to one micro-batch: the first clears the gradients, the
  // last updates the parameters.
  void MicroBatch(const DeviceBatch& batch, size_t micro, size_t count) {
    if (micro == 0) optimizer_.ClearGradients(queue_, options_.zero_grad);
    {
      NvtxRange range(options_.nvtx, "forward");
      tape_.Reset(/*training=*/true);
      truth_->FirstForward();
      model_->Forward(&tape_, batch, {loss_, static_cast<int>(count), micro > 0});
    }
    auto backward = [this] {
      NvtxRange range(options_.nvtx, "backward");
      tape_.Backward();
    };
    if (backward_thread_ != nullptr) {
      backward_thread_->Run(backward);
    } else {
      backward();
    }
    operations_.Write(batch.lengths, tape_, model_->parameters());
    if (micro + 1 == count) {
      NvtxRange range(options_.nvtx, "optimizer");
      optimizer_.Step(queue_);
    }
  }

  // A graph for each batch shape and place in the iteration; its first use records it.
  void RunGraph(const DeviceBatch& batch, size_t micro, size_t count) {
    const auto key =
        std::tuple(batch.lengths, batch.size, batch.arrays, micro == 0, micro + 1 == count, count);
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      BeginCapture(queue_.stream);
      MicroBatch(batch, micro, count);
      found = graphs_.emplace(key, EndCapture(queue_.stream)).first;
    }
    HostWork(queue_.host_ns_per_launch);
    truth_->FirstForward();
    LaunchGraph(found->second, queue_.stream);
  }

  void Evaluate(size_t iterations_done) {
    BeginPhase(Phase::Kind::kEvaluation, iterations_done, schedule_.evaluation.data(),
               schedule_.evaluation.size(), schedule_.iterations[iterations_done - 1].epoch);
    float sum = 0;
    for (const Batch& batch : schedule_.evaluation) {
      const DeviceBatch on_device = feeder_.CopyNow(batch);
      tape_.Reset(/*training=*/false);
      truth_->FirstForward();
      model_->Forward(&tape_, on_device, {loss_, 1, false});
      sum += ReadLoss();
    }
    if (!options_.quiet) {
      std::printf("evaluation after %zu iterations, loss %.4f\n", iterations_done,
                  static_cast<double>(sum / static_cast<float>(schedule_.evaluation.size())));
    }
  }

  // Brings parameters and optimiser state to the host and pretends to write them out.
  void Checkpoint(size_t iterations_done) {
    BeginPhase(Phase::Kind::kCheckpoint, iterations_done, nullptr, 0,
               schedule_.iterations[iterations_done - 1].epoch);
    const Parameters& parameters = model_->parameters();
    checkpoint_.resize(parameters.count());
    for (const float* state : {parameters.values(), parameters.m(), parameters.v()}) {
      CopyToHost(queue_.stream, checkpoint_.data(), state, parameters.count() * sizeof(float));
      Synchronize(queue_.stream);
      HostWork(kCheckpointWriteNs);
    }
  }

  float ReadLoss() {
    CopyToHost(queue_.stream, host_loss_, loss_, sizeof(float));
    Synchronize(queue_.stream);
    return *host_loss_;
  }

  const Options& options_;
  Model* model_;
  const Schedule& schedule_;
  const Queue queue_;
  Truth* truth_;
  OperationsFile operations_;
  Arena arena_;
  Tape tape_;
  Optimizer optimizer_;
  Feeder feeder_;
  std::unique_ptr<SecondThread> backward_thread_;
  std::unique_ptr<SideContext> side_context_;
  std::map<std::tuple<std::vector<int>, int, std::vector<void*>, bool, bool, size_t>, Graph>
      graphs_;
  std::vector<float> checkpoint_;
  float* loss_;
  float* host_loss_;
};

}  // namespace

int Train(const Options& options, const LengthTable& table) {
  const std::string device = OpenDevice();
  Queue queue;
  queue.stream = CreateStream();
  queue.host_ns_per_launch = static_cast<uint64_t>(options.launch_us * 1000);
  queue.workspace = static_cast<float*>(DeviceAlloc(kWorkspaceBytes));
  queue.workspace_floats = kWorkspaceBytes / sizeof(float);

  const Schedule schedule = MakeSchedule(options, table);
  if (static_cast<size_t>(options.resume_at) >= schedule.iterations.size()) {
    std::fprintf(stderr, "seqpoint_workload: --resume-at: %d is past the last of %zu iterations\n",
                 options.resume_at, schedule.iterations.size());
    return 2;
  }
  ModelConfig config = options.model;
  config.max_lengths = LongestLengths(table, options.pad_multiple);
  const std::unique_ptr<Model> model = MakeModel(config);
  model->parameters().Allocate(queue.stream, config.seed);
  if (!options.quiet) {
    std::printf("%s on %s: %zu parameters, %zu iterations\n", config.name.c_str(), device.c_str(),
                model->parameters().count(), schedule.iterations.size());
  }

  const pid_t helper = options.fork_helper ? ForkHelper() : 0;
  Truth truth(options.truth_file, ToJson(options), device);
  Trainer trainer(options, model.get(), schedule, queue, &truth);
  const float loss = trainer.Run();
  truth.Finish(queue.stream, loss);
  if (!options.quiet) {
    if (const auto digest = SoftwareDigest()) {
      std::printf("done, digest of the GPU work %016llx; the software GPU computes no loss\n",
                  static_cast<unsigned long long>(*digest));
    } else {
      std::printf("done, loss %.4f\n", static_cast<double>(loss));
    }
  }
  if (helper == 0) return 0;
  int status = 0;
  waitpid(helper, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  std::fprintf(stderr, "seqpoint_workload: the helper process ended with wait status %d\n", status);
  return 1;
}

}  // namespace seqpoint::workload
