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

// Bytes per nanosecond.
const Words<double>& RateUnits() {
  static const auto* words =
      new Words<double>{{"B/s", 1e-9}, {"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}, {"TB/s", 1e3}};
  return *words;
}
// The shortest text that reads as the same number.
std::string NumberText(double number) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, number);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == number) return text;
  }
  return absl::StrFormat("%.17g", number);
}

// Uses the largest unit that leaves a short number; `units` ascend.
std::string WithUnit(double number, const Words<double>& units) {
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

}  // namespace

const Words<double>& TimeUnits() {
  static const auto* words = new Words<double>{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  return *words;
}
const Words<double>& ByteUnits() {
  static const auto* words =
      new Words<double>{{"B", 1},     {"KB", 1e3},   {"MB", 1e6},      {"GB", 1e9},
                        {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
  return *words;
}

const Words<double>& UnitsOf(Field field) {
  static const auto* none = new Words<double>;
  return field == Field::kDuration ? TimeUnits() : field == Field::kBytes ? ByteUnits() : *none;
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

absl::StatusOr<double> ParseNumber(const std::string& text, const Words<double>& units) {
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
  const Words<double>* units = nullptr;
  if (Find(TimeUnits(), unit) != nullptr) {
    term.unit = Unit::kTime;
    units = &TimeUnits();
  } else if (Find(ByteUnits(), unit) != nullptr) {
    term.unit = Unit::kBytes;
    units = &ByteUnits();
  } else if (Find(RateUnits(), unit) != nullptr) {
    term.unit = Unit::kRate;
    units = &RateUnits();
  }
  if (units == nullptr && !unit.empty() && unit.size() < word.size()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", word, "\": there is no unit \"", unit,
                                                   "\"; there are ", List(TimeUnits()), ", ",
                                                   List(ByteUnits()), ", ", List(RateUnits())));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const double number,
                            ParseNumber(word, units == nullptr ? Words<double>() : *units));
  term.number = number;
  return term;
}

std::string QuantityText(double number, Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return WithUnit(number, TimeUnits());
    case Unit::kBytes:
      return WithUnit(number, ByteUnits());
    case Unit::kRate:
      return WithUnit(number, RateUnits());
    case Unit::kNumber:
      break;
  }
  return NumberText(number);
}

const char* UnitInWords(Unit unit) {
  switch (unit) {
    case Unit::kTime:
      return "a time such as 10us";
    case Unit::kBytes:
      return "a number of bytes such as 25MB";
    case Unit::kRate:
      return "a rate such as 2GB/s";
    case Unit::kNumber:
      break;
  }
  return "a number";
}

}  // namespace seqpoint::whatif
