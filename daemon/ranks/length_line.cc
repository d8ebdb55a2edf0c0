#include "daemon/ranks/length_line.h"

#include <set>
#include <utility>
#include <vector>

#include "daemon/base/statistics.h"

namespace seqpoint::ranks {
LengthLine FitLine(absl::Span<const LengthPoint> points) {
  std::vector<double> lengths, values;
  for (const LengthPoint& point : points) {
    lengths.push_back(point.length);
    values.push_back(point.value);
  }
  LengthLine line;
  const std::set<double> different(lengths.begin(), lengths.end());
  line.lengths = different.size();
  line.shortest = *different.begin();
  line.longest = *different.rbegin();
  line.length = Median(lengths);
  if (line.lengths >= LengthLine::kLeastLengths) {
    std::vector<double> slopes;
    for (size_t i = 0; i < points.size(); ++i) {
      for (size_t k = i + 1; k < points.size(); ++k) {
        const double by = points[k].length - points[i].length;
        if (by != 0) slopes.push_back((points[k].value - points[i].value) / by);
      }
    }
    line.slope = Median(std::move(slopes));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] -= line.slope * (lengths[i] - line.length);
    }
  }
  line.base = Median(values);
  if (line.base > 0) line.spread = MedianDeviation(values, line.base) / line.base;
  return line;
}

}  // namespace seqpoint::ranks
