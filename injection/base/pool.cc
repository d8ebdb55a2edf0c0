#include "injection/base/pool.h"

#include <sys/mman.h>

// There where the program runs under LeakSanitizer.
extern "C" __attribute__((weak)) void RegisterLeakRoots(const void* base, size_t bytes) __asm__(
    "__lsan_register_root_region");

namespace seqpoint::inject {

bool Pool::Create(size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  base_ = static_cast<uint8_t*>(base);
  bytes_ = bytes;
  // What CUPTI made for us is referred to from here alone; it is no leak.
  if (RegisterLeakRoots != nullptr) RegisterLeakRoots(base, bytes);
  return true;
}

void* Pool::Take(size_t bytes) {
  const size_t rounded = (bytes + 63) & ~size_t{63};
  if (base_ == nullptr || rounded > bytes_ - used_) return nullptr;
  void* taken = base_ + used_;
  used_ += rounded;
  return taken;
}

}  // namespace seqpoint::inject
