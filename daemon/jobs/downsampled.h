// Fewer measurements that say the same: an engine takes time with the cube of their number, and a
// trace of another profiler may hold thousands of iterations.
//
// Threading: a free function. Ownership: values.
#ifndef DAEMON_JOBS_DOWNSAMPLED_H_
#define DAEMON_JOBS_DOWNSAMPLED_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/seqpoint/key.h"

namespace seqpoint::jobs {

struct Measured {
  uint64_t number = 0;  // of an iteration
  Key key;
  std::vector<double> values;
};

// At most `most`. Those of one key are joined to means of about as many each; of more than `most`
// keys, keys are left out, evenly.
std::vector<Measured> Downsampled(std::vector<Measured> all, size_t most);

// The same, of measurements that are as indices: which of `keys` become one, by key.
std::vector<std::vector<size_t>> Groups(const std::vector<Key>& keys, size_t most);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_DOWNSAMPLED_H_
