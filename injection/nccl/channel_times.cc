#include "injection/nccl/channel_times.h"

#include <algorithm>

namespace seqpoint::inject {

void* ChannelTimes::Await(uint16_t communicator, const Arrival& arrival, uint16_t channels) {
  return Add({.arrival = arrival,
              .start_ns = UINT64_MAX,
              .communicator = communicator,
              .channels = channels});
}

void* ChannelTimes::AwaitHost(uint16_t communicator, const Arrival& arrival) {
  return Add({.arrival = arrival,
              .start_ns = arrival.at_ns,
              .communicator = communicator,
              .channels = 1,
              .host = true});
}

void* ChannelTimes::Add(const Pending& pending) {
  LockGuard guard(&lock_);
  const uint32_t number = ++count_;
  Pending* place = &pending_[number % kPending];
  if (number > kPending && place->channels != 0) {
    ring_->Count(&abi::RingHeader::data_dropped, 1);
  }
  *place = pending;
  place->number = number;
  return NcclHandle{NcclHandle::Kind::kOperation, 0, number}.Pack();
}

void ChannelTimes::OnHostEnd(const NcclHandle& operation, uint64_t host_ns) {
  LockGuard guard(&lock_);
  Pending* pending = Find(operation, NcclHandle::Kind::kOperation);
  if (pending == nullptr) return;
  pending->end_ns = host_ns;
  Write(*pending);
  pending->channels = 0;
}

// Holds the lock. Null: it was written, or given up.
ChannelTimes::Pending* ChannelTimes::Find(const NcclHandle& handle, NcclHandle::Kind kind) {
  if (handle.kind != kind || handle.number == 0 || handle.number > count_) return nullptr;
  Pending* pending = &pending_[handle.number % kPending];
  return pending->number == handle.number && pending->channels != 0 ? pending : nullptr;
}

void* ChannelTimes::OnStart(const NcclHandle& operation, uint64_t gpu_ns) {
  LockGuard guard(&lock_);
  Pending* pending = Find(operation, NcclHandle::Kind::kOperation);
  if (pending == nullptr) return nullptr;
  pending->start_ns = std::min(pending->start_ns, gpu_ns);
  return NcclHandle{NcclHandle::Kind::kChannel, 0, operation.number}.Pack();
}

void ChannelTimes::OnStop(const NcclHandle& channel, uint64_t gpu_ns) {
  LockGuard guard(&lock_);
  Pending* pending = Find(channel, NcclHandle::Kind::kChannel);
  if (pending == nullptr) return;
  pending->end_ns = std::max(pending->end_ns, gpu_ns);
  if (++pending->stopped < pending->channels) return;
  Write(*pending);
  pending->channels = 0;
}

void ChannelTimes::Write(const Pending& pending) {
  if (pending.start_ns == 0 || pending.end_ns < pending.start_ns) {
    ring_->Count(&abi::RingHeader::invalid_timestamps, 1);
    return;
  }
  abi::DataRecord record = {};
  record.collective = {.type = static_cast<uint16_t>(abi::DataType::kCollective),
                       .communicator = pending.communicator,
                       .kind = pending.arrival.kind,
                       .channels = pending.host ? uint16_t{0} : pending.channels,
                       .iteration = pending.arrival.iteration,
                       .host_ns = pending.arrival.at_ns,
                       .gpu_start_ns = pending.start_ns,
                       .gpu_end_ns = pending.end_ns,
                       .sequence = pending.arrival.sequence,
                       .reserved = {}};
  ring_->WriteData(record);
}

}  // namespace seqpoint::inject
