// The words that we give NCCL as contexts and handles of events. No address of user space looks
// like one, so a plugin of the user's, whose handles are passed on as they are, has others.
// Threading: pure functions.
#ifndef SEQPOINT_INJECTION_NCCL_HANDLES_H_
#define SEQPOINT_INJECTION_NCCL_HANDLES_H_

#include <stdint.h>

namespace seqpoint::inject {

struct NcclHandle {
  enum class Kind : uint8_t { kNone = 0, kContext = 1, kGroup = 2, kOperation = 3, kChannel = 4 };

  Kind kind = Kind::kNone;
  uint16_t slot = 0;    // of the communicator; 12 bits
  uint32_t number = 0;  // of the operation, within the slot

  static constexpr uint64_t kTag = 0x5E9F;  // the highest 16 bits
  static constexpr uint16_t kNoSlot = 0xFFF;

  void* Pack() const {
    return reinterpret_cast<void*>(kTag << 48 | uint64_t{static_cast<uint8_t>(kind)} << 44 |
                                   uint64_t{slot} << 32 | number);
  }
  // Kind::kNone: it is not ours.
  static NcclHandle Unpack(const void* handle) {
    const auto word = reinterpret_cast<uint64_t>(handle);
    if (word >> 48 != kTag) return {};
    return {static_cast<Kind>(word >> 44 & 0xF), static_cast<uint16_t>(word >> 32 & 0xFFF),
            static_cast<uint32_t>(word)};
  }
};

inline bool IsOurs(const void* handle) {
  return reinterpret_cast<uint64_t>(handle) >> 48 == NcclHandle::kTag;
}

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_HANDLES_H_
