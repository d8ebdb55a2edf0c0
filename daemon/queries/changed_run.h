// ChangedRun: the effect of a change of single iterations on the whole run. The share of an
// iteration's time that the change saves, replayed at a few lengths, is a statistic of these
// lengths like a counter: the engine projects it, with its interval.
//
// Threading: thread-safe, as snapshots are. Ownership: values.
#ifndef DAEMON_QUERIES_CHANGED_RUN_H_
#define DAEMON_QUERIES_CHANGED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint::queries {

// An iteration that was traced, replayed as it was and changed.
struct ReplayedStep {
  int64_t number = 0;  // within the job
  Key key;
  double before_ns = 0;  // of the replay
  double after_ns = 0;
  // Parts of these times, and of what runs meanwhile, whose sums over the run are wanted.
  std::vector<double> parts_ns;
};

struct ChangedPoint {
  std::vector<int64_t> lengths;  // the user's
  double weight = 0;
  double before_ns = 0, after_ns = 0;  // of an iteration
  int traces = 0;                      // of its lengths; 0: from those with the nearest ones
};

struct ChangedRun {
  Estimate before, after, saved;
  bool whole_run = false;  // else so far: how long the run is is not known
  int64_t iterations = 0;
  int64_t lengths = 0;               // different ones, so far
  std::vector<ChangedPoint> points;  // SeqPoints, by length
  std::vector<double> parts_ns;      // of the run, as ReplayedStep::parts_ns
  std::string basis;

  // By an error that is independent of the others, to both sides.
  void Widen(double by_ns);
  // The saved time lies between this and `other`: takes the middle, as wide as they are apart.
  void MeetHalfway(const ChangedRun& other);
  // A cost that the run has once. It may as well be nothing, or twice as much.
  void AddOnce(double cost_ns);
  // One that it has or has not, which is not known: to one side.
  void MayCost(double cost_ns);

 private:
  void Move(double more_saved_ns);
};

// The effect of a change on the run, from the iterations that were replayed with it.
// `replay_error`: by how much, relative, the replay of what was not changed is off.
// FailedPrecondition: nothing is known.
absl::StatusOr<ChangedRun> ProjectChange(const jobs::Snapshot& snapshot,
                                         const std::vector<ReplayedStep>& steps, double confidence,
                                         double replay_error);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_CHANGED_RUN_H_
