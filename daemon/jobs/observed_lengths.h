// ObservedLengths: how often each length occurred, as a value of the learned feature; each
// dimension of a length by itself. The engine has the counts.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_OBSERVED_LENGTHS_H_
#define DAEMON_JOBS_OBSERVED_LENGTHS_H_

#include <cstdint>

#include "daemon/jobs/length_scale.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint::jobs {

class ObservedLengths {
 public:
  // Counts again when a 64th more iterations have come; `now`: when any have come.
  void Refresh(const OnlineEngine& engine, bool now);

  const Histogram1& histogram(int dimension) const { return of_[dimension].histogram; }
  int64_t count(int dimension) const { return of_[dimension].count; }
  // NaturalUnit of the lengths; 1 where the length never varies.
  int64_t unit(int dimension) const { return of_[dimension].unit; }

 private:
  struct Dimension {
    Histogram1 histogram;
    int64_t count = 0;
    int64_t unit = 1;
  };

  Dimension of_[2];
  uint64_t iterations_ = 0;  // of the engine, when they were counted
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_OBSERVED_LENGTHS_H_
