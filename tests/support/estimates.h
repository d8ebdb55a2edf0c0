// Questions that several tests ask of a selection or an estimate.
#ifndef TESTS_SUPPORT_ESTIMATES_H_
#define TESTS_SUPPORT_ESTIMATES_H_

#include <algorithm>
#include <numeric>
#include <vector>

#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

inline double HalfWidth(const Estimate& e) { return (e.high - e.low) / 2; }

inline bool Covers(const Estimate& e, double truth) { return e.low <= truth && truth <= e.high; }

inline double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

inline double Weights(const Selection& selection) {
  double sum = 0;
  for (const SeqPoint& p : selection.points) sum += p.weight;
  return sum;
}

inline int MeasurementsOf(const Selection& selection) {
  int sum = 0;
  for (const SeqPoint& p : selection.points) sum += p.measurements;
  return sum;
}

inline bool Same(const Selection& a, const Selection& b) {
  return std::equal(a.points.begin(), a.points.end(), b.points.begin(), b.points.end(),
                    [](const SeqPoint& x, const SeqPoint& y) {
                      return x.key == y.key && x.weight == y.weight &&
                             x.measurements == y.measurements;
                    });
}

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_ESTIMATES_H_
