#include "daemon/ingest/ring_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "absl/strings/str_cat.h"
#include "daemon/base/ring_events.h"
#include "daemon/base/saturate.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::ingest {
namespace {

constexpr size_t kBatchRecords = 1024;
constexpr uint64_t kPageBytes = 4096;

template <typename T>
T Load(T& word) {
  return std::atomic_ref<T>(word).load(std::memory_order_acquire);
}

// Copies memory that the other side may change meanwhile. The fence keeps the compiler from reading
// the source again where the code says the copy.
void CopyShared(void* to, const void* from, size_t n) {
  memcpy(to, from, n);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

uint64_t Minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

bool IsRecord(const abi::DataRecord& record) {
  if (record.type == 0 || record.type >= static_cast<uint16_t>(abi::DataType::kCount)) return false;
  switch (static_cast<abi::DataType>(record.type)) {
    case abi::DataType::kCall:
      return record.call.op != 0 && record.call.op < static_cast<uint8_t>(abi::Op::kCount);
    case abi::DataType::kArrivals: {
      const abi::ArrivalsRecord& arrivals = record.arrivals;
      return arrivals.communicator != 0 && arrivals.count != 0 &&
             arrivals.count <= abi::kArrivalsPerRecord && arrivals.timed <= arrivals.count &&
             std::is_sorted(arrivals.delay_ns, arrivals.delay_ns + arrivals.count) &&
             arrivals.base_ns <=
                 std::numeric_limits<uint64_t>::max() - arrivals.delay_ns[arrivals.count - 1];
    }
    case abi::DataType::kCollective:
      return record.collective.communicator != 0 &&
             record.collective.gpu_start_ns <= record.collective.gpu_end_ns;
    default:
      return true;
  }
}

bool IsOfNccl(const abi::DataRecord& record) {
  return record.type == static_cast<uint16_t>(abi::DataType::kArrivals) ||
         record.type == static_cast<uint16_t>(abi::DataType::kCollective);
}

// True when `payload` is the struct of a known type, and the text or the values that it announces.
bool IsEvent(abi::EventType type, absl::Span<const uint8_t> payload) {
  return VisitEvent(type, [&]<typename Event>() {
    if (payload.size() < sizeof(Event)) return false;
    Event event;
    memcpy(&event, payload.data(), sizeof event);
    size_t tail_bytes = 0;
    if constexpr (requires { size_t{event.length}; }) tail_bytes = event.length;
    if constexpr (requires { event.count; }) tail_bytes = event.count * sizeof(double);
    return payload.size() - sizeof event == tail_bytes;
  });
}

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("ring: ", parts...));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::Open(int fd,
                                                             const RingReaderOptions& options) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat file = {};
  struct statfs file_system = {};
  if (seals < 0 || fstat(fd, &file) != 0 || fstatfs(fd, &file_system) != 0 ||
      file_system.f_type != TMPFS_MAGIC) {
    return Refuse("the descriptor is not a memfd");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if ((seals & kNeeded) != kNeeded) {
    return Refuse("the memfd has seals ", seals, "; it needs ", kNeeded, " (shrink, grow, seal)");
  }
  if (file.st_size < static_cast<off_t>(sizeof(abi::RingHeader)) ||
      file.st_size > static_cast<off_t>(abi::kMaxRingBytes)) {
    return Refuse("the memfd has ", file.st_size, " bytes; it must have ", sizeof(abi::RingHeader),
                  " to ", abi::kMaxRingBytes);
  }
  const size_t bytes = static_cast<size_t>(file.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Refuse("mmap of ", bytes, " bytes: ", strerror(errno));
  }
  std::unique_ptr<RingReader> reader(
      new RingReader(static_cast<uint8_t*>(memory), bytes, true, options));
  SEQPOINT_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::OpenMemory(
    absl::Span<uint8_t> memory, const RingReaderOptions& options) {
  if (memory.size() < sizeof(abi::RingHeader) ||
      reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes != 0) {
    return Refuse("memory of ", memory.size(), " bytes is too small or not at a page");
  }
  std::unique_ptr<RingReader> reader(new RingReader(memory.data(), memory.size(), false, options));
  SEQPOINT_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

RingReader::RingReader(uint8_t* memory, size_t bytes, bool mapped, const RingReaderOptions& options)
    : memory_(memory), bytes_(bytes), mapped_(mapped), options_(options), batch_(kBatchRecords) {}

RingReader::~RingReader() {
  if (mapped_) munmap(memory_, bytes_);
}

absl::Status RingReader::ReadHeader() {
  abi::RingHeader header;
  CopyShared(&header, memory_, sizeof header);
  if (header.magic != abi::kRingMagic) return Refuse("the memory does not begin with a ring");
  if (header.abi_version != abi::kAbiVersion) {
    return Refuse("the library writes version ", header.abi_version, ", this daemon reads ",
                  abi::kAbiVersion, "; install equal versions");
  }
  if (header.header_bytes != sizeof header || header.total_bytes > bytes_) {
    return Refuse("its header of ", header.header_bytes, " bytes says ", header.total_bytes,
                  " bytes in all; expected ", sizeof header, " and at most ", bytes_);
  }
  if (header.lane_slots == 0 || (header.lane_slots & (header.lane_slots - 1)) != 0 ||
      header.chunk_count == 0 || header.chunk_count > abi::kMaxChunkCount ||
      header.chunk_bytes == 0 || header.chunk_bytes % abi::kSlotBytes != 0) {
    return Refuse(header.lane_slots, " lane slots, ", header.chunk_count, " chunks of ",
                  header.chunk_bytes, " bytes make no ring");
  }
  // Each part lies on its own pages, in this order, inside the whole.
  const uint64_t offsets[] = {header.control_offset, header.lane_offset, header.directory_offset,
                              header.chunks_offset};
  const uint64_t sizes[] = {sizeof(abi::ControlBlock),
                            uint64_t{header.lane_slots} * abi::kSlotBytes,
                            uint64_t{header.chunk_count} * sizeof(abi::ChunkState),
                            uint64_t{header.chunk_count} * header.chunk_bytes};
  uint64_t end = sizeof header;
  for (int i = 0; i < 4; ++i) {
    if (offsets[i] % kPageBytes != 0 || offsets[i] < end || offsets[i] > header.total_bytes ||
        sizes[i] > header.total_bytes - offsets[i]) {
      return Refuse("part ", i, " of ", sizes[i], " bytes at offset ", offsets[i],
                    " does not fit into ", header.total_bytes, " bytes");
    }
    end = offsets[i] + sizes[i];
  }

  read_.ring_id.assign(reinterpret_cast<const char*>(header.ring_id), sizeof header.ring_id);
  created_real_ns_ = header.created_real_ns;
  lane_salt_ = header.lane_salt;
  lane_slots_ = header.lane_slots;
  chunk_bytes_ = header.chunk_bytes;
  chunk_capacity_ = header.chunk_bytes / abi::kSlotBytes;
  chunks_.resize(header.chunk_count);
  header_ = reinterpret_cast<abi::RingHeader*>(memory_);
  control_ = reinterpret_cast<abi::ControlBlock*>(memory_ + header.control_offset);
  lane_ = memory_ + header.lane_offset;
  directory_ = reinterpret_cast<abi::ChunkState*>(memory_ + header.directory_offset);
  chunk_memory_ = memory_ + header.chunks_offset;
  read_.lane_position = Load(header_->lane_tail);
  return absl::OkStatus();
}

absl::Status RingReader::Resume(const Cursor& cursor) {
  if (cursor.ring_id != read_.ring_id) return Refuse("the cursor belongs to another ring");
  read_ = cursor;
  read_.chunks.clear();
  reorder_ = CallReorder(cursor.next_call, cursor.calls_missing, cursor.calls_late);
  ScanDirectory();
  for (uint32_t index : order_) {
    Chunk& chunk = chunks_[index];
    const auto found = std::lower_bound(
        cursor.chunks.begin(), cursor.chunks.end(), chunk.sequence,
        [](const Cursor::Chunk& a, uint64_t sequence) { return a.sequence < sequence; });
    if (found == cursor.chunks.end() || found->sequence != chunk.sequence) continue;
    chunk.consumed = found->consumed;
    if (chunk.consumed > chunk.published) RejectChunk(chunk);
  }
  Release(cursor);
  return absl::OkStatus();
}

PollResult RingReader::Poll(RingSink& sink, uint64_t now_ns, uint64_t most_records) {
  PollResult result;
  records_left_ = most_records;
  const uint64_t events_before = read_.events_received;
  const uint64_t records_before = read_.records_received;
  // The order of these loads carries two proofs. Drops, then tries, then the directory: a drop we
  // know of belongs to a try we know of, and what we then do not find is dropped or on its way.
  // The directory, then the lane: the name of a record that we see is in the lane that we see.
  dropped_calls_ = Load(header_->call_dropped);
  tried_calls_ = Load(header_->call_sequence);
  ScanDirectory();
  const uint64_t head = Load(header_->lane_head);
  ReadLane(sink, head);
  if (read_.lane_position == head) {
    lane_stuck_since_ns_.reset();
  } else if (!lane_stuck_since_ns_.has_value()) {
    lane_stuck_since_ns_ = now_ns;
  }
  const bool hold_data =
      lane_stuck_since_ns_.has_value() && now_ns - *lane_stuck_since_ns_ < HoleWaitNs();
  result.waiting = hold_data || ReadChunks(sink, now_ns);
  result.more = records_left_ == 0;
  result.events = read_.events_received - events_before;
  result.records = read_.records_received - records_before;
  return result;
}

// A thread's records keep their order: it closes a chunk before it takes the number of the next.
// Only chunks whose number was taken before the scan are read, the latest first. A reader that sees
// records of a chunk then sees all of the chunk before.
void RingReader::ScanDirectory() {
  const uint64_t end = Load(header_->next_chunk_sequence);
  for (uint32_t index = 0; index < chunks_.size(); ++index) {
    if (!chunks_[index].active && !chunks_[index].bad) FindNewChunk(index, end);
  }
  for (auto index = order_.rbegin(); index != order_.rend(); ++index) UpdateChunk(*index);
}

void RingReader::FindNewChunk(uint32_t index, uint64_t end) {
  Chunk& chunk = chunks_[index];
  const uint64_t word = Load(directory_[index].state);
  const uint64_t sequence = word >> 2;
  const uint64_t phase = word & 3;
  if (phase == abi::kFree || phase == abi::kClaimed || sequence >= end) return;
  const auto place = std::lower_bound(
      order_.begin(), order_.end(), sequence,
      [this](uint32_t a, uint64_t wanted) { return chunks_[a].sequence < wanted; });
  const bool seen_elsewhere = place != order_.end() && chunks_[*place].sequence == sequence;
  if (sequence <= chunk.sequence || seen_elsewhere) return RejectChunk(chunk);
  order_.insert(place, index);
  chunk = Chunk{.sequence = sequence, .active = true};
}

void RingReader::UpdateChunk(uint32_t index) {
  Chunk& chunk = chunks_[index];
  if (chunk.bad) return;
  // State before count: of a closed chunk the count is final.
  const uint64_t word = Load(directory_[index].state);
  const uint32_t published = Load(directory_[index].published);
  const uint64_t phase = word & 3;
  const bool live = phase == abi::kOpen || phase == abi::kClosed;  // only we free
  const bool reopened = chunk.closed && (phase != abi::kClosed || published != chunk.published);
  if (!live || reopened || word >> 2 != chunk.sequence || published > chunk_capacity_ ||
      published < chunk.published) {
    return RejectChunk(chunk);
  }
  chunk.published = published;
  chunk.closed = phase == abi::kClosed;
}

void RingReader::RejectChunk(Chunk& chunk) {
  chunk.bad = true;
  ++read_.rejected;
}

void RingReader::ReadLane(RingSink& sink, uint64_t head) {
  if (head - read_.lane_position > lane_slots_) {
    ++read_.rejected;
    read_.lane_position = head;
  }
  while (read_.lane_position != head) {
    if (!IsPublished(read_.lane_position)) {
      if (!process_gone_) break;
      SkipToNextEvent(head);
    } else if (!ReadEvent(sink, head)) {
      ++read_.rejected;
      SkipToNextEvent(head);
    }
  }
  if (process_gone_) {
    read_.event_numbers = std::max(read_.event_numbers, Load(header_->lane_number));
  }
}

bool RingReader::IsPublished(uint64_t position) const {
  uint8_t* slot = lane_ + (position & (lane_slots_ - 1)) * abi::kSlotBytes;
  return Load(*reinterpret_cast<uint64_t*>(slot)) == position + lane_salt_;
}

// Reads the event at read_.lane_position and steps behind it. False, without a step: its header
// makes no sense.
bool RingReader::ReadEvent(RingSink& sink, uint64_t head) {
  abi::LaneSlot slot;
  CopyFromLane(read_.lane_position * abi::kSlotBytes, &slot, offsetof(abi::LaneSlot, payload));
  if (slot.slots == 0 || slot.slots > abi::kMaxEventSlots ||
      slot.slots > head - read_.lane_position || slot.payload_bytes > sizeof payload_ ||
      abi::EventSlots(slot.payload_bytes) != slot.slots) {
    return false;
  }
  CopyFromLane(read_.lane_position * abi::kSlotBytes + offsetof(abi::LaneSlot, payload), payload_,
               slot.payload_bytes);
  read_.lane_position += slot.slots;
  read_.event_numbers = std::max(read_.event_numbers, slot.number + 1);
  ++read_.events_received;
  const auto type = static_cast<abi::EventType>(slot.type);
  const absl::Span<const uint8_t> payload(payload_, slot.payload_bytes);
  if (IsEvent(type, payload)) {
    sink.OnEvent(slot.number, type, payload);
  } else {
    ++read_.rejected;
  }
  return true;
}

void RingReader::SkipToNextEvent(uint64_t head) {
  do {
    ++read_.lane_position;
  } while (read_.lane_position != head && !IsPublished(read_.lane_position));
}

void RingReader::CopyFromLane(uint64_t offset, void* to, size_t n) const {
  const size_t lane_bytes = size_t{lane_slots_} * abi::kSlotBytes;
  const size_t begin = offset & (lane_bytes - 1);
  const size_t first = std::min(n, lane_bytes - begin);
  CopyShared(to, lane_ + begin, first);
  CopyShared(static_cast<uint8_t*>(to) + first, lane_, n - first);
}

// True when a hole holds something up.
bool RingReader::ReadChunks(RingSink& sink, uint64_t now_ns) {
  reorder_.Clear();
  for (uint32_t index : order_) ReadChunk(sink, index, std::nullopt);
  RunReorder(sink);
  if (!reorder_.empty() && records_left_ > 0) {
    RaiseGiveUp(now_ns);
    RunReorder(sink);
  }
  if (records_left_ == 0) {  // chunks that were not scanned are no holes
    Flush(sink);
    return false;
  }
  if (reorder_.empty()) hole_deadline_.reset();
  if (process_gone_) {
    const CallReorder::Step rest = reorder_.Skip(tried_calls_);
    Flush(sink);
    if (rest.count != 0) sink.OnCallsMissing(rest.sequence, rest.count);
  }
  Flush(sink);
  return !reorder_.empty();
}

// Delivers from one chunk up to the first call whose turn it is not. `expected_call`: the record
// was seen before, as this call.
void RingReader::ReadChunk(RingSink& sink, uint32_t index, std::optional<uint64_t> expected_call) {
  Chunk& chunk = chunks_[index];
  while (!chunk.bad && chunk.consumed < chunk.published && records_left_ > 0) {
    abi::DataRecord& record = batch_[batch_size_];
    CopyShared(&record, RecordAt(index, chunk.consumed), sizeof record);
    const bool is_call = record.type == static_cast<uint16_t>(abi::DataType::kCall);
    if (expected_call.has_value() && (!is_call || record.call.sequence != *expected_call)) {
      RejectChunk(chunk);  // it changed a published record
      return;
    }
    expected_call.reset();
    if (!IsRecord(record)) {
      ++read_.rejected;
      ++chunk.consumed;
      --records_left_;
      continue;
    }
    if (is_call) {
      if (reorder_.TakeLate(record.call.sequence)) {
        ++chunk.consumed;
        --records_left_;
        continue;
      }
      if (!reorder_.TakeNext(record.call.sequence)) {
        reorder_.Offer(record.call.sequence, index);
        return;
      }
    }
    ++chunk.consumed;
    --records_left_;
    ++read_.records_received;
    if (IsOfNccl(record)) {
      sink.OnCollectives(record);
      continue;
    }
    if (++batch_size_ == batch_.size()) Flush(sink);
  }
}

void RingReader::RunReorder(RingSink& sink) {
  // Where the records left are used up, chunks are not looked at that may hold the next call.
  while (records_left_ > 0) {
    const CallReorder::Step step = reorder_.Next();
    if (step.kind == CallReorder::Kind::kWait) return;
    if (step.kind == CallReorder::Kind::kTake) {
      ReadChunk(sink, step.stream, step.sequence);
    } else {
      Flush(sink);
      sink.OnCallsMissing(step.sequence, step.count);
    }
  }
}

// Decides which holes will not be filled any more.
void RingReader::RaiseGiveUp(uint64_t now_ns) {
  if (process_gone_) {
    reorder_.GiveUpBelow(std::numeric_limits<uint64_t>::max());
    return;
  }
  // Every call that was tried and is nowhere to be seen was dropped, or is on its way. When there
  // are no more of them than drops, none is on its way.
  const uint64_t passed = Minus(reorder_.missing(), reorder_.late());
  if (dropped_calls_ > passed) {
    const uint64_t unseen = Minus(Minus(tried_calls_, reorder_.next()), CountVisibleCalls());
    if (passed + unseen <= dropped_calls_) {
      reorder_.GiveUpBelow(tried_calls_);
      return;
    }
  }
  if (!hole_deadline_.has_value()) {
    hole_deadline_ = HoleDeadline{tried_calls_, now_ns};
  } else if (now_ns - hole_deadline_->since_ns >= HoleWaitNs()) {
    reorder_.GiveUpBelow(hole_deadline_->sequence);
    hole_deadline_ = HoleDeadline{tried_calls_, now_ns};
  }
}

// Waiting may cost more calls than the one that is waited for: a fast program fills the other half
// of the ring in less than hole_wait_ns, and then drops.
uint64_t RingReader::HoleWaitNs() const {
  const auto unread = std::count_if(order_.begin(), order_.end(), [this](uint32_t index) {
    return chunks_[index].consumed < chunks_[index].published;
  });
  const bool crowded = static_cast<size_t>(unread) > chunks_.size() / 2;
  return crowded ? options_.hole_wait_ns / 10 : options_.hole_wait_ns;
}

// Calls below tried_calls_ that are published and not yet consumed.
uint64_t RingReader::CountVisibleCalls() const {
  uint64_t count = 0;
  for (uint32_t index : order_) {
    const Chunk& chunk = chunks_[index];
    for (uint32_t i = chunk.consumed; i < chunk.published; ++i) {
      abi::CallRecord call;
      CopyShared(&call, RecordAt(index, i), offsetof(abi::CallRecord, api_ns));
      count +=
          call.type == static_cast<uint16_t>(abi::DataType::kCall) && call.sequence < tried_calls_;
    }
  }
  return count;
}

void RingReader::Flush(RingSink& sink) {
  if (batch_size_ == 0) return;
  sink.OnData(absl::MakeConstSpan(batch_).first(batch_size_));
  batch_size_ = 0;
}

const uint8_t* RingReader::RecordAt(uint32_t chunk, uint32_t record) const {
  return chunk_memory_ + size_t{chunk} * chunk_bytes_ + size_t{record} * abi::kSlotBytes;
}

Cursor RingReader::cursor() const {
  Cursor cursor = read_;
  cursor.next_call = reorder_.next();
  cursor.calls_missing = reorder_.missing();
  cursor.calls_late = reorder_.late();
  for (uint32_t index : order_) {
    const Chunk& chunk = chunks_[index];
    if (chunk.consumed > 0) cursor.chunks.push_back({chunk.sequence, chunk.consumed});
  }
  return cursor;
}

void RingReader::Release(const Cursor& committed) {
  if (committed.ring_id != read_.ring_id) return;
  std::atomic_ref<uint64_t>(header_->lane_tail)
      .store(committed.lane_position, std::memory_order_release);
  auto done = committed.chunks.begin();  // both lists are sorted by sequence
  std::erase_if(order_, [&](uint32_t index) {
    Chunk& chunk = chunks_[index];
    while (done != committed.chunks.end() && done->sequence < chunk.sequence) ++done;
    const bool begun = done != committed.chunks.end() && done->sequence == chunk.sequence;
    if (chunk.bad || !chunk.closed || (begun ? done->consumed : 0) != chunk.published) return false;
    uint64_t word = chunk.sequence << 2 | abi::kClosed;
    std::atomic_ref<uint64_t>(directory_[index].state)
        .compare_exchange_strong(word, chunk.sequence << 2 | abi::kFree, std::memory_order_release,
                                 std::memory_order_relaxed);
    chunk.active = false;
    return true;
  });
}

RingStats RingReader::stats() const {
  RingStats stats;
  stats.events_received = read_.events_received;
  stats.records_received = read_.records_received;
  // The process may say any number; sums of its numbers must not wrap around.
  const auto said = [](uint64_t& count) { return static_cast<uint64_t>(Saturate(Load(count))); };
  stats.events_dropped = said(header_->lane_dropped);
  stats.records_dropped = said(header_->data_dropped);
  const uint64_t events_lost =
      Minus(read_.event_numbers, read_.events_received + stats.events_dropped);
  const uint64_t calls_lost = Minus(reorder_.missing(), said(header_->call_dropped));
  stats.lost = static_cast<uint64_t>(SaturatedSum(Saturate(events_lost), Saturate(calls_lost)));
  stats.rejected = read_.rejected;
  stats.cupti_dropped = said(header_->cupti_dropped);
  stats.invalid_timestamps = said(header_->invalid_timestamps);
  stats.unknown_records = said(header_->unknown_records);
  const uint32_t clock_kind = Load(header_->clock_kind);
  if (clock_kind <= static_cast<uint32_t>(abi::ClockKind::kForeign)) {
    stats.clock_kind = static_cast<abi::ClockKind>(clock_kind);
  }
  const uint32_t closed = Load(header_->closed);
  stats.closed = closed == 1 || closed == 2;
  stats.failed = closed == 2;
  return stats;
}

}  // namespace seqpoint::ingest
