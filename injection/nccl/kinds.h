// Gives each kind of operations (function, datatype, size, algorithm, protocol, peer) a
// dense id, and tells the daemon each kind once, before its first use.
//
// A kind is looked up by the addresses of its texts, so nothing is compared but numbers. Entries
// are never freed. Sends and receives, whose sizes may be all different, count by powers of two and
// fill half of the table at most.
//
// Threading: IdOf from any thread; it locks only for a kind that is new.
#ifndef SEQPOINT_INJECTION_NCCL_KINDS_H_
#define SEQPOINT_INJECTION_NCCL_KINDS_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/features.h"
#include "injection/base/system.h"
#include "injection/nccl/operation.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

class CollectiveKinds {
 public:
  static constexpr uint32_t kCapacity = 8 * 1024;

  CollectiveKinds(injection::RingWriter* ring, Features* features)
      : ring_(ring), features_(features) {}

  // 0: the table is full, which is said.
  uint16_t IdOf(const Operation& operation);

 private:
  static constexpr uint32_t kSlots = 2 * kCapacity;

  struct Entry {
    const char* function;
    const char* datatype;
    const char* algorithm;
    const char* protocol;
    uint64_t elements;
    int32_t peer;
    std::atomic<bool> announced;  // the daemon was told
    bool Is(const Operation& operation, uint64_t rounded) const {
      return elements == rounded && peer == operation.peer && function == operation.function &&
             datatype == operation.datatype && algorithm == operation.algorithm &&
             protocol == operation.protocol;
    }
  };

  uint32_t Probe(const Operation& operation, uint64_t elements, uint32_t slot) const;
  uint16_t Insert(const Operation& operation, uint64_t elements, uint32_t slot);
  bool Announce(uint32_t id);

  injection::RingWriter* const ring_;
  Features* const features_;
  SpinLock lock_;
  uint32_t count_ = 0;
  std::atomic<uint16_t> slots_[kSlots] = {};  // ids
  Entry entries_[kCapacity + 1];              // by id; written before it is read
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_KINDS_H_
