#include "daemon/whatif/transform/step_amount.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/evaluate.h"
#include "daemon/whatif/transform/graph_edits.h"

namespace seqpoint::whatif {

absl::StatusOr<StepAmount> StepAmount::Make(const Step& step, const Parameters& parameters,
                                            const Graph& graph) {
  StepAmount made(step, parameters, graph);
  if (step.verb == Verb::kScale || step.verb == Verb::kSet || step.verb == Verb::kInsert) {
    SEQPOINT_ASSIGN_OR_RETURN(const double amount, Evaluate(step.amount, parameters, {1, 1}));
    if (!NeedsTask(step.amount)) made.constant_ = amount;
  }
  return made;
}

absl::StatusOr<double> StepAmount::For(bool gpu, uint32_t t) const {
  return For(gpu, t, gpu ? static_cast<double>(graph_.gpu[t].bytes) : 0.0);
}

absl::StatusOr<double> StepAmount::For(bool gpu, uint32_t t, double bytes) const {
  if (constant_) return *constant_;
  if (bytes == 0 && NeedsBytes(amount_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the trace has no bytes of \"", graph_.names[gpu ? graph_.gpu[t].name : graph_.cpu[t].name],
        "\"; select with bytes > 0, or give a time"));
  }
  return Evaluate(amount_, parameters_, {bytes, static_cast<double>(DurationOf(graph_, gpu, t))});
}

int64_t RoundedNs(double ns) { return std::llround(std::min(ns, kMostNs)); }

}  // namespace seqpoint::whatif
