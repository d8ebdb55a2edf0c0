#include "daemon/whatif/marks.h"

#include <re2/re2.h>

#include <algorithm>

namespace seqpoint::whatif {
namespace {

constexpr const char* kUsualMarkers[] = {R"(^ProfilerStep#\d+)", "^Optimizer\\.zero_grad#",
                                         "^Optimizer\\.step#"};
// Of the time between marks; less: they are points.
constexpr double kLeastCovered = 0.6;

}  // namespace

IterationMarks FindMarks(const Trace& trace, const std::string& marker) {
  if (marker.empty()) {
    for (const char* usual : kUsualMarkers) {
      IterationMarks marks = FindMarks(trace, usual);
      if (!marks.begins_ns.empty()) return marks;
    }
    return {};
  }
  const RE2 expression(marker, RE2::Quiet);
  std::vector<bool> named;
  for (const std::string& name : trace.names) named.push_back(RE2::PartialMatch(name, expression));
  std::vector<std::vector<Span>> by_thread(trace.threads.size());
  for (const Span& span : trace.spans) {
    if (named[span.name]) by_thread[span.thread].push_back(span);
  }
  const auto most =
      std::max_element(by_thread.begin(), by_thread.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (most == by_thread.end() || most->empty()) return {};
  std::stable_sort(most->begin(), most->end(),
                   [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  IterationMarks marks;
  marks.first = trace.names[most->front().name];
  double covered_ns = 0;
  for (const Span& mark : *most) {
    marks.begins_ns.push_back(mark.begin_ns);
    marks.ends_ns.push_back(mark.end_ns);
    marks.names.push_back(mark.name);
    covered_ns += static_cast<double>(mark.end_ns - mark.begin_ns);
  }
  const auto count = static_cast<double>(most->size());
  if (count > 1) {
    const auto between_ns =
        static_cast<double>(marks.begins_ns.back() - marks.begins_ns.front()) / (count - 1);
    marks.points = covered_ns / count < kLeastCovered * between_ns;
  }
  return marks;
}

}  // namespace seqpoint::whatif
