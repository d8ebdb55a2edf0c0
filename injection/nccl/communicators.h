// Records the operations of the process' communicators, NCCL's and the host's own: each arrival is
// packed into a data record of its communicator. A communicator is told to the daemon with its
// first operation.
//
// A killed process loses the arrivals of the open records: at most three of each communicator.
//
// Threading: any thread; each communicator has a lock, held for well under a microsecond.
#ifndef SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_
#define SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/system.h"
#include "injection/cupti/clock.h"
#include "injection/nccl/activation_masks.h"
#include "injection/nccl/channel_times.h"
#include "injection/nccl/communicator_table.h"
#include "injection/nccl/handles.h"
#include "injection/nccl/kinds.h"
#include "injection/nccl/open_arrivals.h"
#include "injection/nccl/operation.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Communicators {
 public:
  struct Parts {  // that outlive it
    const CommunicatorTable* table;
    const Clock* clock;
    const ActivationMasks* masks;
    injection::RingWriter* ring;
    Features* features;
  };
  explicit Communicators(const Parts& parts)
      : parts_(parts), kinds_(parts.ring, parts.features), channels_(parts.ring) {}

  // The host asked for it. Returns the handle by which kernel channels refer to it; null: they are
  // off. An event that comes after the communicator's end does nothing.
  void* OnOperation(const NcclHandle& communicator, const Operation& operation);
  // The same for an operation of the host's own; null: nothing is recorded now. The handle goes to
  // channels().OnHostEnd.
  void* OnHostOperation(const NcclHandle& group, const Operation& operation);
  ChannelTimes& channels() { return channels_; }

  // The communicator ends: writes what is open.
  void Flush(const NcclHandle& communicator);
  // Once a second: writes records that stood open since the last time. A rank that hangs shows its
  // last arrival.
  void WriteOld();
  // At the end of the process: writes what is open. Waits 0.1 s at most for a lock.
  void WriteAll();

 private:
  static constexpr uint16_t kAtATime = CommunicatorTable::kAtATime;
  struct Communicator {
    SpinLock lock;
    uint32_t number = 0;  // CommunicatorTable's; 0: nothing was recorded in this place
    bool announced = false;
    uint32_t transfers = 0;
    OpenArrivals open;
  };

  bool Record(const NcclHandle& handle, const Operation& operation, Arrival* arrival);
  bool Begin(uint32_t number, Communicator* communicator);
  void Announce(const CommunicatorId& id, int version, Communicator* communicator);
  void Write(Communicator* communicator);
  void ReportNoRoom(const NcclHandle& communicator);

  const Parts parts_;
  CollectiveKinds kinds_;
  ChannelTimes channels_;
  std::atomic<bool> reported_{false};
  Communicator recorded_[kAtATime];  // by slot
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_
