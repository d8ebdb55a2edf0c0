#include "injection/process/own_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace seqpoint::inject {
namespace {

// An entry of /proc/self/pagemap.
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kOfFile = uint64_t{1} << 61;  // a written page of a private mapping is none

}  // namespace

OwnMemory::OwnMemory(uint64_t most_bytes)
    : page_bytes_(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE))),
      memory_(open("/proc/self/mem", O_RDONLY | O_CLOEXEC)),
      pages_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)),
      part_(mmap(nullptr, kPartBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
      left_(part_ == MAP_FAILED ? 0 : most_bytes) {}

OwnMemory::~OwnMemory() {
  if (memory_ >= 0) close(memory_);
  if (pages_ >= 0) close(pages_);
  if (part_ != MAP_FAILED) munmap(part_, kPartBytes);
}

bool OwnMemory::Take(size_t bytes) {
  exhausted_ = exhausted_ || bytes > left_;
  if (!exhausted_) left_ -= bytes;
  return !exhausted_;
}

size_t OwnMemory::Read(uintptr_t begin, uintptr_t end) {
  const size_t wanted = end - begin < kPartBytes ? end - begin : kPartBytes;
  if (!Take(wanted)) return 0;
  const ssize_t result = pread(memory_, part_, wanted, static_cast<off_t>(begin));
  const size_t bytes = result < 0 ? 0 : static_cast<size_t>(result);
  // A page that cannot be read takes time, too.
  if (wanted > page_bytes_) left_ += wanted - (bytes > page_bytes_ ? bytes : page_bytes_);
  return bytes;
}

uintptr_t OwnMemory::Next(uintptr_t begin, uintptr_t end, size_t bytes, size_t overlap) const {
  if (memory_ < 0 || exhausted_) return end;
  if (bytes == 0) return begin - begin % page_bytes_ + page_bytes_;
  // Behind a shorter part is the end, or a page that cannot be read.
  const bool whole = bytes == kPartBytes && begin + bytes < end;
  return begin + bytes - (whole ? overlap : 0);
}

size_t OwnMemory::ReadWritten(uintptr_t page, uintptr_t end) {
  uint64_t entries[sizeof(written_)];
  size_t count = (end - page + page_bytes_ - 1) / page_bytes_;
  if (count > sizeof(written_)) count = sizeof(written_);
  const size_t wanted = count * sizeof(entries[0]);
  if (!Take(wanted)) return 0;
  const ssize_t bytes =
      pread(pages_, entries, wanted, static_cast<off_t>(page / page_bytes_ * sizeof(entries[0])));
  for (size_t i = 0; i < count; ++i) {
    // Where the kernel does not tell, each page may be one.
    written_[i] = bytes != static_cast<ssize_t>(wanted) ||
                  ((entries[i] & (kPresent | kSwapped)) != 0 && (entries[i] & kOfFile) == 0);
  }
  return count;
}

}  // namespace seqpoint::inject
