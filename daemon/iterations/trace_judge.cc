// seqpoint_trace_judge [--verbose] [--marker PREFIX] FILE...
//
// Shows the learner recorded traces with their iteration markers hidden and compares: one line per
// file, exit status 1 when a file's boundaries are not one per marker, each in its own step. Traces
// without markers are shown and not judged.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "daemon/iterations/learner.h"
#include "daemon/traces/call_stream.h"
#include "daemon/traces/read_file.h"

namespace {

using seqpoint::iterations::IterationLearner;
using seqpoint::iterations::LearnedRule;

// Begins of all iterations, a last incomplete one included.
std::vector<uint64_t> Begins(const IterationLearner& learner, const LearnedRule& rule) {
  std::vector<uint64_t> begins;
  seqpoint::abi::Matcher matcher(rule.rule);
  bool replace = false;
  for (const seqpoint::abi::CallRecord& call : learner.stream().calls()) {
    const uint32_t flags =
        matcher.OnEvent(seqpoint::iterations::ToMatchEvent(call, learner.stream().names()));
    if ((flags & seqpoint::abi::kMatchedStep) != 0) replace = false;
    if ((flags & seqpoint::abi::kMatchedBoundary) != 0) {
      if (replace) begins.pop_back();
      begins.push_back(call.api_ns);
      replace = true;
    }
  }
  if (replace && rule.rule.step.op != 0) begins.pop_back();
  return begins;
}

bool Judge(const std::string& path, const std::string& marker, bool verbose) {
  const auto trace = seqpoint::traces::ReadTraceFile(path);
  if (!trace.ok()) {
    std::printf("%s: %s\n", path.c_str(), trace.status().ToString().c_str());
    return false;
  }
  // Markers that cover little of the time between them are points: the last one only ends a step.
  const auto stream = seqpoint::traces::ToCallStream(*trace, marker);
  const auto& markers = stream.markers;
  bool points = false;
  if (markers.size() > 1) {
    double covered = 0;
    for (const auto& m : markers) covered += static_cast<double>(m.end_ns - m.begin_ns);
    const auto spacing = static_cast<double>(markers.back().begin_ns - markers[0].begin_ns) /
                         static_cast<double>(markers.size() - 1);
    points = covered / static_cast<double>(markers.size()) < 0.6 * spacing;
  }
  IterationLearner learner;
  for (uint32_t id = 1; id < trace->names.size(); ++id) learner.AddName(id, trace->names[id]);
  for (const auto& [correlation, start] : stream.gpu_starts)
    learner.AddGpuStart(correlation, start);
  for (const auto& call : stream.calls) learner.AddCall(call);
  const std::optional<LearnedRule> rule = learner.Analyse();
  std::printf("%s: %zu calls, %zu markers: ", path.c_str(), stream.calls.size(), markers.size());
  const bool judged = markers.size() >= 3;
  if (!rule) {
    std::printf("no loop found%s\n", judged ? "  FAILED" : "");
    return !judged;
  }
  std::vector<uint64_t> begins = Begins(learner, *rule);
  std::vector<int> per_marker(markers.size(), 0);
  int outside = 0;
  for (uint64_t begin : begins) {
    auto it = std::upper_bound(markers.begin(), markers.end(), begin,
                               [](uint64_t t, const auto& marker) { return t < marker.begin_ns; });
    if (it == markers.begin() || (points && it == markers.end())) {
      outside += !points;
    } else {
      ++per_marker[static_cast<size_t>(it - markers.begin()) - 1];
    }
  }
  if (points) per_marker.pop_back();
  const auto exact = std::count(per_marker.begin(), per_marker.end(), 1);
  const bool good = exact == static_cast<long>(per_marker.size()) && outside == 0;
  std::printf(
      "%zu boundaries, %ld steps with exactly one%s\n  begin: %s (%s)\n  step: op %d, confirm: op "
      "%d, micro-steps %u, once-per-iteration calls %u (next %u), evaluation %s, confidence "
      "%.2f\n  length: %s (explains %.3f by %s)\n",
      begins.size(), exact, judged ? (good ? "  ok" : "  FAILED") : "  (not judged)",
      rule->boundary_words.c_str(), rule->evidence.c_str(), rule->rule.step.op,
      rule->rule.confirm.op, rule->micro_steps, rule->family_weight, rule->runner_up_weight,
      rule->evaluation_seen ? "seen" : "not seen", rule->confidence, rule->length_words.c_str(),
      rule->lengths.explained, rule->lengths.judged_by.c_str());
  if (verbose) {
    const seqpoint::iterations::Occurrences occurrences(learner.stream());
    const auto loop = seqpoint::iterations::FindLoop(learner.stream(), occurrences, 2);
    for (const auto& place :
         loop ? loop->places : std::vector<seqpoint::iterations::BeginPlace>()) {
      const uint32_t name_id = learner.stream().calls()[place.launch].name_id;
      std::printf("    call %u %.60s: %.2f points: %s\n", place.launch,
                  learner.stream().names().Get(name_id).text.c_str(), place.points,
                  place.evidence.c_str());
    }
  }
  return good || !judged;
}

}  // namespace

int main(int argc, char** argv) {
  std::string marker = "ProfilerStep#";
  bool good = true;
  bool verbose = false;
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--marker" && i + 1 < argc) {
      marker = argv[++i];
      continue;
    }
    if (std::string(argv[i]) == "--verbose") {
      verbose = true;
      continue;
    }
    good &= Judge(argv[i], marker, verbose);
    ++files;
  }
  if (files == 0) {
    std::fprintf(stderr, "usage: seqpoint_trace_judge [--verbose] [--marker PREFIX] FILE...\n");
    return 2;
  }
  return good ? 0 : 1;
}
