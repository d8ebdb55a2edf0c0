#include "injection/cupti/activity_decoder.h"

#include "injection/cupti/callback_ids.h"

namespace seqpoint::inject {

using abi::DataType;

namespace {

// A record that claims to last a day is absurd, whatever the clock.
constexpr uint64_t kLongestRecordNs = 24ull * 3600 * 1'000'000'000;
// How far a record's time may be off what CUPTI's clock has shown. A GPU's clock is off by
// microseconds, another clock by days.
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

}  // namespace

ActivityDecoder::Seen ActivityDecoder::seen() const {
  return {records_.load(std::memory_order_relaxed), kernels_.load(std::memory_order_relaxed),
          untimed_kernels_.load(std::memory_order_relaxed)};
}

// At every flush, so that what ran after the system's clock was set back ends later than that time,
// within the slack.
void ActivityDecoder::ReadClock() {
  const uint64_t now_ns = clock_->NowNs();
  uint64_t known = latest_ns_.load(std::memory_order_relaxed);
  while (now_ns > known && !latest_ns_.compare_exchange_weak(known, now_ns)) {
  }
  if (clock_->foreign()) return;
  known = earliest_ns_.load(std::memory_order_relaxed);
  while (now_ns < known && !earliest_ns_.compare_exchange_weak(known, now_ns)) {
  }
}

bool ActivityDecoder::Valid(uint64_t start_ns, uint64_t end_ns) {
  const bool sane = start_ns != 0 && end_ns >= start_ns && end_ns - start_ns < kLongestRecordNs;
  const bool ours = end_ns + kClockSlackNs >= earliest_ns_.load(std::memory_order_relaxed) &&
                    start_ns <= latest_ns_.load(std::memory_order_relaxed) + kClockSlackNs;
  if (sane && ours) return true;
  if (sane) foreign_.fetch_add(1, std::memory_order_relaxed);
  ring_->Count(&abi::RingHeader::invalid_timestamps, 1);
  return false;
}

// The name that the launch had, where the record's may be that of another module's kernel.
uint32_t ActivityDecoder::KernelName(const char* recorded, uint32_t correlation_id) {
  if (launch_names_->needed()) {
    const uint32_t launched = launch_names_->Find(correlation_id);
    if (launched != 0) return launched;
  }
  return names_->InternKernel(recorded).id;
}

// Fields of all records. False: the times are invalid.
template <typename Record, typename Out>
bool ActivityDecoder::Fill(const Record& in, DataType type, Out* out) {
  if (!Valid(in.start, in.end)) return false;
  out->type = static_cast<uint16_t>(type);
  out->start_ns = in.start;
  out->end_ns = in.end;
  out->correlation_id = in.correlationId;
  return true;
}

// Fields of all records of the GPU's work.
template <typename Record, typename Out>
bool ActivityDecoder::FillWork(const Record& in, DataType type, Out* out) {
  if (!Fill(in, type, out)) return false;
  out->device = static_cast<uint16_t>(in.deviceId);
  out->stream = in.streamId;
  out->context = in.contextId;
  out->graph_id = in.graphId;
  return true;
}

// Copies, peer copies and memsets.
template <typename Record>
bool ActivityDecoder::FillCopy(const Record& in, DataType type, abi::CopyRecord* out) {
  if (!FillWork(in, type, out)) return false;
  out->bytes = in.bytes;
  if constexpr (requires { in.copyKind; }) out->kind = in.copyKind;
  listener_->OnCallRecord(in.correlationId, in.start);
  return true;
}

void ActivityDecoder::Decode(const CUpti_Activity* record) {
  abi::DataRecord data = {};
  const bool no_graph_ids = graph_ids_wrong_.load(std::memory_order_relaxed);
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const Kernel* in = reinterpret_cast<const Kernel*>(record);
      kernels_.fetch_add(1, std::memory_order_relaxed);
      abi::KernelRecord& out = data.kernel;
      if (!FillWork(*in, DataType::kKernel, &out)) {
        untimed_kernels_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      out.name_id = KernelName(in->name, in->graphId == 0 ? in->correlationId : 0);
      if (no_graph_ids && in->graphId != 0) out.correlation_id = 0;
      out.grid_x = static_cast<uint32_t>(in->gridX);
      out.grid_y = Clamp16(in->gridY);
      out.grid_z = Clamp16(in->gridZ);
      out.block_x = Clamp16(in->blockX);
      out.block_y = Clamp16(in->blockY);
      out.block_z = Clamp16(in->blockZ);
      out.registers_per_thread = in->registersPerThread;
      out.static_shared_bytes = static_cast<uint32_t>(in->staticSharedMemory);
      out.dynamic_shared_bytes = static_cast<uint32_t>(in->dynamicSharedMemory);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      if (!FillCopy(*reinterpret_cast<const Copy*>(record), DataType::kCopy, &data.copy)) return;
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      if (!FillCopy(*reinterpret_cast<const PeerCopy*>(record), DataType::kCopy, &data.copy))
        return;
      break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      if (!FillCopy(*reinterpret_cast<const Memset*>(record), DataType::kMemset, &data.copy))
        return;
      break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const Sync* in = reinterpret_cast<const Sync*>(record);
      abi::SyncRecord& out = data.sync;
      if (!Fill(*in, DataType::kSync, &out)) return;
      out.kind = static_cast<uint16_t>(in->type);
      out.context = in->contextId;
      out.stream = in->streamId;
      break;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
      const Graph* in = reinterpret_cast<const Graph*>(record);
      if (!FillWork(*in, DataType::kGraph, &data.graph)) return;
      listener_->OnCallRecord(in->correlationId, in->start);
      break;
    }
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: {
      const Api* in = reinterpret_cast<const Api*>(record);
      const WatchedCall* call = FindWatchedCall(in->cbid);
      if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER && call == nullptr) return;
      abi::ApiRecord& out = data.api;
      if (!Fill(*in, DataType::kApi, &out)) return;
      out.cbid = in->cbid;
      out.thread_id = in->threadId;
      if (record->kind == CUPTI_ACTIVITY_KIND_DRIVER) {
        out.op = static_cast<uint8_t>(call->op);
        out.blocks = call->blocks ? 1 : 0;
      }
      break;
    }
    default:
      ring_->Count(&abi::RingHeader::unknown_records, 1);
      return;
  }
  ring_->WriteData(data);
}

}  // namespace seqpoint::inject
