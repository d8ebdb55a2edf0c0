// Fuzz target of the ring reader: the process on the other side is hostile, and the input says what
// it does. Not only must nothing crash: whatever reaches the sink must hold what RingSink promises,
// the work of one Poll must stay within the ring's size, and the cursor must survive its own
// serialisation.
//
// Input: first byte 0: the rest is the ring's memory, header and all; else: a program over a ring
// that began well (see Step).
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/types/span.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/ring/writer.h"

namespace seqpoint::ingest {
namespace {

constexpr size_t kRingBytes = 64 * 1024;

void Require(bool holds) {
  if (!holds) abort();
}

class CheckingSink : public RingSink {
 public:
  void OnEvent(uint64_t number, abi::EventType type, absl::Span<const uint8_t> payload) override {
    Require(type > abi::EventType::kNone && type < abi::EventType::kCount);
    Require(reinterpret_cast<uintptr_t>(payload.data()) % 8 == 0);
    if (type == abi::EventType::kName) {
      Require(payload.size() >= sizeof(abi::NameEvent));
      abi::NameEvent event;
      memcpy(&event, payload.data(), sizeof event);
      Require(payload.size() == sizeof event + event.length);
    }
    events += 1;
  }
  void OnData(absl::Span<const abi::DataRecord> batch) override {
    for (const abi::DataRecord& record : batch) {
      Require(record.type > 0 && record.type < static_cast<uint16_t>(abi::DataType::kCount));
      if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) {
        Require(record.call.sequence == next_call);
        ++next_call;
      }
    }
    records += batch.size();
  }
  void OnCollectives(const abi::DataRecord& record) override {
    if (record.type == static_cast<uint16_t>(abi::DataType::kArrivals)) {
      Require(record.arrivals.communicator != 0);
      Require(record.arrivals.count > 0 && record.arrivals.count <= abi::kArrivalsPerRecord);
    } else {
      Require(record.type == static_cast<uint16_t>(abi::DataType::kCollective));
      Require(record.collective.gpu_start_ns <= record.collective.gpu_end_ns);
    }
    ++records;
  }
  void OnCallsMissing(uint64_t first, uint64_t count) override {
    Require(first == next_call && count > 0);
    next_call += count;
  }

  size_t events = 0;
  size_t records = 0;
  uint64_t next_call = 0;
};

class Input {
 public:
  Input(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <typename T>
  T Take() {
    T value = {};
    const size_t n = size_ < sizeof value ? size_ : sizeof value;
    if (n == 0) return value;
    memcpy(&value, bytes_, n);
    bytes_ += n;
    size_ -= n;
    return value;
  }
  void TakeAll(uint8_t* to, size_t capacity) {
    if (size_ != 0) memcpy(to, bytes_, std::min(size_, capacity));
  }

 private:
  const uint8_t* bytes_;
  size_t size_;
};

class Session {
 public:
  Session() {
    memory_ = static_cast<uint8_t*>(
        mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Require(memory_ != MAP_FAILED);
  }
  ~Session() { munmap(memory_, kRingBytes); }

  void ReadGarbage(Input& input) {
    input.TakeAll(memory_, kRingBytes);
    if (!Open()) return;
    Poll();
    reader_->SetProcessGone();
    Poll();
    Commit();
  }

  void RunProgram(Input& input) {
    memcpy(memory_, GoodRing(), kRingBytes);
    Require(Open());
    while (!input.empty()) Step(input);
    reader_->SetProcessGone();
    do {
      Poll();
    } while (more_);
    Commit();
  }

 private:
  // The first page and the empty rest of a ring as the writer makes it, with a salt of zero so that
  // inputs can name positions.
  static const uint8_t* GoodRing() {
    static const uint8_t* const ring = [] {
      static injection::RingWriter writer;
      Require(writer.Create(injection::kSmallRing).ok() && writer.bytes() == kRingBytes);
      writer.header()->lane_salt = 0;
      writer.header()->next_chunk_sequence = 60;
      return reinterpret_cast<const uint8_t*>(writer.header());
    }();
    return ring;
  }

  abi::RingHeader& Header() { return *reinterpret_cast<abi::RingHeader*>(memory_); }

  bool Open() {
    auto reader = RingReader::OpenMemory(absl::MakeSpan(memory_, kRingBytes), {.hole_wait_ns = 10});
    if (reader.ok()) reader_ = *std::move(reader);
    return reader.ok();
  }

  void Poll() {
    const size_t before = sink_.events + sink_.records;
    now_ns_ += 3;
    more_ = reader_->Poll(sink_, now_ns_, now_ns_ % 2 == 0 ? 20 : UINT64_MAX).more;
    Require(sink_.events + sink_.records - before <= kRingBytes / abi::kSlotBytes);
  }

  void Commit() {
    const std::string bytes = reader_->cursor().Serialize();
    const auto cursor = Cursor::Parse(bytes);
    Require(cursor.ok() && cursor->Serialize() == bytes);
    reader_->Release(*cursor);
  }

  void Step(Input& input) {
    switch (input.Take<uint8_t>() % 8) {
      case 0:
        Poll();
        break;
      case 1:
        Commit();
        break;
      case 2: {  // the daemon was killed
        const Cursor cursor = reader_->cursor();
        Require(Open());
        Require(reader_->Resume(cursor).ok());
        break;
      }
      case 3: {  // any word anywhere behind the part that is read once
        const uint64_t first = offsetof(abi::RingHeader, next_chunk_sequence) / 8;
        const uint64_t word = first + input.Take<uint16_t>() % (kRingBytes / 8 - first);
        const uint64_t value = input.Take<uint64_t>();
        memcpy(memory_ + word * 8, &value, sizeof value);
        break;
      }
      case 4: {  // the state of a chunk
        auto* directory = reinterpret_cast<abi::ChunkState*>(memory_ + Header().directory_offset);
        abi::ChunkState& chunk = directory[input.Take<uint8_t>() % Header().chunk_count];
        chunk.state = input.Take<uint8_t>();
        chunk.published = input.Take<uint8_t>() % 20;
        break;
      }
      case 5: {  // a record
        const uint64_t slots = Header().chunk_count * (Header().chunk_bytes / abi::kSlotBytes);
        abi::DataRecord record = {};
        const uint64_t at = input.Take<uint16_t>() % slots;
        record.type = input.Take<uint8_t>() % 12;
        record.call.op = input.Take<uint8_t>() % 24;
        record.call.sequence = input.Take<uint8_t>();
        if (record.type >= static_cast<uint16_t>(abi::DataType::kArrivals)) {
          // All that is checked of NCCL's records: numbers, and the times at their ends.
          for (size_t i = 2; i < 40; i += 3) record.bytes[i] = input.Take<uint8_t>() % 8;
        }
        memcpy(memory_ + Header().chunks_offset + at * sizeof record, &record, sizeof record);
        Header().call_sequence = std::max(Header().call_sequence, record.call.sequence + 1);
        break;
      }
      case 6: {  // an event
        const uint64_t position = Header().lane_head;
        abi::LaneSlot slot = {};
        slot.stamp = position;
        slot.number = Header().lane_number++;
        slot.type = input.Take<uint8_t>() % 25;
        slot.payload_bytes = input.Take<uint16_t>() % 300;
        slot.slots = static_cast<uint16_t>(abi::EventSlots(slot.payload_bytes));
        const uint8_t spoil = input.Take<uint8_t>();
        if (spoil < 32) slot.slots = spoil;
        const uint32_t length = input.Take<uint16_t>() % 300;
        memcpy(slot.payload + 4, &length, sizeof length);
        memcpy(memory_ + Header().lane_offset + position % Header().lane_slots * sizeof slot, &slot,
               sizeof slot);
        Header().lane_head += abi::EventSlots(slot.payload_bytes);
        break;
      }
      case 7:
        Header().call_dropped = input.Take<uint8_t>();
        break;
    }
  }

  uint8_t* memory_;
  std::unique_ptr<RingReader> reader_;
  CheckingSink sink_;
  uint64_t now_ns_ = 0;
  bool more_ = false;
};

}  // namespace
}  // namespace seqpoint::ingest

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint::ingest;
  (void)Cursor::Parse(std::string_view(reinterpret_cast<const char*>(bytes), size));
  Input input(bytes, size);
  Session session;
  if (input.Take<uint8_t>() == 0) {
    session.ReadGarbage(input);
  } else {
    session.RunProgram(input);
  }
  return 0;
}
