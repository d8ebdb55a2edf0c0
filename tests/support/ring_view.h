// The ring of another process, mapped to be looked at: how much was published, as the shared memory
// itself tells it. Stays readable after the process was killed.
//
// Threading: one thread. Ownership: owns its mapping.
#ifndef SEQPOINT_TESTS_SUPPORT_RING_VIEW_H_
#define SEQPOINT_TESTS_SUPPORT_RING_VIEW_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "injection/abi/ring.h"

namespace seqpoint {

class RingView {
 public:
  // Null: the process has no ring (yet).
  static std::unique_ptr<RingView> Of(pid_t pid);
  ~RingView();
  RingView(const RingView&) = delete;
  RingView& operator=(const RingView&) = delete;

  abi::RingHeader Header() const { return *static_cast<const abi::RingHeader*>(memory_); }

  // Data records published since the ring was made. Right as long as no chunk is emptied and filled
  // anew between two calls.
  uint64_t Published();
  // The same from the directory as it was at the last Published(), whatever was missed before.
  uint64_t Count() const;

 private:
  struct Seen {
    uint64_t sequence = 0;
    uint32_t published = 0;
  };
  RingView(void* memory, size_t bytes);
  uint64_t Overwritten() const;

  void* const memory_;
  const size_t bytes_;
  const abi::ChunkState* directory_;
  std::vector<Seen> seen_;
  uint64_t published_ = 0;
};

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_SUPPORT_RING_VIEW_H_
