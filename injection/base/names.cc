#include "injection/base/names.h"

#include <string.h>

#include "injection/abi/names.h"
#include "injection/abi/records.h"

namespace seqpoint::inject {

NameRef Names::Lookup(const char* text, size_t compared, uint32_t capacity) {
  if (text == nullptr) return {0, 0, nullptr};
  const uint64_t mixed = reinterpret_cast<uint64_t>(text) * 0x9E3779B97F4A7C15ull;
  AddressSlot* slot = &address_slots_[mixed >> 50];
  static_assert(kAddressSlots == 1u << (64 - 50));
  const uint64_t word = slot->load(std::memory_order_acquire);
  if (word >> kIdBits == reinterpret_cast<uint64_t>(text)) {
    const uint32_t id = word & ((1u << kIdBits) - 1);
    const Entry& entry = entries_[id];
    if (strncmp(entry.text, text, compared) == 0) return {id, entry.hash, entry.text};
  }
  return InternSlowly(text, capacity, slot);
}

NameRef Names::InternSlowly(const char* text, uint32_t capacity, AddressSlot* slot) {
  const size_t length = strlen(text);
  const uint64_t hash = abi::NameHash(text, length);
  LockGuard guard(&lock_);
  uint32_t probe = static_cast<uint32_t>(hash) & (kHashSlots - 1);
  while (hash_slots_[probe] != 0) {
    const Entry& entry = entries_[hash_slots_[probe]];
    if (entry.hash == hash && entry.length == length && strncmp(entry.text, text, kMaxText) == 0) {
      break;
    }
    probe = (probe + 1) & (kHashSlots - 1);
  }
  uint32_t id = hash_slots_[probe];
  if (id == 0) {
    const size_t kept = length < kMaxText ? length : kMaxText;
    if (count_ >= capacity || text_used_ + kept + 1 > kTextBytes) {
      overflows_.fetch_add(1, std::memory_order_relaxed);
      return {0, hash, nullptr};
    }
    char* copy = texts_ + text_used_;
    memcpy(copy, text, kept);
    copy[kept] = '\0';
    if (strstr(copy, "nccl") != nullptr || strstr(copy, "nvshmem") != nullptr) {
      saw_communication_.store(true, std::memory_order_relaxed);
    }
    text_used_ += kept + 1;
    id = ++count_;
    entries_[id] = {hash, copy, static_cast<uint32_t>(length), false};
    hash_slots_[probe] = id;
  }
  Entry* entry = &entries_[id];
  if (!entry->announced) {
    const size_t kept = strlen(entry->text);
    const abi::NameEvent event = {id, static_cast<uint32_t>(kept), hash};
    entry->announced =
        ring_->WriteEvent(abi::EventType::kName, &event, sizeof(event), entry->text, kept);
  }
  // A name that was not announced stays out of the fast path, so that it is announced later. A name
  // that was cut stays out, too: its copy does not distinguish it from others.
  if (entry->announced && length < kMaxText) {
    slot->store(reinterpret_cast<uint64_t>(text) << kIdBits | id, std::memory_order_release);
  }
  return {id, hash, entry->text};
}

void Names::ForgetAddresses() {
  LockGuard guard(&lock_);
  for (uint32_t i = 0; i < kAddressSlots; ++i) {
    address_slots_[i].store(0, std::memory_order_relaxed);
  }
}

}  // namespace seqpoint::inject
