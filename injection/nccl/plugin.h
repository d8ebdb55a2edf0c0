// All versions of NCCL's profiler interface, over one implementation: it records the operations,
// and hands the calls on to the user's plugin where there is one. No function gives NCCL an error.
//
// Threading: any thread, as NCCL calls. Ownership: uses the guest, as long as there is one.
#ifndef SEQPOINT_INJECTION_NCCL_PLUGIN_H_
#define SEQPOINT_INJECTION_NCCL_PLUGIN_H_

#include <stdint.h>

#include "injection/nccl/profiler_abi.h"

namespace seqpoint::inject {

struct Guest;

// The tables of the versions; null: the user's plugin does not have the version.
const void* NcclPluginTable(int version);

// Tells the daemon that NCCL calls us, by this version of the interface.
void ReportNcclReady(Guest* guest, int version);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_NCCL_PLUGIN_H_
