// ChangeTracker: what changed in a job since it was last stored, computed and shown.
//
// A mark names the change. One table (change_tracker.cc) has its effects: the parts that are
// stored, whether the plan and the control blocks are made again, whether earlier answers still
// hold, and whether a watcher sees it.
//
//   changes.Mark(Change::kIterations);
//   if (changes.TakePlanDue()) UpdatePlan();
//   if (changes.unsaved(StatePart::kEngine)) ...; changes.SetSaved();
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_CHANGE_TRACKER_H_
#define DAEMON_JOBS_CHANGE_TRACKER_H_

#include <cstdint>
#include <utility>

namespace seqpoint::jobs {

enum class Change : uint8_t {
  kRow,           // its name, tags, times or how it ended
  kProcesses,     // a process came, ended or has another place
  kRecords,       // records came; their effects have marks of their own
  kDescription,   // words of the description: features, a level, a gap
  kLosses,        // a counter of losses
  kCompleteness,  // whether all iterations are known
  kIterations,
  kMeasurements,
  kRoofline,       // measurements of single kernels
  kRule,           // it was learned, is verified, or does not fit any more
  kLengthFeature,  // iterations have other keys from now on
  kRankSplit,      // from now on steps are made of the iterations of several ranks
  kHorizon,        // the user's
  kSchedule,       // the engine's horizon
  kMetrics,        // what is collected
  kRefusedConfig,  // a configuration can not be collected, or can again
  kOperators,      // whose operators are recorded
  kPlan,           // what is measured next
  kOrders,         // a client paused, resumed, ...
  kCollectives,    // records of NCCL's operations came
  kRanks,          // what is said of the ranks, or which of their iterations are timed or traced
};

// The stored parts of a job. A set of them is their sum.
struct StatePart {
  enum : uint32_t { kRow = 1, kJob = 2, kEngine = 4, kHorizon = 8, kRoofline = 16, kRanks = 32 };
};

class ChangeTracker {
 public:
  void Mark(Change change);

  bool unsaved(uint32_t part) const { return (unsaved_ & part) != 0; }
  bool all_saved() const { return unsaved_ == 0; }
  void SetSaved() { unsaved_ = 0; }

  // The plan must be made again; asked once.
  bool TakePlanDue() { return std::exchange(plan_due_, false); }

  // Each grows when an earlier result does not hold any more: control blocks; copies of the job;
  // figures, which otherwise may be some iterations old.
  int64_t controls() const { return controls_; }
  int64_t knowledge() const { return knowledge_; }
  int64_t figures() const { return figures_; }

  // Grows with every mark.
  int64_t marks() const { return marks_; }
  // Grows with every change that a watcher would see.
  int64_t generation() const { return generation_; }
  void SetGeneration(int64_t generation) { generation_ = generation; }

 private:
  // A new job has nothing in the store.
  uint32_t unsaved_ = StatePart::kRow | StatePart::kJob | StatePart::kEngine;
  bool plan_due_ = true;
  int64_t controls_ = 1, knowledge_ = 1, figures_ = 1;
  int64_t generation_ = 1;
  int64_t marks_ = 1;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_CHANGE_TRACKER_H_
