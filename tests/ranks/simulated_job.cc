#include "tests/ranks/simulated_job.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace seqpoint::ranks {
namespace {

constexpr int kLayers = 12, kBuckets = 6, kMicroBatches = 8;
constexpr double kWorkNs = 50e6;     // forward and backward pass of a batch of mean length
constexpr double kOptimiser = 0.03;  // of it
constexpr uint64_t kCommunicator = 0xfeedfacecafe0001;
constexpr double kMeanLength = 100;
// With new_lengths: lengths of one unit, and iterations in which first times become rarer.
constexpr double kManyLengths = 4, kWarmUp = 100;
// Kinds of operations.
enum : uint32_t { kBigBucket, kSmallBucket, kGather, kScatter, kReduce, kSend, kKinds };
// What a random number is for, beside the number of the operation.
enum : uint64_t {
  kForIteration = 1 << 20,
  kForWander,
  kForStall,
  kForStallSize,
  kForLength,
  kForNew,
  kForNewSize,
  kForNewPart
};

uint64_t Hash(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

double Cost(double length) {
  const double x = length / kMeanLength;
  return kWorkNs * (0.2 + 0.65 * x + 0.15 * x * x);
}

}  // namespace

std::string_view Name(Parallel parallel) {
  constexpr std::string_view kNames[] = {"data", "sharded", "pipeline", "tensor"};
  return kNames[static_cast<int>(parallel)];
}

std::string_view Name(FaultKind kind) {
  constexpr std::string_view kNames[] = {"kernels", "one kernel", "host", "loader", "link"};
  return kNames[static_cast<int>(kind)];
}

SimulatedJob::SimulatedJob(JobConfig config)
    : config_(std::move(config)), sequences_(kKinds), ranks_(config_.ranks) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    ranks_[r].chip = 1 + config_.chip_noise * Noise(rank, 0);
    ranks_[r].offset = 1e15 * Uniform(rank, 1);
    if (config_.parallel == Parallel::kPipeline)
      ranks_[r].chip *= 1 + 0.1 * std::sin(2 * static_cast<double>(r));
  }
}

double SimulatedJob::Uniform(int32_t rank, uint64_t what) const {
  const uint64_t at = Hash(config_.seed * 1024 + static_cast<uint64_t>(rank + 1)) +
                      static_cast<uint64_t>(iteration_) * (1 << 22) + what;
  return static_cast<double>(Hash(at) >> 11) * 0x1p-53;
}

// The sum of four uniform numbers.
double SimulatedJob::Noise(int32_t rank, uint64_t what) const {
  uint64_t bits = Hash(Hash(config_.seed * 1024 + static_cast<uint64_t>(rank + 1)) +
                       static_cast<uint64_t>(iteration_) * (1 << 22) + what);
  double sum = -2 + 2.0 / 65536;
  for (int i = 0; i < 4; ++i, bits >>= 16) sum += static_cast<double>(bits & 0xffff) / 65536;
  return sum * std::sqrt(3.0);
}

void SimulatedJob::StartIteration() {
  operation_ = 0;
  reports_.assign(ranks_.size(), {});
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    Rank& state = ranks_[r];
    const int64_t length = DrawLength(rank);
    const bool is_new = config_.new_lengths && state.lengths.insert(length).second;
    state.wander = 0.98 * state.wander + 0.2 * config_.wander * Noise(rank, kForWander);
    state.factor =
        state.chip * (1 + state.wander + config_.iteration_noise * Noise(rank, kForIteration));
    state.cost = Cost(static_cast<double>(length) / (config_.new_lengths ? kManyLengths : 1));
    state.host = state.kernel = 0;
    state.loader = state.cost * Delay(rank, is_new);
    for (const Fault& fault : config_.faults) {
      if (fault.rank != rank || iteration_ < fault.first || iteration_ > fault.last) continue;
      const double work = state.cost * (1 + kOptimiser);
      if (fault.kind == FaultKind::kKernels) state.factor *= 1 + fault.size;
      if (fault.kind == FaultKind::kOneKernel) state.kernel += fault.size * work;
      if (fault.kind == FaultKind::kHost) state.host += fault.size * state.cost;
      if (fault.kind == FaultKind::kLoader) state.loader += fault.size * Cost(kMeanLength);
    }
    state.start = state.compute;
    reports_[r] = {
        .number = iteration_, .rank = rank, .lengths = {length, 0}, .new_length = is_new};
    state.compute += state.loader;
  }
}

int64_t SimulatedJob::DrawLength(int32_t rank) const {
  int32_t drawn_by = config_.own_lengths ? rank : 0;
  if (config_.lengths_of >= 0) drawn_by = config_.lengths_of;
  const double drawn = config_.fixed_lengths
                           ? kMeanLength
                           : kMeanLength * std::exp(0.4 * Noise(drawn_by, kForLength));
  const double unit = config_.new_lengths ? kManyLengths : 1;
  return std::lround(unit * std::clamp(drawn, 10.0, 400.0));
}

// Stalls, and what a new length takes longer, as a share of the work.
double SimulatedJob::Delay(int32_t rank, bool is_new) const {
  const double early =
      config_.new_lengths ? std::exp(-static_cast<double>(iteration_) / kWarmUp) : 0;
  double delay = 0;
  if (Uniform(rank, kForStall) < config_.stall_probability + 0.05 * early)
    delay += 0.1 - 0.5 * std::log(1 - Uniform(rank, kForStallSize));
  // Where all have the same lengths, all meet a new one at the same time.
  const int32_t drawn_by = config_.own_lengths ? rank : 0;
  if (is_new && Uniform(drawn_by, kForNew) < 0.15 + 0.7 * early)
    delay += 0.5 * Uniform(drawn_by, kForNewSize) * (1 + 0.2 * Uniform(rank, kForNewPart));
  return delay;
}

// The time of one layer's pass, which is `share` of the iteration's work.
double SimulatedJob::Layer(size_t rank, int layer, double share) {
  const Rank& state = ranks_[rank];
  const double noise = config_.layer_noise * Noise(static_cast<int32_t>(rank), ++operation_);
  double ns = state.cost * share * state.factor * (1 + noise) + state.host * share;
  if (layer == kLayers / 2) ns += state.kernel;
  return ns;
}

double SimulatedJob::Transfer(double ns, int32_t from) {
  for (const Fault& fault : config_.faults) {
    if (fault.kind != FaultKind::kLink || iteration_ < fault.first || iteration_ > fault.last)
      continue;
    if (from < 0 || from == fault.rank) ns *= 1 + fault.size;
  }
  return 5000 + ns * (1 + config_.transfer_noise * Noise(-1, ++operation_));
}

void SimulatedJob::Record(size_t rank, uint32_t kind, uint32_t sequence, double start, double end,
                          int32_t peer, bool receives) {
  if (!with_collectives_) return;
  const double offset = ranks_[rank].offset;
  reports_[rank].collectives.push_back({.communicator = kCommunicator,
                                        .kind = kind,
                                        .sequence = sequence,
                                        .peer = peer,
                                        .receives = receives,
                                        .start_ns = std::llround(start + offset),
                                        .end_ns = std::llround(end + offset)});
}

// One on the communication stream, from when the compute stream is where it is now.
void SimulatedJob::Collective(uint32_t kind, double ns, bool blocking) {
  double last = 0;
  for (Rank& rank : ranks_) {
    rank.communication = std::max(rank.communication, rank.compute);
    last = std::max(last, rank.communication);
  }
  const double end = last + Transfer(ns);
  const uint32_t sequence = sequences_[kind]++;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Record(r, kind, sequence, ranks_[r].communication, end);
    ranks_[r].communication = end;
    if (blocking) ranks_[r].compute = end;
  }
}

void SimulatedJob::Send(size_t from, size_t to, double ns) {
  const double end = std::max(ranks_[from].compute, ranks_[to].compute) +
                     Transfer(ns, static_cast<int32_t>(std::min(from, to)));
  const uint32_t sequence = sequences_[kSend]++;
  Record(from, kSend, sequence, ranks_[from].compute, end, static_cast<int32_t>(to), false);
  Record(to, kSend, sequence, ranks_[to].compute, end, static_cast<int32_t>(from), true);
  ranks_[from].compute = ranks_[to].compute = end;
}

void SimulatedJob::RunData() {
  for (int layer = 0; layer < kLayers; ++layer)
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r].compute += Layer(r, -1, 1.0 / 3 / kLayers);
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    for (int layer = 0; layer < kLayers / kBuckets; ++layer)
      for (size_t r = 0; r < ranks_.size(); ++r)
        ranks_[r].compute += Layer(r, bucket * 2 + layer, 2.0 / 3 / kLayers);
    const bool small = bucket + 1 == kBuckets;
    Collective(small ? kSmallBucket : kBigBucket, kWorkNs * (small ? 0.02 : 0.05), false);
  }
  for (Rank& rank : ranks_) rank.compute = std::max(rank.compute, rank.communication);
}

void SimulatedJob::RunSharded() {
  constexpr double kUnitNs = kWorkNs * 0.02;
  std::vector<double> gathered(ranks_.size());  // ends of the layer's all-gather
  const auto gather = [&] {
    Collective(kGather, kUnitNs, false);
    for (size_t r = 0; r < ranks_.size(); ++r) gathered[r] = ranks_[r].communication;
  };
  for (const bool backward : {false, true}) {
    gather();
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t r = 0; r < ranks_.size(); ++r)
        ranks_[r].compute = std::max(ranks_[r].compute, gathered[r]);
      if (layer + 1 < kLayers) gather();
      for (size_t r = 0; r < ranks_.size(); ++r)
        ranks_[r].compute += Layer(r, backward ? layer : -1, (backward ? 2.0 : 1.0) / 3 / kLayers);
      if (backward) Collective(kScatter, kUnitNs, false);
    }
  }
  for (Rank& rank : ranks_) rank.compute = std::max(rank.compute, rank.communication);
}

void SimulatedJob::RunTensor() {
  for (const bool backward : {false, true})
    for (int half = 0; half < 2 * kLayers; ++half) {
      for (size_t r = 0; r < ranks_.size(); ++r)
        ranks_[r].compute += Layer(r, backward && half % 2 == 0 ? half / 2 : -1,
                                   (backward ? 2.0 : 1.0) / 6 / kLayers);
      Collective(kReduce, kWorkNs * 0.005, true);
    }
}

void SimulatedJob::RunPipeline() {
  const size_t stages = ranks_.size();
  constexpr double kSendNs = kWorkNs * 0.002;
  for (int batch = 0; batch < kMicroBatches; ++batch)
    for (size_t r = 0; r < stages; ++r) {
      ranks_[r].compute += Layer(r, -1, 1.0 / 3 / kMicroBatches);
      if (r + 1 < stages) Send(r, r + 1, kSendNs);
    }
  for (int batch = 0; batch < kMicroBatches; ++batch)
    for (size_t r = stages; r-- > 0;) {
      ranks_[r].compute += Layer(r, batch == 0 ? kLayers / 2 : -1, 2.0 / 3 / kMicroBatches);
      if (r > 0) Send(r, r - 1, kSendNs);
    }
}

const std::vector<RankIteration>& SimulatedJob::Next(bool with_collectives) {
  with_collectives_ = with_collectives;
  StartIteration();
  switch (config_.parallel) {
    case Parallel::kData:
      RunData();
      break;
    case Parallel::kSharded:
      RunSharded();
      break;
    case Parallel::kPipeline:
      RunPipeline();
      break;
    case Parallel::kTensor:
      RunTensor();
      break;
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.compute += kOptimiser * kWorkNs * rank.factor;
    reports_[r].duration_ns = std::llround(rank.compute - rank.start);
  }
  ++iteration_;
  return reports_;
}

double SimulatedJob::elapsed_ns() const {
  double latest = 0;
  for (const Rank& rank : ranks_) latest = std::max(latest, rank.compute);
  return latest;
}

}  // namespace seqpoint::ranks
