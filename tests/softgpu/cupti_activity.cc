// Activity API of the software libcupti: records, buffers, flushing.
//
// The model knows the end of every operation when it is submitted, so a record is written at once,
// into the buffer of the submitting thread, and the buffer remembers its latest end. A buffer is
// complete when the clock has passed that; only complete ones are handed over, except when forced.

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tests/softgpu/cupti_state.h"
#include "tests/softgpu/releases.h"

namespace seqpoint::softgpu {
namespace {

constexpr auto kPollPeriod = std::chrono::milliseconds(1);
constexpr uint64_t kSupportedKinds =
    (1ull << CUPTI_ACTIVITY_KIND_MEMCPY) | (1ull << CUPTI_ACTIVITY_KIND_MEMSET) |
    (1ull << CUPTI_ACTIVITY_KIND_KERNEL) | (1ull << CUPTI_ACTIVITY_KIND_DRIVER) |
    (1ull << CUPTI_ACTIVITY_KIND_RUNTIME) | (1ull << CUPTI_ACTIVITY_KIND_DEVICE) |
    (1ull << CUPTI_ACTIVITY_KIND_CONTEXT) | (1ull << CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) |
    (1ull << CUPTI_ACTIVITY_KIND_OVERHEAD) | (1ull << CUPTI_ACTIVITY_KIND_MEMCPY2) |
    (1ull << CUPTI_ACTIVITY_KIND_CUDA_EVENT) | (1ull << CUPTI_ACTIVITY_KIND_STREAM) |
    (1ull << CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) |
    (1ull << CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) | (1ull << CUPTI_ACTIVITY_KIND_GRAPH_TRACE);

// First versions with the larger records of each kind (docs/internals/software-gpu.md).
constexpr uint64_t kVersion12Point4 = 22;
constexpr uint64_t kVersion12Point8 = 26;
constexpr uint64_t kVersion13 = 130000;

// Size of a record of `kind` in the record generation of `version`; 0: no such kind. Older records
// are prefixes of newer ones.
size_t RecordBytes(uint64_t version, uint32_t kind) {
  const bool v12_4 = version >= kVersion12Point4;
  const bool v12_8 = version >= kVersion12Point8;
  const bool v13 = version >= kVersion13;
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return v13 ? sizeof(CUpti_ActivityKernel10) : sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return v12_8 ? sizeof(CUpti_ActivityMemcpy6) : sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      return v12_8 ? sizeof(CUpti_ActivitySynchronization2) : sizeof(CUpti_ActivitySynchronization);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return v12_8 ? sizeof(CUpti_ActivityGraphTrace2) : sizeof(CUpti_ActivityGraphTrace);
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      return v12_8 ? sizeof(CUpti_ActivityCudaEvent2) : sizeof(CUpti_ActivityCudaEvent);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      return v13     ? sizeof(CUpti_ActivityContext3)
             : v12_4 ? sizeof(CUpti_ActivityContext2)
                     : sizeof(CUpti_ActivityContext);
    case CUPTI_ACTIVITY_KIND_STREAM:
      return sizeof(CUpti_ActivityStream);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return v13 ? sizeof(CUpti_ActivityDevice5) : sizeof(CUpti_ActivityDevice4);
    default:
      return 0;
  }
}

// Where the end lies in a record whose times may be in the future; 0: complete at birth.
size_t EndOffset(uint32_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return offsetof(CUpti_ActivityKernel10, end);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return offsetof(CUpti_ActivityMemcpy6, end);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return offsetof(CUpti_ActivityMemcpyPtoP4, end);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return offsetof(CUpti_ActivityMemset4, end);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      return offsetof(CUpti_ActivityGraphTrace2, end);
    default:
      return 0;
  }
}
bool EndOf(const uint8_t* record, uint64_t* end_ns) {
  uint32_t kind;
  memcpy(&kind, record, sizeof(kind));
  const size_t offset = EndOffset(kind);
  if (offset == 0) return false;
  memcpy(end_ns, record + offset, sizeof(*end_ns));
  return true;
}

struct Buffer {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  size_t records = 0;
  size_t max_records = 0;  // 0: as many as fit
  uint64_t complete_ns = 0;
};

// The buffer that one thread fills.
struct Slot {
  std::mutex mutex;
  Buffer buffer;
};

thread_local constinit Slot* t_slot = nullptr;

struct ExternalId {
  CUpti_ExternalCorrelationKind kind;
  uint64_t id;
};

class Buffers {
 public:
  Buffers() {
    per_thread_ = releases::HaveBuffersOfThreads(GetState()->config->cupti_version);
    pthread_key_create(&key_, [](void* slot) { Get().Retire(static_cast<Slot*>(slot)); });
  }

  static Buffers& Get() {
    static auto* buffers = new Buffers;
    return *buffers;
  }

  void Register(CUpti_BuffersCallbackRequestFunc request,
                CUpti_BuffersCallbackCompleteFunc complete) {
    request_ = request;
    complete_ = complete;
  }

  // CUPTI forgets who its client is. What it still has of that client's is not handed over.
  void Forget() {
    Register(nullptr, nullptr);
    {
      std::lock_guard lock(slots_mutex_);
      for (Slot* slot : slots_) {
        std::lock_guard slot_lock(slot->mutex);
        slot->buffer = {};
      }
    }
    {
      std::lock_guard lock(closed_mutex_);
      closed_.clear();
    }
    std::lock_guard lock(lent_mutex_);
    lent_.clear();
  }

  // The kind was disabled while work of it ran: the ends of such records are never filled in.
  void LoseEnds(uint32_t kind) {
    const uint64_t now = GetState()->hooks->now_ns();
    {
      std::lock_guard lock(slots_mutex_);
      for (Slot* slot : slots_) {
        std::lock_guard slot_lock(slot->mutex);
        LoseEndsOf(slot->buffer, kind, now);
      }
    }
    std::lock_guard lock(closed_mutex_);
    for (const Buffer& buffer : closed_) LoseEndsOf(buffer, kind, now);
  }

  // Copies `bytes` of the record; it is complete when the clock reaches `complete_ns`.
  void Append(const void* record, size_t bytes, uint64_t complete_ns) {
    Slot* slot = ThisSlot();
    std::lock_guard lock(slot->mutex);
    Buffer& buffer = slot->buffer;
    if (buffer.data != nullptr &&
        (buffer.used + bytes > buffer.bytes ||
         (buffer.max_records > 0 && buffer.records == buffer.max_records))) {
      Close(buffer);
      buffer = {};
    }
    if (buffer.data == nullptr && !Request(bytes, &buffer)) {
      Drop(1);
      return;
    }
    memcpy(buffer.data + buffer.used, record, bytes);
    buffer.used += bytes;
    ++buffer.records;
    buffer.complete_ns = std::max(buffer.complete_ns, complete_ns);
  }

  void Flush(bool forced) {
    {
      std::lock_guard lock(slots_mutex_);
      for (Slot* slot : slots_) {
        std::lock_guard slot_lock(slot->mutex);
        if (slot->buffer.used == 0) continue;
        Close(slot->buffer);
        slot->buffer = {};
      }
    }
    Deliver(forced);
  }

  void Drop(size_t records) { dropped_ += records; }
  size_t TakeDropped() { return dropped_.exchange(0); }
  void set_per_thread(bool per_thread) { per_thread_ = per_thread; }
  bool per_thread() const { return per_thread_; }

 private:
  Slot* ThisSlot() {
    if (!per_thread_.load(std::memory_order_relaxed)) return &shared_slot_;
    if (t_slot == nullptr) [[unlikely]] {
      t_slot = new Slot;
      pthread_setspecific(key_, t_slot);
      std::lock_guard lock(slots_mutex_);
      slots_.push_back(t_slot);
    }
    return t_slot;
  }

  // A thread ends: its buffer joins the full ones. Later calls of the thread begin a new one.
  void Retire(Slot* slot) {
    t_slot = nullptr;
    std::lock_guard lock(slots_mutex_);
    std::erase(slots_, slot);
    if (slot->buffer.used > 0) Close(slot->buffer);
    delete slot;
  }

  bool Request(size_t needed, Buffer* buffer) {
    CUpti_BuffersCallbackRequestFunc request = request_.load();
    if (request == nullptr) return false;
    *buffer = {};
    request(&buffer->data, &buffer->bytes, &buffer->max_records);
    if (buffer->data == nullptr &&
        releases::CrashWithoutBuffer(GetState()->config->cupti_version)) {
      End("this CUPTI crashes when it gets no buffer");
    }
    if (buffer->data == nullptr || buffer->bytes < needed) {
      buffer->data = nullptr;
      return false;
    }
    {
      std::lock_guard lock(lent_mutex_);
      if (!lent_.insert(buffer->data).second) End("one buffer was given twice at the same time");
    }
    memset(buffer->data, 0, buffer->bytes);
    return true;
  }

  // A program must not go on behind what the real library does not survive.
  [[noreturn]] static void End(const char* why) {
    fprintf(stderr, "softgpu: %s\n", why);
    abort();
  }

  void Close(const Buffer& buffer) {
    std::lock_guard lock(closed_mutex_);
    closed_.push_back(buffer);
    if (!worker_started_) {
      worker_started_ = true;
      StartWorker();
    }
    closed_ready_.notify_one();
  }

  void StartWorker() {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // signals belong to the program's threads
    std::thread([this] {
      for (;;) {
        {
          std::unique_lock lock(closed_mutex_);
          closed_ready_.wait(lock, [this] { return !closed_.empty(); });
        }
        std::this_thread::sleep_for(kPollPeriod);
        Deliver(false);
      }
    }).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }

  void Deliver(bool forced) {
    // One deliverer at a time keeps the order of buffers; FlushAll returns when all it saw are out.
    std::lock_guard delivery(delivery_mutex_);
    uint64_t now = GetState()->hooks->now_ns();
    std::vector<Buffer> ready;
    {
      std::lock_guard lock(closed_mutex_);
      for (auto it = closed_.begin(); it != closed_.end();) {
        if (forced || it->complete_ns <= now) {
          ready.push_back(*it);
          it = closed_.erase(it);
        } else {
          ++it;
        }
      }
    }
    for (const Buffer& buffer : ready) {
      if (buffer.complete_ns > now) MarkUnfinished(buffer, now);
      {
        std::lock_guard lock(lent_mutex_);
        lent_.erase(buffer.data);
      }
      CUpti_BuffersCallbackCompleteFunc complete = complete_.load();
      if (complete != nullptr) complete(nullptr, 0, buffer.data, buffer.bytes, buffer.used);
    }
  }

  // A forced flush hands over records that are still under way: their kind reads as invalid.
  static void MarkUnfinished(const Buffer& buffer, uint64_t now) {
    const uint64_t version = GetState()->config->cupti_version;
    for (size_t at = 0; at < buffer.used;) {
      uint8_t* record = buffer.data + at;
      uint32_t kind;
      memcpy(&kind, record, sizeof(kind));
      at += RecordBytes(version, kind);
      uint64_t end = 0;
      if (EndOf(record, &end) && end > now) memset(record, 0, sizeof(kind));
    }
  }

  static void LoseEndsOf(const Buffer& buffer, uint32_t kind, uint64_t now) {
    const uint64_t version = GetState()->config->cupti_version;
    for (size_t at = 0; at < buffer.used;) {
      uint8_t* record = buffer.data + at;
      uint32_t own;
      memcpy(&own, record, sizeof(own));
      at += RecordBytes(version, own);
      uint64_t end = 0;
      if (own != kind || !EndOf(record, &end) || end <= now) continue;
      end = 0;
      memcpy(record + EndOffset(own), &end, sizeof(end));
    }
  }

  std::atomic<CUpti_BuffersCallbackRequestFunc> request_{nullptr};
  std::atomic<CUpti_BuffersCallbackCompleteFunc> complete_{nullptr};
  std::atomic<size_t> dropped_{0};
  std::atomic<bool> per_thread_{true};
  pthread_key_t key_;

  std::mutex slots_mutex_;  // taken before a slot's mutex, that before closed_mutex_
  Slot shared_slot_;
  std::vector<Slot*> slots_{&shared_slot_};

  std::mutex closed_mutex_;
  std::condition_variable closed_ready_;
  std::deque<Buffer> closed_;
  bool worker_started_ = false;
  std::mutex delivery_mutex_;

  std::mutex lent_mutex_;
  std::unordered_set<uint8_t*> lent_;  // of the client's
};

thread_local std::vector<ExternalId> t_external;

uint32_t ThreadId(const CuptiState& state) {
  if (state.thread_id_type.load(std::memory_order_relaxed) ==
      CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM) {
    static thread_local uint32_t id = static_cast<uint32_t>(syscall(SYS_gettid));
    return id;
  }
  return static_cast<uint32_t>(pthread_self());
}

// A share of events, spread evenly and the same in every run.
bool Chosen(double share, uint64_t number) {
  if (share <= 0) return false;
  return static_cast<uint64_t>(share * static_cast<double>(number + 1)) !=
         static_cast<uint64_t>(share * static_cast<double>(number));
}

template <typename Record>
void AppendRecord(CuptiState* state, const Record& record, uint64_t complete_ns) {
  Buffers::Get().Append(&record, RecordBytes(state->config->cupti_version, record.kind),
                        complete_ns);
}

struct OperationTimes {
  uint64_t start_ns;
  uint64_t end_ns;
};

OperationTimes StampsOf(CuptiState* state, const Operation& op) {
  if (op.kind == OpKind::kKernel && Chosen(state->config->cupti_zero_kernel_share, op.sequence)) {
    return {0, 0};
  }
  if (op.kind == OpKind::kKernel && state->config->cupti_kernel_record_limit > 0 &&
      op.sequence >= state->config->cupti_kernel_record_limit) {
    return {0, 0};
  }
  const bool lost = op.kind == OpKind::kKernel && state->timestamp_registered &&
                    state->config->cupti_timestamp_callback_bug &&
                    releases::LoseKernelStarts(state->config->cupti_version);
  CUpti_TimestampCallbackFunc own = state->timestamp.load(std::memory_order_relaxed);
  if (own == nullptr) return {lost ? 0 : op.start_ns, op.end_ns};
  // CUPTI interpolates the GPU's times to those of the callback, whatever that counts in.
  const uint64_t now = state->hooks->now_ns();
  const uint64_t own_now = own();
  const uint64_t elapsed = now - state->timestamp_anchor_ns;
  const double rate = elapsed < 1'000'000 ? 1
                                          : static_cast<double>(own_now - state->timestamp_anchor) /
                                                static_cast<double>(elapsed);
  const auto stamp = [&](uint64_t ns) {
    const double off = rate * static_cast<double>(static_cast<int64_t>(ns - now));
    return own_now + static_cast<uint64_t>(static_cast<int64_t>(off));
  };
  return {lost ? 0 : stamp(op.start_ns), stamp(op.end_ns)};
}

// The id of a graph launch, or of a kernel of one. A session lasts while any kind is on.
uint32_t RecordedId(CuptiState* state, const Operation& op) {
  if (op.graph_id == 0) return op.correlation_id;
  const std::lock_guard lock(state->graph_mutex);
  if (op.correlation_id != state->graph_launch) {
    state->graph_launch_before = state->graph_launch;
    state->graph_launch = op.correlation_id;
  }
  const bool wrong =
      state->sessions > 1 && releases::MixUpGraphLaunches(state->config->cupti_version);
  return wrong ? state->graph_launch_before : op.correlation_id;
}

void SetKind(CuptiState* state, CUpti_ActivityKind kind, bool enable) {
  if (enable) {
    const uint64_t before = state->kinds.fetch_or(1ull << kind);
    if (before == 0) ++state->sessions;
    if ((before >> kind & 1) == 0) state->ended.fetch_and(~(1ull << kind));
  } else {
    const uint64_t before = state->kinds.fetch_and(~(1ull << kind));
    if ((before >> kind & 1) != 0) {
      constexpr uint64_t kEndTogether =
          1ull << CUPTI_ACTIVITY_KIND_MEMCPY | 1ull << CUPTI_ACTIVITY_KIND_MEMSET;
      if ((kEndTogether >> kind & 1) != 0) state->ended.fetch_or(before & kEndTogether);
      Buffers::Get().LoseEnds(kind);
      // PyTorch's users saw slower training after profiling, until cuptiFinalize
      // (pytorch#144455, #146604).
      if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        state->hooks->launch_extra_ns = state->config->cupti_residual_launch_ns;
      }
    }
  }
  if (kind == CUPTI_ACTIVITY_KIND_DRIVER || kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
    auto* cells = kind == CUPTI_ACTIVITY_KIND_DRIVER ? state->hooks->driver : state->hooks->runtime;
    for (uint32_t id = 0; id < kMaxCallbackId; ++id) {
      if (enable) {
        cells[id].fetch_or(kInterestRecord);
      } else {
        cells[id].fetch_and(static_cast<uint8_t>(~kInterestRecord));
      }
    }
  }
}

CUptiResult ChangeKind(CUpti_ActivityKind kind, bool enable) {
  CuptiState* state = GetState();
  if (state == nullptr || state->failed) return CUPTI_ERROR_UNKNOWN;
  if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT) {
    return CUPTI_ERROR_INVALID_KIND;
  }
  if (((kSupportedKinds >> kind) & 1) == 0) return CUPTI_ERROR_NOT_SUPPORTED;
  if (!state->Uses(CuptiState::Api::kV1)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  // The GPU's stamps are collected in device memory (cupti_activity.h,
  // CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE).
  if (enable) state->hooks->allocate();
  if (!enable && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && state->KindEnabled(kind) &&
      releases::HangsInDisable(state->config->cupti_version, ++state->kernels_disabled)) {
    Hang(0);
  }
  std::lock_guard lock(state->mutex);
  SetKind(state, kind, enable);
  UpdateInterest(state);
  return CUPTI_SUCCESS;
}

bool AnyContext(CuptiState* state) {
  bool any = false;
  state->hooks->for_each_context(
      [](CUcontext, uint32_t, int, void* found) { *static_cast<bool*>(found) = true; }, &any);
  return any;
}

CUptiResult FilterApi(Domain domain, uint32_t cbid, uint32_t limit, bool enable) {
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (cbid == 0 || cbid >= limit) return CUPTI_ERROR_INVALID_PARAMETER;
  std::lock_guard lock(state->mutex);
  CuptiState::SingleCalls& calls = state->single_calls[domain];
  if (!calls.settled && AnyContext(state)) {
    calls.settled = true;
    calls.deaf = calls.on == 0 && releases::NeedACallBeforeTheContext(state->config->cupti_version);
  }
  if (calls.deaf) return CUPTI_SUCCESS;
  std::atomic<uint8_t>& cell = state->hooks->Wanted(domain, cbid);
  const bool was = (cell.load() & kInterestRecord) != 0;
  if (enable != was) calls.on += enable ? 1 : -1;
  if (enable) {
    cell.fetch_or(kInterestRecord);
  } else {
    cell.fetch_and(static_cast<uint8_t>(~kInterestRecord));
  }
  UpdateInterest(state);
  return CUPTI_SUCCESS;
}

}  // namespace

void RecordApiCall(CuptiState* state, const ApiCall& call, uint64_t end_ns, uint32_t return_value) {
  if (state->KindEnabled(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
    for (const ExternalId& external : t_external) {
      CUpti_ActivityExternalCorrelation record{};
      record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
      record.externalKind = external.kind;
      record.externalId = external.id;
      record.correlationId = call.correlation_id;
      AppendRecord(state, record, 0);
    }
  }
  CUpti_ActivityAPI record{};
  record.kind = call.domain == kDriver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  record.cbid = call.cbid;
  record.start = call.start_ns;
  record.end = end_ns;
  record.processId = static_cast<uint32_t>(getpid());
  record.threadId = ThreadId(*state);
  record.correlationId = call.correlation_id;
  record.returnValue = return_value;
  AppendRecord(state, record, 0);
  state->hooks->overhead_ns(state->config->cupti_api_record_ns);
}

void RecordOperation(const Operation& op) {
  CuptiState* state = GetState();
  static std::atomic<uint64_t> operations{0};
  if (state->config->cupti_drop_share > 0 &&
      Chosen(state->config->cupti_drop_share, operations.fetch_add(1))) {
    Buffers::Get().Drop(1);
    return;
  }
  const OperationTimes times = StampsOf(state, op);
  const uint32_t correlation_id = RecordedId(state, op);
  switch (op.kind) {
    case OpKind::kKernel: {
      CUpti_ActivityKernel10 r{};
      r.kind = state->KindEnabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
                   ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                   : CUPTI_ACTIVITY_KIND_KERNEL;
      r.registersPerThread = op.registers;
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.completed = times.end_ns;
      r.deviceId = op.device_id;
      r.contextId = op.context_id;
      r.streamId = op.stream_id;
      r.gridX = static_cast<int32_t>(op.grid[0]);
      r.gridY = static_cast<int32_t>(op.grid[1]);
      r.gridZ = static_cast<int32_t>(op.grid[2]);
      r.blockX = static_cast<int32_t>(op.block[0]);
      r.blockY = static_cast<int32_t>(op.block[1]);
      r.blockZ = static_cast<int32_t>(op.block[2]);
      r.dynamicSharedMemory = static_cast<int32_t>(op.shared_bytes);
      r.correlationId = correlation_id;
      r.gridId = static_cast<int64_t>(op.sequence);
      r.name = op.name;
      r.graphNodeId = op.graph_node_id;
      r.graphId = op.graph_id;
      AppendRecord(state, r, op.end_ns);
      break;
    }
    case OpKind::kMemcpy: {
      CUpti_ActivityMemcpy6 r{};
      r.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
      r.copyKind = op.copy_kind;
      r.srcKind = op.src_kind;
      r.dstKind = op.dst_kind;
      r.flags = op.async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
      r.bytes = op.bytes;
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.deviceId = op.device_id;
      r.contextId = op.context_id;
      r.streamId = op.stream_id;
      r.correlationId = correlation_id;
      r.graphNodeId = op.graph_node_id;
      r.graphId = op.graph_id;
      r.copyCount = 1;
      AppendRecord(state, r, op.end_ns);
      break;
    }
    case OpKind::kMemcpyPeer: {
      CUpti_ActivityMemcpyPtoP4 r{};
      r.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
      r.copyKind = op.copy_kind;
      r.srcKind = op.src_kind;
      r.dstKind = op.dst_kind;
      r.bytes = op.bytes;
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.deviceId = op.device_id;
      r.contextId = op.context_id;
      r.srcDeviceId = op.src_device_id;
      r.srcContextId = op.src_context_id;
      r.dstDeviceId = op.dst_device_id;
      r.dstContextId = op.dst_context_id;
      r.streamId = op.stream_id;
      r.correlationId = correlation_id;
      r.graphNodeId = op.graph_node_id;
      r.graphId = op.graph_id;
      AppendRecord(state, r, op.end_ns);
      break;
    }
    case OpKind::kMemset: {
      CUpti_ActivityMemset4 r{};
      r.kind = CUPTI_ACTIVITY_KIND_MEMSET;
      r.value = op.value;
      r.bytes = op.bytes;
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.deviceId = op.device_id;
      r.contextId = op.context_id;
      r.streamId = op.stream_id;
      r.correlationId = correlation_id;
      r.memoryKind = op.dst_kind;
      r.graphNodeId = op.graph_node_id;
      r.graphId = op.graph_id;
      AppendRecord(state, r, op.end_ns);
      break;
    }
    case OpKind::kSync: {
      if (!state->KindEnabled(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
      CUpti_ActivitySynchronization2 r{};
      r.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
      r.type = static_cast<CUpti_ActivitySynchronizationType>(op.sync_type);
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.correlationId = correlation_id;
      r.contextId = op.context_id;
      r.streamId = op.stream_id;
      r.cudaEventId = op.event_id;
      AppendRecord(state, r, 0);
      break;
    }
    case OpKind::kGraph: {
      CUpti_ActivityGraphTrace2 r{};
      r.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
      r.correlationId = correlation_id;
      r.start = times.start_ns;
      r.end = times.end_ns;
      r.deviceId = r.endDeviceId = op.device_id;
      r.contextId = r.endContextId = op.context_id;
      r.streamId = op.stream_id;
      r.graphId = op.graph_id;
      AppendRecord(state, r, op.end_ns);
      break;
    }
    case OpKind::kEvent: {
      CUpti_ActivityCudaEvent2 r{};
      r.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
      r.correlationId = correlation_id;
      r.contextId = op.context_id;
      r.streamId = op.stream_id;
      r.eventId = op.event_id;
      r.deviceId = op.device_id;
      AppendRecord(state, r, 0);
      break;
    }
  }
  state->hooks->overhead_ns(state->config->cupti_operation_record_ns);
}

void FlushBuffers(bool forced) { Buffers::Get().Flush(forced); }

void ForgetBuffers() { Buffers::Get().Forget(); }

void DisableAllActivity(CuptiState* state) {
  for (int kind = 1; kind < CUPTI_ACTIVITY_KIND_COUNT; ++kind) {
    SetKind(state, static_cast<CUpti_ActivityKind>(kind), false);
  }
}

}  // namespace seqpoint::softgpu

using namespace seqpoint::softgpu;

extern "C" {

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
  SWGPU_MAY_FAIL();
  if (request == nullptr || complete == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (GetState() == nullptr) return CUPTI_SUCCESS;  // so does the real one without a driver
  if (!GetState()->Uses(CuptiState::Api::kV1)) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  Buffers::Get().Register(request, complete);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  SWGPU_MAY_FAIL();
  return ChangeKind(kind, true);
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  SWGPU_MAY_FAIL();
  return ChangeKind(kind, false);
}

CUptiResult CUPTIAPI cuptiActivityEnableContext(CUcontext, CUpti_ActivityKind kind) {
  return ChangeKind(kind, true);
}

CUptiResult CUPTIAPI cuptiActivityDisableContext(CUcontext, CUpti_ActivityKind kind) {
  return ChangeKind(kind, false);
}

CUptiResult CUPTIAPI cuptiActivityEnableAndDump(CUpti_ActivityKind kind) {
  if (CUptiResult r = ChangeKind(kind, true); r != CUPTI_SUCCESS) return r;
  CuptiState* state = GetState();
  if (kind != CUPTI_ACTIVITY_KIND_CONTEXT) return CUPTI_SUCCESS;
  state->hooks->for_each_context(
      [](CUcontext, uint32_t id, int device, void*) {
        CUpti_ActivityContext3 r{};
        r.kind = CUPTI_ACTIVITY_KIND_CONTEXT;
        r.contextId = id;
        r.deviceId = static_cast<uint32_t>(device);
        r.computeApiKind = CUPTI_ACTIVITY_COMPUTE_API_CUDA;
        AppendRecord(GetState(), r, 0);
      },
      nullptr);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  return FilterApi(kRuntime, cbid, CUPTI_RUNTIME_TRACE_CBID_SIZE, enable != 0);
}

CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  SWGPU_MAY_FAIL();
  return FilterApi(kDriver, cbid, CUPTI_DRIVER_TRACE_CBID_SIZE, enable != 0);
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (state->forked) {
    while (state->config->cupti_fork_hang) pause();
    return CUPTI_ERROR_UNKNOWN;
  }
  state->hooks->overhead_ns(state->config->cupti_flush_ns);
  // "Unbounded CPU utilization growth during long-running activity tracing" (release notes 13.4
  // Update 1), within seconds in place of hours.
  static std::atomic<uint64_t> flushes{0};
  const uint64_t growth_us = state->config->cupti_flush_growth_us * flushes.fetch_add(1);
  if (growth_us > 0) usleep(static_cast<useconds_t>(growth_us));
  FlushBuffers((flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0);
  return CUPTI_SUCCESS;
}

// Full and complete buffers are handed over within a millisecond anyway.
CUptiResult CUPTIAPI cuptiActivityFlushPeriod(uint32_t) {
  return GetState() == nullptr ? CUPTI_ERROR_UNKNOWN : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid_bytes,
                                                CUpti_Activity** record) {
  SWGPU_MAY_FAIL();
  if (buffer == nullptr || record == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CuptiState* state = GetState();
  const uint64_t version = state == nullptr ? CUPTI_API_VERSION : state->config->cupti_version;
  size_t at = 0;
  if (*record != nullptr) {
    at = static_cast<size_t>(reinterpret_cast<uint8_t*>(*record) - buffer) +
         RecordBytes(version, (*record)->kind);
  }
  if (at >= valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  auto* next = reinterpret_cast<CUpti_Activity*>(buffer + at);
  if (RecordBytes(version, next->kind) == 0) return CUPTI_ERROR_INVALID_KIND;
  *record = next;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  SWGPU_MAY_FAIL();
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = GetState() == nullptr ? 0 : Buffers::Get().TakeDropped();
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* size,
                                               void* value) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) {
    if (*size < sizeof(uint8_t)) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
    // Changing it once buffers are in use is undefined; here it is refused.
    if (GetState()->kinds != 0) return CUPTI_ERROR_INVALID_OPERATION;
    Buffers::Get().set_per_thread(*static_cast<uint8_t*>(value) != 0);
  }
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t* size,
                                               void* value) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  switch (attribute) {
    case CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER:
      if (*size < sizeof(uint8_t)) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
      *static_cast<uint8_t*>(value) = Buffers::Get().per_thread();
      *size = sizeof(uint8_t);
      return CUPTI_SUCCESS;
    case CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE:
      if (*size < sizeof(size_t)) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
      *static_cast<size_t*>(value) = 3200000;
      *size = sizeof(size_t);
      return CUPTI_SUCCESS;
    default:
      return CUPTI_ERROR_NOT_SUPPORTED;
  }
}

CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc timestamp) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;  // it cannot be taken back
  // The system's clock, which CUPTI takes by itself, is what the virtual one stands for.
  const uint64_t now = timestamp();
  const uint64_t system = SystemNs();
  const bool is_system = now + 1'000'000 > system && now < system + 1'000'000;
  state->timestamp_anchor = now;
  state->timestamp_anchor_ns = state->hooks->now_ns();
  state->timestamp = is_system ? nullptr : timestamp;
  state->timestamp_registered = true;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                            uint64_t id) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (kind <= CUPTI_EXTERNAL_CORRELATION_KIND_INVALID ||
      kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  t_external.push_back({kind, id});
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                           uint64_t* last) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  for (auto it = t_external.rbegin(); it != t_external.rend(); ++it) {
    if (it->kind != kind) continue;
    if (last != nullptr) *last = it->id;
    t_external.erase(std::next(it).base());
    return CUPTI_SUCCESS;
  }
  return CUPTI_ERROR_QUEUE_EMPTY;
}

CUptiResult CUPTIAPI cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  SWGPU_MAY_FAIL();
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (type >= CUPTI_ACTIVITY_THREAD_ID_TYPE_SIZE) return CUPTI_ERROR_INVALID_PARAMETER;
  state->thread_id_type = type;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetThreadIdType(CUpti_ActivityThreadIdType* type) {
  CuptiState* state = GetState();
  if (state == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (type == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *type = static_cast<CUpti_ActivityThreadIdType>(state->thread_id_type.load());
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetContextId(CUcontext context, uint32_t* id) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (context == nullptr) return CUPTI_ERROR_INVALID_CONTEXT;
  *id = GetState()->hooks->context_id(context);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext context, uint32_t* id) {
  SWGPU_MAY_FAIL();
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  int device = GetState()->hooks->context_device(context);
  if (device < 0) return CUPTI_ERROR_INVALID_CONTEXT;
  *id = static_cast<uint32_t>(device);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t per_thread,
                                        uint32_t* id) {
  if (GetState() == nullptr) return CUPTI_ERROR_UNKNOWN;
  if (stream == nullptr && per_thread != 0) stream = CU_STREAM_PER_THREAD;
  *id = GetState()->hooks->stream_id(context, stream);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiComputeCapabilitySupported(int major, int minor, int* support) {
  if (support == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *support = major * 10 + minor >= 75 ? 2 : 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiDeviceSupported(CUdevice, int* support) {
  if (GetState() == nullptr) return CUPTI_ERROR_INVALID_DEVICE;
  *support = 1;
  return CUPTI_SUCCESS;
}

// Settings without an effect on what is modelled.
CUptiResult CUPTIAPI cuptiActivityEnableLatencyTimestamps(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableLaunchAttributes(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableDeviceGraph(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableAllocationSource(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableAllSyncRecords(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnableHWTrace(uint8_t) { return CUPTI_ERROR_NOT_SUPPORTED; }

}  // extern "C"
