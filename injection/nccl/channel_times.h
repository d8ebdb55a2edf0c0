// The times of operations, one record each (abi::CollectiveRecord): on the GPU, where kernel
// channels are told, from the start of the first channel to the end of the last one; or of the
// host's own collectives, from the call to the moment when the host goes on.
//
// Up to kPending operations may be between their call and their end. Where the GPU is further
// behind, the oldest is given up and its record counts as dropped.
//
// Threading: any thread; NCCL's progress threads tell the channels.
#ifndef SEQPOINT_INJECTION_NCCL_CHANNEL_TIMES_H_
#define SEQPOINT_INJECTION_NCCL_CHANNEL_TIMES_H_

#include <stdint.h>

#include "injection/base/system.h"
#include "injection/nccl/handles.h"
#include "injection/nccl/open_arrivals.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class ChannelTimes {
 public:
  static constexpr uint32_t kPending = 4096;

  explicit ChannelTimes(injection::RingWriter* ring) : ring_(ring) {}

  // The operation with this arrival runs on so many channels. Returns the handle by which they
  // refer to it.
  void* Await(uint16_t communicator, const Arrival& arrival, uint16_t channels);
  // The same for an operation of the host's. OnHostEnd takes the handle.
  void* AwaitHost(uint16_t communicator, const Arrival& arrival);
  void OnHostEnd(const NcclHandle& operation, uint64_t host_ns);
  // A channel started. Returns its handle; null: the operation is not waited for.
  void* OnStart(const NcclHandle& operation, uint64_t gpu_ns);
  void OnStop(const NcclHandle& channel, uint64_t gpu_ns);

 private:
  struct Pending {
    Arrival arrival;
    uint64_t start_ns, end_ns;
    uint32_t number;
    uint16_t communicator;
    uint16_t channels;  // or 1 for the host's; 0: nothing is waited for
    uint16_t stopped;
    bool host;
  };

  void* Add(const Pending& pending);
  Pending* Find(const NcclHandle& handle, NcclHandle::Kind kind);
  void Write(const Pending& pending);

  injection::RingWriter* const ring_;
  SpinLock lock_;
  uint32_t count_ = 0;
  Pending pending_[kPending];  // by number; written before it is read
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_CHANNEL_TIMES_H_
