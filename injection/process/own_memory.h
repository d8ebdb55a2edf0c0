// Reads this process' own memory, whatever others keep there. The program may have forbidden access
// to a part of its data (a guard page, a store of secrets), where a plain read would end the
// process. So it is read through the kernel, and what cannot be read is left out.
//
// Threading: one thread at a time. Nothing is taken from the program's heap.
#ifndef SEQPOINT_INJECTION_PROCESS_OWN_MEMORY_H_
#define SEQPOINT_INJECTION_PROCESS_OWN_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

namespace seqpoint::inject {

class OwnMemory {
 public:
  // Bytes that are read at once. Copying as many takes much longer than the system call.
  static constexpr size_t kPartBytes = 256 << 10;

  // Reads at most `most_bytes`, and then nothing more.
  explicit OwnMemory(uint64_t most_bytes);
  ~OwnMemory();
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;

  // Shows [begin, end) to visit(bytes, count) in parts, until that returns true. Did it? Parts that
  // follow each other share `overlap` bytes.
  template <typename Visit>
  bool Any(uintptr_t begin, uintptr_t end, size_t overlap, const Visit& visit) {
    while (begin < end) {
      const size_t bytes = Read(begin, end);
      if (bytes > 0 && visit(static_cast<const char*>(part_), bytes)) return true;
      begin = Next(begin, end, bytes, overlap);
    }
    return false;
  }
  // As Any without overlap, of those pages only that the process has written to. The others hold
  // what is in the object's file, or zeros.
  template <typename Visit>
  bool AnyWritten(uintptr_t begin, uintptr_t end, const Visit& visit) {
    uintptr_t page = begin - begin % page_bytes_;
    while (page < end) {
      const size_t pages = ReadWritten(page, end);
      if (pages == 0) return false;
      for (size_t i = 0, next = 0; i < pages; i = next + 1) {
        for (next = i; next < pages && written_[next]; ++next) continue;
        if (Any(page + i * page_bytes_, page + next * page_bytes_, 0, visit)) return true;
      }
      page += pages * page_bytes_;
    }
    return false;
  }
  // Something was not read because it would have been too much.
  bool exhausted() const { return exhausted_; }

 private:
  bool Take(size_t bytes);  // of those that may be read
  // A part from `begin` on, into part_. 0: the first page cannot be read.
  size_t Read(uintptr_t begin, uintptr_t end);
  uintptr_t Next(uintptr_t begin, uintptr_t end, size_t bytes, size_t overlap) const;
  // Sets written_ of the pages from `page` on. Returns of how many; 0: it would be too much.
  size_t ReadWritten(uintptr_t page, uintptr_t end);

  const uintptr_t page_bytes_;
  const int memory_, pages_;  // files of the kernel
  void* part_;
  uint64_t left_;  // bytes
  bool exhausted_ = false;
  bool written_[512];
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_PROCESS_OWN_MEMORY_H_
