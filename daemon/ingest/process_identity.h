// The process that a process id means. The kernel uses ids again, also after a restart of the
// machine. The boot and the tick in which a process started identify it, and setting a clock does
// not change them. Threading: pure functions over /proc.
#ifndef SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_
#define SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_

#include <sys/types.h>

#include <string>

namespace seqpoint::ingest {

// "BOOT-ID TICKS"; empty when the process cannot be seen.
std::string ProcessIdentity(pid_t pid);

// Whether the process `pid`, which had this identity, still runs. A zombie does not. Also true
// where it cannot be known: a process of another namespace (pid 0), or one without an identity
// whose id is in use.
bool StillRuns(pid_t pid, const std::string& identity);

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_
