// StepBuilder: lines the iterations of several ranks up, by their number, into the job's steps.
//
// In synchronous training the rank with the longest batch makes all others wait: the step's lengths
// are the largest of all ranks, and its time is that of the slowest (step_clock.h).
//
//   steps.Add(/*rank=*/3, step);
//   for (const Step& step : steps.TakeSteps(/*live_ranks=*/{0, 1, 2, 3})) ...
//
// A step is finished when every live rank has reported it or a later one. A rank that falls more
// than kPatienceSteps and kPatienceNs behind another live one is left behind: no step waits for it
// until it has caught up. Its reports of finished steps are counted as late. A step has no lengths
// and no time where a live rank that had iterations before did not report it: the rank is behind,
// or its record was lost.
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

namespace seqpoint::jobs {

// A step of one rank, then of all: the longest lengths and rest, distorted, measured (with a
// configuration) and cold where one rank is. `valid`: 0 where the lengths of one rank are not
// known.
using Step = FinishedIteration;

class StepBuilder {
 public:
  StepBuilder() { state_.set_next(-1); }
  // `next_numbers`: of each rank, the number after its last finished iteration.
  explicit StepBuilder(const std::map<int32_t, int64_t>& next_numbers);

  // O(log open steps).
  void Add(int32_t rank, const Step& iteration);

  // The steps that were finished since the last call, in order; without a live rank all are
  // finished. Numbers that no rank reported are steps without lengths and time: they happened all
  // the same. `all_heard`: what live ranks did not report does not come late; until then no rank is
  // left behind.
  std::vector<Step> TakeSteps(const std::set<int32_t>& live_ranks, bool all_heard = true);
  // The step that TakeSteps() would finish next, and leave a rank behind, if all were heard; -1:
  // none.
  int64_t DelayedStep(const std::set<int32_t>& live_ranks) const;

  int64_t late() const { return state_.late(); }
  bool IsLeftBehind(int32_t rank) const { return state_.left_behind().contains(rank); }
  size_t open_steps() const { return open_.size(); }
  bool IsLate(int64_t number) const { return number < state_.next(); }
  // All ranks had the same length in every step, and it changed again and again: they may work on
  // parts of the same batches.
  bool same_lengths() const { return !state_.differed() && state_.changes() >= kManyChanges; }

  bool lengths_differed() const { return state_.differed(); }

  void Save(StepsState* to) const;
  void Load(const StepsState& state);

  // Twice what IterationBuilder waits for a stamp.
  static constexpr int64_t kPatienceSteps = 128;
  static constexpr int64_t kPatienceNs = 10'000'000'000;
  static constexpr size_t kMaxOpen = 1 << 14;
  static constexpr int64_t kMostSteps = int64_t{1} << 50;
  static constexpr int64_t kMostLost = 1 << 20;  // in one hole; more is a damaged number
  static constexpr int64_t kManyChanges = 32;

 private:
  bool IsFarBehind(const OpenStep& open, const std::set<int32_t>& live_ranks) const;
  bool Finished(OpenStep& open, const std::set<int32_t>& live_ranks, bool all_heard);
  void Compare(const OpenStep& open);

  StepsState state_;  // without the open steps
  std::map<int64_t, OpenStep> open_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_STEP_BUILDER_H_
