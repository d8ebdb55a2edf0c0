// Shared memory in which the ranks of one communicator meet.
//
// * Every rank maps the segment of the same name. A new segment is all zero, which is its valid
//   first state: nobody is its creator. The last rank to join unlinks the name.
// * Rounds: all ranks post something under the same number and see what the others posted. A rank
//   posts a round only after it saw the one before, hence two places per rank suffice.
// * Pairs: the sends from one rank to another, and the receives that belong to them, have numbers
//   of their own. A rank has at most kMaxPending of them under way for one peer.
// * A rank that waits sleeps on a futex. A rank that died has posted what it has posted: nobody is
//   released by its end.
// * Ranks of one process share its mapping.
//
// Posts and waits of one rank come from one thread at a time. Abort may be called by any thread.
#ifndef SEQPOINT_TESTS_SOFTGPU_NCCL_SEGMENT_H_
#define SEQPOINT_TESTS_SOFTGPU_NCCL_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace seqpoint::softgpu {

class NcclSegment {
 public:
  static constexpr int kMaxRanks = 512;
  static constexpr int kMaxPending = 32;

  struct Post {
    uint64_t time_ns;
    uint64_t a;
    uint64_t b;
  };

  // Maps the segment. Null, with the reason in `error`, when the system refuses, when another rank
  // expects another number of ranks, or when `rank` is there already.
  static std::unique_ptr<NcclSegment> Join(const std::string& name, int ranks, int rank,
                                           std::string* error);

  // Posts this rank's part of the next round and returns the round's number.
  uint32_t Enter(const Post& post);
  // Waits until every rank has entered the round. False: aborted.
  bool Await(uint32_t round);
  // A rank's post; valid until this rank enters the round after the next.
  const Post& At(uint32_t round, int rank) const;

  // Posts that this rank has reached its send to (else: its receive from) `peer` number `number`.
  void Offer(int peer, bool send, uint64_t number, uint64_t time_ns);
  // Waits for the peer's half of the same transfer, and tells its time. False: aborted.
  bool AwaitPeer(int peer, bool send, uint64_t number, uint64_t* time_ns);

  void Abort() { aborted_.store(true, std::memory_order_relaxed); }
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  // Since when (CLOCK_MONOTONIC) a thread of this rank waits; 0: none does.
  uint64_t waiting_since_ns() const { return waiting_since_ns_.load(std::memory_order_relaxed); }

 private:
  struct Shared;
  struct Half;
  struct Mapping;

  NcclSegment(std::shared_ptr<Mapping> mapping, int ranks, int rank);
  static std::shared_ptr<Mapping> Map(const std::string& name, size_t bytes, std::string* error);
  Half& HalfOf(int source, int destination, bool send, uint64_t number) const;
  // Sleeps until `done()`; `word` changes when it might be.
  template <typename Done>
  bool Sleep(std::atomic<uint32_t>* word, const Done& done);

  const std::shared_ptr<Mapping> mapping_;
  Shared* const shared_;
  const int ranks_;
  const int rank_;
  uint32_t rounds_ = 0;
  std::atomic<bool> aborted_{false};
  std::atomic<uint64_t> waiting_since_ns_{0};
};

}  // namespace seqpoint::softgpu

#endif  // SEQPOINT_TESTS_SOFTGPU_NCCL_SEGMENT_H_
