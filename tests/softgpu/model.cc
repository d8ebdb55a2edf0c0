#include "tests/softgpu/model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace seqpoint::softgpu {
namespace {

constexpr uint64_t kDriftPeriodNs = 50'000'000;  // how often the drift is looked at
constexpr size_t kZeroPagesFrom = 64 * 1024;

// Zeroing whole pages gives them back to the system: a training program zeroes gradients of
// gigabytes each iteration and never reads them, as no kernel runs.
void ZeroBytes(void* dst, uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(dst);
  uintptr_t first = (begin + page - 1) / page * page;
  uintptr_t last = (begin + bytes) / page * page;
  if (bytes < kZeroPagesFrom || last <= first ||
      madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    memset(dst, 0, bytes);
    return;
  }
  memset(dst, 0, first - begin);
  memset(reinterpret_cast<void*>(last), 0, begin + bytes - last);
}

uint64_t Signature(const Kernel& kernel, const LaunchShape& shape) {
  uint64_t signature = kernel.name_hash;
  for (int i = 0; i < 3; ++i) {
    signature = Mix(signature, (static_cast<uint64_t>(shape.grid[i]) << 32) | shape.block[i]);
  }
  return Mix(signature, shape.shared_bytes);
}

void Describe(const Kernel& kernel, const LaunchShape& shape, Operation* op) {
  op->kind = OpKind::kKernel;
  op->name = kernel.recorded_name.c_str();
  for (int i = 0; i < 3; ++i) {
    op->grid[i] = shape.grid[i];
    op->block[i] = shape.block[i];
  }
  op->shared_bytes = shape.shared_bytes;
  op->registers = 32;
}

}  // namespace

Model::Model(const Config& config, Clock* clock)
    : config_(config),
      clock_(clock),
      devices_(config.gpu_count),
      noise_state_(SplitMix(config.seed * kGolden + 1)),
      kernel_noise_(LogNormalFactors(config.noise_kernel)),
      ns_per_flop_(1e-3 / (config.fp32_tflops * config.efficiency)),
      ns_per_tensor_flop_(1e-3 / (config.tensor_tflops * config.efficiency)),
      ns_per_byte_(1 / (config.dram_gbps * config.efficiency)),
      tensor_flops_per_cycle_(config.tensor_tflops * 1e6 /
                              (static_cast<double>(config.sms) * config.clock_mhz)) {}

double Model::Noise(const std::vector<float>& factors) {
  noise_state_ += kGolden;
  return factors[SplitMix(noise_state_) % factors.size()];
}

void Model::UpdateDrift(uint64_t now_ns) {
  if (now_ns < drift_due_ns_) return;
  drift_due_ns_ = now_ns + kDriftPeriodNs;
  double phase =
      static_cast<double>(now_ns - clock_->start_ns()) * 1e-9 / config_.noise_drift_period_s +
      static_cast<double>(config_.seed % 1000) / 1000;
  drift_ = 1 + config_.noise_drift * std::sin(2 * M_PI * phase);
}

// The GPU does not know iterations. A copy from the host with kernels since the last one is where
// an iteration plausibly begins, and a slow period lasts from one to the next.
void Model::BeginStretch() {
  if (!launched_in_stretch_) return;
  launched_in_stretch_ = false;
  noise_state_ += kGolden;
  double uniform = static_cast<double>(SplitMix(noise_state_) >> 11) * 0x1p-53;
  slow_factor_ = uniform < config_.noise_slow_share ? config_.noise_slow_factor : 1;
}

Instant Model::Ready(const Stream& stream) const {
  switch (stream.sync) {
    case Stream::Sync::kLegacy:
      return Later(stream.tail, stream.context->blocking_tail);
    case Stream::Sync::kBlocking:
      return Later(stream.tail, stream.context->legacy.tail);
    case Stream::Sync::kNonBlocking:
      break;
  }
  return stream.tail;
}

void Model::Finish(Stream* stream, Instant end) {
  Context* context = stream->context;
  stream->tail = end;
  context->tail = Later(context->tail, end);
  if (stream->sync == Stream::Sync::kBlocking) {
    context->blocking_tail = Later(context->blocking_tail, end);
  }
}

void Model::LookUpSlowness(Kernel* kernel) const {
  kernel->slowness_of = slow_kernels_state_;
  kernel->slowness = 1;
  const auto named = [&](const std::string& part) {
    return kernel->name.find(part) != std::string::npos;
  };
  if (!config_.slow_kernel.empty() && named(config_.slow_kernel)) {
    kernel->slowness = config_.slow_kernel_factor;
  }
  for (const auto& [part, factor] : slow_kernels_) {
    if (named(part)) kernel->slowness *= factor;
  }
}

SwgpuWork Model::DefaultWork(const LaunchShape& shape) const {
  double threads = 1;
  for (int i = 0; i < 3; ++i) threads *= static_cast<double>(shape.grid[i]) * shape.block[i];
  SwgpuWork work{};
  work.flops = threads * config_.default_flops_per_thread;
  work.dram_read_bytes = threads * config_.default_bytes_per_thread / 2;
  work.dram_write_bytes = threads * config_.default_bytes_per_thread / 2;
  return work;
}

uint64_t Model::EnterQueue(Stream* stream, std::unique_lock<std::mutex>* lock) {
  if (stream->queue_ends.empty()) stream->queue_ends.resize(config_.queue_depth);
  const uint64_t place = stream->queued++ % config_.queue_depth;
  const Instant free_at = stream->queue_ends[place];
  const Instant now = clock_->Now();
  if (free_at.ns > now.ns || free_at.alone_ns > now.alone_ns) [[unlikely]] {
    lock->unlock();
    clock_->WaitUntil(free_at);
    lock->lock();
  }
  return place;
}

uint64_t Model::BesideJoint(const Device& device, uint64_t start_ns, uint64_t duration_ns) const {
  const double factor = config_.nccl_compute_slowdown;
  const uint64_t from_ns = std::max(start_ns, device.joint_start_ns);
  if (factor <= 1 || device.joint_end_ns <= from_ns || start_ns + duration_ns <= from_ns) {
    return duration_ns;
  }
  const auto before_ns = static_cast<double>(from_ns - start_ns);
  const auto beside_ns = static_cast<double>(device.joint_end_ns - from_ns);
  const double left_ns = static_cast<double>(duration_ns) - before_ns;
  return static_cast<uint64_t>(before_ns + (beside_ns / factor >= left_ns
                                                ? left_ns * factor
                                                : beside_ns + left_ns - beside_ns / factor));
}

void Model::Launch(Stream* stream, Kernel* kernel, const LaunchShape& shape, const SwgpuWork& work,
                   Operation* op) {
  const double blocks = static_cast<double>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  const double threads_per_block =
      static_cast<double>(shape.block[0]) * shape.block[1] * shape.block[2];
  const double sms = static_cast<double>(config_.sms);
  const double share = std::min(1.0, blocks / sms);

  Counters c;
  c.launches = 1;
  c.flops = work.flops;
  c.tensor_flops = work.tensor_flops;
  c.dram_read_bytes = work.dram_read_bytes;
  c.dram_write_bytes = work.dram_write_bytes;
  const double bytes = work.dram_read_bytes + work.dram_write_bytes;
  // A warp instruction does 64 operations (32 fused multiply-adds), a tensor one 8,192; 512 bytes
  // are one vector load or store of a warp.
  c.instructions = work.instructions > 0
                       ? work.instructions
                       : work.flops / 64 + work.tensor_flops / 8192 + bytes / 512 +
                             blocks * std::ceil(threads_per_block / 32) * 16;
  c.tensor_cycles = work.tensor_flops / tensor_flops_per_cycle_;
  double ideal_ns =
      std::max({work.flops * ns_per_flop_ / share, work.tensor_flops * ns_per_tensor_flop_ / share,
                bytes * ns_per_byte_ / std::min(1.0, 2 * share),
                static_cast<double>(config_.kernel_min_ns)});

  const uint64_t signature = Signature(*kernel, shape);

  std::unique_lock lock(mutex_);
  Instant& slot = stream->queue_ends[EnterQueue(stream, &lock)];
  Instant now = clock_->Now();
  // A library tries its algorithms when it meets a matrix shape for the first time: the host waits
  // for the GPU and measures.
  if (work.tensor_flops > 0 && config_.search_ns > 0 && searched_.insert(signature).second) {
    const Instant idle_at = Later(now, stream->tail);
    lock.unlock();
    clock_->WaitUntil(idle_at + config_.search_ns);
    lock.lock();
    now = clock_->Now();
  }
  UpdateDrift(now.ns);
  launched_in_stretch_ = true;
  if (kernel->slowness_of != slow_kernels_state_) [[unlikely]]
    LookUpSlowness(kernel);
  Device& device = devices_[stream->context->device];
  double noise = Noise(kernel_noise_) * slow_factor_ * drift_ * kernel->slowness * device.slowness;
  Instant start = Later(now + config_.launch_latency_ns, Ready(*stream) + config_.kernel_gap_ns);
  start = Later(start, device.exclusive_end);
  const bool exclusive = share > 0.5;
  if (exclusive) start = Later(start, device.shared_end);
  const uint64_t duration = BesideJoint(device, start.ns, static_cast<uint64_t>(ideal_ns * noise));
  const Instant end = start + duration;
  c.time_ns = static_cast<double>(duration);
  c.sm_active_cycles = c.time_ns * config_.clock_mhz * 1e-3 * sms * share;
  c.warp_cycles = c.sm_active_cycles *
                  std::min(64.0, std::ceil(threads_per_block / 32) * std::ceil(blocks / sms));

  Instant& last_end = exclusive ? device.exclusive_end : device.shared_end;
  last_end = Later(last_end, end);
  Finish(stream, end);
  slot = end;

  stream->digest = Mix(stream->digest, signature);
  kernel->truth.Add(c);
  stream->context->counters.Add(c);
  totals_.Add(c);
  op->sequence = ++launches_;
  if (device.watched) [[unlikely]]
    device.kernels.push_back({kernel->name.c_str(), c, start.ns, end.ns});
  std::vector<KernelSample>* samples = stream->context->samples;
  Instant replay_end = end;
  if (samples != nullptr) [[unlikely]] {
    samples->push_back({kernel->name.c_str(), c, start.ns, end.ns});
    replay_end = end + (stream->context->sample_passes - 1) * duration;
    Finish(stream, replay_end);
  }
  lock.unlock();
  if (samples != nullptr) [[unlikely]]
    clock_->WaitUntil(replay_end);

  Describe(*kernel, shape, op);
  op->start_ns = start.ns;
  op->end_ns = end.ns;
}

void Model::BeginJoint(const LaunchShape& shape, JointLaunch* launch) {
  Stream* stream = launch->stream;
  std::unique_lock lock(mutex_);
  launch->queued = EnterQueue(stream, &lock);
  launched_in_stretch_ = true;
  Describe(*launch->kernel, shape, &launch->op);
  const Instant start =
      Later(clock_->Now() + config_.launch_latency_ns, Ready(*stream) + config_.kernel_gap_ns);
  launch->op.start_ns = start.ns;
  launch->alone_ns = start.alone_ns;
  stream->digest = Mix(stream->digest, Signature(*launch->kernel, shape));
}

void Model::EndJoint(uint64_t end_ns, uint64_t transfer_ns, JointLaunch* launch) {
  Stream* stream = launch->stream;
  Kernel* kernel = launch->kernel;
  Operation& op = launch->op;
  op.end_ns = std::max(end_ns, op.start_ns);

  Counters c;
  c.launches = 1;
  c.time_ns = static_cast<double>(op.end_ns - op.start_ns);
  c.flops = launch->work.flops;
  c.dram_read_bytes = launch->work.dram_read_bytes;
  c.dram_write_bytes = launch->work.dram_write_bytes;
  c.instructions = launch->work.instructions;
  const double cycles = c.time_ns * config_.clock_mhz * 1e-3;
  c.sm_active_cycles = cycles * op.grid[0];
  c.warp_cycles = c.sm_active_cycles * op.block[0] / 32;

  std::lock_guard lock(mutex_);
  const Instant end{op.end_ns, launch->alone_ns + transfer_ns};
  Finish(stream, end);
  stream->queue_ends[launch->queued] = end;
  Device& device = devices_[stream->context->device];
  if (op.end_ns > device.joint_end_ns) {
    device.joint_start_ns = op.start_ns;
    device.joint_end_ns = op.end_ns;
  }
  kernel->truth.Add(c);
  stream->context->counters.Add(c);
  totals_.Add(c);
  op.sequence = ++launches_;
  const KernelSample sample{kernel->name.c_str(), c, op.start_ns, op.end_ns};
  if (device.watched) device.kernels.push_back(sample);
  if (stream->context->samples != nullptr) stream->context->samples->push_back(sample);
}

void Model::MeetClocks(uint64_t time_ns) {
  std::lock_guard lock(mutex_);
  clock_->StartLater(time_ns);
  drift_due_ns_ = 0;
}

void Model::Copy(Stream* stream, CopyKind kind, void* dst, const void* src, uint64_t bytes,
                 Operation* op) {
  uint64_t signature = Mix(static_cast<uint64_t>(kind) + 1, HashBytes(src, bytes));
  std::lock_guard lock(mutex_);
  if (kind == CopyKind::kHtoD) BeginStretch();
  const Instant now = clock_->Now();
  UpdateDrift(now.ns);
  Device& device = devices_[stream->context->device];
  Instant start = Later(now + config_.launch_latency_ns, Ready(*stream));
  double ns_per_byte = 2 * ns_per_byte_;
  Instant* engine = nullptr;
  if (kind == CopyKind::kHtoD || kind == CopyKind::kDtoH) {
    engine = &device.engine_end[kind == CopyKind::kHtoD ? 0 : 1];
    ns_per_byte = 1 / (kind == CopyKind::kHtoD ? config_.h2d_gbps : config_.d2h_gbps);
    start = Later(start, *engine);
  }
  auto duration = static_cast<uint64_t>(
      (static_cast<double>(config_.copy_latency_ns) + static_cast<double>(bytes) * ns_per_byte) *
      Noise(kernel_noise_));
  if (engine != nullptr) *engine = start + duration;
  Finish(stream, start + duration);
  stream->digest = Mix(stream->digest, signature);
  memmove(dst, src, bytes);

  op->kind = kind == CopyKind::kPtoP ? OpKind::kMemcpyPeer : OpKind::kMemcpy;
  op->start_ns = start.ns;
  op->end_ns = start.ns + duration;
  op->bytes = bytes;
  op->copy_kind = static_cast<uint8_t>(kind);
}

void Model::Memset(Stream* stream, void* dst, uint32_t value, uint32_t value_bytes, uint64_t count,
                   Operation* op) {
  const uint64_t bytes = count * value_bytes;
  std::lock_guard lock(mutex_);
  const Instant start = Later(clock_->Now() + config_.launch_latency_ns, Ready(*stream));
  auto duration = static_cast<uint64_t>(
      (static_cast<double>(config_.kernel_min_ns) + static_cast<double>(bytes) * ns_per_byte_) *
      Noise(kernel_noise_));
  Finish(stream, start + duration);
  stream->digest = Mix(Mix(stream->digest, value), bytes);
  if (value == 0) {
    ZeroBytes(dst, bytes);
  } else if (value_bytes == 1) {
    memset(dst, static_cast<int>(value), bytes);
  } else {
    auto* p = static_cast<unsigned char*>(dst);
    for (uint64_t i = 0; i < count; ++i) memcpy(p + i * value_bytes, &value, value_bytes);
  }

  op->kind = OpKind::kMemset;
  op->start_ns = start.ns;
  op->end_ns = start.ns + duration;
  op->bytes = bytes;
  op->value = value;
}

void Model::Record(Stream* stream, Event* event) {
  std::lock_guard lock(mutex_);
  event->context = stream->context;
  event->stream_id = stream->id;
  event->recorded = true;
  event->time = Later(clock_->Now() + config_.launch_latency_ns, Ready(*stream));
  Finish(stream, event->time);
}

void Model::WaitEvent(Stream* stream, const Event* event) {
  std::lock_guard lock(mutex_);
  if (event->recorded) Finish(stream, Later(Ready(*stream), event->time));
}

Instant Model::StreamTail(Stream* stream) {
  std::lock_guard lock(mutex_);
  return Ready(*stream);
}

Instant Model::ContextTail(Context* context) {
  std::lock_guard lock(mutex_);
  return context->tail;
}

void Model::InitStream(Stream* stream, Context* context, uint32_t flags, int priority,
                       Stream::Sync sync) {
  std::lock_guard lock(mutex_);
  stream->context = context;
  stream->id = next_stream_id_;
  next_stream_id_ += 6;  // ids are not dense on real devices either
  stream->flags = flags;
  stream->priority = priority;
  stream->sync = sync;
  context->streams.insert(stream);
  streams_.insert(stream);
}

void Model::DestroyStream(Stream* stream) {
  std::lock_guard lock(mutex_);
  if (stream->digest != 0) digest_ += Mix(stream->id, stream->digest);
  stream->context->streams.erase(stream);
  streams_.erase(stream);
}

Counters Model::ContextCounters(Context* context) {
  std::lock_guard lock(mutex_);
  return context->counters;
}

void Model::SampleKernels(Context* context, std::vector<KernelSample>* samples, uint32_t passes) {
  std::lock_guard lock(mutex_);
  context->samples = samples;
  context->sample_passes = std::max(passes, 1u);
}

void Model::WatchDevice(int device, bool on) {
  std::lock_guard lock(mutex_);
  devices_[device].watched = on;
  devices_[device].kernels.clear();
}

void Model::SlowDevice(int device, double factor) {
  std::lock_guard lock(mutex_);
  devices_[device].slowness = factor;
}

void Model::SlowKernels(const std::string& part, double factor) {
  std::lock_guard lock(mutex_);
  slow_kernels_[part] = factor;
  ++slow_kernels_state_;
}

std::vector<KernelSample> Model::TakeKernels(int device) {
  std::lock_guard lock(mutex_);
  return std::exchange(devices_[device].kernels, {});
}

Counters Model::Totals() {
  std::lock_guard lock(mutex_);
  return totals_;
}

uint64_t Model::Digest() {
  std::lock_guard lock(mutex_);
  uint64_t digest = digest_;
  for (const Stream* stream : streams_) {
    if (stream->digest != 0) digest += Mix(stream->id, stream->digest);
  }
  return digest;
}

}  // namespace seqpoint::softgpu
