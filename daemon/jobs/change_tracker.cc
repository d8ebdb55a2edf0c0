#include "daemon/jobs/change_tracker.h"

namespace seqpoint::jobs {
namespace {

struct Effects {
  uint32_t unsaved = 0;
  bool plan = false;      // is made again
  bool controls = false;  // likewise
  bool figures = false;   // do not hold any more, and with them no snapshot
  bool visible = true;
  bool snapshots = false;  // do not hold any more, though no watcher sees it
};

Effects EffectsOf(Change change) {
  constexpr uint32_t kJob = StatePart::kJob;
  switch (change) {
    case Change::kRow:
      return {.unsaved = kJob | StatePart::kRow};
    case Change::kProcesses:
      return {.unsaved = kJob | StatePart::kRow, .controls = true};
    case Change::kRecords:
      return {.unsaved = kJob, .visible = false};
    case Change::kDescription:
      return {.unsaved = kJob};
    case Change::kLosses:  // they come with each reading: watchers are not woken for them
      return {.unsaved = kJob, .visible = false, .snapshots = true};
    case Change::kCompleteness:
      return {.unsaved = kJob, .figures = true};
    case Change::kIterations:
      return {.unsaved = kJob | StatePart::kEngine, .plan = true};
    case Change::kMeasurements:
      return {.unsaved = kJob | StatePart::kEngine, .plan = true, .figures = true};
    case Change::kRoofline:
      return {.unsaved = kJob | StatePart::kRoofline, .plan = true};
    case Change::kRule:
      return {.unsaved = kJob | StatePart::kRow, .plan = true, .controls = true};
    case Change::kLengthFeature:
      return {.unsaved = kJob | StatePart::kEngine | StatePart::kRoofline, .figures = true};
    case Change::kRankSplit:
      return {.unsaved = kJob | StatePart::kEngine, .figures = true};
    case Change::kHorizon:
      return {.unsaved = kJob | StatePart::kHorizon, .plan = true};
    case Change::kSchedule:
      return {.unsaved = kJob | StatePart::kEngine, .plan = true, .figures = true};
    case Change::kMetrics:
      return {.unsaved = kJob, .plan = true, .controls = true};
    case Change::kRefusedConfig:
    case Change::kOperators:
      return {.unsaved = kJob, .plan = true};
    case Change::kPlan:  // follows from what is stored
      return {.controls = true, .visible = false, .snapshots = true};
    case Change::kCollectives:
      return {.unsaved = kJob | StatePart::kRanks, .visible = false};
    case Change::kRanks:
      return {.unsaved = StatePart::kRanks, .controls = true};
    case Change::kOrders:
      return {.unsaved = kJob, .plan = true, .controls = true};
  }
  return {};
}

}  // namespace

void ChangeTracker::Mark(Change change) {
  const Effects effects = EffectsOf(change);
  ++marks_;
  unsaved_ |= effects.unsaved;
  plan_due_ |= effects.plan;
  controls_ += effects.controls;
  figures_ += effects.figures;
  knowledge_ += effects.visible || effects.figures || effects.snapshots;
  generation_ += effects.visible;
}

}  // namespace seqpoint::jobs
