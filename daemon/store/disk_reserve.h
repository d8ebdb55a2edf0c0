// DiskReserve: room on the disk that is this store's alone, behind the ends of its file and its
// log. Others who fill the disk leave it: iterations still go into it when nothing else does.
//
//   without: the disk is full -> nothing can be written -> no ring is read -> rings drop iterations
//   with it: the disk is full -> it cannot be renewed -> the store takes no traces any more, but
//            iterations for as long as the reserve lasts
//
// Not every file system has it (fallocate with FALLOC_FL_KEEP_SIZE: ext4, XFS, Btrfs and tmpfs
// do). Where there is none, in_use() is false until the disk is full, and afterwards.
//
// Threading: one thread at a time. Ownership: owns a descriptor of the log; the file's is the
// caller's, since SQLite's locks end with any close() of the file.
#ifndef DAEMON_STORE_DISK_RESERVE_H_
#define DAEMON_STORE_DISK_RESERVE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace seqpoint {

class DiskReserve {
 public:
  // The log is merged into the file at 16 MiB, which it may need at once. The same again takes the
  // iterations of 8 ranks for an hour: 60 bytes each with its report, 10 a second.
  static constexpr int64_t kFileBytes = 32 << 20;
  // While the reserve is in use the log is merged every MiB.
  static constexpr int64_t kLogBytes = 4 << 20;
  // The reserve is renewed once so much of it is gone: a call of the system in a hundred commits.
  static constexpr int64_t kStepBytes = 1 << 20;

  DiskReserve(int file, std::string log_path) : file_(file), log_path_(std::move(log_path)) {}
  ~DiskReserve();
  DiskReserve(const DiskReserve&) = delete;
  DiskReserve& operator=(const DiskReserve&) = delete;

  // Takes what is missing of it; while the disk has not the room, once a second.
  void Renew();
  // A write found the disk full.
  void OnFull() { in_use_ = true; }
  // The disk did not have the room.
  bool in_use() const { return in_use_; }

 private:
  const int file_;
  const std::string log_path_;
  int log_ = -1;
  bool in_use_ = false;
  absl::Time next_look_ = absl::InfinitePast();
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_DISK_RESERVE_H_
