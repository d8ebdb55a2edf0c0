// ObservedLengths: how often each length occurred, as a value of the learned feature; each
// dimension of a length by itself.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_OBSERVED_LENGTHS_H_
#define DAEMON_JOBS_OBSERVED_LENGTHS_H_

#include <cstdint>
#include <vector>

#include "daemon/jobs/length_scale.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/store/part_log.h"
#include "daemon/store/store.h"

namespace seqpoint::jobs {

class ObservedLengths {
 public:
  void Add(int dimension, int64_t length, int64_t count = 1);
  // Iterations have other keys from now on.
  void Clear();
  // Store() writes it as a whole, not what was added.
  void StoreWhole() { log_.Restart(); }

  const Histogram1& histogram(int dimension) const { return of_[dimension].histogram; }
  int64_t count(int dimension) const { return of_[dimension].count; }

  // NaturalUnit of the lengths at the last RefreshUnits(); 1 where the length never varies.
  int64_t unit(int dimension) const { return of_[dimension].unit; }
  // Does something only when a 64th more lengths have come.
  void RefreshUnits();

  // Appends the rows of what is new since the last call.
  void Store(int64_t job_id, int32_t version, std::vector<StateRow>& rows);
  // False: damaged.
  bool Load(const std::vector<StateRow>& rows);

 private:
  struct Dimension {
    Histogram1 histogram;
    int64_t count = 0;
    int64_t unit = 1, unit_count = 0;  // of so many lengths
  };

  Dimension of_[2];
  PartLog log_{"observed"};
  ObservedState added_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_OBSERVED_LENGTHS_H_
