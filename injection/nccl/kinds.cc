#include "injection/nccl/kinds.h"

#include <bit>

namespace seqpoint::inject {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 32;
}

uint64_t Number(const char* text) { return reinterpret_cast<uint64_t>(text); }

const char* OrEmpty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

uint16_t CollectiveKinds::IdOf(const Operation& operation) {
  const uint64_t elements =
      operation.is_transfer() ? std::bit_floor(operation.elements) : operation.elements;
  const uint64_t texts = Number(operation.function) + 3 * Number(operation.datatype) +
                         5 * Number(operation.algorithm) + 7 * Number(operation.protocol);
  const uint64_t hash = Mix(Mix(texts, elements), static_cast<uint32_t>(operation.peer));
  const uint32_t slot = static_cast<uint32_t>(hash) % kSlots;
  const uint32_t found = Probe(operation, elements, slot);
  const uint16_t id = slots_[found].load(std::memory_order_acquire);
  if (id != 0 && entries_[id].announced.load(std::memory_order_relaxed)) return id;
  return Insert(operation, elements, slot);
}

// The slot of the kind, or the free one where it belongs.
uint32_t CollectiveKinds::Probe(const Operation& operation, uint64_t elements,
                                uint32_t slot) const {
  for (;; slot = (slot + 1) % kSlots) {
    const uint16_t id = slots_[slot].load(std::memory_order_acquire);
    if (id == 0 || entries_[id].Is(operation, elements)) return slot;
  }
}

uint16_t CollectiveKinds::Insert(const Operation& operation, uint64_t elements, uint32_t slot) {
  LockGuard guard(&lock_);
  slot = Probe(operation, elements, slot);
  uint16_t id = slots_[slot].load(std::memory_order_relaxed);
  if (id == 0) {
    if (count_ >= (operation.is_transfer() ? kCapacity / 2 : kCapacity)) {
      features_->Report(abi::Feature::kNccl, abi::FeatureState::kFailed, 0,
                        "more than %u kinds of NCCL operations (function, size, peer): arrivals of "
                        "later kinds are recorded without their kind",
                        count_);
      return 0;
    }
    id = static_cast<uint16_t>(++count_);
    Entry& entry = entries_[id];
    entry.function = operation.function;
    entry.datatype = operation.datatype;
    entry.algorithm = operation.algorithm;
    entry.protocol = operation.protocol;
    entry.elements = elements;
    entry.peer = operation.peer;
    entry.announced.store(false, std::memory_order_relaxed);
    slots_[slot].store(id, std::memory_order_release);
  }
  // A kind that the lane dropped is told later.
  Entry& entry = entries_[id];
  if (!entry.announced.load(std::memory_order_relaxed) && Announce(id)) {
    entry.announced.store(true, std::memory_order_relaxed);
  }
  return id;
}

bool CollectiveKinds::Announce(uint32_t id) {
  const Entry& entry = entries_[id];
  Text<256> text;
  text.Append("%s\n%s\n%s\n%s", OrEmpty(entry.function), OrEmpty(entry.datatype),
              OrEmpty(entry.algorithm), OrEmpty(entry.protocol));
  const abi::CollectiveKindEvent event = {.kind = id,
                                          .peer = entry.peer,
                                          .elements = entry.elements,
                                          .length = static_cast<uint32_t>(text.size()),
                                          .reserved = 0};
  return ring_->WriteEvent(abi::EventType::kCollectiveKind, &event, sizeof(event), text.c_str(),
                           text.size());
}

}  // namespace seqpoint::inject
