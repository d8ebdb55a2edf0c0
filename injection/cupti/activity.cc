#include "injection/cupti/activity.h"

#include <stdlib.h>

#include "injection/cupti/callback_ids.h"
#include "injection/cupti/current_context.h"
#include "injection/process/guest.h"

namespace seqpoint::inject {
namespace {

using abi::DataType;

constexpr size_t kAlignment = 64;
// A record that claims to last a day is absurd, whatever the clock.
constexpr uint64_t kLongestRecordNs = 24ull * 3600 * 1'000'000'000;
// How far a record's time may be off what CUPTI's clock has shown: generous beside the microseconds
// by which a GPU's clock is off, nothing beside those by which another clock is.
constexpr uint64_t kClockSlackNs = 1'000'000'000;

// The prefixes that are read: the newest struct of each kind, none of its fields appended after
// CUPTI 12.0.
using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using PeerCopy = CUpti_ActivityMemcpyPtoP4;
using Memset = CUpti_ActivityMemset4;
using Sync = CUpti_ActivitySynchronization2;
using Graph = CUpti_ActivityGraphTrace2;
using Api = CUpti_ActivityAPI;

uint16_t Clamp16(int32_t value) {
  return value < 0 ? 0 : value < 0xFFFF ? static_cast<uint16_t>(value) : 0xFFFF;
}

struct KindOf {
  uint32_t bit;
  CUpti_ActivityKind kind;
};
constexpr KindOf kKindTable[] = {
    {kKindKernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL},
    {kKindCopy, CUPTI_ACTIVITY_KIND_MEMCPY},
    {kKindPeerCopy, CUPTI_ACTIVITY_KIND_MEMCPY2},
    {kKindMemset, CUPTI_ACTIVITY_KIND_MEMSET},
    {kKindSync, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION},
    {kKindGraph, CUPTI_ACTIVITY_KIND_GRAPH_TRACE},
    {kKindApi, CUPTI_ACTIVITY_KIND_DRIVER},
};

// What copies, peer copies and memsets have in common.
template <typename Activity>
void FillCopy(const Activity& in, abi::CopyRecord* out) {
  out->device = static_cast<uint16_t>(in.deviceId);
  out->start_ns = in.start;
  out->end_ns = in.end;
  out->bytes = in.bytes;
  out->correlation_id = in.correlationId;
  out->stream = in.streamId;
  out->context = in.contextId;
  out->graph_id = in.graphId;
}

}  // namespace

bool Activity::Init(const Cupti* cupti, const CudaDriver* driver, Pool* pool, Names* names,
                    injection::RingWriter* ring, Features* features) {
  cupti_ = cupti;
  driver_ = driver;
  names_ = names;
  ring_ = ring;
  features_ = features;
  last_resort_ = static_cast<uint8_t*>(pool->Take(kSmallBufferBytes));
  if (last_resort_ == nullptr) return false;
  earliest_ns_.store(g_guest->clock.NowNs(), std::memory_order_relaxed);
  // So that the thread ids of records are those of the system.
  if (cupti_->SetThreadIdType != nullptr) {
    cupti_->SetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  }
  if (cupti_->Has(kHangsAfterKernels)) {
    Forbid(~(kKindCopy | kKindMemset));
    features_->Report(abi::Feature::kActivity, abi::FeatureState::kIgnored, 0,
                      "CUPTI version %u may deadlock when kernels are not recorded any more, and "
                      "crash in long runs of CUDA graphs: iterations are timed by their copies and "
                      "memsets, and no kernel or graph is recorded; install the CUPTI of CUDA 13.0 "
                      "Update 1 or later "
                      "(nvidia-cuda-cupti 13.0.85)",
                      cupti_->version);
  }
  const uint32_t result = Register();
  if (result != CUPTI_SUCCESS) {
    features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, result,
                      "cuptiActivityRegisterCallbacks gave %u (%s): GPU times cannot be had; "
                      "iterations are timed by their calls",
                      result, cupti_->ResultName(result));
    return false;
  }
  ready_.store(true, std::memory_order_relaxed);
  return true;
}

uint32_t Activity::Register() {
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiActivityRegisterCallbacks");
  return cupti_->ActivityRegisterCallbacks(OnRequest, OnComplete);
}

void Activity::TakeBuffers(bool clock_claimed) {
  if (!ready()) return;
  InsideScope inside;
  FlushNow(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (Buffer& buffer : buffers_) {
    if (buffer.lent.load(std::memory_order_acquire)) buffer.stale.store(true);
  }
  Register();
  kinds_.store(0, std::memory_order_relaxed);
  BeginAnotherSession();
  if (!clock_claimed) return;
  clock_was_changed_.store(true, std::memory_order_relaxed);
  if (!cupti_->Has(kLosesKernelStarts)) return;
  Forbid(kKindKernel);
  features_->Report(
      abi::Feature::kActivity, abi::FeatureState::kIgnored, 0,
      "another profiler (torch.profiler) has set CUPTI's clock, and CUPTI version %u "
      "gives kernels no times from then on: no iteration is traced in this process any "
      "more; use the CUPTI of CUDA 13.1 or later",
      cupti_->version);
}

// After the first session, which ends where no kind is on, ids of graph launches cannot be trusted,
// and no whole-graph record is asked for.
void Activity::BeginAnotherSession() {
  if (!cupti_->Has(kMixesUpGraphLaunches)) return;
  graph_ids_wrong_.store(true, std::memory_order_relaxed);
  Forbid(kKindGraph);
}

Activity::Seen Activity::seen() const {
  return {decoded_.load(std::memory_order_relaxed), kernels_.load(std::memory_order_relaxed),
          untimed_kernels_.load(std::memory_order_relaxed)};
}

bool Activity::Lost(const Seen& before) const {
  const Seen now = seen();
  return now.records == before.records ||
         2 * (now.untimed_kernels - before.untimed_kernels) > now.kernels - before.kernels;
}

uint32_t Activity::Enable(uint32_t kind) {
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiActivityEnable");
  if (kind != kKindApi) {
    for (const KindOf& entry : kKindTable) {
      if (entry.bit == kind) return cupti_->ActivityEnable(entry.kind);
    }
    return 0;
  }
  // Single calls: the whole kind would record thousands of queries that mean nothing to us.
  if (cupti_->ActivityEnableDriverApi == nullptr) return 0;
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    if (kWatchedCalls[i].op != abi::Op::kNone) {
      cupti_->ActivityEnableDriverApi(kWatchedCalls[i].cbid, 1);
    }
  }
  return 0;
}

void Activity::Disable(uint32_t kind) {
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiActivityDisable");
  if (kind != kKindApi) {
    for (const KindOf& entry : kKindTable) {
      if (entry.bit == kind) cupti_->ActivityDisable(entry.kind);
    }
    return;
  }
  if (cupti_->ActivityEnableDriverApi == nullptr) return;
  for (uint32_t i = 0; i < kWatchedCallCount; ++i) {
    if (kWatchedCalls[i].op != abi::Op::kNone) {
      cupti_->ActivityEnableDriverApi(kWatchedCalls[i].cbid, 0);
    }
  }
}

bool Activity::SetKinds(uint32_t kinds, bool synchronize) {
  if (!ready()) return false;
  const uint32_t on = kinds_.load(std::memory_order_relaxed);
  kinds &= allowed();
  if (on == 0 && kinds != 0 && sessions_++ > 0) {
    BeginAnotherSession();
    kinds &= allowed();
  }
  if (kinds == on) return false;
  InsideScope inside;
  const RelaxedCaptures relaxed(driver_, g_guest->stream.may_capture());
  // Kernels in flight when tracing begins would be recorded without a start.
  const bool kernels_change = ((kinds ^ on) & kKindKernel) != 0;
  if (synchronize && ((on & ~kinds) != 0 || kernels_change)) WaitForGpu();
  if ((on & ~kinds) != 0) FlushNow(0);
  for (const KindOf& entry : kKindTable) {
    if ((on & ~kinds & entry.bit) != 0) Disable(entry.bit);
    if ((kinds & ~on & entry.bit) == 0) continue;
    const uint32_t result = Enable(entry.bit);
    if (result != CUPTI_SUCCESS) {
      features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, result,
                        "cuptiActivityEnable(kind %u) gave %u (%s): this kind of GPU work is not "
                        "recorded",
                        static_cast<unsigned>(entry.kind), result, cupti_->ResultName(result));
      Forbid(entry.bit);
    }
  }
  kinds_.store(kinds, std::memory_order_relaxed);
  return true;
}

void Activity::SetKindsOfWindow(uint32_t kinds) {
  if (SetKinds(kinds, true) || !ready()) return;
  InsideScope inside;
  WaitForGpu();
  FlushNow(0);
}

// A thread of NVTX ranges alone has no context of its own.
void Activity::WaitForGpu() {
  if (driver_->CtxSynchronize == nullptr ||
      driver_->CtxSynchronize() != CUDA_ERROR_INVALID_CONTEXT) {
    return;
  }
  const CUcontext only = g_guest->OnlyContext();
  if (only == nullptr) return;
  const CurrentContext current(driver_, only);
  driver_->CtxSynchronize();
}

uint64_t Activity::Flush(bool forced) {
  if (!ready()) return 0;
  InsideScope inside;
  const uint64_t begin_ns = MonotonicNs();
  FlushNow(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
  flushes_.fetch_add(1, std::memory_order_relaxed);
  return MonotonicNs() - begin_ns;
}

void Activity::FlushNow(uint32_t flag) {
  ReadClock();
  CallWatch::Scope watch(&g_guest->call_watch, "cuptiActivityFlushAll");
  const uint32_t result = cupti_->ActivityFlushAll(flag);
  if (result == CUPTI_SUCCESS || !ready()) return;
  features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, result,
                    "cuptiActivityFlushAll gave %u (%s): GPU times come late or never", result,
                    cupti_->ResultName(result));
}

void Activity::Check(uint64_t awaited) {
  constexpr int kStarvedChecks = 3;
  const uint64_t decoded = decoded_.load(std::memory_order_relaxed);
  const uint64_t kernels = kernels_.load(std::memory_order_relaxed);
  const uint64_t untimed = untimed_kernels_.load(std::memory_order_relaxed);
  if (2 * (untimed - checked_untimed_) > kernels - checked_kernels_) {
    const bool clock =
        clock_was_changed_.load(std::memory_order_relaxed) || g_guest->clock.changed();
    features_->Report(
        abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
        clock ? "CUPTI delivers kernels without times; it does so from CUDA 12.6 to 13.0 when "
                "another profiler (torch.profiler) sets its clock: stop that profiler, or use a "
                "later CUDA"
              : "CUPTI delivers kernels without times, as it does when its buffers on the GPU have "
                "run out, after millions of kernels: traced iterations are given up");
  } else if (foreign_.load(std::memory_order_relaxed) > 0) {
    features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
                      "CUPTI delivers records with times of another clock, which another profiler "
                      "in this process has set: such records are left out; stop that profiler");
  }
  checked_kernels_ = kernels;
  checked_untimed_ = untimed;
  // Records come with flushes, which are done less often where they are slow.
  const uint64_t flushes = flushes_.load(std::memory_order_relaxed);
  if (flushes == checked_flushes_) return;
  checked_flushes_ = flushes;
  const bool starved = any_kind_on() && awaited > checked_awaited_ && decoded == checked_decoded_;
  starved_checks_ = starved ? starved_checks_ + 1 : 0;
  checked_awaited_ = awaited;
  checked_decoded_ = decoded;
  if (starved_checks_ < kStarvedChecks) return;
  features_->Report(abi::Feature::kActivity, abi::FeatureState::kFailed, 0,
                    "another profiler in this process (torch.profiler?) took CUPTI's buffers: GPU "
                    "times are lost until the process is restarted without it");
  GiveUp();
}

void Activity::GiveUp() {
  ready_.store(false, std::memory_order_relaxed);
  kinds_.store(0, std::memory_order_relaxed);
}

void Activity::OnRequest(uint8_t** buffer, size_t* size, size_t* max_records) {
  *max_records = 0;
  Guest* guest = g_guest;
  if (guest != nullptr) {
    guest->activity.Request(buffer, size);
    return;
  }
  *buffer = nullptr;  // a forked child: CUPTI is of no use there
  *size = 0;
}

void Activity::OnComplete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  Guest* guest = g_guest;
  if (guest != nullptr) guest->activity.Complete(buffer, valid_bytes);
}

void Activity::Request(uint8_t** buffer, size_t* size) {
  for (Buffer& one : buffers_) {
    if (one.lent.load(std::memory_order_relaxed) ||
        one.lent.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    const size_t bytes = &one < buffers_ + kBuffers ? kBufferBytes : kSmallBufferBytes;
    void* memory = one.bytes.load(std::memory_order_relaxed);
    if (memory == nullptr && posix_memalign(&memory, kAlignment, bytes) != 0) {
      one.lent.store(false, std::memory_order_release);
      break;
    }
    one.bytes.store(static_cast<uint8_t*>(memory), std::memory_order_release);
    *buffer = static_cast<uint8_t*>(memory);
    *size = bytes;
    return;
  }
  *buffer = cupti_->Has(kNeedsBuffers) ? last_resort_ : nullptr;
  *size = *buffer != nullptr ? kSmallBufferBytes : 0;
}

void Activity::Complete(uint8_t* buffer, size_t valid_bytes) {
  Buffer* ours = nullptr;
  for (Buffer& one : buffers_) {
    if (one.bytes.load(std::memory_order_acquire) != buffer || !one.lent.load()) continue;
    ours = &one;
    break;
  }
  if (ours == nullptr && buffer != last_resort_) return;  // another tool's, from before us
  const bool discarded = ours == nullptr || ours >= buffers_ + kBuffers;
  CUpti_Activity* record = nullptr;
  uint64_t count = 0;
  ReadClock();
  // Ends with MAX_LIMIT_REACHED, or with INVALID_KIND at the unfinished record of a forced flush.
  while (valid_bytes > 0 &&
         cupti_->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    ++count;
    if (!discarded) Decode(record);
  }
  decoded_.fetch_add(count, std::memory_order_relaxed);
  if (discarded) {
    ring_->Count(injection::RingCounter::kCuptiDropped, count);
  }
  if (ours != nullptr) {
    if (ours->stale.exchange(false)) ours->bytes.store(nullptr, std::memory_order_relaxed);
    ours->lent.store(false, std::memory_order_release);
  }
  size_t dropped = 0;
  if (cupti_->ActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0) {
    ring_->Count(injection::RingCounter::kCuptiDropped, dropped);
  }
}

// At every flush, so that what ran after the system's clock was set back ends later than that time,
// within the slack.
void Activity::ReadClock() {
  const uint64_t now_ns = g_guest->clock.NowNs();
  uint64_t known = latest_ns_.load(std::memory_order_relaxed);
  while (now_ns > known && !latest_ns_.compare_exchange_weak(known, now_ns)) {
  }
  if (g_guest->clock.foreign()) return;
  known = earliest_ns_.load(std::memory_order_relaxed);
  while (now_ns < known && !earliest_ns_.compare_exchange_weak(known, now_ns)) {
  }
}

bool Activity::Valid(uint64_t start_ns, uint64_t end_ns) {
  const bool sane = start_ns != 0 && end_ns >= start_ns && end_ns - start_ns < kLongestRecordNs;
  const bool ours = end_ns + kClockSlackNs >= earliest_ns_.load(std::memory_order_relaxed) &&
                    start_ns <= latest_ns_.load(std::memory_order_relaxed) + kClockSlackNs;
  if (sane && ours) return true;
  if (sane) foreign_.fetch_add(1, std::memory_order_relaxed);
  ring_->Count(injection::RingCounter::kInvalidTimestamps, 1);
  return false;
}

// Records of calls that may be an iteration's clock.
static void ClockRecord(uint32_t correlation_id, uint64_t start_ns) {
  if (g_guest->counters.samples()) g_guest->counters.pm().OnRecord(correlation_id, start_ns);
}

// The name that the launch had, where the record's may be that of another module's kernel.
uint32_t Activity::KernelName(const char* recorded, uint32_t correlation_id) {
  if (g_guest->modules_went.load(std::memory_order_relaxed)) {
    const uint32_t launched = g_guest->launch_names.Find(correlation_id);
    if (launched != 0) return launched;
  }
  return names_->InternKernel(recorded).id;
}

void Activity::Decode(const CUpti_Activity* record) {
  abi::DataRecord data = {};
  const bool no_graph_ids = graph_ids_wrong_.load(std::memory_order_relaxed);
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const Kernel* in = reinterpret_cast<const Kernel*>(record);
      kernels_.fetch_add(1, std::memory_order_relaxed);
      if (!Valid(in->start, in->end)) {
        untimed_kernels_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      abi::KernelRecord& out = data.kernel;
      out.type = static_cast<uint16_t>(DataType::kKernel);
      out.device = static_cast<uint16_t>(in->deviceId);
      out.name_id = KernelName(in->name, in->graphId == 0 ? in->correlationId : 0);
      out.start_ns = in->start;
      out.end_ns = in->end;
      out.correlation_id = no_graph_ids && in->graphId != 0 ? 0 : in->correlationId;
      out.stream = in->streamId;
      out.grid_x = static_cast<uint32_t>(in->gridX);
      out.grid_y = Clamp16(in->gridY);
      out.grid_z = Clamp16(in->gridZ);
      out.block_x = Clamp16(in->blockX);
      out.block_y = Clamp16(in->blockY);
      out.block_z = Clamp16(in->blockZ);
      out.registers_per_thread = in->registersPerThread;
      out.context = in->contextId;
      out.graph_id = in->graphId;
      out.static_shared_bytes = static_cast<uint32_t>(in->staticSharedMemory);
      out.dynamic_shared_bytes = static_cast<uint32_t>(in->dynamicSharedMemory);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const Copy* in = reinterpret_cast<const Copy*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::CopyRecord& out = data.copy;
      out.type = static_cast<uint16_t>(DataType::kCopy);
      FillCopy(*in, &out);
      ClockRecord(in->correlationId, in->start);
      out.kind = in->copyKind;
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const PeerCopy* in = reinterpret_cast<const PeerCopy*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::CopyRecord& out = data.copy;
      out.type = static_cast<uint16_t>(DataType::kCopy);
      FillCopy(*in, &out);
      ClockRecord(in->correlationId, in->start);
      out.kind = in->copyKind;
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const Memset* in = reinterpret_cast<const Memset*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::CopyRecord& out = data.copy;
      out.type = static_cast<uint16_t>(DataType::kMemset);
      FillCopy(*in, &out);
      ClockRecord(in->correlationId, in->start);
      break;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const Sync* in = reinterpret_cast<const Sync*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::SyncRecord& out = data.sync;
      out.type = static_cast<uint16_t>(DataType::kSync);
      out.kind = static_cast<uint16_t>(in->type);
      out.context = in->contextId;
      out.start_ns = in->start;
      out.end_ns = in->end;
      out.correlation_id = in->correlationId;
      out.stream = in->streamId;
      out.event_id = in->cudaEventId;
      break;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
      const Graph* in = reinterpret_cast<const Graph*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::GraphRecord& out = data.graph;
      out.type = static_cast<uint16_t>(DataType::kGraph);
      out.device = static_cast<uint16_t>(in->deviceId);
      out.graph_id = in->graphId;
      out.start_ns = in->start;
      ClockRecord(in->correlationId, in->start);
      out.end_ns = in->end;
      out.correlation_id = in->correlationId;
      out.stream = in->streamId;
      out.context = in->contextId;
      break;
    }
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: {
      const Api* in = reinterpret_cast<const Api*>(record);
      if (!Valid(in->start, in->end)) return;
      abi::ApiRecord& out = data.api;
      out.type = static_cast<uint16_t>(DataType::kApi);
      out.domain = static_cast<uint16_t>(record->kind == CUPTI_ACTIVITY_KIND_DRIVER
                                             ? CUPTI_CB_DOMAIN_DRIVER_API
                                             : CUPTI_CB_DOMAIN_RUNTIME_API);
      out.cbid = in->cbid;
      out.start_ns = in->start;
      out.end_ns = in->end;
      out.correlation_id = in->correlationId;
      out.thread_id = in->threadId;
      out.return_value = in->returnValue;
      if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
        if (const WatchedCall* call = FindWatchedCall(in->cbid); call != nullptr) {
          out.op = static_cast<uint8_t>(call->op);
          out.blocks = call->blocks ? 1 : 0;
        }
      }
      break;
    }
    default:
      ring_->Count(injection::RingCounter::kUnknownRecords, 1);
      return;
  }
  ring_->WriteData(data);
}

}  // namespace seqpoint::inject
