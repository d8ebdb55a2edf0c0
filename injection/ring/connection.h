// The process' end of inject.sock: hands the ring over and then only watches whether the daemon is
// still there. Nothing here waits longer than its timeout; a lost connection is opened again by
// calling Connect again with the same ring.
//
// Threading: one thread (the library's helper thread); Close also in a forked child.
// Ownership: owns its socket. libc only, no C++ runtime.
#ifndef SEQPOINT_INJECTION_RING_CONNECTION_H_
#define SEQPOINT_INJECTION_RING_CONNECTION_H_

#include <stddef.h>
#include <stdint.h>

#include "injection/ring/writer.h"

namespace seqpoint::injection {

// $SEQPOINT_DIR/inject.sock, else $XDG_RUNTIME_DIR/seqpoint/inject.sock, else
// /run/seqpoint/inject.sock. ENAMETOOLONG when that does not fit into a socket address.
Status InjectSocketPath(char* path, size_t path_bytes);

class Connection {
 public:
  // Connects to `path`, sends Hello, `text` ("key=value\n" lines, at most kMaxHelloText bytes) and
  // the ring's memfd, and waits up to `timeout_ms` for Welcome. Errors: ENOENT or ECONNREFUSED (no
  // daemon), ETIMEDOUT (it does not answer), EPROTO (it answers nonsense), or the daemon's own
  // refusal with its sentence. The first two are worth another try.
  Status Connect(const char* path, const RingWriter& ring, const char* text, size_t text_bytes,
                 int timeout_ms);

  // One poll(): does the daemon still hold its end?
  bool Alive();
  void Close();
  int fd() const { return fd_; }

 private:
  Status Exchange(const char* path, const RingWriter& ring, const char* text, size_t text_bytes,
                  int timeout_ms);
  // A program that becomes a daemon closes all descriptors; the number may then be a file of its.
  bool OwnsSocket() const;

  int fd_ = -1;
  uint64_t inode_ = 0;        // of the socket
  uint32_t handed_over_ = 0;  // how often the daemon took the ring
};

}  // namespace seqpoint::injection

#endif  // SEQPOINT_INJECTION_RING_CONNECTION_H_
