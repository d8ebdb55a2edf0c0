#include "tests/softgpu/nccl_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace seqpoint::softgpu {
namespace {

// A waiter looks around this often, to notice an abort.
constexpr long kLookAroundNs = 50'000'000;

uint64_t MonotonicNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void Wake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

// One side of a transfer. `number` is one more than the transfer's, 0 means none.
struct NcclSegment::Half {
  std::atomic<uint64_t> number;
  uint64_t time_ns;
};

struct NcclSegment::Shared {
  struct Round {
    std::atomic<uint32_t> entered;
    std::atomic<uint32_t> done;  // one more than the number of the last complete round
  };
  struct alignas(64) Rank {
    std::atomic<uint32_t> joined;
    std::atomic<uint32_t> doorbell;  // rings when a peer offers half a transfer
    Post posts[2];
  };
  std::atomic<uint32_t> ranks;
  std::atomic<uint32_t> joined;
  Round rounds[2];

  Rank* all() { return reinterpret_cast<Rank*>(reinterpret_cast<char*>(this) + kHead); }
  Half* halves(int ranks) { return reinterpret_cast<Half*>(all() + ranks); }

  static constexpr size_t kHead = 64;
  // Twice what may be under way: the peer may still read the last ones when the next are posted.
  static constexpr size_t kHalves = 2 * kMaxPending;
  static size_t Bytes(int ranks) {
    const auto n = static_cast<size_t>(ranks);
    return kHead + n * sizeof(Rank) + n * n * 2 * kHalves * sizeof(Half);
  }
};

struct NcclSegment::Mapping {
  Mapping(void* at, size_t size) : memory(at), bytes(size) {}
  ~Mapping() { munmap(memory, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* const memory;
  const size_t bytes;
};

std::shared_ptr<NcclSegment::Mapping> NcclSegment::Map(const std::string& name, size_t bytes,
                                                       std::string* error) {
  static std::mutex mutex;
  static auto* mappings = new std::map<std::string, std::weak_ptr<Mapping>>;
  std::lock_guard lock(mutex);
  std::erase_if(*mappings, [](const auto& entry) { return entry.second.expired(); });
  if (std::shared_ptr<Mapping> known = (*mappings)[name].lock(); known && known->bytes == bytes) {
    return known;
  }
  const auto fail = [&](const char* what) {
    *error = name + ": " + what + ": " + strerror(errno);
    return nullptr;
  };
  const int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return fail("cannot open shared memory");
  // It only grows, as a rank that expects fewer ranks than the others must not take their memory.
  struct stat status {};
  if (fstat(fd, &status) != 0 || (static_cast<size_t>(status.st_size) < bytes &&
                                  ftruncate(fd, static_cast<off_t>(bytes)) != 0)) {
    fail("cannot size shared memory");
    close(fd);
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return fail("cannot map shared memory");
  auto mapping = std::make_shared<Mapping>(memory, bytes);
  (*mappings)[name] = mapping;
  return mapping;
}

std::unique_ptr<NcclSegment> NcclSegment::Join(const std::string& name, int ranks, int rank,
                                               std::string* error) {
  static_assert(sizeof(Shared) <= Shared::kHead);
  std::shared_ptr<Mapping> mapping = Map(name, Shared::Bytes(ranks), error);
  if (mapping == nullptr) return nullptr;
  std::unique_ptr<NcclSegment> segment(new NcclSegment(std::move(mapping), ranks, rank));
  Shared* shared = segment->shared_;
  uint32_t expected = 0;
  if (!shared->ranks.compare_exchange_strong(expected, static_cast<uint32_t>(ranks)) &&
      expected != static_cast<uint32_t>(ranks)) {
    *error = "rank " + std::to_string(rank) + " expects " + std::to_string(ranks) +
             " ranks, another one " + std::to_string(expected);
    return nullptr;
  }
  if (shared->all()[rank].joined.exchange(1) != 0) {
    *error = "rank " + std::to_string(rank) + " joined twice";
    return nullptr;
  }
  if (shared->joined.fetch_add(1) + 1 == static_cast<uint32_t>(ranks)) shm_unlink(name.c_str());
  return segment;
}

NcclSegment::NcclSegment(std::shared_ptr<Mapping> mapping, int ranks, int rank)
    : mapping_(std::move(mapping)),
      shared_(static_cast<Shared*>(mapping_->memory)),
      ranks_(ranks),
      rank_(rank) {}

template <typename Done>
bool NcclSegment::Sleep(std::atomic<uint32_t>* word, const Done& done) {
  uint32_t seen = word->load(std::memory_order_acquire);
  if (done()) return true;
  waiting_since_ns_.store(MonotonicNs(), std::memory_order_relaxed);
  bool is_done = false;
  while (!aborted() && !(is_done = done())) {
    const timespec timeout{0, kLookAroundNs};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
    seen = word->load(std::memory_order_acquire);
  }
  waiting_since_ns_.store(0, std::memory_order_relaxed);
  return is_done;
}

uint32_t NcclSegment::Enter(const Post& post) {
  const uint32_t number = rounds_++;
  Shared::Round& round = shared_->rounds[number % 2];
  shared_->all()[rank_].posts[number % 2] = post;
  if (round.entered.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(ranks_)) {
    round.entered.store(0, std::memory_order_relaxed);
    round.done.store(number + 1, std::memory_order_release);
    Wake(&round.done);
  }
  return number;
}

bool NcclSegment::Await(uint32_t round) {
  std::atomic<uint32_t>* done = &shared_->rounds[round % 2].done;
  return Sleep(done, [&] { return done->load(std::memory_order_acquire) == round + 1; });
}

const NcclSegment::Post& NcclSegment::At(uint32_t round, int rank) const {
  return shared_->all()[rank].posts[round % 2];
}

NcclSegment::Half& NcclSegment::HalfOf(int source, int destination, bool send,
                                       uint64_t number) const {
  const size_t pair =
      static_cast<size_t>(source) * static_cast<size_t>(ranks_) + static_cast<size_t>(destination);
  return shared_->halves(
      ranks_)[(pair * 2 + (send ? 0 : 1)) * Shared::kHalves + number % Shared::kHalves];
}

void NcclSegment::Offer(int peer, bool send, uint64_t number, uint64_t time_ns) {
  Half& half = HalfOf(send ? rank_ : peer, send ? peer : rank_, send, number);
  half.time_ns = time_ns;
  half.number.store(number + 1, std::memory_order_release);
  std::atomic<uint32_t>* doorbell = &shared_->all()[peer].doorbell;
  doorbell->fetch_add(1, std::memory_order_release);
  Wake(doorbell);
}

bool NcclSegment::AwaitPeer(int peer, bool send, uint64_t number, uint64_t* time_ns) {
  const Half& half = HalfOf(send ? rank_ : peer, send ? peer : rank_, !send, number);
  if (!Sleep(&shared_->all()[rank_].doorbell,
             [&] { return half.number.load(std::memory_order_acquire) == number + 1; })) {
    return false;
  }
  *time_ns = half.time_ns;
  return true;
}

}  // namespace seqpoint::softgpu
