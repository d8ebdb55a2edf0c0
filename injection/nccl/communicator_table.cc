#include "injection/nccl/communicator_table.h"

#include <string.h>

namespace seqpoint::inject {

constinit CommunicatorTable g_communicator_table;

NcclHandle CommunicatorTable::Open(const CommunicatorId& id, int version, int* mask) {
  LockGuard guard(&lock_);
  NcclHandle handle = {NcclHandle::Kind::kContext, NcclHandle::kNoSlot, 0};
  uint16_t slot = 0;
  while (slot < kAtATime && entries_[slot].number.load(std::memory_order_relaxed) != 0) ++slot;
  if (slot == kAtATime) return handle;
  Entry& entry = entries_[slot];
  entry.version = version;
  entry.mask = mask;
  entry.id = id;
  const size_t length = id.name == nullptr ? 0 : strnlen(id.name, sizeof(entry.name) - 1);
  if (length != 0) memcpy(entry.name, id.name, length);
  entry.name[length] = '\0';
  entry.id.name = entry.name;
  entry.their_context = nullptr;
  entry.theirs = false;
  handle.slot = slot;
  handle.number = ++opened_;
  entry.number.store(handle.number, std::memory_order_release);
  return handle;
}

void CommunicatorTable::Close(const NcclHandle& handle) {
  LockGuard guard(&lock_);
  if (Entry* entry = Find(handle); entry != nullptr) {
    entry->number.store(0, std::memory_order_release);
  }
}

CommunicatorTable::Entry* CommunicatorTable::Find(const NcclHandle& handle) {
  if (handle.kind != NcclHandle::Kind::kContext || handle.slot >= kAtATime) return nullptr;
  Entry* entry = &entries_[handle.slot];
  const uint32_t number = entry->number.load(std::memory_order_acquire);
  return number != 0 && number == handle.number ? entry : nullptr;
}

int CommunicatorTable::OpenVersion() const {
  for (const Entry& entry : entries_) {
    const bool open = entry.number.load(std::memory_order_acquire) != 0;
    if (open && entry.version != 0) return entry.version;
  }
  return 0;
}

}  // namespace seqpoint::inject
