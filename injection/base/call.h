// One call of the application, whoever saw it: CUPTI's callback, NVTX or the C API.
#ifndef SEQPOINT_INJECTION_BASE_CALL_H_
#define SEQPOINT_INJECTION_BASE_CALL_H_

#include <cuda.h>
#include <stdint.h>

#include "injection/abi/records.h"

namespace seqpoint::inject {

struct Call {
  abi::Op op;
  uint8_t flags;         // abi::CallFlags
  uint16_t context_uid;  // CUPTI's number of the context; 0: not a CUDA call
  uint32_t correlation_id;
  const char* name;  // null: none
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint64_t stream;
  uint64_t event;  // recorded, or waited for
  uint64_t bytes;
  uint64_t begin_ns;  // 0: read the clock when it is needed
  uint64_t end_ns;    // of a call that blocked the host; else 0
  CUcontext context;  // null: not a CUDA call
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_BASE_CALL_H_
