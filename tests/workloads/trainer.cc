#include "tests/workloads/trainer.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/workloads/batching.h"
#include "tests/workloads/communicator.h"
#include "tests/workloads/data_parallel.h"
#include "tests/workloads/feeder.h"
#include "tests/workloads/gpu.h"
#include "tests/workloads/models.h"
#include "tests/workloads/operations.h"
#include "tests/workloads/pipeline.h"
#include "tests/workloads/schedule.h"
#include "tests/workloads/sharded.h"
#include "tests/workloads/side_work.h"
#include "tests/workloads/tape.h"
#include "tests/workloads/truth.h"

namespace seqpoint::workload {
namespace {

constexpr size_t kActivationChunkBytes = size_t{256} << 20;
constexpr double kMiB = 1 << 20;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kMostMicroBatches = 8;  // unless they are asked for
constexpr uint64_t kCheckpointWriteNs = 5'000'000;

class Trainer {
 public:
  // `communicator` is null where the rank trains alone.
  Trainer(const Options& options, Model* model, const Schedule& schedule, Queue queue,
          Communicator* communicator, Faults* faults, Truth* truth)
      : options_(options),
        model_(model),
        schedule_(schedule),
        queue_(queue),
        faults_(faults),
        truth_(truth),
        operations_(options.operations_file),
        arena_(kActivationChunkBytes),
        tape_(queue_, &arena_),
        optimizer_(&model->parameters(), static_cast<float>(options.learning_rate),
                   options.foreach),
        pipeline_(options.parallel == Parallel::kPipeline && communicator != nullptr
                      ? std::make_unique<Pipeline>(model, communicator, queue_)
                      : nullptr),
        feeder_(model, queue.stream, options.prefetch,
                static_cast<uint64_t>(options.load_us * 1000),
                pipeline_ == nullptr ? 1 : pipeline_->in_flight()) {
    if (communicator != nullptr) Share(communicator);
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
    const auto first = static_cast<size_t>(options_.resume_at);
    feeder_.Start(ItemsFrom(first));
    for (size_t i = first; i < schedule_.iterations.size(); ++i) {
      Iteration(i);
      const size_t done = i + 1;
      if (writes_checkpoints_ && options_.checkpoint_every > 0 &&
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
  void Share(Communicator* communicator) {
    Parameters* parameters = &model_->parameters();
    if (options_.parallel == Parallel::kData) {
      sharing_ = std::make_unique<DataParallel>(parameters, communicator, queue_,
                                                static_cast<size_t>(options_.bucket_mb * kMiB));
      // All ranks have the same state.
      writes_checkpoints_ = communicator->rank() == 0;
    } else {
      optimizer_.JoinNorms(communicator);
    }
    if (options_.parallel == Parallel::kSharded) {
      auto sharded = std::make_unique<Sharded>(parameters, communicator, queue_);
      optimizer_.Use(sharded->shard());
      sharing_ = std::move(sharded);
    }
    tape_.Watch(sharing_.get());
  }

  // A batch that comes late is the first of its iteration.
  std::vector<Feeder::Item> ItemsFrom(size_t first) const {
    std::vector<Feeder::Item> items;
    for (size_t i = first; i < schedule_.iterations.size(); ++i) {
      const Schedule::Iteration& iteration = schedule_.iterations[i];
      for (size_t micro = 0; micro < iteration.count; ++micro) {
        items.push_back({&schedule_.batches[iteration.first + micro],
                         micro > 0 ? 0 : faults_->LoaderDelayNs(static_cast<int64_t>(i))});
      }
    }
    return items;
  }

  void Iteration(size_t number) {
    const Schedule::Iteration& iteration = schedule_.iterations[number];
    faults_->BeginIteration(static_cast<int64_t>(number));
    BeginPhase(Phase::Kind::kIteration, number, &schedule_.batches[iteration.first],
               iteration.count, iteration.epoch);
    NvtxRange range(options_.nvtx, "iteration");
    if (pipeline_ != nullptr) RunPipeline(iteration.count);
    for (size_t micro = 0; pipeline_ == nullptr && micro < iteration.count; ++micro) {
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
      if (sharing_ != nullptr) sharing_->Begin(/*reduces=*/micro + 1 == count);
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
    if (micro + 1 == count) UpdateParameters();
  }

  void UpdateParameters() {
    if (sharing_ != nullptr) sharing_->AwaitGradients();
    NvtxRange range(options_.nvtx, "optimizer");
    optimizer_.Step(queue_);
    if (sharing_ != nullptr) sharing_->Updated();
  }

  void RunPipeline(size_t count) {
    optimizer_.ClearGradients(queue_, options_.zero_grad);
    pipeline_->Run(
        count, loss_, [this] { return feeder_.Next(); }, [this] { truth_->FirstForward(); });
    UpdateParameters();
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
      if (sharing_ != nullptr) sharing_->Begin(/*reduces=*/false);
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
    const FlatState& own = optimizer_.state();
    checkpoint_.resize(own.count);
    for (const float* state : {own.values, own.m, own.v}) {
      CopyToHost(queue_.stream, checkpoint_.data(), state, own.count * sizeof(float));
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
  Faults* faults_;
  Truth* truth_;
  OperationsFile operations_;
  Arena arena_;
  Tape tape_;
  Optimizer optimizer_;
  std::unique_ptr<Pipeline> pipeline_;  // null: the rank does all layers
  Feeder feeder_;
  std::unique_ptr<Sharing> sharing_;  // null: the rank trains alone
  bool writes_checkpoints_ = true;
  std::unique_ptr<SecondThread> backward_thread_;
  std::unique_ptr<SideContext> side_context_;
  std::map<std::tuple<std::vector<int>, int, std::vector<void*>, bool, bool, size_t>, Graph>
      graphs_;
  std::vector<float> checkpoint_;
  float* loss_;
  float* host_loss_;
};

// With the sizes that are told by the number of ranks.
Options FitToRanks(Options options, const Ranks& ranks) {
  if (options.micro_batches_per_rank > 0) {
    options.accumulate = std::min(kMostMicroBatches, options.micro_batches_per_rank * ranks.count);
  }
  if (options.parallel == Parallel::kPipeline && !options.layers_given) {
    options.model.layers = std::max(options.model.layers, ranks.count);
  }
  return options;
}

absl::Status CheckSplit(const Options& options, const Ranks& ranks) {
  const int heads = std::max(1, options.model.hidden / 64);
  if (options.parallel == Parallel::kTensor && heads % ranks.count != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--parallel tensor: ", heads,
                                                   " attention heads (--hidden / 64) cannot be ",
                                                   "split among ", ranks.count, " ranks"));
  }
  if (options.parallel == Parallel::kPipeline && options.model.layers < ranks.count) {
    return absl::InvalidArgumentError(absl::StrCat("--parallel pipeline: --layers ",
                                                   options.model.layers, " are fewer than the ",
                                                   ranks.count, " ranks"));
  }
  return absl::OkStatus();
}

int Wrong(const absl::Status& status) {
  std::fprintf(stderr, "seqpoint_workload: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace

int Train(const Options& given, const LengthTable& table) {
  const absl::StatusOr<Ranks> job = RanksFromEnvironment();
  if (!job.ok()) return Wrong(job.status());
  const bool shares = given.parallel != Parallel::kNone && job->count > 1;
  if (shares && !given.truth_file.empty() && given.truth_file.find("%r") == std::string::npos) {
    return Wrong(absl::InvalidArgumentError("--truth: several ranks need %r in the file's name"));
  }
  const Ranks ranks = shares ? *job : Ranks{};
  const Options options = FitToRanks(given, ranks);
  if (auto status = CheckSplit(options, ranks); !status.ok()) return Wrong(status);
  const std::string device = OpenDevice(ranks.local_rank);
  Faults faults(options.faults, *job);
  if (auto status = faults.Check(SoftwareDigest().has_value()); !status.ok()) return Wrong(status);
  Queue queue;
  queue.stream = CreateStream();
  queue.host_ns_per_launch = static_cast<uint64_t>(options.launch_us * 1000);
  queue.workspace = static_cast<float*>(DeviceAlloc(kWorkspaceBytes));
  queue.workspace_floats = kWorkspaceBytes / sizeof(float);

  const Schedule schedule = MakeSchedule(options, table, ranks);
  if (static_cast<size_t>(options.resume_at) >= schedule.iterations.size()) {
    std::fprintf(stderr, "seqpoint_workload: --resume-at: %d is past the last of %zu iterations\n",
                 options.resume_at, schedule.iterations.size());
    return 2;
  }
  std::unique_ptr<Communicator> communicator;
  if (shares) communicator = MakeNcclCommunicator(ranks, [&faults] { faults.BeforeCollective(); });
  ModelConfig config = options.model;
  config.max_lengths = LongestLengths(table, options.pad_multiple);
  if (options.parallel == Parallel::kTensor) config.part.tensor = communicator.get();
  if (options.parallel == Parallel::kPipeline) {
    config.part.stage = ranks.rank;
    config.part.stages = ranks.count;
  }
  const std::unique_ptr<Model> model = MakeModel(config);
  const bool in_parts = options.parallel == Parallel::kSharded;
  model->parameters().Allocate(queue.stream, config.seed,
                               in_parts ? static_cast<size_t>(ranks.count) : 1,
                               Mix(config.seed) + static_cast<uint64_t>(ranks.rank));
  if (!options.quiet) {
    std::printf("%s on %s: %zu parameters, %zu iterations\n", config.name.c_str(), device.c_str(),
                model->parameters().count(), schedule.iterations.size());
  }

  const pid_t helper = options.fork_helper ? ForkHelper() : 0;
  Truth truth(options.truth_file, ToJson(options), device, *job);
  Trainer trainer(options, model.get(), schedule, queue, communicator.get(), &faults, &truth);
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
  return helper == 0 || AwaitHelper(helper) ? 0 : 1;
}

}  // namespace seqpoint::workload
