#include "daemon/store/disk_reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace seqpoint {
namespace {

constexpr absl::Duration kLookInterval = absl::Seconds(1);
constexpr int64_t kBlockBytes = 512;  // of st_blocks, on every file system

// The file has `end` bytes of the disk, or nearly so many. False: the disk has not.
bool HasRoom(int file, const struct stat& now, int64_t end) {
  if (now.st_blocks * kBlockBytes >= end - DiskReserve::kStepBytes) return true;
  if (fallocate(file, FALLOC_FL_KEEP_SIZE, 0, end) == 0) return true;
  return errno != ENOSPC && errno != EDQUOT;
}

}  // namespace

DiskReserve::~DiskReserve() {
  if (log_ >= 0) close(log_);
}

void DiskReserve::Renew() {
  const absl::Time now = absl::Now();
  if (in_use_ && now < next_look_) return;
  struct stat file, log;
  // SQLite keeps its log for as long as it has the file open.
  if (log_ < 0) log_ = open(log_path_.c_str(), O_RDWR | O_CLOEXEC);
  if (log_ < 0 || fstat(log_, &log) != 0 || fstat(file_, &file) != 0) return;
  // The log first: without it nothing can be written at all.
  const int64_t log_end = std::max(kLogBytes, log.st_size + 2 * kStepBytes);
  in_use_ = !HasRoom(log_, log, log_end) || !HasRoom(file_, file, file.st_size + kFileBytes);
  if (in_use_) next_look_ = now + kLookInterval;
}

}  // namespace seqpoint
