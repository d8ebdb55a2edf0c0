// The symbols that NCCL looks for. Each is resolved when it is looked up (an indirect function, as
// libc has them for its string functions), so that the library can answer as a plugin of the user's
// would that has only some of the versions.
#include "injection/nccl/plugin.h"

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
#define SEQPOINT_NCCL_VERSION(n)                                                                  \
  __attribute__((used, visibility("hidden"))) void (*ResolveNcclProfiler##n(void))(void) {        \
    return reinterpret_cast<void (*)(void)>(                                                      \
        const_cast<void*>(seqpoint::inject::NcclPluginTable(n)));                                 \
  }                                                                                               \
  __attribute__((visibility("default"), ifunc("ResolveNcclProfiler" #n))) void ncclProfiler_v##n( \
      void);
SEQPOINT_NCCL_VERSION(1)
SEQPOINT_NCCL_VERSION(2)
SEQPOINT_NCCL_VERSION(3)
SEQPOINT_NCCL_VERSION(4)
SEQPOINT_NCCL_VERSION(5)
SEQPOINT_NCCL_VERSION(6)
#undef SEQPOINT_NCCL_VERSION
}
// NOLINTEND(readability-identifier-naming)
