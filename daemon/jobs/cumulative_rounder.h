// CumulativeRounder: whole numbers for a sequence of fractions. It rounds their running sum, so
// that the total is right where many fractions are small.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_CUMULATIVE_ROUNDER_H_
#define DAEMON_JOBS_CUMULATIVE_ROUNDER_H_

#include <cmath>
#include <cstdint>

namespace seqpoint::jobs {

class CumulativeRounder {
 public:
  int64_t Next(double value) {
    exact_ += value;
    const int64_t whole = std::llround(exact_) - given_;
    given_ += whole;
    return whole;
  }

 private:
  double exact_ = 0;
  int64_t given_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_CUMULATIVE_ROUNDER_H_
