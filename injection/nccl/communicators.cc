#include "injection/nccl/communicators.h"

#include <string.h>

namespace seqpoint::inject {
namespace {

constexpr uint64_t kExitPatienceNs = 100'000'000;

}  // namespace

void* Communicators::OnOperation(const NcclHandle& handle, const Operation& operation) {
  Arrival arrival;
  if (!Record(handle, operation, &arrival)) return nullptr;
  if (!arrival.timed) return nullptr;
  return channels_.Await(static_cast<uint16_t>(handle.number), arrival, operation.channels);
}

void* Communicators::OnHostOperation(const NcclHandle& handle, const Operation& operation) {
  Arrival arrival;
  if (!Record(handle, operation, &arrival)) return nullptr;
  return channels_.AwaitHost(static_cast<uint16_t>(handle.number), arrival);
}

// False: it is not recorded.
bool Communicators::Record(const NcclHandle& handle, const Operation& operation, Arrival* out) {
  // A plugin of the user's may want operations while the level wants none.
  if (!parts_.ring->active() || !parts_.masks->operations_on()) return false;
  const CommunicatorTable::Entry* known = parts_.table->Find(handle);
  if (known == nullptr || handle.number > UINT16_MAX) {
    ReportNoRoom(handle);
    return false;
  }
  const bool gpu_times = parts_.masks->channels_on() && operation.channels != 0 &&
                         known->version >= ActivationMasks::kTimedVersion;
  Arrival& arrival = *out;
  arrival = {parts_.masks->iteration(), parts_.clock->NowNs(),
             static_cast<uint32_t>(operation.sequence), kinds_.IdOf(operation),
             known->version == 0 || gpu_times};
  Communicator& communicator = recorded_[handle.slot];
  LockGuard guard(&communicator.lock);
  if (!Begin(handle.number, &communicator)) return false;
  const auto id = static_cast<uint16_t>(handle.number);
  if (!communicator.announced) {
    const bool told_here = operation.communicator.rank >= 0;
    Announce(told_here ? operation.communicator : known->id, known->version, &communicator);
  }
  if (operation.is_transfer()) arrival.sequence = communicator.transfers++;
  if (!communicator.open.Add(id, arrival)) {
    Write(&communicator);
    communicator.open.Add(id, arrival);
  }
  if (communicator.open.full()) Write(&communicator);
  return true;
}

// The place may have had another communicator. False: it has a later one.
bool Communicators::Begin(uint32_t number, Communicator* communicator) {
  if (communicator->number == number) return true;
  if (communicator->number > number) return false;
  Write(communicator);
  communicator->number = number;
  communicator->announced = false;
  communicator->transfers = 0;
  return true;
}

void Communicators::Announce(const CommunicatorId& id, int version, Communicator* communicator) {
  const size_t length =
      id.name == nullptr ? 0 : strnlen(id.name, sizeof(CommunicatorTable::Entry::name) - 1);
  const abi::CommunicatorEvent event = {.communicator = communicator->number,
                                        .rank = id.rank,
                                        .ranks = id.ranks,
                                        .nodes = id.nodes,
                                        .hash = id.hash,
                                        .version = static_cast<uint32_t>(version),
                                        .length = static_cast<uint32_t>(length)};
  // Where the lane is full, the next operation tries again.
  communicator->announced = parts_.ring->WriteEvent(abi::EventType::kCommunicator, &event,
                                                    sizeof(event), id.name, length);
}

void Communicators::ReportNoRoom(const NcclHandle& handle) {
  const bool full = handle.slot == NcclHandle::kNoSlot;
  if ((!full && handle.number <= UINT16_MAX) || reported_.exchange(true)) return;
  if (full) {
    parts_.features->Report(abi::Feature::kNccl, abi::FeatureState::kFailed, 0,
                            "the program has more than %d communicators at a time: further ones "
                            "are not recorded",
                            kAtATime);
  } else {
    parts_.features->Report(abi::Feature::kNccl, abi::FeatureState::kFailed, 0,
                            "the program has created 65,535 communicators: later ones are not "
                            "recorded");
  }
}

void Communicators::Write(Communicator* communicator) {
  if (communicator->open.empty()) return;
  parts_.ring->WriteData(communicator->open.record());
  communicator->open.Clear();
}

void Communicators::Flush(const NcclHandle& handle) {
  if (handle.slot >= kAtATime) return;
  Communicator& communicator = recorded_[handle.slot];
  LockGuard guard(&communicator.lock);
  Write(&communicator);
}

void Communicators::WriteOld() {
  for (Communicator& communicator : recorded_) {
    LockGuard guard(&communicator.lock);
    if (communicator.open.IsOld()) Write(&communicator);
  }
}

void Communicators::WriteAll() {
  for (Communicator& communicator : recorded_) {
    if (!communicator.lock.TryLock(kExitPatienceNs)) continue;
    Write(&communicator);
    communicator.lock.Unlock();
  }
}

}  // namespace seqpoint::inject
