#include "injection/ring/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace seqpoint::injection {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr uint32_t kStarvedSearch = 8;
constexpr size_t kMostPayloadBytes =
    abi::kMaxEventSlots * abi::kSlotBytes - offsetof(abi::LaneSlot, payload);
static_assert(abi::EventSlots(kMostPayloadBytes) == abi::kMaxEventSlots);

// Plain data, so that no thread-local constructor exists; initial-exec, so that no first use
// allocates.
__attribute__((tls_model("initial-exec"))) __thread ThreadChunk thread_chunk;

size_t RoundUp(size_t n) { return (n + kPageBytes - 1) & ~(kPageBytes - 1); }

__attribute__((format(printf, 2, 3))) Status Fail(int error, const char* format, ...) {
  Status status;
  status.error = error;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(status.message, sizeof status.message, format, arguments);
  va_end(arguments);
  return status;
}

// Field 22 of /proc/self/stat; 0 when it cannot be read.
uint64_t ProcessStartTicks() {
  char text[1024];
  int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* field = strrchr(text, ')');  // the command, field 2, may hold spaces and brackets
  for (int number = 2; field != nullptr && number < 22; ++number) {
    field = strchr(field + 1, ' ');
  }
  return field == nullptr ? 0 : strtoull(field + 1, nullptr, 10);
}

void CloseChunkAtThreadExit(void* argument) {
  ThreadChunk* chunk = static_cast<ThreadChunk*>(argument);
  if (chunk->writer != nullptr) chunk->writer->CloseChunk(chunk);
}

}  // namespace

Status RingWriter::Create(const RingOptions& options) {
  const uint32_t lane_slots = options.lane_slots;
  const size_t control = RoundUp(sizeof(abi::RingHeader));
  const size_t lane = control + RoundUp(sizeof(abi::ControlBlock));
  const size_t directory = lane + RoundUp(size_t{lane_slots} * abi::kSlotBytes);
  const size_t chunks = directory + RoundUp(options.chunk_count * sizeof(abi::ChunkState));
  const size_t total = chunks + RoundUp(size_t{options.chunk_count} * options.chunk_bytes);
  if (!std::has_single_bit(lane_slots) || options.chunk_count == 0 ||
      options.chunk_count > abi::kMaxChunkCount || options.chunk_bytes == 0 ||
      options.chunk_bytes % abi::kSlotBytes != 0 || total > abi::kMaxRingBytes) {
    return Fail(EINVAL, "ring: the daemon takes no ring of %u lane slots and %u chunks of %u bytes",
                lane_slots, options.chunk_count, options.chunk_bytes);
  }

  uint64_t random[3];
  if (getrandom(random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    return Fail(errno, "ring: getrandom: %s", strerror(errno));
  }
  const int fd = memfd_create("seqpoint-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Fail(errno, "ring: memfd_create: %s", strerror(errno));
  void* memory = MAP_FAILED;
  void* guard = MAP_FAILED;
  const auto fail = [&](const char* step) {
    const int error = errno;
    if (memory != MAP_FAILED) munmap(memory, total);
    if (guard != MAP_FAILED) munmap(guard, kPageBytes);
    close(fd);
    return Fail(error, "ring: %s of %zu bytes: %s", step, total, strerror(error));
  };
  struct stat file;
  if (ftruncate(fd, static_cast<off_t>(total)) != 0 || fstat(fd, &file) != 0) {
    return fail("ftruncate");
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail("sealing");
  }
  memory = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return fail("mmap");
  guard = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (guard == MAP_FAILED) return fail("mmap");
  if (madvise(memory, total, MADV_DONTFORK) != 0 ||
      madvise(guard, kPageBytes, MADV_WIPEONFORK) != 0) {
    return fail("madvise");
  }

  uint8_t* base = static_cast<uint8_t*>(memory);
  header_ = reinterpret_cast<abi::RingHeader*>(base);
  control_ = reinterpret_cast<abi::ControlBlock*>(base + control);
  lane_ = base + lane;
  directory_ = reinterpret_cast<abi::ChunkState*>(base + directory);
  chunks_ = base + chunks;
  bytes_ = total;
  options_ = options;
  fd_ = fd;
  device_ = file.st_dev;
  inode_ = file.st_ino;

  header_->abi_version = abi::kAbiVersion;
  header_->header_bytes = sizeof(abi::RingHeader);
  header_->total_bytes = total;
  header_->control_offset = control;
  header_->lane_offset = lane;
  header_->directory_offset = directory;
  header_->chunks_offset = chunks;
  header_->lane_slots = lane_slots;
  header_->chunk_count = options.chunk_count;
  header_->chunk_bytes = options.chunk_bytes;
  header_->pid = static_cast<uint32_t>(getpid());
  memcpy(header_->ring_id, random, sizeof header_->ring_id);
  // Top bit set: fresh zero slots never look published.
  header_->lane_salt = random[2] | 1ull << 63;
  header_->created_real_ns = NowNs(CLOCK_REALTIME);
  header_->process_start_ticks = ProcessStartTicks();
  header_->next_chunk_sequence = 1;
  __atomic_store_n(&header_->magic, abi::kRingMagic, __ATOMIC_RELEASE);

  // Without a key a thread's last chunk stays open until the process ends: no reason to fail.
  has_key_ = pthread_key_create(&thread_key_, CloseChunkAtThreadExit) == 0;
  active_ = static_cast<uint32_t*>(guard);
  __atomic_store_n(active_, 1u, __ATOMIC_RELEASE);
  return Status{};
}

bool RingWriter::WriteData(const abi::DataRecord& record) {
  return WriteData(record, &thread_chunk);
}

bool RingWriter::ClaimChunk(ThreadChunk* chunk) {
  if (chunk->writer != this) {
    *chunk = ThreadChunk{};
    chunk->writer = this;
  }
  if (chunk == &thread_chunk && has_key_) pthread_setspecific(thread_key_, chunk);
  // From the first chunk on, so that a reader who keeps up keeps the ring small and in the cache.
  // Once all were taken, only a few per record: a search of the whole directory for each dropped
  // record would cost the application more than the record.
  const uint32_t first = chunk->starved ? chunk->next_search : 0;
  const uint32_t count =
      chunk->starved ? std::min(kStarvedSearch, options_.chunk_count) : options_.chunk_count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t index = (first + i) % options_.chunk_count;
    abi::ChunkState* state = &directory_[index];
    uint64_t word = __atomic_load_n(&state->state, __ATOMIC_RELAXED);
    if ((word & 3) != abi::kFree) continue;
    if (!__atomic_compare_exchange_n(&state->state, &word, (word & ~3ull) | abi::kClaimed, false,
                                     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      continue;
    }
    __atomic_store_n(&state->published, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&state->owner_tid, static_cast<uint32_t>(syscall(SYS_gettid)),
                     __ATOMIC_RELAXED);
    // Release: who sees this number taken sees the chunk that this thread closed before.
    chunk->sequence = __atomic_fetch_add(&header_->next_chunk_sequence, 1, __ATOMIC_RELEASE);
    chunk->state = state;
    chunk->records = reinterpret_cast<abi::DataRecord*>(chunks_ + static_cast<size_t>(index) *
                                                                      options_.chunk_bytes);
    chunk->used = 0;
    chunk->capacity = options_.chunk_bytes / abi::kSlotBytes;
    chunk->starved = false;
    __atomic_store_n(&state->state, chunk->sequence << 2 | abi::kOpen, __ATOMIC_RELEASE);
    return true;
  }
  chunk->starved = true;
  chunk->next_search = (first + count) % options_.chunk_count;
  return false;
}

void RingWriter::CloseChunk(ThreadChunk* chunk) {
  if (!active() || chunk->writer != this || chunk->capacity == 0) return;
  __atomic_store_n(&chunk->state->state, chunk->sequence << 2 | abi::kClosed, __ATOMIC_RELEASE);
  chunk->capacity = 0;
}

void RingWriter::CloseThreadChunk() { CloseChunk(&thread_chunk); }

bool RingWriter::CountDrop(const abi::DataRecord& record) {
  __atomic_fetch_add(&header_->data_dropped, 1, __ATOMIC_RELAXED);
  // Release: a reader that sees this count sees the call_sequence it belongs to as well.
  if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) {
    __atomic_fetch_add(&header_->call_dropped, 1, __ATOMIC_RELEASE);
  }
  return false;
}

bool RingWriter::WriteEvent(abi::EventType type, const void* fixed, size_t fixed_bytes,
                            const void* tail, size_t tail_bytes) {
  if (!active()) return false;
  const uint64_t number = __atomic_fetch_add(&header_->lane_number, 1, __ATOMIC_RELAXED);
  const size_t payload_bytes = fixed_bytes + tail_bytes;
  uint64_t position = __atomic_load_n(&header_->lane_head, __ATOMIC_RELAXED);
  const bool fits = payload_bytes <= kMostPayloadBytes;
  const uint32_t slots = fits ? abi::EventSlots(static_cast<uint32_t>(payload_bytes)) : 0;
  do {
    const uint64_t freed = __atomic_load_n(&header_->lane_tail, __ATOMIC_ACQUIRE);
    if (!fits || position + slots - freed > options_.lane_slots) {
      __atomic_fetch_add(&header_->lane_dropped, 1, __ATOMIC_RELAXED);
      return false;
    }
  } while (!__atomic_compare_exchange_n(&header_->lane_head, &position, position + slots, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));

  abi::LaneSlot* slot = reinterpret_cast<abi::LaneSlot*>(
      lane_ + (position & (options_.lane_slots - 1)) * abi::kSlotBytes);
  slot->number = number;
  slot->type = static_cast<uint16_t>(type);
  slot->slots = static_cast<uint16_t>(slots);
  slot->payload_bytes = static_cast<uint32_t>(payload_bytes);
  const uint64_t start = position * abi::kSlotBytes + offsetof(abi::LaneSlot, payload);
  CopyToLane(start, fixed, fixed_bytes);
  if (tail_bytes != 0) CopyToLane(start + fixed_bytes, tail, tail_bytes);
  __atomic_store_n(&slot->stamp, position + header_->lane_salt, __ATOMIC_RELEASE);
  return true;
}

void RingWriter::CopyToLane(uint64_t offset, const void* bytes, size_t n) {
  const size_t lane_bytes = static_cast<size_t>(options_.lane_slots) * abi::kSlotBytes;
  const size_t begin = offset & (lane_bytes - 1);
  const size_t first = n < lane_bytes - begin ? n : lane_bytes - begin;
  memcpy(lane_ + begin, bytes, first);
  memcpy(lane_, static_cast<const uint8_t*>(bytes) + first, n - first);
}

void RingWriter::Count(uint64_t abi::RingHeader::*counter, uint64_t n) {
  if (active()) __atomic_fetch_add(&(header_->*counter), n, __ATOMIC_RELAXED);
}

void RingWriter::SetClockKind(abi::ClockKind kind) {
  if (!active()) return;
  __atomic_store_n(&header_->clock_kind, static_cast<uint32_t>(kind), __ATOMIC_RELAXED);
}

void RingWriter::Close(int exit_status) {
  if (!active()) return;
  CloseChunk(&thread_chunk);
  __atomic_store_n(active_, 0u, __ATOMIC_RELAXED);
  __atomic_store_n(&header_->closed, exit_status == 0 ? 1u : 2u, __ATOMIC_RELEASE);
}

bool RingWriter::HasFile() const {
  struct stat file;
  return fd_ >= 0 && fstat(fd_, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void RingWriter::DisableInChild() {
  thread_chunk = ThreadChunk{};
  if (active_ != nullptr) munmap(active_, kPageBytes);
  active_ = nullptr;
  header_ = nullptr;
  control_ = nullptr;
  if (HasFile()) close(fd_);
  fd_ = -1;
  if (has_key_) pthread_key_delete(thread_key_);
  has_key_ = false;
}

void RingWriter::Destroy() {
  Close();
  if (header_ != nullptr) munmap(header_, bytes_);
  DisableInChild();
}

abi::Hello RingWriter::MakeHello() const {
  abi::Hello hello = {};
  hello.magic = abi::kHelloMagic;
  hello.abi_version = abi::kAbiVersion;
  hello.pid = header_->pid;
  memcpy(hello.ring_id, header_->ring_id, sizeof hello.ring_id);
  return hello;
}

bool ControlReader::Copy(abi::Control* out) {
  if (!ring_->active()) return false;
  const abi::ControlBlock* block = ring_->control_block();
  static_assert(sizeof(abi::Control) % sizeof(uint64_t) == 0);
  const uint64_t* from = reinterpret_cast<const uint64_t*>(&block->control);
  // Changed() compares with the word outside the lock, so that is what is remembered: a daemon gone
  // mad, whose two generations differ, would have us copy at every boundary.
  const uint32_t generation = __atomic_load_n(&block->generation, __ATOMIC_ACQUIRE);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const uint64_t before = __atomic_load_n(&block->sequence, __ATOMIC_ACQUIRE);
    if (before % 2 != 0) continue;
    // Acquire loads keep the second look at `sequence` behind the copy, without a fence.
    for (size_t i = 0; i < sizeof(abi::Control) / sizeof(uint64_t); ++i) {
      const uint64_t word = __atomic_load_n(from + i, __ATOMIC_ACQUIRE);
      memcpy(reinterpret_cast<uint8_t*>(out) + i * sizeof word, &word, sizeof word);
    }
    if (__atomic_load_n(&block->sequence, __ATOMIC_RELAXED) == before) {
      generation_ = generation;
      return true;
    }
  }
  return false;
}

uint64_t ControlReader::HeartbeatAgeNs() const {
  if (!ring_->active()) return UINT64_MAX;
  const uint64_t beat = __atomic_load_n(&ring_->control_block()->heartbeat_ns, __ATOMIC_RELAXED);
  const uint64_t now = NowNs(CLOCK_MONOTONIC);
  if (beat == 0) return UINT64_MAX;
  return now > beat ? now - beat : 0;
}

}  // namespace seqpoint::injection
