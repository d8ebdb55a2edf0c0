// Numbers with units: times, bytes and rates.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_UNITS_H_
#define DAEMON_WHATIF_LANGUAGE_UNITS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/language/words.h"

namespace seqpoint::whatif {

using Units = absl::Span<const Word<double>>;
inline constexpr Word<double> kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
inline constexpr Word<double> kByteUnits[] = {{"B", 1},         {"KB", 1e3},        {"MB", 1e6},
                                              {"GB", 1e9},      {"TB", 1e12},       {"KiB", 1024},
                                              {"MiB", 1048576}, {"GiB", 1073741824}};
// Bytes per nanosecond.
inline constexpr Word<double> kRateUnits[] = {
    {"B/s", 1e-9}, {"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}, {"TB/s", 1e3}};
// Ascending; none: plain numbers.
Units UnitsOf(Unit unit);

// The unit of the values that a condition compares.
inline Unit UnitOf(Field field) {
  return field == Field::kDuration ? Unit::kTime
         : field == Field::kBytes  ? Unit::kBytes
                                   : Unit::kNumber;
}

// "12us", "1.5": the number and the unit behind it.
std::pair<std::string, std::string> SplitUnit(const std::string& text);
// The value of "12us". InvalidArgument: not a number >= 0 with one of `units`, or without a unit
// where there are none.
absl::StatusOr<double> ParseNumber(const std::string& text, Units units);
// "0.5", "12us", "25MB", "2GB/s": the number and its unit.
absl::StatusOr<Amount::Term> ParseQuantity(std::string_view text);
// Uses the largest unit that leaves a short number.
std::string QuantityText(double number, Unit unit);
// "a number", "a time such as 10us", ...
const char* UnitInWords(Unit unit);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_UNITS_H_
