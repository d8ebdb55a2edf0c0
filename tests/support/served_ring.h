// Tests, the fuzz target and benchmarks of the ring share this: records that carry a number, and a
// sink that checks order and keeps what it gets.
#ifndef TESTS_SUPPORT_SERVED_RING_H_
#define TESTS_SUPPORT_SERVED_RING_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ingest/ring_reader.h"
#include "injection/abi/records.h"
#include "injection/ring/writer.h"

namespace seqpoint::ingest {

inline abi::DataRecord MakeCall(uint64_t sequence) {
  abi::DataRecord record = {};
  record.type = static_cast<uint16_t>(abi::DataType::kCall);
  record.call.op = static_cast<uint8_t>(abi::Op::kLaunch);
  record.call.sequence = sequence;
  return record;
}

inline abi::DataRecord MakeKernel(uint64_t number, uint32_t stream = 0) {
  abi::DataRecord record = {};
  record.type = static_cast<uint16_t>(abi::DataType::kKernel);
  record.kernel.start_ns = number;
  record.kernel.stream = stream;
  return record;
}

inline bool WriteClockStep(injection::RingWriter& ring, uint64_t number) {
  const abi::ClockStepEvent event = {.real_ns = number};
  return ring.WriteEvent(abi::EventType::kClockStep, &event, sizeof event);
}

inline bool WriteName(injection::RingWriter& ring, uint32_t name_id, const std::string& text) {
  const abi::NameEvent event = {name_id, static_cast<uint32_t>(text.size()), 0};
  return ring.WriteEvent(abi::EventType::kName, &event, sizeof event, text.data(), text.size());
}

class CollectingSink : public RingSink {
 public:
  void OnEvent(uint64_t number, abi::EventType type, absl::Span<const uint8_t> payload) override {
    event_numbers.push_back(number);
    if (type == abi::EventType::kClockStep) {
      abi::ClockStepEvent event;
      memcpy(&event, payload.data(), sizeof event);
      clock_steps.push_back(event.real_ns);
    } else if (type == abi::EventType::kName) {
      names.emplace_back(reinterpret_cast<const char*>(payload.data()) + sizeof(abi::NameEvent),
                         payload.size() - sizeof(abi::NameEvent));
    }
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    for (const abi::DataRecord& record : records) {
      if (record.type == static_cast<uint16_t>(abi::DataType::kCall)) {
        calls.push_back(record.call.sequence);
      } else {
        kernels.push_back(record.kernel.start_ns);
      }
    }
  }
  void OnCollectives(const abi::DataRecord& record) override { collectives.push_back(record); }
  void OnCallsMissing(uint64_t first, uint64_t count) override {
    missing.emplace_back(first, count);
  }

  std::vector<uint64_t> event_numbers;
  std::vector<uint64_t> clock_steps;
  std::vector<std::string> names;
  std::vector<uint64_t> calls;
  std::vector<uint64_t> kernels;
  std::vector<abi::DataRecord> collectives;
  std::vector<std::pair<uint64_t, uint64_t>> missing;
};

}  // namespace seqpoint::ingest

#endif  // TESTS_SUPPORT_SERVED_RING_H_
