// The messages on inject.sock (SOCK_SEQPACKET). The process sends Hello with the ring's memfd
// (SCM_RIGHTS), and the daemon answers Welcome. The connection then stays open: its end tells each
// side that the other is gone. docs/formats/shared-ring.md, section "Handing over".
#ifndef SEQPOINT_INJECTION_ABI_HELLO_H_
#define SEQPOINT_INJECTION_ABI_HELLO_H_

#include <stdint.h>

namespace seqpoint::abi {

inline constexpr uint64_t kHelloMagic = 0x4F4C4C4548505153ull;  // "SQPHELLO"
inline constexpr uint32_t kMaxHelloText = 8192;

struct Hello {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t pid;
  uint8_t ring_id[16];
  uint32_t reconnect;   // 0: first time; else how many times this ring was handed over before
  uint32_t text_bytes;  // "key=value\n" lines follow: job, run_id, rank, local_rank, world_size,
                        // command, host, cwd, library_version, cupti_version, driver_version
};

struct Welcome {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t status;      // 0: accepted; else an errno value
  uint32_t text_bytes;  // a message follows when status != 0
  uint32_t reserved;
};

}  // namespace seqpoint::abi

#endif  // SEQPOINT_INJECTION_ABI_HELLO_H_
