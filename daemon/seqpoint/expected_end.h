// When a run will end on the clock on the wall: what lies between its training iterations (data,
// evaluation, checkpoints) included, as it was so far.
//
//   WallPace pace;
//   pace.Add(begin_ns, duration_ns);   // of each training iteration, in order
//   std::optional<Estimate> rest = pace.WallTimeOf(remaining, 0.95);   // ns from last_begin_ns()
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_EXPECTED_END_H_
#define DAEMON_SEQPOINT_EXPECTED_END_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/seqpoint/interval.h"

namespace seqpoint {

class WallPace {
 public:
  // `duration_ns` 0: not known; nothing is learned from such an iteration. A begin that lies before
  // the last one (the clock was set back) starts again with an empty record.
  void Add(int64_t begin_ns, int64_t duration_ns);

  // On the wall, for training iterations that take so long, from the begin of the last one on.
  // Nothing while there are too few parts of the run to tell how its pace varies.
  std::optional<Estimate> WallTimeOf(const Estimate& training, double confidence) const;
  int64_t last_begin_ns() const { return last_begin_ns_; }

 private:
  // Consecutive parts of the run, as many iterations each; two become one when there are too many.
  struct Part {
    double wall_ns = 0;
    double training_ns = 0;
  };
  static constexpr size_t kMostParts = 32;

  std::vector<Part> parts_;
  Part open_;
  int64_t iterations_ = 0;  // in `open_`
  int64_t size_ = 4;        // of a part, in iterations
  int64_t last_begin_ns_ = 0;
  int64_t last_duration_ns_ = 0;
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_EXPECTED_END_H_
