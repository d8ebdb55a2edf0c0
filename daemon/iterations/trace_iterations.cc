#include "daemon/iterations/trace_iterations.h"

#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/iterations/replay.h"
#include "daemon/iterations/trace_boundaries.h"
#include "daemon/trace/marks.h"

namespace seqpoint::iterations {
namespace {

// The names in our own exports, see traces/chrome_events.
constexpr const char* kLengthsInName = R"(^ProfilerStep#\d+ lengths=\[(\d+)(?:,(\d+))?\])";

struct Learned {
  std::vector<int64_t> starts_ns;
  std::vector<std::array<int64_t, 2>> lengths;  // of the complete ones
  int dimensions = 0;
  std::string boundary_words, length_words;
  bool steps = false;  // see AreSteps
};

// Layers of a model are repeated, too, and a trace of one forward pass has nothing else. A training
// step is recognised by a batch from the host in each complete loop iteration, or by launches of
// two threads, the program's and autograd's. Copies to the host and waits show nothing: a layer may
// have them (how many tokens an expert gets).
bool AreSteps(const LaunchLog& stream, const std::vector<int64_t>& starts_ns) {
  size_t iteration = 0;  // number of those that have started
  bool batch = false;
  uint64_t first_thread = 0;
  int threads = 0;  // threads that launch: 0, 1, 2 or more
  for (const abi::CallRecord& call : stream.calls()) {
    while (iteration < starts_ns.size() &&
           static_cast<int64_t>(call.api_ns) >= starts_ns[iteration]) {
      if (iteration > 0 && !batch && threads < 2) return false;
      ++iteration;
      batch = false;
      threads = 0;
    }
    const auto op = static_cast<abi::Op>(call.op);
    batch |= op == abi::Op::kCopyH2D;
    if (op != abi::Op::kLaunch && op != abi::Op::kGraphLaunch) continue;
    if (threads == 0) {
      first_thread = call.thread_id;
      threads = 1;
    } else if (call.thread_id != first_thread) {
      threads = 2;
    }
  }
  return starts_ns.size() > 1;
}

Learned Learn(const trace::Trace& trace) {
  Learned learned;
  const TraceBoundaries found = FindBoundaries(trace);
  if (!found.rule) return learned;
  for (const uint64_t begin : found.starts_ns) {
    learned.starts_ns.push_back(static_cast<int64_t>(begin));
  }
  learned.boundary_words = found.rule->boundary_words;
  learned.steps = AreSteps(found.learner->stream(), learned.starts_ns);
  const auto dimensions = static_cast<int>(found.rule->rule.length_count);
  if (dimensions == 0 || !found.rule->lengths.depends) return learned;
  const LaunchLog& stream = found.learner->stream();
  const Occurrences occurrences(stream);
  for (const ReplayedIteration& iteration : Replay(stream, occurrences, found.rule->rule, 0)) {
    if (iteration.valid + 1 != 1u << dimensions) return learned;
    learned.lengths.push_back({iteration.length[0], iteration.length[1]});
  }
  learned.dimensions = dimensions;
  learned.length_words = found.rule->length_words;
  return learned;
}

// Takes the lengths that the learner read, where it found one iteration in each marked one.
void TakeLengths(const Learned& learned, TraceIterations* iterations) {
  if (learned.dimensions == 0 || learned.lengths.size() < iterations->count) return;
  for (size_t i = 0; i < iterations->count; ++i) {
    if (i >= learned.starts_ns.size() || learned.starts_ns[i] < iterations->starts_ns[i]) return;
    if (i + 1 < iterations->starts_ns.size() &&
        learned.starts_ns[i] >= iterations->starts_ns[i + 1]) {
      return;
    }
  }
  const auto end = learned.lengths.begin() + static_cast<ptrdiff_t>(iterations->count);
  // A value that is the same in all iterations is no length.
  if (std::all_of(learned.lengths.begin(), end,
                  [&](const auto& length) { return length == learned.lengths[0]; })) {
    return;
  }
  iterations->dimensions = learned.dimensions;
  iterations->lengths.assign(learned.lengths.begin(), end);
  iterations->length_words = learned.length_words;
}

absl::Status ReadLengths(const trace::Trace& trace, const trace::IterationMarks& marks,
                         const RE2& expression, TraceIterations* iterations) {
  int groups = expression.NumberOfCapturingGroups();
  std::string second;
  if (expression.pattern() == kLengthsInName &&
      RE2::PartialMatch(marks.first, expression, nullptr, &second) && second.empty()) {
    groups = 1;
  }
  if (groups == 0) return absl::OkStatus();
  for (size_t i = 0; i < iterations->count; ++i) {
    const std::string& name = trace.names[marks.names[i]];
    std::string texts[2];
    const RE2::Arg all[2] = {&texts[0], &texts[1]};
    const RE2::Arg* arguments[2] = {&all[0], &all[1]};
    if (!RE2::PartialMatchN(name, expression, arguments, groups)) return absl::OkStatus();
    std::array<int64_t, 2>& length = iterations->lengths.emplace_back();
    for (int d = 0; d < groups; ++d) {
      if (!absl::SimpleAtoi(texts[d], &length[static_cast<size_t>(d)]) ||
          length[static_cast<size_t>(d)] < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("marker: in \"", name, "\" group ", d + 1, " is \"", texts[d],
                         "\", which is no length (a number >= 0); write groups that are no ",
                         "lengths as (?:...)"));
      }
    }
  }
  iterations->dimensions = groups;
  iterations->length_words = "number in the annotation";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TraceIterations> FindIterations(const trace::Trace& trace,
                                               const std::string& marker) {
  const RE2 expression(marker.empty() ? kLengthsInName : marker, RE2::Quiet);
  if (!expression.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("marker: \"", marker, "\" is no regular expression: ", expression.error()));
  }
  if (expression.NumberOfCapturingGroups() > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("marker: \"", marker, "\" has ", expression.NumberOfCapturingGroups(),
                     " groups; a length has at most two numbers, write other groups as (?:...)"));
  }
  const trace::IterationMarks marks = trace::FindMarks(trace, marker);
  TraceIterations iterations;
  if (marks.iterations() > 0) {
    iterations.count = marks.iterations();
    iterations.starts_ns = marks.starts_ns;
    iterations.marks_elsewhere = marks.elsewhere;
    if (!marks.points) iterations.last_end_ns = marks.ends_ns.back();
    if (const auto holes = trace::FindHoles(trace); iterations.count == 1 && holes.size() == 1) {
      iterations.starts_ns = {marks.starts_ns[0], std::max(marks.starts_ns[0], holes[0].begin_ns)};
    }
    // "ProfilerStep#3": all have the part before the number.
    iterations.boundary_words =
        marker.empty()
            ? absl::StrCat("annotation \"", marks.first.substr(0, marks.first.find('#')), "\"")
            : absl::StrCat("annotation matching \"", marker, "\"");
    SEQPOINT_RETURN_IF_ERROR(ReadLengths(trace, marks, expression, &iterations));
    if (iterations.dimensions == 0) {
      iterations.lengths.clear();
      TakeLengths(Learn(trace), &iterations);
    }
    return iterations;
  }
  if (!marker.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("marker: no annotation matches \"", marker, "\""));
  }
  Learned learned = Learn(trace);
  if (learned.steps) {
    iterations.count = learned.starts_ns.size();
    iterations.starts_ns = std::move(learned.starts_ns);
    iterations.boundary_words = learned.boundary_words;
    // The last one may be cut off and have no lengths.
    if (learned.lengths.size() + 1 == iterations.count) --iterations.count;
    learned.starts_ns = iterations.starts_ns;
    TakeLengths(learned, &iterations);
    return iterations;
  }
  int64_t begin_ns = std::numeric_limits<int64_t>::max();
  for (const trace::Call& call : trace.calls) begin_ns = std::min(begin_ns, call.begin_ns);
  for (const trace::Work& work : trace.works) begin_ns = std::min(begin_ns, work.start_ns);
  iterations.count = 1;
  iterations.starts_ns = {begin_ns};
  iterations.boundary_words =
      learned.starts_ns.size() > 1
          ? "nothing that looks like a training step is repeated: the whole trace"
          : "nothing is repeated: the whole trace";
  return iterations;
}

}  // namespace seqpoint::iterations
