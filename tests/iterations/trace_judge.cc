// seqpoint_trace_judge [--verbose] [--marker PREFIX] FILE...
//
// Shows the learner recorded traces with their iteration markers hidden and compares: one line per
// file, exit status 1 when a file's boundaries are not one per marker, each in its own step. Traces
// without markers are shown and not judged.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "daemon/iterations/loop.h"
#include "tests/iterations/marked_boundaries.h"
#include "tests/support/trace_file.h"

namespace {

using seqpoint::iterations::LearnedRule;

bool Judge(const std::string& path, const std::string& marker, bool verbose) {
  const auto trace = seqpoint::ReadTraceFile(path);
  if (!trace.ok()) {
    std::printf("%s: %s\n", path.c_str(), trace.status().ToString().c_str());
    return false;
  }
  const seqpoint::iterations::MarkedBoundaries marked =
      seqpoint::iterations::FindMarkedBoundaries(*trace, marker);
  const seqpoint::iterations::TraceBoundaries& found = marked.found;
  std::printf("%s: %zu calls, %zu markers: ", path.c_str(), found.learner->stream().calls().size(),
              marked.marks.size());
  const bool judged = marked.judged();
  const std::optional<LearnedRule>& rule = found.rule;
  if (!rule) {
    std::printf("no loop found%s\n", judged ? "  FAILED" : "");
    return !judged;
  }
  const bool good = marked.good();
  std::printf(
      "%zu boundaries, %zu steps with exactly one%s\n  begin: %s (%s)\n  step: op %d, confirm: op "
      "%d, micro-batches %u, once-per-iteration calls %u (next %u), evaluation %s, confidence "
      "%.2f\n  length: %s (explains %.3f by %s)\n",
      found.starts_ns.size(), marked.exact(),
      judged ? (good ? "  ok" : "  FAILED") : "  (not judged)", rule->boundary_words.c_str(),
      rule->evidence.c_str(), rule->rule.step.op, rule->rule.confirm.op, rule->micro_batches,
      rule->loop.group_weight, rule->loop.runner_up_weight,
      rule->evaluation_seen ? "seen" : "not seen", rule->confidence, rule->length_words.c_str(),
      rule->lengths.explained, rule->lengths.judged_by.c_str());
  if (verbose) {
    const seqpoint::iterations::LaunchLog& stream = found.learner->stream();
    const seqpoint::iterations::Occurrences occurrences(stream);
    const auto loop = seqpoint::iterations::FindLoop(stream, occurrences, 2);
    for (const auto& place :
         loop ? loop->places : std::vector<seqpoint::iterations::StartPlace>()) {
      const uint32_t name_id = stream.calls()[place.launch].name_id;
      std::printf("    call %u %.60s: %.2f points: %s\n", place.launch,
                  stream.names().Get(name_id).text.c_str(), place.score, place.evidence.c_str());
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
