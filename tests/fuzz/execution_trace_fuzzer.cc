// Fuzz target of placement costs from recordings: execution traces of strangers, and what is made
// of them. Nothing may crash, and a problem that is made must be one: acyclic, with costs that are
// numbers.
//
// Input: first byte 0: the rest is the file; else: a program that writes one from pieces of real
// files, so that more than the first check is reached.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "daemon/placement/measured_problem.h"
#include "daemon/traces/execution_trace.h"

namespace seqpoint::placement {
namespace {

void Require(bool holds) {
  if (!holds) abort();
}

constexpr std::string_view kNames[] = {"aten::linear",
                                       "aten::add_",
                                       "Optimizer.step#SGD.step",
                                       "AddmmBackward0",
                                       "autograd::engine::evaluate_function: AddmmBackward0",
                                       "autograd::engine::evaluate_function: "
                                       "torch::autograd::AccumulateGrad",
                                       "[pytorch|profiler|execution_trace|thread]",
                                       ""};
constexpr std::string_view kSchemas[] = {
    "",
    "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
    "aten::t(Tensor(a) self) -> Tensor(a)",
    "a(Tensor(a!)[] self, int[2] x=[1, 2], (((",
    ")"};

// Two bytes a choice: nodes whose parents, tensors and numbers are small, so that they meet.
std::string Write(std::string_view program) {
  std::string text = "{\"schema\": \"1.0.1\", \"nodes\": [";
  size_t at = 0;
  const auto next = [&](int choices) {
    return at < program.size() ? static_cast<uint8_t>(program[at++]) % choices : 0;
  };
  const auto tensors = [&] {
    std::string list = "[";
    for (int i = next(4); i > 0; --i) {
      const bool nested = next(5) == 0;
      absl::StrAppend(&list, nested ? "[" : "", "[", next(9), ",", next(9), ",", next(5), ",");
      absl::StrAppend(&list, next(7) == 0 ? "18446744073709551615" : "16", ",4,\"cpu\"]",
                      nested ? "]" : "", i > 1 ? "," : "");
    }
    return list + "]";
  };
  uint64_t id = 2;
  while (at < program.size() && text.size() < (size_t{1} << 16)) {
    const uint64_t parent = next(3) == 0 ? 2 : id - std::min<uint64_t>(next(4), id - 1);
    id += next(40) == 0 ? 0 : 1;
    const bool chakra = next(4) == 0;
    absl::StrAppend(&text, text.back() == '[' ? "" : ",", "{\"id\": ", id, ", \"name\": \"",
                    std::string(kNames[next(std::size(kNames))]), "\", ");
    const std::string rest =
        absl::StrCat("\"seq_id\"", chakra ? ", \"value\": " : ": ", next(6) - 1);
    if (chakra) {
      absl::StrAppend(&text, "\"ctrl_deps\": ", parent, ", \"attrs\": [{\"name\": ", rest,
                      "}, {\"name\": \"scope\", \"value\": ", next(9),
                      "}], \"inputs\": {\"values\": ", tensors(),
                      "}, \"outputs\": {\"values\": ", tensors(), "}}");
    } else {
      absl::StrAppend(&text, "\"parent\": ", parent, ", ", rest, ", \"scope\": ", next(9),
                      ", \"fw_tid\": ", next(2), ", \"tid\": ", next(2));
      absl::StrAppend(&text, ", \"op_schema\": \"",
                      std::string(kSchemas[next(std::size(kSchemas))]),
                      "\", \"inputs\": ", tensors(), ", \"outputs\": ", tensors(), "}");
    }
  }
  return text + "]}";
}

// A time line of the same operators, a millisecond each.
trace::Trace TimesOf(const traces::ExecutionTrace& graph) {
  trace::Trace times;
  times.names = graph.names;
  times.threads = {"0", "1"};
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    const auto begin = static_cast<int64_t>(i) * 1'000'000;
    times.spans.push_back({.begin_ns = begin,
                           .end_ns = begin + 1'000'000,
                           .name = graph.operators[i].name,
                           .thread = static_cast<uint32_t>(graph.operators[i].thread % 2)});
  }
  return times;
}

void Check(const MeasuredRun& run) {
  for (const WeightedProblem& weighted : run.problems) {
    const Problem& problem = weighted.problem;
    const auto count = static_cast<int>(problem.operators.size());
    for (const Operator& op : problem.operators) {
      for (const double cost :
           {op.cpu_time, op.accelerator_time, op.memory_bytes, op.transfer_time}) {
        Require(std::isfinite(cost) && cost >= 0);
      }
    }
    // No circle: as long as something is left, something of it waits for nobody.
    std::vector<int> waits(count);
    std::vector<std::vector<int>> after(count);
    for (const Edge& edge : problem.edges) {
      Require(edge.from >= 0 && edge.from < count && edge.to >= 0 && edge.to < count);
      Require(!(problem.operators[edge.from].backward && !problem.operators[edge.to].backward));
      after[edge.from].push_back(edge.to);
      ++waits[edge.to];
    }
    std::vector<int> order;
    for (int i = 0; i < count; ++i) {
      if (waits[i] == 0) order.push_back(i);
    }
    for (size_t i = 0; i < order.size(); ++i) {
      for (const int to : after[order[i]]) {
        if (--waits[to] == 0) order.push_back(to);
      }
    }
    Require(static_cast<int>(order.size()) == count);
  }
}

}  // namespace
}  // namespace seqpoint::placement

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint;
  using namespace seqpoint::placement;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const auto read = [](const std::string& text) {
    auto graph = traces::ReadExecutionTrace(text, "f");
    if (!graph.ok()) Require(graph.status().message().size() < 600);
    return graph;
  };
  if (input.size() < 2 || input[0] == 0) {
    (void)read(std::string(input.substr(input.empty() ? 0 : 1)));
    return 0;
  }
  // The whole program is one length, its first half another one.
  std::vector<Recording> recordings;
  for (const std::string_view program : {input, input.substr(0, input.size() / 2)}) {
    auto graph = read(Write(program.substr(1)));
    if (!graph.ok()) continue;
    Recording& recording = recordings.emplace_back();
    recording.times = TimesOf(*graph);
    recording.graph = *std::move(graph);
    const auto alone = MakeMeasuredRun({&recording, 1}, {});
    if (alone.ok()) Check(*alone);
  }
  const auto run = MakeMeasuredRun(recordings, {});
  if (run.ok()) Check(*run);
  return 0;
}
