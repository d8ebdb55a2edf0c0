// Wire: what lies between a node and its hub, for tests: a unix socket whose connections are passed
// on to another one. It counts bytes, and can be cut, hold everything back, or be slow.
//
//   Wire wire(folder / "wire.sock", hub.socket());
//   ... a node connects to "unix:" + folder / "wire.sock" ...
//   wire.Hold();      // the connections stay, and nothing passes: not even their end
//   wire.Release();
//
// Threading: thread-safe; two threads of its own for each connection. Ownership: the socket and the
// connections.
#ifndef TESTS_SUPPORT_WIRE_H_
#define TESTS_SUPPORT_WIRE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace seqpoint {

class Wire {
 public:
  Wire(std::filesystem::path path, std::filesystem::path target);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  std::string address() const { return "unix:" + path_.string(); }
  // Ends all connections, and each one that comes, until Mend.
  void Cut() ABSL_LOCKS_EXCLUDED(mutex_);
  void Mend();
  // Nothing passes on the connections that there are now, nor that one side is gone, until Release.
  // Those that come later are whole.
  void Hold() ABSL_LOCKS_EXCLUDED(mutex_);
  void Release() ABSL_LOCKS_EXCLUDED(mutex_);
  // What comes down passes so slowly; 0: as it comes.
  void LimitDown(int64_t bytes_per_s) { down_per_s_ = bytes_per_s; }

  int64_t up_bytes() const { return up_bytes_; }      // from who connected
  int64_t down_bytes() const { return down_bytes_; }  // to who connected

 private:
  struct Connection {
    int client = -1, server = -1;
    std::atomic<bool> held = false;
    std::thread up, down;
  };
  void Accept();
  void Pump(Connection& connection, bool up);
  void End(Connection& connection);

  const std::filesystem::path path_, target_;
  int listening_ = -1;
  std::atomic<bool> stop_ = false, cut_ = false;
  std::atomic<int64_t> down_per_s_ = 0, up_bytes_ = 0, down_bytes_ = 0;
  absl::Mutex mutex_;
  std::deque<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_WIRE_H_
