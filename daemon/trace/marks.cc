#include "daemon/trace/marks.h"

#include <re2/re2.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::trace {
namespace {

constexpr const char* kUsualMarkers[] = {R"(^ProfilerStep#\d+)", "^Optimizer\\.zero_grad#",
                                         "^Optimizer\\.step#"};
// Marks that cover a smaller share of the time between them are points.
constexpr double kLeastCovered = 0.6;

}  // namespace

IterationMarks FindMarks(const Trace& trace, const std::string& marker) {
  if (marker.empty()) {
    for (const char* usual : kUsualMarkers) {
      IterationMarks marks = FindMarks(trace, usual);
      if (!marks.starts_ns.empty()) return marks;
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
    marks.starts_ns.push_back(mark.begin_ns);
    marks.ends_ns.push_back(mark.end_ns);
    marks.names.push_back(mark.name);
    covered_ns += static_cast<double>(mark.end_ns - mark.begin_ns);
  }
  std::vector<bool> taken(trace.names.size());
  for (const uint32_t name : marks.names) taken[name] = true;
  for (const std::vector<Span>& other : by_thread) {
    for (const Span& mark : other) marks.elsewhere += taken[mark.name] ? 0 : 1;
  }
  const auto count = static_cast<double>(most->size());
  if (count > 1) {
    const auto between_ns =
        static_cast<double>(marks.starts_ns.back() - marks.starts_ns.front()) / (count - 1);
    marks.points = covered_ns / count < kLeastCovered * between_ns;
  }
  return marks;
}

std::vector<Span> FindHoles(const Trace& trace) {
  std::vector<Span> holes;
  const auto name = std::find(trace.names.begin(), trace.names.end(), kNotRecorded);
  if (name == trace.names.end()) return holes;
  const auto id = static_cast<uint32_t>(name - trace.names.begin());
  for (const Span& span : trace.spans) {
    if (span.name == id) holes.push_back(span);
  }
  return holes;
}

std::vector<Trace> SplitAtHoles(Trace trace) {
  std::vector<int64_t> ends_ns;
  for (const Span& hole : FindHoles(trace)) ends_ns.push_back(hole.end_ns);
  std::vector<Trace> parts;
  if (ends_ns.empty()) {
    parts.push_back(std::move(trace));
    return parts;
  }
  std::sort(ends_ns.begin(), ends_ns.end());
  const auto place = [&](int64_t time_ns) {
    return std::upper_bound(ends_ns.begin(), ends_ns.end(), time_ns) - ends_ns.begin();
  };
  const std::vector<Call> all_calls = std::exchange(trace.calls, {});
  const std::vector<Work> all_works = std::exchange(trace.works, {});
  const std::vector<Span> all_spans = std::exchange(trace.spans, {});
  const std::vector<Wait> all_waits = std::exchange(trace.waits, {});
  const std::vector<Flow> all_flows = std::exchange(trace.flows, {});
  // By correlation; of processes that came one after the other it may be the same.
  absl::flat_hash_map<uint64_t, std::vector<const Call*>> calls;
  for (const Call& call : all_calls) {
    if (call.correlation != 0) calls[call.correlation].push_back(&call);
  }
  for (auto& [correlation, of_one] : calls) {
    std::sort(of_one.begin(), of_one.end(),
              [](const Call* a, const Call* b) { return a->begin_ns < b->begin_ns; });
  }
  std::map<ptrdiff_t, Trace> with_work;  // by place
  for (const Work& work : all_works) {
    int64_t begin_ns = work.start_ns;  // of the last call before it
    if (const auto it = calls.find(work.correlation); it != calls.end()) {
      const auto behind =
          std::partition_point(it->second.begin(), it->second.end(),
                               [&](const Call* call) { return call->begin_ns <= work.start_ns; });
      if (behind != it->second.begin()) begin_ns = (*std::prev(behind))->begin_ns;
    }
    const ptrdiff_t at = place(begin_ns);
    with_work.try_emplace(at, trace).first->second.works.push_back(work);
  }
  const auto part_at = [&](int64_t time_ns) {
    const auto it = with_work.find(place(time_ns));
    return it == with_work.end() ? nullptr : &it->second;
  };
  for (const Call& call : all_calls) {
    if (Trace* part = part_at(call.begin_ns)) part->calls.push_back(call);
  }
  for (const Span& span : all_spans) {
    // Between windows one right behind the other a hole has no length.
    const bool hole = trace.names[span.name] == kNotRecorded;
    if (Trace* part = part_at(hole ? span.end_ns - 1 : span.begin_ns)) part->spans.push_back(span);
  }
  for (const Flow& flow : all_flows) {
    if (Trace* part = part_at(flow.forward_ns)) part->flows.push_back(flow);
  }
  for (const Wait& wait : all_waits) {
    const auto it = calls.find(wait.correlation);
    if (it == calls.end()) continue;
    for (const Call* call : it->second) {
      if (Trace* part = part_at(call->begin_ns)) part->waits.push_back(wait);
    }
  }
  for (auto& [at, part] : with_work) parts.push_back(std::move(part));
  return parts;
}

}  // namespace seqpoint::trace
