// All memory of the library besides the ring and CUPTI's activity buffers: one anonymous mapping,
// carved once, never freed (a CUPTI thread may call back while the process is already being torn
// down). Threading: Create and Take are called from InitializeInjection only.
#ifndef SEQPOINT_INJECTION_BASE_POOL_H_
#define SEQPOINT_INJECTION_BASE_POOL_H_

#include <stddef.h>
#include <stdint.h>

namespace seqpoint::inject {

class Pool {
 public:
  // False: the mapping failed (errno tells why).
  bool Create(size_t bytes);
  // 64-byte aligned, zeroed; null when the pool is exhausted.
  void* Take(size_t bytes);
  template <typename T>
  T* TakeArray(size_t count) {
    return static_cast<T*>(Take(sizeof(T) * count));
  }

 private:
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_POOL_H_
