// Gives every kernel, NVTX and graph name a dense id and tells the daemon each name once, before
// its first use.
//
// A name is looked up by the address of its text first: CUPTI hands out the same pointer for the
// same kernel, so the common case is one probe and one comparison. An address may carry another
// text later. For kernels that happens only when a module is unloaded, which forgets all addresses,
// and 64 bytes are compared; other names (a program builds its NVTX names in one buffer) are
// compared whole. Texts and entries are never freed.
//
// Threading: Intern from any thread; it locks only for a name that its address does not find.
#ifndef SEQPOINT_INJECTION_BASE_NAMES_H_
#define SEQPOINT_INJECTION_BASE_NAMES_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

struct NameRef {
  uint32_t id;       // 0: no name, or the table is full
  uint64_t hash;     // abi::NameHash of the whole name
  const char* text;  // our own copy, cut at 4,096 bytes; lives for ever
};

class Names {
 public:
  static constexpr uint32_t kCapacity = 16 * 1024;

  explicit Names(injection::RingWriter* ring) : ring_(ring) {}

  // Names of kernels may fill the table, others half of it.
  NameRef Intern(const char* text) { return Lookup(text, kMaxText, kCapacity / 2); }
  NameRef InternKernel(const char* text) { return Lookup(text, kComparedOfKernels, kCapacity); }
  // A module is being unloaded: its names' addresses may come back with other names.
  void ForgetAddresses();
  // Was there a name of NCCL or NVSHMEM, whose kernels wait for those of other GPUs?
  bool saw_communication() const { return saw_communication_.load(std::memory_order_relaxed); }
  // Names that found the table full; they have id 0.
  uint64_t overflows() const { return overflows_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kAddressSlots = 16 * 1024;
  static constexpr uint32_t kHashSlots = 32 * 1024;
  static constexpr size_t kTextBytes = 4 << 20;
  static constexpr size_t kMaxText = 4096;
  static constexpr size_t kComparedOfKernels = 64;

  struct Entry {
    uint64_t hash;
    const char* text;
    uint32_t length;  // of the whole name
    bool announced;   // the daemon was told
  };
  // Address and id in one word, so that no reader ever joins the address of one name with the id of
  // another: address << 16 | id. Addresses of user space have 47 bits; a longer one is never found
  // here.
  using AddressSlot = std::atomic<uint64_t>;
  static constexpr int kIdBits = 16;
  static_assert(kCapacity < 1u << kIdBits);

  NameRef Lookup(const char* text, size_t compared, uint32_t capacity);
  NameRef InternSlowly(const char* text, uint32_t capacity, AddressSlot* slot);

  injection::RingWriter* const ring_;
  AddressSlot address_slots_[kAddressSlots] = {};
  uint32_t hash_slots_[kHashSlots] = {};  // ids
  // These two are written before they are read: what is not used costs no memory.
  Entry entries_[kCapacity + 1];  // by id
  char texts_[kTextBytes];
  size_t text_used_ = 0;
  uint32_t count_ = 0;
  SpinLock lock_;
  std::atomic<uint64_t> overflows_{0};
  std::atomic<bool> saw_communication_{false};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_NAMES_H_
