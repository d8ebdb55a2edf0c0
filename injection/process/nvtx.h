// Our own NVTX injector: patches the function tables that every object using NVTX has, so that
// ranges and marks become calls of the stream. It does not go through CUPTI: it works without a
// GPU, costs nanoseconds, and avoids a crash of CUPTI 13.0.0 in nvtxNameOsThread.
//
// Push and start become kNvtxPush, pop and end kNvtxPop, marks kNvtxMark; a numeric payload becomes
// Call::bytes. Names in wide characters are not read.
// Threading: the patched functions run on the application's threads.
#ifndef SEQPOINT_INJECTION_PROCESS_NVTX_H_
#define SEQPOINT_INJECTION_PROCESS_NVTX_H_

#include <nvtx3/nvToolsExt.h>

namespace seqpoint::inject {

// Patches the tables of one object. False: they are not what NVTX 3 says they are.
bool PatchNvtx(NvtxGetExportTableFunc_t get_export_table);

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_NVTX_H_
