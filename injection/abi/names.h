// How names and grids are compared: by hashes, in rules and in the events that announce names.
// Threading: pure functions.
#ifndef SEQPOINT_INJECTION_ABI_NAMES_H_
#define SEQPOINT_INJECTION_ABI_NAMES_H_

#include <stddef.h>
#include <stdint.h>

namespace seqpoint::abi {

inline constexpr uint32_t kMaxDigitRuns = 4;

// FNV-1a 64 of a name, as in NameEvent::name_hash. Kernel and graph names are matched by it.
constexpr uint64_t NameHash(const char* text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < length; ++i) {
    hash = (hash ^ static_cast<uint8_t>(text[i])) * 0x100000001b3ull;
  }
  return hash;
}

// NVTX names often carry a number ("step 17, 320 tokens"). They are matched by their shape: FNV-1a
// of the name with each run of digits replaced by one '#'; the numbers are kept apart.
struct NameShape {
  uint64_t hash;
  uint32_t digit_runs;  // valid entries of digits; later runs are not kept
  int64_t digits[kMaxDigitRuns];
};
constexpr NameShape ShapeOfName(const char* text, size_t length) {
  NameShape shape{0xcbf29ce484222325ull, 0, {}};
  for (size_t i = 0; i < length;) {
    char c = text[i++];
    if (c >= '0' && c <= '9') {
      uint64_t value = static_cast<uint64_t>(c - '0');
      while (i < length && text[i] >= '0' && text[i] <= '9') {
        if (value < 100000000000000000ull)
          value = value * 10 + static_cast<uint64_t>(text[i] - '0');
        ++i;
      }
      if (shape.digit_runs < kMaxDigitRuns) {
        shape.digits[shape.digit_runs++] = static_cast<int64_t>(value);
      }
      c = '#';
    }
    shape.hash = (shape.hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  }
  return shape;
}

// A grid as kMatchGrid compares it: CallRecord has 16 bits for y and z, too.
constexpr uint64_t PackGrid(uint32_t x, uint32_t y, uint32_t z) {
  return x | static_cast<uint64_t>(y & 0xffff) << 32 | static_cast<uint64_t>(z & 0xffff) << 48;
}

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_NAMES_H_
