#include "tests/iterations/marked_boundaries.h"

#include <algorithm>
#include <string>

namespace seqpoint::iterations {
namespace {

using Mark = MarkedBoundaries::Mark;

bool ArePoints(const std::vector<Mark>& marks) {
  if (marks.size() < 2) return false;
  double covered = 0;
  for (const Mark& m : marks) covered += static_cast<double>(m.end_ns - m.begin_ns);
  const auto spacing = static_cast<double>(marks.back().begin_ns - marks[0].begin_ns) /
                       static_cast<double>(marks.size() - 1);
  return covered / static_cast<double>(marks.size()) < 0.6 * spacing;
}

}  // namespace

size_t MarkedBoundaries::exact() const {
  return static_cast<size_t>(std::count(per_step.begin(), per_step.end(), 1));
}

MarkedBoundaries FindMarkedBoundaries(const trace::Trace& trace, std::string_view prefix) {
  MarkedBoundaries result;
  for (const trace::Span& span : trace.spans) {
    if (!std::string_view(trace.names[span.name]).starts_with(prefix)) continue;
    result.marks.push_back(
        {static_cast<uint64_t>(span.begin_ns), static_cast<uint64_t>(span.end_ns)});
  }
  std::sort(result.marks.begin(), result.marks.end(),
            [](const Mark& a, const Mark& b) { return a.begin_ns < b.begin_ns; });
  result.points = ArePoints(result.marks);
  result.per_step.resize(result.marks.size());
  result.found = FindBoundaries(trace);
  for (const uint64_t begin : result.found.starts_ns) {
    const auto it = std::upper_bound(result.marks.begin(), result.marks.end(), begin,
                                     [](uint64_t t, const Mark& m) { return t < m.begin_ns; });
    if (it == result.marks.begin() || (result.points && it == result.marks.end())) {
      result.outside += result.points ? 0 : 1;
    } else {
      ++result.per_step[static_cast<size_t>(it - result.marks.begin()) - 1];
    }
  }
  if (result.points) result.per_step.pop_back();
  return result;
}

}  // namespace seqpoint::iterations
