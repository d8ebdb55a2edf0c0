// StepBuilder: lines the iterations of several ranks up, by their number, into the job's steps.
//
// In synchronous training the rank with the longest batch makes all others wait: the step's lengths
// are the largest of all ranks, and its time is that of the slowest (StepClock).
//
//   steps.Add(/*rank=*/3, {.number = 812, .key = {37}, .duration_ns = 41'000'000, ...});
//   for (const Step& step : steps.TakeSteps(/*live_ranks=*/{0, 1, 2, 3})) ...
//
// A step is finished when every live rank has reported it or a later one. A rank that falls more
// than kPatienceSteps and kPatienceNs behind another live one is waited for no longer, until it has
// caught up. What it reports of finished steps is counted as late. Nothing is said of the lengths
// and the time of a step that lacks a live rank which had iterations before: it is behind, or its
// record was lost.
//
// Threading: one thread. Ownership: values only. Memory: open steps, at most kMaxOpen.
#ifndef DAEMON_JOBS_STEP_BUILDER_H_
#define DAEMON_JOBS_STEP_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "daemon/jobs/state.pb.h"
#include "daemon/jobs/step_clock.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint::jobs {

// What one rank did in a step; then what all did.
struct Step {
  int64_t number = 0;
  Key key;
  bool key_known = false;   // of every rank that reported
  int64_t duration_ns = 0;  // 0: unknown
  int64_t rest_ns = 0;      // of one that is known until its step; of any rank, the longest
  bool distorted = false;   // of any rank: the others wait for it
  bool measured = false;    // likewise
  bool first = false;       // likewise: a length came for the first time on that rank
  int64_t boundary_ns = 0;  // API time at which a rank's began; only compared within the rank
};

class StepBuilder {
 public:
  StepBuilder() = default;
  // Those are finished, of each rank: the number after its last.
  explicit StepBuilder(const std::map<int32_t, int64_t>& next_numbers);

  // O(log open steps).
  void Add(int32_t rank, const Step& iteration);

  // Finished since the last call, in order; with no live rank everything is. Numbers that no rank
  // reported come as steps of which nothing is known: they happened all the same. `all_heard`: no
  // live rank is still to be read for the first time (a daemon that was just started); else none is
  // given up.
  std::vector<Step> TakeSteps(const std::set<int32_t>& live_ranks, bool all_heard = true);

  // Ranks that reported an iteration so far.
  int ranks() const { return static_cast<int>(progress_.size()); }
  int64_t late() const { return late_; }
  bool IsLate(int64_t number) const { return number < next_; }
  // All ranks had the same length in every step, and it changed again and again: they may work on
  // parts of the same batches.
  bool same_lengths() const { return !differed_ && changes_ >= kManyChanges; }

  StepsState Save() const;
  void Load(const StepsState& state);

  // Twice what IterationBuilder waits for a stamp.
  static constexpr int64_t kPatienceSteps = 128;
  static constexpr int64_t kPatienceNs = 10'000'000'000;
  static constexpr size_t kMaxOpen = 1 << 14;
  static constexpr int64_t kMostLost = 1 << 20;  // in one hole; more is a damaged number
  static constexpr int64_t kManyChanges = 32;

 private:
  struct Progress {
    int64_t next = 0;         // number after the last one reported
    int64_t boundary_ns = 0;  // of the last one
  };
  struct Open {
    Step step;
    std::map<int32_t, int64_t> starts_ns;     // of the ranks that reported it: boundary_ns
    std::map<int32_t, int64_t> durations_ns;  // likewise
    bool differed = false;                    // in their lengths
  };
  bool Finished(Open& open, const std::set<int32_t>& live_ranks, bool all_heard);
  void Compare(const Open& open);
  int64_t DurationOf(const Open& open);

  std::map<int64_t, Open> open_;
  std::map<int32_t, Progress> progress_;
  StepClock clock_;
  std::set<int32_t> left_behind_;  // not waited for
  int64_t next_ = -1;              // first step that is not finished; -1: none was reported
  int64_t late_ = 0;
  Key last_key_;
  bool differed_ = false;
  int64_t changes_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STEP_BUILDER_H_
