#include "tests/iterations/synthetic_stream.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::Op;

struct Batch {
  int length[2];
};

class Job {
 public:
  explicit Job(const SyntheticOptions& options) : options_(options), random_(options.seed) {
    stream_.names.push_back("");
  }

  SyntheticStream Run() {
    for (int tensor = 0; tensor < 6; ++tensor) Copy(Op::kCopyH2D, 4096u << (tensor % 3), 0);
    Memset(1 << 16);
    if (options_.evaluate_first) Evaluate();
    Batch next = Draw();
    if (options_.prefetch) CopyBatch(next);
    for (int i = 0; i < options_.iterations; ++i) {
      TrueIteration iteration;
      iteration.first_call = Size();
      if (options_.marks) {
        Annotate(Op::kMark, "", static_cast<uint64_t>(next.length[0] * kSyntheticBytesPerStep));
      }
      if (options_.nvtx) Annotate(Op::kNvtxPush, absl::StrCat("train ", i), 0);
      if (options_.ahead >= 0) TrainStage(&iteration);
      for (int micro = 0; options_.ahead < 0 && micro < options_.micro_batches; ++micro) {
        const Batch batch = next;
        next = Draw();
        for (int d = 0; d < 2; ++d) iteration.length[d] += batch.length[d];
        if (options_.prefetch) {
          Add(Op::kStreamWait, 0);
          CopyBatch(next);
        } else {
          CopyBatch(batch);
        }
        if (micro == 0) ZeroGradients();
        if (micro == 0) iteration.first_forward = Size();
        Train(batch, micro);
      }
      if (options_.readback_every > 0 && (i + 1) % options_.readback_every == 0) ReadBack();
      if (options_.nvtx) Annotate(Op::kNvtxPop, "", 0);
      iteration.end = Size();
      stream_.iterations.push_back(iteration);
      if (options_.evaluate_every > 0 && (i + 1) % options_.evaluate_every == 0) Evaluate();
    }
    return std::move(stream_);
  }

 private:
  uint32_t Size() const { return static_cast<uint32_t>(stream_.calls.size()); }

  Batch Draw() {
    Batch batch{};
    for (int d = 0; d < options_.lengths; ++d) {
      const auto lengths = static_cast<uint64_t>(options_.longest - options_.shortest + 1);
      batch.length[d] = options_.shortest + static_cast<int>(random_() % lengths);
    }
    return batch;
  }

  uint32_t NameId(const std::string& name) {
    if (name.empty()) return 0;
    const auto [it, inserted] = ids_.try_emplace(name, stream_.names.size());
    if (inserted) stream_.names.push_back(name);
    return static_cast<uint32_t>(it->second);
  }

  CallRecord& Add(Op op, uint64_t stream) {
    CallRecord call{};
    call.type = static_cast<uint16_t>(abi::DataType::kCall);
    call.op = static_cast<uint8_t>(op);
    call.sequence = stream_.calls.size();
    call.api_ns = api_ns_ += 4000 + random_() % 500;
    call.stream = stream;
    call.thread_id = thread_;
    call.correlation_id = static_cast<uint32_t>(call.sequence + 1);
    stream_.calls.push_back(call);
    return stream_.calls.back();
  }

  // Queues `duration_ns` of work on the compute stream.
  uint64_t Queue(double duration_ns) {
    const uint64_t start = std::max(gpu_ns_, api_ns_ + 3000);
    const double noise = 1 + 0.02 * (static_cast<double>(random_() % 2000) / 1000 - 1);
    gpu_ns_ = start + static_cast<uint64_t>(duration_ns * noise);
    return start;
  }

  void Launch(const std::string& name, int blocks) {
    if (options_.no_gpu) {
      Queue(3000 + 60.0 * blocks);
      api_ns_ = gpu_ns_;
      return;
    }
    CallRecord& call = Add(Op::kLaunch, kCompute);
    call.name_id = NameId(name);
    call.grid_x = static_cast<uint32_t>(blocks);
    call.grid_y = call.grid_z = 1;
    call.block_x = 128;
    call.block_y = call.block_z = 1;
    Queue(3000 + 60.0 * blocks);
  }
  void Copy(Op op, uint64_t bytes, uint64_t stream) {
    if (options_.no_gpu) return;
    CallRecord& call = Add(op, stream);
    call.bytes = bytes;
    stream_.gpu_starts.push_back(
        {call.correlation_id, stream == kCompute ? Queue(2000) : api_ns_ + 3000});
  }
  void Memset(uint64_t bytes) {
    if (options_.no_gpu) return;
    CallRecord& call = Add(Op::kMemset, kCompute);
    call.bytes = bytes;
    stream_.gpu_starts.push_back({call.correlation_id, Queue(2000)});
  }
  void Annotate(Op op, const std::string& name, uint64_t payload) {
    CallRecord& call = Add(op, 0);
    call.name_id = NameId(name);
    call.bytes = payload;
  }
  // Reports a call of the root module as the PyTorch adapter does.
  void TellForward(const char* kind, const Batch& batch) {
    if (!options_.framework) return;
    const uint8_t flags = options_.no_gpu ? static_cast<uint8_t>(abi::kCallHostTime) : uint8_t{0};
    Annotate(Op::kForward, kind, 0);
    stream_.calls.back().flags = flags;
    const auto feature = [&](const std::string& name, int64_t value) {
      Annotate(Op::kFeature, name, static_cast<uint64_t>(value));
      stream_.calls.back().flags = static_cast<uint8_t>(flags | abi::kCallHasPayload);
    };
    feature("ids.shape[0]", 64);
    for (int d = 0; d < options_.lengths; ++d) {
      const std::string name = d == 0 ? "ids.shape[1]" : "labels.shape[1]";
      feature(name, batch.length[d] * kSyntheticBytesPerStep);
      feature(absl::StrCat("mask", d, ".shape[1]"), batch.length[d] * kSyntheticBytesPerStep);
    }
  }
  void TellStep() {
    if (options_.framework) Annotate(Op::kStep, "", 0);
  }
  void ReadBack() {
    if (options_.no_gpu) return;
    Copy(Op::kCopyD2H, 4, kCompute);
    const uint64_t wait = gpu_ns_ > api_ns_ ? gpu_ns_ - api_ns_ : 0;
    Add(Op::kStreamSync, kCompute).bytes = wait;
    api_ns_ += wait;
  }

  void CopyBatch(const Batch& batch) {
    if (options_.resident) return;
    api_ns_ += 100'000;
    const uint64_t stream = options_.prefetch ? 2 : kCompute;
    for (int d = 0; d < options_.lengths; ++d) {
      Copy(Op::kCopyH2D, static_cast<uint64_t>(batch.length[d] * kSyntheticBytesPerStep), stream);
    }
    Copy(Op::kCopyH2D, 512, stream);
  }
  void ZeroGradients() {
    if (options_.zero_grad == SyntheticOptions::ZeroGrad::kMemset) Memset(1 << 20);
    if (options_.zero_grad == SyntheticOptions::ZeroGrad::kKernel) Launch("zero_fill", 256);
  }

  // Lengths as the kernels see them.
  int Steps(const Batch& batch, int d) const { return options_.fixed_work ? 48 : batch.length[d]; }

  void Forward(const Batch& batch) {
    for (int d = 0; d < options_.lengths; ++d) {
      const int steps = Steps(batch, d);
      if (!options_.middle_stage) Launch("embedding", 4 * steps);
      if (options_.algorithm_search && seen_.insert(steps).second) {
        for (int i = 0; i < 12; ++i) Launch(absl::StrCat("gemm_try_", i % 5), 32);
      }
      for (int layer = 0; layer < options_.layers; ++layer) {
        // Libraries pick by shape.
        Launch(steps > 24 ? "gemm_large" : "gemm_small", 8 * ((steps + 7) / 8));
        for (int t = 0; t < (options_.recurrent ? steps : 1); ++t) {
          Launch("cell_gemm", 16);
          Launch("cell", options_.recurrent ? 16 : 2 * steps);
        }
      }
    }
    if (options_.middle_stage) return;
    Launch("head", 64);
    Launch("loss", 8);
  }
  void Backward(const Batch& batch) {
    if (!options_.middle_stage) Launch("loss_backward", 8);
    for (int d = options_.lengths; d-- > 0;) {
      const int steps = Steps(batch, d);
      for (int layer = options_.layers; layer-- > 0;) {
        for (int t = 0; t < (options_.recurrent ? steps : 1); ++t) {
          Launch("cell_backward", options_.recurrent ? 16 : 2 * steps);
          Launch("cell_gemm_backward", 16);
        }
        Launch(steps > 24 ? "gemm_backward_large" : "gemm_backward_small", 8 * ((steps + 7) / 8));
        Launch("weight_gradient", 96);
      }
      if (!options_.middle_stage) Launch("embedding_backward", 4 * steps);
    }
  }
  void Optimise(const std::string& network) {
    if (options_.scalar_copy) Copy(Op::kCopyH2D, 4, kCompute);
    Launch("norm" + network, 128);
    const int tensors = options_.per_tensor_optimiser ? 3 * options_.layers + 4 : 1;
    for (int i = 0; i < tensors; ++i)
      Launch("adam" + network, options_.per_tensor_optimiser ? 8 << (i % 3) : 512);
  }

  void Train(const Batch& batch, int micro) {
    const bool last = micro + 1 == options_.micro_batches;
    TellForward(abi::kForwardName, batch);
    if (options_.graphs) {
      CallRecord& call = Add(Op::kGraphLaunch, kCompute);
      call.name_id = NameId(absl::StrCat("graph#", batch.length[0] / 4, micro == 0 ? "first" : "",
                                         last ? "last" : ""));
      stream_.gpu_starts.push_back({call.correlation_id, Queue(40'000.0 * Steps(batch, 0))});
      if (last) TellStep();
      return;
    }
    Forward(batch);
    if (options_.backward_thread) thread_ = 2;
    Backward(batch);
    thread_ = 1;
    if (!last) return;
    Optimise("");
    if (options_.two_optimisers) {
      Forward(batch);
      Backward(batch);
      Optimise("_second");
    }
    TellStep();
  }

  void TrainStage(TrueIteration* iteration) {
    std::vector<Batch> batches;
    for (int i = 0; i < options_.micro_batches + options_.ahead; ++i) {
      if (i < options_.micro_batches) {
        batches.push_back(Draw());
        for (int d = 0; d < 2; ++d) iteration->length[d] += batches.back().length[d];
        CopyBatch(batches.back());
        if (i == 0) ZeroGradients();
        if (i == 0) iteration->first_forward = Size();
        Forward(batches.back());
        Launch("send_recv", 8);
      }
      if (i < options_.ahead) continue;
      Backward(batches[static_cast<size_t>(i - options_.ahead)]);
      Launch("send_recv", 8);
    }
    Optimise("");
  }

  void Evaluate() {
    for (int i = 0; i < options_.evaluation_batches; ++i) {
      const bool prefetch = std::exchange(options_.prefetch, false);
      const Batch batch = Draw();
      CopyBatch(batch);
      options_.prefetch = prefetch;
      if (i == 0) TellForward(abi::kEvaluationName, batch);
      Forward(batch);
      ReadBack();
    }
  }

  static constexpr uint64_t kCompute = 7;

  SyntheticOptions options_;
  std::mt19937_64 random_;
  SyntheticStream stream_;
  std::map<std::string, size_t> ids_;
  std::set<int> seen_;
  uint64_t api_ns_ = 1'000'000'000;
  uint64_t gpu_ns_ = 0;
  uint32_t thread_ = 1;
};

class RepeatJob {
 public:
  explicit RepeatJob(const RepeatOptions& options) : options_(options), random_(options.seed) {
    stream_.names = {"", "optimiser", "stray"};
    for (int k = 0; k < options.kernels; ++k) {
      stream_.names.push_back(absl::StrCat(options.graphs ? "graph#" : "kernel_", k + 1));
    }
  }

  SyntheticStream Run() {
    for (int i = 0; i < options_.iterations; ++i) {
      TrueIteration iteration{.first_call = Size()};
      const bool copies = options_.copy && i % options_.share == 0;
      iteration.first_forward = Size() + (copies ? 1 : 0);
      for (int micro = 0; micro < options_.micro_batches; ++micro) {
        iteration.length[0] += Train(copies);
      }
      if (options_.optimiser) Launch(1, 1, false);
      if (options_.readback_every > 0 && (i + 1) % options_.readback_every == 0) {
        Copy(Op::kCopyD2H, 4);
        Add(Op::kStreamSync, kCompute).bytes = 20'000;
        api_ns_ += 20'000;
      }
      iteration.end = Size();
      stream_.iterations.push_back(iteration);
    }
    return std::move(stream_);
  }

 private:
  uint32_t Size() const { return static_cast<uint32_t>(stream_.calls.size()); }

  // One batch; its length.
  int64_t Train(bool copies) {
    const auto length = static_cast<uint32_t>(8 + random_() % 57);
    if (copies) Copy(Op::kCopyH2D, options_.copy_varies ? 64 * length : 4096);
    const uint32_t grid = options_.copy_varies && !options_.repeats_vary ? length : 1;
    const int repeats = options_.repeats_vary ? static_cast<int>(length) / 4 : options_.repeats;
    for (int l = 0; l < repeats * options_.kernels + options_.more; ++l) {
      Launch(3 + static_cast<uint32_t>(l % options_.kernels), grid, options_.graphs);
      if (static_cast<double>(random_() % 1000) < 1000 * options_.noise) Launch(2, 1, false);
    }
    return length;
  }

  CallRecord& Add(Op op, uint64_t stream) {
    CallRecord call{};
    call.type = static_cast<uint16_t>(abi::DataType::kCall);
    call.op = static_cast<uint8_t>(op);
    call.sequence = stream_.calls.size();
    call.api_ns = api_ns_ += 4000 + random_() % 500;
    call.stream = stream;
    call.thread_id = 1;
    call.correlation_id = static_cast<uint32_t>(call.sequence + 1);
    stream_.calls.push_back(call);
    return stream_.calls.back();
  }
  void Launch(uint32_t name, uint32_t grid, bool graph) {
    CallRecord& call = Add(graph ? Op::kGraphLaunch : Op::kLaunch, kCompute);
    call.name_id = name;
    if (graph) return;
    call.grid_x = grid;
    call.grid_y = call.grid_z = call.block_y = call.block_z = 1;
    call.block_x = 32;
  }
  void Copy(Op op, uint64_t bytes) {
    const bool ahead = op == Op::kCopyH2D && options_.second_stream;
    const bool apart = op == Op::kCopyH2D && options_.default_stream;
    Add(op, ahead ? 2 : apart ? 0 : kCompute).bytes = bytes;
    stream_.gpu_starts.push_back({stream_.calls.back().correlation_id, api_ns_ + 3000});
    if (ahead) Add(Op::kStreamWait, kCompute);
  }

  static constexpr uint64_t kCompute = 7;
  RepeatOptions options_;
  std::mt19937_64 random_;
  SyntheticStream stream_;
  uint64_t api_ns_ = 1'000'000'000;
};

}  // namespace

SyntheticStream MakeRepeatStream(const RepeatOptions& options) { return RepeatJob(options).Run(); }

SyntheticStream MakeSyntheticStream(const SyntheticOptions& options) { return Job(options).Run(); }

}  // namespace seqpoint::iterations
