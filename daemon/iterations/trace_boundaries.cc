#include "daemon/iterations/trace_boundaries.h"

#include <algorithm>
#include <utility>

namespace seqpoint::iterations {
namespace {

std::vector<uint64_t> Begins(const IterationLearner& learner, const LearnedRule& rule) {
  std::vector<uint64_t> begins;
  abi::Matcher matcher(rule.rule);
  bool replace = false;
  for (const abi::CallRecord& call : learner.stream().calls()) {
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(call, learner.stream().names()));
    if ((flags & abi::kMatchedStep) != 0) replace = false;
    if ((flags & abi::kMatchedBoundary) != 0) {
      if (replace) begins.pop_back();
      begins.push_back(call.api_ns);
      replace = true;
    }
  }
  return begins;
}

bool ArePoints(const std::vector<traces::Marker>& markers) {
  if (markers.size() < 2) return false;
  double covered = 0;
  for (const traces::Marker& m : markers) covered += static_cast<double>(m.end_ns - m.begin_ns);
  const auto spacing = static_cast<double>(markers.back().begin_ns - markers[0].begin_ns) /
                       static_cast<double>(markers.size() - 1);
  return covered / static_cast<double>(markers.size()) < 0.6 * spacing;
}

}  // namespace

size_t TraceBoundaries::exact() const {
  return static_cast<size_t>(std::count(per_step.begin(), per_step.end(), 1));
}

TraceBoundaries FindBoundaries(const trace::Trace& trace, std::string_view marker) {
  TraceBoundaries found;
  traces::CallRecords stream = traces::ToCallRecords(trace, marker);
  found.calls = stream.calls.size();
  found.markers = std::move(stream.markers);
  found.points = ArePoints(found.markers);
  found.learner = std::make_unique<IterationLearner>();
  for (uint32_t id = 1; id < trace.names.size(); ++id) {
    found.learner->AddName(id, trace.names[id]);
  }
  for (const auto& [correlation, start] : stream.gpu_starts) {
    found.learner->AddGpuStart(correlation, start);
  }
  for (const abi::CallRecord& call : stream.calls) found.learner->AddCall(call);
  found.per_step.resize(found.markers.size());
  found.rule = found.learner->Analyse();
  if (found.rule) found.begins_ns = Begins(*found.learner, *found.rule);
  for (const uint64_t begin : found.begins_ns) {
    const auto it = std::upper_bound(found.markers.begin(), found.markers.end(), begin,
                                     [](uint64_t t, const auto& m) { return t < m.begin_ns; });
    if (it == found.markers.begin() || (found.points && it == found.markers.end())) {
      found.outside += found.points ? 0 : 1;
    } else {
      ++found.per_step[static_cast<size_t>(it - found.markers.begin()) - 1];
    }
  }
  if (found.points) found.per_step.pop_back();
  return found;
}

}  // namespace seqpoint::iterations
