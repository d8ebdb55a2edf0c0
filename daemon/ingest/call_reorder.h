// CallReorder: puts the call records of all threads of a process into one order.
//
// Each stream (a chunk of the ring) holds calls of one thread, their sequence numbers growing. The
// caller offers the first waiting call of each stream and asks what to do. Nothing is buffered: a
// call that has to wait stays where it is, unconsumed.
//
//   reorder.Clear();
//   for (each stream with a waiting call) reorder.Offer(sequence, stream);
//   for (CallReorder::Step step = reorder.Next(); step.kind != kWait; step = reorder.Next()) ...
//
// A number that no stream shows is a hole. It may be a dropped call, or one that its thread is
// about to publish; so it is passed only below the limit of GiveUpBelow, which the caller raises
// when it knows (the drop counter explains every hole) or has waited long enough.
//
// Threading: none. Ownership: plain data.
#ifndef SEQPOINT_DAEMON_INGEST_CALL_REORDER_H_
#define SEQPOINT_DAEMON_INGEST_CALL_REORDER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace seqpoint::ingest {

class CallReorder {
 public:
  enum class Kind {
    kTake,  // take the calls of `stream` from `sequence` on, while TakeNext() says so
    kHole,  // `count` calls from `sequence` on are missing
    kWait,  // nothing to do now
  };
  struct Step {
    Kind kind = Kind::kWait;
    uint64_t sequence = 0;
    uint64_t count = 0;
    uint32_t stream = 0;
  };

  CallReorder() = default;
  // Goes on where another one with these values was.
  CallReorder(uint64_t next, uint64_t missing, uint64_t late)
      : next_(next), missing_(missing), late_(late) {}

  void Clear() { waiting_.clear(); }
  bool empty() const { return waiting_.empty(); }

  void Offer(uint64_t sequence, uint32_t stream) {
    waiting_.emplace_back(sequence, stream);
    std::push_heap(waiting_.begin(), waiting_.end(), std::greater<>());
  }

  // True: it is this call's turn, and it counts as delivered.
  bool TakeNext(uint64_t sequence) {
    if (sequence != next_) return false;
    ++next_;
    return true;
  }

  // True: the call comes after its hole was given up (or twice); it is to be left out.
  bool TakeLate(uint64_t sequence) {
    if (sequence >= next_) return false;
    ++late_;
    return true;
  }

  Step Next() {
    if (waiting_.empty()) return {};
    const auto [sequence, stream] = waiting_.front();
    if (sequence <= next_) {
      std::pop_heap(waiting_.begin(), waiting_.end(), std::greater<>());
      waiting_.pop_back();
      return {Kind::kTake, sequence, 0, stream};
    }
    return Skip(std::min(sequence, give_up_below_));
  }

  // Also for the calls behind the last one of a process that is gone.
  Step Skip(uint64_t until) {
    if (until <= next_) return {};
    const Step step{Kind::kHole, next_, until - next_, 0};
    missing_ += step.count;
    next_ = until;
    return step;
  }

  void GiveUpBelow(uint64_t sequence) { give_up_below_ = std::max(give_up_below_, sequence); }

  uint64_t next() const { return next_; }        // the sequence number to come
  uint64_t missing() const { return missing_; }  // in the holes passed so far
  uint64_t late() const { return late_; }        // of these, came after all

 private:
  uint64_t next_ = 0;
  uint64_t missing_ = 0;
  uint64_t late_ = 0;
  uint64_t give_up_below_ = 0;
  std::vector<std::pair<uint64_t, uint32_t>> waiting_;  // a heap, lowest first
};

}  // namespace seqpoint::ingest

#endif  // SEQPOINT_DAEMON_INGEST_CALL_REORDER_H_
