// Numbers with units: times, bytes and rates.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_UNITS_H_
#define DAEMON_WHATIF_LANGUAGE_UNITS_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/whatif/language/request.h"
#include "daemon/whatif/language/words.h"

namespace seqpoint::whatif {

const Words<double>& TimeUnits();  // in nanoseconds
const Words<double>& ByteUnits();
// Units of the values that a condition compares; none: plain numbers.
const Words<double>& UnitsOf(Field field);

// "12us", "1.5": the number and the unit behind it.
std::pair<std::string, std::string> SplitUnit(const std::string& text);
// The value of "12us". InvalidArgument: not a number >= 0 with one of `units`, or without a unit
// where there are none.
absl::StatusOr<double> ParseNumber(const std::string& text, const Words<double>& units);
// "0.5", "12us", "25MB", "2GB/s": the number and its unit.
absl::StatusOr<Amount::Term> ParseQuantity(std::string_view text);
// Uses the largest unit that leaves a short number.
std::string QuantityText(double number, Unit unit);
// "a number", "a time such as 10us", ...
const char* UnitInWords(Unit unit);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_UNITS_H_
