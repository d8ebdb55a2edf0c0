#include "daemon/whatif/language/units.h"

#include <cctype>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::whatif {
namespace {

// The shortest text that reads as the same number.
std::string NumberText(double number) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, number);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == number) return text;
  }
  return absl::StrFormat("%.17g", number);
}

}  // namespace

Units UnitsOf(Unit unit) {
  return unit == Unit::kTime    ? Units(kTimeUnits)
         : unit == Unit::kBytes ? Units(kByteUnits)
         : unit == Unit::kRate  ? Units(kRateUnits)
                                : Units();
}

std::pair<std::string, std::string> SplitUnit(const std::string& text) {
  constexpr const char* kDigits = "0123456789.+-";
  size_t unit = text.find_first_not_of(kDigits);
  // 1e6 is a number.
  if (unit != std::string::npos && unit > 0 && (text[unit] == 'e' || text[unit] == 'E') &&
      text.find_first_of(kDigits, unit + 1) == unit + 1) {
    unit = text.find_first_not_of(kDigits, unit + 1);
  }
  if (unit == std::string::npos) return {text, ""};
  return {text.substr(0, unit), text.substr(unit)};
}

absl::StatusOr<double> ParseNumber(const std::string& text, Units units) {
  const auto [digits, unit] = SplitUnit(text);
  double number = 0;
  if (!absl::SimpleAtod(digits, &number) || !std::isfinite(number) || number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a number"));
  }
  if (unit.empty() && (units.empty() || number == 0)) return number;
  const double* factor = Find(units, unit);
  if (factor == nullptr) {
    return absl::InvalidArgumentError(
        units.empty() ? absl::StrCat("\"", text, "\" has a unit where none belongs")
                      : absl::StrCat("\"", text, "\" needs one of the units ", List(units)));
  }
  return number * *factor;
}

absl::StatusOr<Amount::Term> ParseQuantity(std::string_view text) {
  std::string word;  // "1.5 ms"
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) word += c;
  }
  const std::string unit = SplitUnit(word).second;
  Amount::Term term;
  for (const Unit each : {Unit::kTime, Unit::kBytes, Unit::kRate}) {
    if (Find(UnitsOf(each), unit) != nullptr) term.unit = each;
  }
  if (term.unit == Unit::kNumber && !unit.empty() && unit.size() < word.size()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", word, "\": there is no unit \"", unit,
                                                   "\"; there are ", List(kTimeUnits), ", ",
                                                   List(kByteUnits), ", ", List(kRateUnits)));
  }
  SEQPOINT_ASSIGN_OR_RETURN(term.number, ParseNumber(word, UnitsOf(term.unit)));
  return term;
}

std::string QuantityText(double number, Unit unit) {
  const Units units = UnitsOf(unit);
  for (size_t i = units.size(); i-- > 0;) {
    const double factor = units[i].second;
    const std::string text = absl::StrFormat("%g", number / factor);
    double back = 0;
    if (number >= factor && absl::SimpleAtod(text, &back) && back * factor == number) {
      return text + units[i].first;
    }
  }
  return NumberText(number) + WordOf(units, 1.0);
}

const char* UnitInWords(Unit unit) {
  return unit == Unit::kTime    ? "a time such as 10us"
         : unit == Unit::kBytes ? "a number of bytes such as 25MB"
         : unit == Unit::kRate  ? "a rate such as 2GB/s"
                                : "a number";
}

}  // namespace seqpoint::whatif
