// The communicators of the process. Each operation's arrival is packed into a record of its
// communicator. 64 communicators at a time are known; a further one is not recorded, which is said.
//
// A killed process loses the arrivals of the open records: at most three of each communicator.
//
// Threading: any thread; each communicator has a lock, held for well under a microsecond.
#ifndef SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_
#define SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_

#include <stdint.h>

#include "injection/base/features.h"
#include "injection/base/system.h"
#include "injection/cupti/clock.h"
#include "injection/nccl/activation_masks.h"
#include "injection/nccl/channel_times.h"
#include "injection/nccl/handles.h"
#include "injection/nccl/kinds.h"
#include "injection/nccl/open_arrivals.h"
#include "injection/nccl/operation.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class Communicators {
 public:
  static constexpr int kAtATime = 64;

  Communicators(const Clock* clock, const ActivationMasks* masks, injection::RingWriter* ring,
                Features* features)
      : clock_(clock),
        masks_(masks),
        ring_(ring),
        features_(features),
        kinds_(ring, features),
        channels_(ring) {}

  // Returns the communicator's slot; NcclHandle::kNoSlot: there is no room.
  uint16_t Open(const CommunicatorId& id, int version);
  // Writes what is open. The slot is free then; events that come later do nothing.
  void Close(uint16_t slot);

  // The host asked for it. Returns the handle by which kernel channels refer to it; null: they are
  // off.
  void* OnOperation(uint16_t slot, const Operation& operation);
  ChannelTimes& channels() { return channels_; }

  // Once a second: writes records that stood open since the last time. A rank that hangs shows its
  // last arrival.
  void WriteOld();
  // At the end of the process: writes what is open. Waits 0.1 s at most for a lock.
  void WriteAll();

 private:
  struct Communicator {
    SpinLock lock;
    uint16_t id = 0;  // 0: free
    bool announced = false;
    int version = 0;
    CommunicatorId about;  // its name is the copy
    char name[64] = {};
    uint32_t transfers = 0;
    OpenArrivals open;
  };

  void Identify(const CommunicatorId& id, Communicator* communicator);
  void Announce(Communicator* communicator);
  void Write(Communicator* communicator);

  const Clock* const clock_;
  const ActivationMasks* const masks_;
  injection::RingWriter* const ring_;
  Features* const features_;
  CollectiveKinds kinds_;
  ChannelTimes channels_;
  SpinLock lock_;  // for who has which slot; taken before a communicator's
  uint32_t opened_ = 0;
  Communicator table_[kAtATime];
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_COMMUNICATORS_H_
