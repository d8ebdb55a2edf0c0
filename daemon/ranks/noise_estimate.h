// NoiseEstimate: how far standardised values of ranks scatter while nothing changes, and how heavy
// their tails are.
//
// It looks at differences of consecutive values of one rank, so that a rank that is slow for good
// counts once, when it becomes slow. Deviation: median of absolute differences. Values that follow
// each other closely (a clock that wanders) would deceive the tests: differences of values that are
// two apart tell how much, and the deviation grows by it.
//
// Threading, ownership: values. Memory: kWindow differences.
#ifndef SEQPOINT_DAEMON_RANKS_NOISE_ESTIMATE_H_
#define SEQPOINT_DAEMON_RANKS_NOISE_ESTIMATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/ranks/cusum_bank.h"

namespace seqpoint::ranks {

class NoiseEstimate {
 public:
  // The next value of the rank (or of anything else that has values of its own).
  void Add(int32_t rank, double value);

  // Of one value; 0 without any.
  double deviation() const { return deviation_; }
  // For CusumBank, of values that were divided by deviation().
  const Penalties& penalties() const { return penalties_; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(last_, near_, far_, deviation_, penalties_);
  }

  static constexpr size_t kWindow = 512;

 private:
  // The newest kWindow values.
  struct Window {
    std::vector<double> values;
    uint64_t added = 0;

    void Add(double value) {
      if (values.size() < kWindow) values.push_back(0);
      values[added++ % kWindow] = value;
    }
    template <typename Archive>
    void Visit(Archive& archive) {
      archive(values, added);
    }
  };
  void Refresh();

  std::map<int32_t, std::pair<double, double>> last_;  // of each rank, the last two values
  Window near_;                                        // differences / sqrt(2) of neighbours
  Window far_;                                         // and of values that are two apart
  double deviation_ = 0;
  Penalties penalties_ = {};
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_NOISE_ESTIMATE_H_
