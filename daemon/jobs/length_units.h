// LengthUnits: from the values that a rule reads to the lengths that a user knows.
//
// Threading: values.
#ifndef DAEMON_JOBS_LENGTH_UNITS_H_
#define DAEMON_JOBS_LENGTH_UNITS_H_

#include <cstdint>
#include <vector>

namespace seqpoint::jobs {

struct LengthUnits {
  int64_t unit[2] = {1, 1};
  bool swapped = false;  // the user's first length is the feature's second
  bool given = false;    // units are those of lengths that the user gave; else those seen

  std::vector<int64_t> Of(const int64_t length[2], int count) const {
    std::vector<int64_t> lengths(count);
    for (int i = 0; i < count; ++i) {
      lengths[swapped && count == 2 ? 1 - i : i] = (length[i] + unit[i] / 2) / unit[i];
    }
    return lengths;
  }
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LENGTH_UNITS_H_
