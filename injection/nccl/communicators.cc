#include "injection/nccl/communicators.h"

#include <string.h>

namespace seqpoint::inject {
namespace {

constexpr uint64_t kExitPatienceNs = 100'000'000;

}  // namespace

uint16_t Communicators::Open(const CommunicatorId& id, int version) {
  LockGuard guard(&lock_);
  if (opened_ == UINT16_MAX) {
    features_->Report(abi::Feature::kNccl, abi::FeatureState::kFailed, 0,
                      "the program has created 65,535 communicators: later ones are not recorded");
    return NcclHandle::kNoSlot;
  }
  for (uint16_t slot = 0; slot < kAtATime; ++slot) {
    Communicator& communicator = table_[slot];
    LockGuard own(&communicator.lock);
    if (communicator.id != 0) continue;
    communicator.id = static_cast<uint16_t>(++opened_);
    communicator.announced = false;
    communicator.version = version;
    communicator.transfers = 0;
    Identify(id, &communicator);
    return slot;
  }
  features_->Report(abi::Feature::kNccl, abi::FeatureState::kFailed, 0,
                    "the program has more than %d communicators at a time: further ones are not "
                    "recorded",
                    kAtATime);
  return NcclHandle::kNoSlot;
}

void Communicators::Close(uint16_t slot) {
  if (slot >= kAtATime) return;
  LockGuard guard(&lock_);
  Communicator& communicator = table_[slot];
  LockGuard own(&communicator.lock);
  Write(&communicator);
  communicator.id = 0;
}

void Communicators::Identify(const CommunicatorId& id, Communicator* communicator) {
  communicator->about = id;
  const size_t length = id.name == nullptr ? 0 : strnlen(id.name, sizeof(communicator->name) - 1);
  if (length != 0) memcpy(communicator->name, id.name, length);
  communicator->name[length] = '\0';
}

void Communicators::Announce(Communicator* communicator) {
  const CommunicatorId& about = communicator->about;
  const size_t length = strlen(communicator->name);
  const abi::CommunicatorEvent event = {.communicator = communicator->id,
                                        .rank = about.rank,
                                        .ranks = about.ranks,
                                        .nodes = about.nodes,
                                        .hash = about.hash,
                                        .version = static_cast<uint32_t>(communicator->version),
                                        .length = static_cast<uint32_t>(length)};
  // Where the lane is full, the next operation tries again.
  communicator->announced = ring_->WriteEvent(abi::EventType::kCommunicator, &event, sizeof(event),
                                              communicator->name, length);
}

void Communicators::Write(Communicator* communicator) {
  if (communicator->open.empty()) return;
  ring_->WriteData(communicator->open.record());
  communicator->open.Clear();
}

void* Communicators::OnOperation(uint16_t slot, const Operation& operation) {
  if (slot >= kAtATime || !ring_->active()) return nullptr;
  Arrival arrival = {masks_->iteration(), clock_->NowNs(),
                     static_cast<uint32_t>(operation.sequence), kinds_.IdOf(operation)};
  Communicator& communicator = table_[slot];
  LockGuard guard(&communicator.lock);
  if (communicator.id == 0) return nullptr;
  if (!communicator.announced) {
    if (operation.communicator.rank >= 0) Identify(operation.communicator, &communicator);
    Announce(&communicator);
  }
  if (operation.is_transfer()) arrival.sequence = communicator.transfers++;
  if (!communicator.open.Add(communicator.id, arrival)) {
    Write(&communicator);
    communicator.open.Add(communicator.id, arrival);
  }
  if (communicator.open.full()) Write(&communicator);
  if (!masks_->channels_on() || operation.channels == 0) return nullptr;
  return channels_.Await(communicator.id, arrival, operation.channels);
}

void Communicators::WriteOld() {
  for (Communicator& communicator : table_) {
    LockGuard guard(&communicator.lock);
    if (communicator.open.IsOld()) Write(&communicator);
  }
}

void Communicators::WriteAll() {
  for (Communicator& communicator : table_) {
    if (!communicator.lock.TryLock(kExitPatienceNs)) continue;
    Write(&communicator);
    communicator.lock.Unlock();
  }
}

}  // namespace seqpoint::inject
