#include "daemon/seqpoint/projection.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace seqpoint {

std::optional<Estimate> RatioOf(const Estimate& numerator, const Estimate& denominator) {
  if (!(denominator.low > 0)) return std::nullopt;
  const double value = numerator.value / denominator.value;
  // Half-widths relative to the value add in squares, on each side.
  const auto reach = [&](double n, double d) {
    return std::hypot((n - numerator.value) / denominator.value,
                      value * (d - denominator.value) / denominator.value);
  };
  return Estimate{value, value - reach(numerator.low, denominator.high),
                  value + reach(numerator.high, denominator.low)};
}

Estimate Scaled(const Estimate& e, double factor) {
  Estimate scaled{e.value * factor, e.low * factor, e.high * factor};
  if (factor < 0) std::swap(scaled.low, scaled.high);
  return scaled;
}

Estimate NotBelow(double floor, const Estimate& e) {
  return {std::max(e.value, floor), std::max(e.low, floor), std::max(e.high, floor)};
}

}  // namespace seqpoint
