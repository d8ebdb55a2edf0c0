// The values of amounts in a what-if, among them models of communication.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_EVALUATE_H_
#define DAEMON_WHATIF_LANGUAGE_EVALUATE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

// A model of communication: what it takes, in order (docs/formats/whatif-steps.md has the
// formulas).
struct Function {
  const char* name;
  std::vector<Unit> arguments;
  double (*time_ns)(const std::vector<double>& arguments);
};
const std::vector<Function>& Functions();

// Values of the selected task.
struct TaskValues {
  double bytes = 0;
  double duration_ns = 0;
};
bool NeedsTask(const Amount& amount);
bool NeedsBytes(const Amount& amount);

// `parameters` has the values of those that a request names. InvalidArgument: one is missing, or
// the result is no finite number >= 0 (a division by 0).
absl::StatusOr<double> Evaluate(const Amount& amount,
                                const std::map<std::string, double>& parameters,
                                const TaskValues& task = {});

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_EVALUATE_H_
