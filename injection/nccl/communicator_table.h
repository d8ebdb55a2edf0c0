// The communicators of the process, NCCL's and those of the host's collectives: what `init` was
// told of each, and what the user's plugin made of it. Each is known from its beginning on, so that
// one that is older than the guest is recorded as soon as there is a guest.
//
// NCCL gets a handle as the communicator's context, never null: NCCL 2.28 and later ends no
// communicator whose context is null. `slot` is the communicator's place, `number` counts all of
// the process from 1. Where there is no room the handle has no slot, and finds nothing.
//
// Threading: Open and Close from any thread; an entry is written before NCCL has its handle, and
// read until Close. Ownership: one object in the process, outside the guest.
#ifndef SEQPOINT_INJECTION_NCCL_COMMUNICATOR_TABLE_H_
#define SEQPOINT_INJECTION_NCCL_COMMUNICATOR_TABLE_H_

#include <stdint.h>

#include <atomic>

#include "injection/base/system.h"
#include "injection/nccl/handles.h"
#include "injection/nccl/operation.h"

namespace seqpoint::inject {

class CommunicatorTable {
 public:
  static constexpr uint16_t kAtATime = 256;

  struct Entry {
    std::atomic<uint32_t> number;  // 0: free
    int version;                   // of NCCL's interface; 0: the host's
    int* mask;                     // NCCL's; each copy of NCCL in the process has its own
    CommunicatorId id;             // its name is the copy
    char name[64];
    void* their_context;  // the user's plugin's
    bool theirs;          // the user's plugin knows the communicator
  };

  // A communicator begins.
  NcclHandle Open(const CommunicatorId& id, int version, int* mask);
  // Its place is free; the handle finds nothing any more.
  void Close(const NcclHandle& handle);

  // Null: no room, or over.
  Entry* Find(const NcclHandle& handle);
  const Entry* Find(const NcclHandle& handle) const {
    return const_cast<CommunicatorTable*>(this)->Find(handle);
  }
  // The interface's version of any open communicator of NCCL; 0: none is open.
  int OpenVersion() const;

 private:
  SpinLock lock_;
  uint32_t opened_ = 0;
  Entry entries_[kAtATime] = {};
};

extern CommunicatorTable g_communicator_table;

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_COMMUNICATOR_TABLE_H_
