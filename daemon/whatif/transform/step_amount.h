// The amount of a step, for each of its tasks.
//
// Threading: constant after Make. Ownership: refers to the step, the parameters and the graph,
// which outlive it.
#ifndef DAEMON_WHATIF_TRANSFORM_STEP_AMOUNT_H_
#define DAEMON_WHATIF_TRANSFORM_STEP_AMOUNT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/whatif/graph.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

using Parameters = std::map<std::string, double>;

class StepAmount {
 public:
  // InvalidArgument: a parameter has no value, also where the step selects nothing.
  static absl::StatusOr<StepAmount> Make(const Step& step, const Parameters& parameters,
                                         const Graph& graph);

  // The same for all tasks; nothing: it depends on the task, or the step has none.
  const std::optional<double>& constant() const { return constant_; }
  // For a task of the GPU, or of the CPU.
  absl::StatusOr<double> For(bool gpu, uint32_t t) const;
  // For a task that moves, or makes, so many bytes.
  absl::StatusOr<double> For(bool gpu, uint32_t t, double bytes) const;

 private:
  StepAmount(const Step& step, const Parameters& parameters, const Graph& graph)
      : amount_(step.amount), parameters_(parameters), graph_(graph) {}

  const Amount& amount_;
  const Parameters& parameters_;
  const Graph& graph_;
  std::optional<double> constant_;
};

// A time in whole nanoseconds. More than kMostNs is refused when the step is done.
int64_t RoundedNs(double ns);
// 18 years in one trace: no sensible question asks for more.
inline constexpr double kMostNs = 1LL << 59;

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_STEP_AMOUNT_H_
