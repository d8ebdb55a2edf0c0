#include "tests/support/rank_windows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>

namespace seqpoint::ranks {
namespace {

using trace::CallKind;
using trace::WorkKind;

constexpr uint32_t kCompute = 0, kStreams = 3;

struct Rank {
  double host_us = 0;
  double free_us[kStreams] = {};  // of each stream
  bool used[kStreams] = {};
  double waits_us = 0;  // later kernels do not start before
  uint64_t wait_record = 0;
  size_t next = 0;  // op
  uint64_t correlation = 0;
  bool posted = false;
  double arrival_us = 0;
  uint64_t launch = 0;
  std::map<std::vector<int32_t>, uint32_t> sequences;
};

std::string KernelOf(const Op& op) {
  if (op.kind == Op::kSend || op.kind == Op::kReceive) {
    return "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  }
  return "ncclDevKernel_" + op.name + "_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
}

bool IsCollective(Op::Kind kind) {
  return kind == Op::kCollective || kind == Op::kBlocking || kind == Op::kSend ||
         kind == Op::kReceive;
}

class Simulator {
 public:
  Simulator(const RankJob& job, const std::vector<std::vector<int64_t>>& lengths)
      : job_(job), lengths_(lengths), random_(job.seed), ranks_(static_cast<size_t>(job.ranks)) {}

  SimulatedRun Run(const std::vector<Programs>& programs) {
    for (size_t i = 0; i < programs.size(); ++i) RunIteration(programs[i], i);
    for (const Rank& rank : ranks_) {
      run_.total_us = std::max({run_.total_us, rank.host_us, FreeUs(rank)});
    }
    return std::move(run_);
  }

 private:
  static double FreeUs(const Rank& rank) {
    return *std::max_element(std::begin(rank.free_us), std::end(rank.free_us));
  }
  void RunIteration(const Programs& programs, size_t number) {
    SimulatedIteration& iteration = run_.iterations.emplace_back();
    it_ = &iteration;
    iteration.traces.resize(ranks_.size());
    iteration.records.resize(ranks_.size());
    iteration.lengths.resize(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      trace::Trace& trace = iteration.traces[r];
      trace.names = {""};
      trace.threads = {"main"};
      trace.streams = {{0, 7}, {0, 20}, {0, 24}};
      trace.rank = static_cast<int32_t>(r);
      trace.world_size = job_.ranks;
      ranks_[r].next = 0;
      if (job_.idle_between) {
        ranks_[r].host_us = std::max(ranks_[r].host_us, FreeUs(ranks_[r]));
      }
      iteration.begin_ns.push_back(Ns(r, ranks_[r].host_us));
      if (number < lengths_.size()) iteration.lengths[r] = {lengths_[number][r], 0};
    }
    bool any = true;
    while (any) {
      any = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        while (ranks_[r].next < programs[r].size() && Do(r, programs[r][ranks_[r].next])) {
          any = true;
        }
      }
      for (size_t r = 0; r < ranks_.size(); ++r) any |= Meet(r, programs);
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].next < programs[r].size()) throw std::logic_error("ranks wait for each other");
      iteration.end_ns.push_back(Ns(r, ranks_[r].host_us));
    }
  }

  int64_t Ns(size_t r, double us) const {
    return std::llround((us + job_.clock_us[r]) * 1000) + 1'000'000'000;
  }
  double Noisy(double us) {
    if (job_.noise == 0) return us;
    return us * std::exp(job_.noise * normal_(random_));
  }
  double Jitter() {
    return job_.jitter_us == 0 ? 0
                               : std::uniform_real_distribution<double>(0, job_.jitter_us)(random_);
  }
  uint32_t NameId(size_t r, const std::string& name) {
    std::vector<std::string>& names = it_->traces[r].names;
    const auto at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) return static_cast<uint32_t>(at - names.begin());
    names.push_back(name);
    return static_cast<uint32_t>(names.size() - 1);
  }
  // A call of `us`; answers its correlation.
  uint64_t Call(size_t r, const std::string& name, CallKind kind, double us) {
    Rank& rank = ranks_[r];
    it_->traces[r].calls.push_back({Ns(r, rank.host_us), Ns(r, rank.host_us + us),
                                    ++rank.correlation, NameId(r, name), 0, kind});
    rank.host_us += us;
    return rank.correlation;
  }
  void Work(size_t r, const Op& op, uint32_t stream, uint64_t correlation, double start_us,
            double end_us, WorkKind kind) {
    trace::Work work;
    work.start_ns = Ns(r, start_us);
    work.end_ns = Ns(r, end_us);
    work.correlation = correlation;
    work.name = NameId(r, kind == WorkKind::kCollective ? KernelOf(op) : op.name);
    work.stream = stream;
    work.kind = kind;
    if (kind == WorkKind::kKernel) {
      work.grid[0] = op.grid, work.grid[1] = work.grid[2] = 1;
      work.block[0] = 128, work.block[1] = work.block[2] = 1;
    } else if (kind != WorkKind::kCollective) {
      work.bytes = op.bytes;
    }
    it_->traces[r].works.push_back(work);
    ranks_[r].free_us[stream] = end_us;
    ranks_[r].used[stream] = true;
  }
  double ReadyUs(const Rank& rank, uint32_t stream, double called_us) const {
    const double free_us = rank.used[stream] ? rank.free_us[stream] + job_.gap_us : 0;
    return std::max(called_us + job_.latency_us, free_us);
  }
  void Wait(size_t r, uint64_t wait, uint64_t record, uint32_t stream, uint32_t source) {
    if (job_.events_told) it_->traces[r].waits.push_back({wait, record, stream, source});
  }

  // False: it waits for others.
  bool Do(size_t r, const Op& op) {
    Rank& rank = ranks_[r];
    if (IsCollective(op.kind)) {
      if (!rank.posted) Post(r, op);
      return false;
    }
    ++rank.next;
    const double called_us = rank.host_us;
    switch (op.kind) {
      case Op::kHost:
        rank.host_us += Noisy(op.us);
        return true;
      case Op::kSync:
        Call(r, "cudaStreamSynchronize", CallKind::kStreamSync,
             std::max(rank.free_us[kCompute] - called_us, 0.0) + 2);
        Wait(r, rank.correlation, 0, kCompute, trace::kNone);
        return true;
      case Op::kWait: {
        const uint64_t record = Call(r, "cudaEventRecord", CallKind::kEventRecord, 1);
        const uint64_t wait = Call(r, "cudaStreamWaitEvent", CallKind::kStreamWait, 1);
        Wait(r, wait, record, kCompute, op.stream);
        rank.waits_us = rank.free_us[op.stream] + job_.gap_us;
        return true;
      }
      default: {
        const bool batch = op.kind == Op::kBatch;
        const uint64_t launch = Call(r, batch ? "cudaMemcpyAsync" : "cudaLaunchKernel",
                                     batch ? CallKind::kCopy : CallKind::kLaunch, job_.launch_us);
        const double start_us = std::max(ReadyUs(rank, kCompute, called_us), rank.waits_us);
        rank.waits_us = 0;
        Work(r, op, kCompute, launch, start_us, start_us + Noisy(op.us),
             batch ? WorkKind::kCopyH2D : WorkKind::kKernel);
        return true;
      }
    }
  }
  void Post(size_t r, const Op& op) {
    Rank& rank = ranks_[r];
    const uint64_t record = Call(r, "cudaEventRecord", CallKind::kEventRecord, 1);
    const uint64_t wait = Call(r, "cudaStreamWaitEvent", CallKind::kStreamWait, 1);
    Wait(r, wait, record, op.stream, kCompute);
    const double called_us = rank.host_us;
    rank.launch = Call(r, "cuLaunchKernelEx", CallKind::kLaunch, job_.launch_us);
    const double compute_us =
        rank.used[kCompute] ? std::max(rank.free_us[kCompute] + job_.gap_us, rank.waits_us) : 0;
    rank.arrival_us = std::max(ReadyUs(rank, op.stream, called_us), compute_us);
    rank.posted = true;
  }

  std::vector<int32_t> MembersOf(size_t r, const Op& op) const {
    if (op.peer >= 0) {
      std::vector<int32_t> pair = {static_cast<int32_t>(r), op.peer};
      std::sort(pair.begin(), pair.end());
      return pair;
    }
    if (!op.ranks.empty()) return op.ranks;
    std::vector<int32_t> all;
    for (int32_t i = 0; i < job_.ranks; ++i) all.push_back(i);
    return all;
  }

  // Runs the collective at which rank `r` is, when all have come.
  bool Meet(size_t r, const Programs& programs) {
    if (!ranks_[r].posted) return false;
    const Op& op = programs[r][ranks_[r].next];
    const std::vector<int32_t> members = MembersOf(r, op);
    SimulatedIteration::Truth truth;
    double last_us = -1, moves_us = Noisy(op.us);
    for (const int32_t member : members) {
      const Rank& other = ranks_[static_cast<size_t>(member)];
      if (!other.posted ||
          MembersOf(static_cast<size_t>(member),
                    programs[static_cast<size_t>(member)][other.next]) != members) {
        return false;
      }
      if (other.arrival_us > last_us) {
        last_us = other.arrival_us;
        truth.last = member;
      }
    }
    truth.ranks = members;
    truth.transfer_us = moves_us;
    for (const int32_t member : members) {
      const auto m = static_cast<size_t>(member);
      Rank& other = ranks_[m];
      const Op& own = programs[m][other.next];
      truth.wait_us.push_back(last_us - other.arrival_us);
      const double end_us = last_us + moves_us + Jitter();
      Work(m, own, own.stream, other.launch, other.arrival_us, end_us, WorkKind::kCollective);
      AddRecord(m, own, members);
      if (own.kind != Op::kCollective) {
        const uint64_t record = Call(m, "cudaEventRecord", CallKind::kEventRecord, 1);
        const uint64_t wait = Call(m, "cudaStreamWaitEvent", CallKind::kStreamWait, 1);
        Wait(m, wait, record, kCompute, own.stream);
        other.waits_us = end_us + job_.gap_us;
      }
      other.posted = false;
      ++other.next;
    }
    it_->collectives.push_back(truth);
    return true;
  }

  void AddRecord(size_t r, const Op& op, const std::vector<int32_t>& members) {
    CollectiveRecord record;
    for (const int32_t member : members) {
      record.communicator = record.communicator * 31 + static_cast<uint64_t>(member) + 1;
    }
    record.sequence = ranks_[r].sequences[members]++;
    record.function = op.kind == Op::kSend ? "Send" : op.kind == Op::kReceive ? "Recv" : op.name;
    record.bytes = op.bytes;
    if (op.peer >= 0) {
      record.own = static_cast<int32_t>(r);
      record.peer = op.peer;
      record.communicator = 99;
    }
    // The GPU's global timer is another clock than CUPTI's.
    const trace::Work& work = it_->traces[r].works.back();
    record.start_ns = work.start_ns + 5'000'000'123;
    record.end_ns = work.end_ns + 5'000'000'123;
    it_->records[r].push_back(record);
  }

  const RankJob& job_;
  const std::vector<std::vector<int64_t>>& lengths_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<Rank> ranks_;
  SimulatedRun run_;
  SimulatedIteration* it_ = nullptr;
};

// A product, then what is around it.
void AddLayer(const StepShape& shape, int layer, double scale, const char* pass, Program* program) {
  const auto add = [&](const std::string& name, double share) {
    double us = shape.kernel_us * scale * share * shape.factor;
    if (shape.length > 0) us *= static_cast<double>(shape.length) / 100;
    if (name == shape.slow) us *= shape.slow_factor;
    if (shape.host_us > 0) program->push_back({Op::kHost, shape.host_us});
    const auto grid = static_cast<uint32_t>(shape.length > 0 ? shape.length : 64);
    program->push_back({Op::kKernel, us, name, grid});
  };
  const std::string suffix = pass;
  add("layer_norm_" + suffix, 0.1);
  add("gemm_128x64_" + suffix, 1);
  add(layer % 2 == 0 ? "gelu_" + suffix : "softmax_" + suffix, 0.2);
  add("dropout_" + suffix, 0.15);
}

void Begin(const StepShape& shape, Program* program) {
  program->push_back({Op::kHost, shape.loader_us});
  program->push_back({Op::kBatch, 20, "Memcpy HtoD (Pinned -> Device)", 1, 1 << 20});
}

void Optimise(const StepShape& shape, Program* program) {
  for (int layer = 0; layer < shape.layers; ++layer) {
    program->push_back({Op::kKernel, shape.kernel_us * 0.1 * shape.factor, "adam", 8});
  }
}

}  // namespace

Program DataParallel(const StepShape& shape) {
  Program program;
  Begin(shape, &program);
  const int layers = shape.layers + shape.more_layers;
  int in_bucket = 0;
  for (int layer = 0; layer < layers; ++layer) AddLayer(shape, layer, 1, "forward", &program);
  for (int layer = 0; layer < layers; ++layer) {
    AddLayer(shape, layer, 2, "backward", &program);
    if (layer >= shape.layers) continue;
    ++in_bucket;
    if (in_bucket < shape.layers_per_bucket && layer + 1 < shape.layers) continue;
    const uint64_t bytes = shape.layer_bytes * static_cast<uint64_t>(in_bucket);
    const double us = shape.latency_us + shape.us_per_mib * static_cast<double>(bytes) / (1 << 20);
    program.push_back({Op::kCollective, us * shape.link, "AllReduce", 1, bytes});
    in_bucket = 0;
  }
  program.push_back({Op::kWait});
  Optimise(shape, &program);
  return program;
}

Program TensorParallel(const StepShape& shape, const std::vector<int32_t>& group) {
  Program program;
  Begin(shape, &program);
  for (const char* pass : {"forward", "backward"}) {
    const double scale = *pass == 'f' ? 1 : 2;
    for (int layer = 0; layer < shape.layers; ++layer) {
      AddLayer(shape, layer, scale, pass, &program);
      program.push_back(
          {Op::kBlocking, shape.activations_us * shape.link, "AllReduce", 1, 1 << 20, group});
    }
  }
  Optimise(shape, &program);
  return program;
}

Program Pipeline(const StepShape& shape, int32_t rank, int32_t stages, int micro_batches) {
  Program program;
  Begin(shape, &program);
  const double us = shape.activations_us * shape.link;
  const uint64_t bytes = 1 << 20;
  for (int i = 0; i < micro_batches; ++i) {
    if (rank > 0) program.push_back({Op::kReceive, us, "", 1, bytes, {}, rank - 1});
    for (int l = 0; l < shape.layers / 4; ++l) AddLayer(shape, l, 1, "forward", &program);
    if (rank + 1 < stages) program.push_back({Op::kSend, us, "", 1, bytes, {}, rank + 1});
  }
  for (int i = 0; i < micro_batches; ++i) {
    if (rank + 1 < stages) program.push_back({Op::kReceive, us, "", 1, bytes, {}, rank + 1});
    for (int l = 0; l < shape.layers / 4; ++l) AddLayer(shape, l, 2, "backward", &program);
    if (rank > 0) program.push_back({Op::kSend, us, "", 1, bytes, {}, rank - 1});
  }
  Optimise(shape, &program);
  return program;
}

std::vector<RankWindow> SimulatedRun::Windows(size_t iteration, bool told) const {
  const SimulatedIteration& of = iterations[iteration];
  std::vector<RankWindow> windows;
  for (size_t r = 0; r < of.traces.size(); ++r) {
    windows.push_back({static_cast<int32_t>(r), static_cast<int64_t>(iteration), of.lengths[r],
                       &of.traces[r], of.begin_ns[r], of.end_ns[r],
                       told ? of.records[r] : std::vector<CollectiveRecord>()});
  }
  return windows;
}

SimulatedRun RankJob::Run(const std::vector<Programs>& programs,
                          const std::vector<std::vector<int64_t>>& lengths) const {
  return Simulator(*this, lengths).Run(programs);
}

}  // namespace seqpoint::ranks
