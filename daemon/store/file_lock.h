// The lock that keeps a second daemon out of a store.
//
// It is on the database file itself, so that it holds under all of the file's names. SQLite's own
// locks would let two daemons take turns, each with its own idea of the jobs. They are of another
// kind (fcntl) and do not meet this one, but any close() of the file ends them: this lock is taken
// before SQLite opens the file and left after SQLite has closed it.
//
// Threading: none of its own. Ownership: owns a descriptor.
#ifndef DAEMON_STORE_FILE_LOCK_H_
#define DAEMON_STORE_FILE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace seqpoint {

class FileLock {
 public:
  // Makes an empty file when there is none: SQLite would make it readable by everyone.
  // AlreadyExists: another daemon has it.
  static absl::StatusOr<FileLock> Take(const std::string& path);

  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock();

  int fd() const { return fd_; }  // of the file, to read and write

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// `error`, an errno, of an operation on a file of the store, with the way out.
absl::Status FileError(const char* operation, const std::string& path, int error);

}  // namespace seqpoint

#endif  // DAEMON_STORE_FILE_LOCK_H_
