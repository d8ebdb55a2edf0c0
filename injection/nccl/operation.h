// One collective, send or receive, as every version of NCCL's profiler interface tells it.
// Texts are NCCL's constants: an address has one text for as long as NCCL is loaded.
#ifndef SEQPOINT_INJECTION_NCCL_OPERATION_H_
#define SEQPOINT_INJECTION_NCCL_OPERATION_H_

#include <stdint.h>

namespace seqpoint::inject {

struct CommunicatorId {
  const char* name = nullptr;
  uint64_t hash = 0;  // 0: not known
  int rank = -1;
  int ranks = 0;
  int nodes = 0;
};

struct Operation {
  const char* function = nullptr;
  const char* datatype = nullptr;
  const char* algorithm = nullptr;  // null for a send or receive
  const char* protocol = nullptr;
  uint64_t elements = 0;
  uint64_t sequence = 0;        // of a collective
  int32_t peer = -1;            // of a send or receive
  uint16_t channels = 0;        // 0: not known
  CommunicatorId communicator;  // versions 1 to 3 tell it here
  bool is_transfer() const { return peer >= 0; }
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_OPERATION_H_
