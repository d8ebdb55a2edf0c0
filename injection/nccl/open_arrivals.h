// Arrivals that are being packed into one data record (abi::ArrivalsRecord).
//
//   if (!open.Add(arrival)) { ring->WriteData(open.record()); open.Clear(); open.Add(arrival); }
//
// Threading: one thread at a time. All zero: empty.
#ifndef SEQPOINT_INJECTION_NCCL_OPEN_ARRIVALS_H_
#define SEQPOINT_INJECTION_NCCL_OPEN_ARRIVALS_H_

#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

struct Arrival {
  uint64_t iteration;
  uint64_t at_ns;
  uint32_t sequence;
  uint16_t kind;
  bool timed;  // the GPU's times follow
};

class OpenArrivals {
 public:
  bool empty() const { return record_.arrivals.count == 0; }
  bool full() const { return record_.arrivals.count == abi::kArrivalsPerRecord; }
  const abi::DataRecord& record() const { return record_; }

  // False: it does not fit. The record is full or of another iteration, or the time lies before
  // the last one (the clock was set), or more than 4 s after the first.
  bool Add(uint16_t communicator, const Arrival& arrival) {
    abi::ArrivalsRecord& to = record_.arrivals;
    if (to.count == 0) {
      to.type = static_cast<uint16_t>(abi::DataType::kArrivals);
      to.communicator = communicator;
      to.base_ns = last_ns_ = arrival.at_ns;
      to.iteration = arrival.iteration;
    }
    if (full() || arrival.iteration != to.iteration || arrival.at_ns < last_ns_ ||
        arrival.at_ns - to.base_ns > UINT32_MAX) {
      return false;
    }
    to.delay_ns[to.count] = static_cast<uint32_t>(arrival.at_ns - to.base_ns);
    to.sequence[to.count] = arrival.sequence;
    to.kind[to.count] = arrival.kind;
    to.timed = static_cast<uint8_t>(to.timed + (arrival.timed ? 1 : 0));
    ++to.count;
    last_ns_ = arrival.at_ns;
    seen_ = false;
    return true;
  }
  void Clear() { record_ = {}; }

  // Has it stood open since the last call?
  bool IsOld() {
    const bool old = !empty() && seen_;
    seen_ = true;
    return old;
  }

 private:
  abi::DataRecord record_ = {};
  uint64_t last_ns_ = 0;
  bool seen_ = false;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_OPEN_ARRIVALS_H_
