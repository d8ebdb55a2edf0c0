// Writes a placement problem in its published form, which placement::ReadProblem reads.
// Threading: a pure function.
#ifndef TESTS_SUPPORT_PLACEMENT_PROBLEM_H_
#define TESTS_SUPPORT_PLACEMENT_PROBLEM_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/base/json_string.h"
#include "daemon/placement/problem.h"

namespace seqpoint::placement {

// Reads back as the same problem.
inline std::string WriteProblem(const Problem& problem) {
  std::string out = absl::StrCat("{\"maxSizePerFPGA\": ", JsonNumber(problem.memory_bytes),
                                 ", \"maxFPGAs\": ", problem.accelerators,
                                 ", \"maxCPUs\": ", problem.cpus, ",\n \"nodes\": [");
  const char* separator = "\n  ";
  for (const Operator& op : problem.operators) {
    absl::StrAppend(&out, separator, "{\"id\": ", op.id);
    if (!op.name.empty()) absl::StrAppend(&out, ", \"name\": ", JsonString(op.name));
    absl::StrAppend(&out, ", \"supportedOnFpga\": ", op.accelerator_supported ? "true" : "false",
                    ", \"isBackwardNode\": ", op.backward ? "true" : "false",
                    ", \"cpuLatency\": ", JsonNumber(op.cpu_time),
                    ", \"fpgaLatency\": ", JsonNumber(op.accelerator_time),
                    ", \"size\": ", JsonNumber(op.memory_bytes));
    if (op.color.has_value()) absl::StrAppend(&out, ", \"colorClass\": ", *op.color);
    out += '}';
    separator = ",\n  ";
  }
  out += "],\n \"edges\": [";
  separator = "\n  ";
  for (const Edge& edge : problem.edges) {
    const Operator& from = problem.operators[edge.from];
    absl::StrAppend(&out, separator, "{\"sourceId\": ", from.id,
                    ", \"destId\": ", problem.operators[edge.to].id,
                    ", \"cost\": ", JsonNumber(from.transfer_time), "}");
    separator = ",\n  ";
  }
  return out + "]}\n";
}

}  // namespace seqpoint::placement

#endif  // TESTS_SUPPORT_PLACEMENT_PROBLEM_H_
