#include "daemon/seqpoint/basis.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint {
namespace {

// 1234567 -> "1,234,567".
std::string Grouped(uint64_t count) {
  if (count < 1000) return absl::StrCat(count);
  return absl::StrFormat("%s,%03d", Grouped(count / 1000), count % 1000);
}

std::string InWords(const KeyFit& fit) {
  switch (fit.verdict) {
    case KeyVerdict::kTooFew:
      break;
    case KeyVerdict::kExplained:
      return absl::StrFormat("the length explains %.1f %% of the variance of time",
                             100 * fit.explained);
    case KeyVerdict::kNotExplained:
      return absl::StrFormat(
          "the length does not explain time (%.1f %% of its variance): iterations count as drawn "
          "at random",
          100 * fit.explained);
    case KeyVerdict::kTimeHardlyVaries:
      return absl::StrFormat("time hardly varies (%.1f %%)", 100 * fit.robust_variation);
  }
  return "too few to say what explains time";
}

}  // namespace

std::string BasisOf(const EngineState& state, const FittedModel& fitted) {
  const uint64_t lengths = state.log.keys.Lengths();
  std::string basis = absl::StrCat(Grouped(state.log.iterations),
                                   state.log.iterations == 1 ? " iteration of " : " iterations of ",
                                   Grouped(lengths), lengths == 1 ? " length" : " lengths");
  if (fitted.time.of_sums) {
    absl::StrAppend(&basis, "; ", Grouped(state.stretches.iterations),
                    " of them were not timed one by one but in ", Grouped(state.stretches.count),
                    state.stretches.count == 1 ? " stretch" : " stretches");
  } else {
    absl::StrAppend(&basis, "; ", InWords(fitted.explained));
  }
  // A run that is through has no rest.
  const bool through = state.horizon.kind != Horizon::Kind::kUnknown && !state.horizon.another &&
                       static_cast<int64_t>(state.log.iterations) >= state.horizon.iterations;
  if (state.horizon.kind == Horizon::Kind::kUnknown) {
    absl::StrAppend(&basis, "; the length of the run is unknown, so there is no total");
  } else if (state.horizon.kind == Horizon::Kind::kIterations && !through) {
    absl::StrAppend(&basis, "; the lengths of the rest are unknown and taken to be like the past");
  } else if (!fitted.forecast.mismatch && !through) {
    absl::StrAppend(&basis, state.horizon.kind == Horizon::Kind::kHistogram
                                ? "; the lengths of the rest are known"
                                : "; the distribution of the lengths is known");
  }
  if (fitted.forecast.mismatch) {
    absl::StrAppend(&basis,
                    "; the given lengths are not those that occur, so the rest is taken to be like "
                    "the past");
  }
  if (fitted.forecast.overrun) {
    absl::StrAppend(&basis, "; the run is past the ",
                    Grouped(static_cast<uint64_t>(state.horizon.iterations)),
                    " iterations that were expected of it, so there is no total");
  }
  if (fitted.key_drift.moving()) {
    absl::StrAppend(&basis, "; the distribution of lengths still moves");
  }
  if (fitted.time.warm_up == TimeModel::WarmUp::kCostly) {
    absl::StrAppendFormat(&basis, "; the first iteration of a length costs %s%.3g ms more",
                          fitted.time.costly_share < 1 ? "up to " : "",
                          fitted.time.warm_up_cost_ns * 1e-6);
  }
  if (state.filter.stalls > 0) {
    absl::StrAppend(&basis, "; ", Grouped(state.filter.stalls),
                    state.filter.stalls == 1 ? " stall" : " stalls", " counted apart");
  }
  if (state.filter.regime_changes > 0) {
    absl::StrAppendFormat(&basis, "; the time that a length takes shifted %s",
                          state.filter.regime_changes == 1
                              ? "once"
                              : absl::StrCat(state.filter.regime_changes, " times"));
  }
  return basis;
}

}  // namespace seqpoint
