// Which process a process id means. The kernel gives numbers again, also after the machine was
// started anew; the boot and the tick that a process began in are its own, and no clock that is set
// changes them.
// Threading: pure functions over /proc.
#ifndef SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_
#define SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_

#include <sys/types.h>

#include <string>

namespace seqpoint::ingest {

// "BOOT-ID TICKS"; empty when the process cannot be seen.
std::string ProcessIdentity(pid_t pid);

// Whether the process `pid`, which had this identity, still runs. One that ended and was not waited
// for does not. True as well where that cannot be known: a process of another namespace (pid 0), or
// one without an identity whose number is in use.
bool StillRuns(pid_t pid, const std::string& identity);

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_PROCESS_IDENTITY_H_
