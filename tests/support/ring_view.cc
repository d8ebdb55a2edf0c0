#include "tests/support/ring_view.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace seqpoint {

std::unique_ptr<RingView> RingView::Of(pid_t pid) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", ignored)) {
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    if (target.find("memfd:seqpoint-ring") == std::string::npos) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return nullptr;
    struct stat file = {};
    void* memory = MAP_FAILED;
    if (fstat(fd, &file) == 0 && file.st_size > 0) {
      memory = mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (memory == MAP_FAILED) return nullptr;
    // The magic comes last, when the header is complete.
    if (__atomic_load_n(&static_cast<const abi::RingHeader*>(memory)->magic, __ATOMIC_ACQUIRE) !=
        abi::kRingMagic) {
      munmap(memory, static_cast<size_t>(file.st_size));
      return nullptr;
    }
    return std::unique_ptr<RingView>(new RingView(memory, static_cast<size_t>(file.st_size)));
  }
  return nullptr;
}

RingView::RingView(void* memory, size_t bytes)
    : memory_(memory),
      bytes_(bytes),
      directory_(reinterpret_cast<const abi::ChunkState*>(static_cast<const char*>(memory) +
                                                          Header().directory_offset)),
      seen_(Header().chunk_count) {
  const uint64_t listed = Published();
  published_ = listed + Overwritten();
}

RingView::~RingView() { munmap(memory_, bytes_); }

uint64_t RingView::Published() {
  for (size_t i = 0; i < seen_.size(); ++i) {
    const uint64_t state = __atomic_load_n(&directory_[i].state, __ATOMIC_ACQUIRE);
    const uint32_t published = __atomic_load_n(&directory_[i].published, __ATOMIC_ACQUIRE);
    if ((state & 3) == abi::kClaimed) continue;
    const uint64_t sequence = state >> 2;
    if (sequence == seen_[i].sequence && published < seen_[i].published) continue;  // begun anew
    published_ += published - (sequence == seen_[i].sequence ? seen_[i].published : 0);
    seen_[i] = {sequence, published};
  }
  return published_;
}

uint64_t RingView::Count() const {
  uint64_t sum = Overwritten();
  for (const Seen& seen : seen_) sum += seen.published;
  return sum;
}

// Records of chunks that were filled anew: full ones, as only a thread's end closes others.
uint64_t RingView::Overwritten() const {
  const abi::RingHeader header = Header();
  const auto known = static_cast<uint64_t>(std::count_if(
      seen_.begin(), seen_.end(), [](const Seen& seen) { return seen.sequence != 0; }));
  const uint64_t begun = header.next_chunk_sequence - 1;
  return begun > known ? (begun - known) * (header.chunk_bytes / abi::kSlotBytes) : 0;
}

}  // namespace seqpoint
