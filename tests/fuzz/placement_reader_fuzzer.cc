// Fuzz target of the readers of placement problems and splits: files of strangers. Nothing may
// crash, what is read must hold together and be written so that it reads back the same, and a small
// problem must get a placement that keeps to the rules, or a sentence.
//
// Input: first byte 0: the rest is the file; else: a program that writes a problem and a split from
// pieces of real files, so that more than the first check is reached.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "daemon/placement/class_graph.h"
#include "daemon/placement/judge.h"
#include "daemon/placement/planner.h"
#include "daemon/placement/problem_json.h"
#include "daemon/placement/split_json.h"
#include "tests/support/placement_problem.h"

namespace seqpoint::placement {
namespace {

constexpr size_t kPlanned = 12;  // operators: more take too long

void Require(bool holds) {
  if (!holds) abort();
}

constexpr std::string_view kPieces[] = {
    "{\"id\": 1, \"supportedOnFpga\": 1, \"isBackwardNode\": 0, \"cpuLatency\": 2, "
    "\"fpgaLatency\": 1, \"size\": 5},",
    "{\"id\": 2, \"supportedOnFpga\": true, \"isBackwardNode\": false, \"cpuLatency\": 4, "
    "\"fpgaLatency\": 0.5, \"colorClass\": 1},",
    "{\"id\": 3, \"supportedOnFpga\": 0, \"isBackwardNode\": 1, \"cpuLatency\": 1e-3, "
    "\"fpgaLatency\": 0, \"colorClass\": 1},",
    "{\"id\": 4, \"supportedOnFpga\": 1, \"isBackwardNode\": 0, \"cpuLatency\": 0, "
    "\"fpgaLatency\": 0, \"colorClass\": 2, \"name\": \"a\\\"b\"},",
    "{\"id\": 5, \"supportedOnFpga\": 1, \"isBackwardNode\": 1, \"cpuLatency\": 1e300, "
    "\"fpgaLatency\": 7, \"size\": 1e12},",
    "{\"sourceId\": 1, \"destId\": 2, \"cost\": 0.5},",
    "{\"sourceId\": 2, \"destId\": 3, \"cost\": 0.25},",
    "{\"sourceId\": 4, \"destId\": 1, \"cost\": 0},",
    "{\"sourceId\": 1, \"destId\": 4, \"cost\": 0.5},",
    "{\"sourceId\": 5, \"destId\": 3, \"cost\": 1e299},",
    "{\"load\": 1, \"nodes\": [1, 2, 3]},",
    "{\"nodes\": [4]},",
    "{\"nodes\": []},",
    "\"nodes\": [",
    "\"colorClass\": -1,",
    "null,",
    "{",
    "}",
    "[",
    "],",
    "\"",
    "-",
    "9",
    "NaN",
};

// Three lists: operators, edges, devices of a split.
struct Files {
  std::string problem;
  std::string split;
};

Files Write(std::string_view program) {
  std::string lists[3];
  for (size_t i = 1; i + 1 < program.size() && lists[0].size() < (size_t{1} << 16); i += 2) {
    const auto what = static_cast<uint8_t>(program[i + 1]);
    std::string& list = lists[static_cast<uint8_t>(program[i]) % 3];
    if (what < 250) {
      list += kPieces[what % std::size(kPieces)];
    } else {
      list += static_cast<char>(what);
    }
  }
  for (std::string& list : lists) {
    if (list.ends_with(',')) list.pop_back();
  }
  const auto counts = static_cast<uint8_t>(program[0]);
  return {absl::StrCat("{\"maxSizePerFPGA\": ", counts % 3 == 0 ? "4" : "1e13",
                       ", \"maxFPGAs\": ", counts % 4, ", \"maxCPUs\": ", counts / 4 % 3,
                       ", \"nodes\": [", lists[0], "], \"edges\": [", lists[1], "]}"),
          absl::StrCat("{\"fpgas\": [", lists[2], "], \"cpus\": [", lists[2], "]}")};
}

void ReadSplitOf(const Problem& problem, const std::string& text) {
  const auto split = ReadSplit(text, "s", problem);
  if (!split.ok()) {
    Require(split.status().message().size() < 1000);
    return;
  }
  Require(split->size() == problem.operators.size());
  for (const int device : *split) Require(device >= -1 && device < problem.devices());
  (void)Judge(problem, *split);
}

void Use(const Problem& problem, const std::string& split) {
  const std::string text = WriteProblem(problem);
  const auto again = ReadProblem(text, "w");
  Require(again.ok() && WriteProblem(*again) == text);
  ReadSplitOf(problem, split);
  const ClassGraph graph = ContiguousClasses(problem);
  Require(graph.class_of.size() == problem.operators.size());
  if (problem.operators.size() > kPlanned || problem.devices() > 8) return;
  const auto plan = MakePlan(problem, {});
  if (!plan.ok()) {
    Require(plan.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  Require(plan->judgement.violations.empty() && plan->lower_bound <= plan->value);
  const auto read = ReadSplit(WriteSplit(problem, plan->placement, plan->judgement), "p", problem);
  Require(read.ok() && *read == plan->placement);
}

}  // namespace
}  // namespace seqpoint::placement

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace seqpoint::placement;
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  Files files;
  if (input.size() < 2 || input[0] == 0) {
    files.problem = files.split = input.substr(input.empty() ? 0 : 1);
  } else {
    files = Write(input.substr(1));
  }
  const auto problem = ReadProblem(files.problem, "f");
  if (problem.ok()) {
    Use(*problem, files.split);
  } else {
    Require(problem.status().message().size() < 1000);
  }
  return 0;
}
