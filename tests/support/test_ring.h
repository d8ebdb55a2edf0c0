// A ring in the test's own process, with what was written to it read back.
#ifndef SEQPOINT_TESTS_SUPPORT_TEST_RING_H_
#define SEQPOINT_TESTS_SUPPORT_TEST_RING_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/abi/records.h"
#include "injection/ring/writer.h"

namespace seqpoint {

class TestRing : public ingest::RingSink {
 public:
  TestRing() {
    const injection::Status created = writer.Create(injection::kSmallRing);
    if (created.ok()) reader_ = ingest::RingReader::Open(writer.fd(), {}).value();
  }
  ~TestRing() override {
    writer.CloseThreadChunk();
    writer.Destroy();
  }

  // All events of a type so far: their structs, in order.
  template <typename Event>
  std::vector<Event> Events(abi::EventType type) {
    Read();
    std::vector<Event> events;
    for (const auto& [event_type, bytes] : events_) {
      if (event_type != type) continue;
      memcpy(&events.emplace_back(), bytes.data(), sizeof(Event));
    }
    return events;
  }
  std::vector<abi::CallRecord> Calls() {
    Read();
    return calls_;
  }
  // Records of NCCL's operations so far.
  const std::vector<abi::DataRecord>& Collectives() {
    Read();
    return collectives_;
  }
  // As the daemon does.
  void Write(const abi::Control& control) {
    ingest::ControlWriter(reader_->control_block()).Write(control);
  }
  abi::ControlBlock* control_block() { return reader_->control_block(); }

  injection::RingWriter writer;

 private:
  void Read() {
    writer.CloseThreadChunk();
    reader_->Poll(*this, 0);
    reader_->Release(reader_->cursor());
  }
  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    events_.emplace_back(type, std::vector<uint8_t>(payload.begin(), payload.end()));
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    for (const abi::DataRecord& record : records) {
      if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) calls_.push_back(record.call);
    }
  }
  void OnCollectives(const abi::DataRecord& record) override { collectives_.push_back(record); }
  void OnCallsMissing(uint64_t, uint64_t) override {}

  std::unique_ptr<ingest::RingReader> reader_;
  std::vector<std::pair<abi::EventType, std::vector<uint8_t>>> events_;
  std::vector<abi::CallRecord> calls_;
  std::vector<abi::DataRecord> collectives_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_TEST_RING_H_
