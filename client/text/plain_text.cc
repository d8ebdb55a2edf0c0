#include "client/text/plain_text.h"

#include <cxxabi.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/printable.h"

namespace seqpoint::client {
namespace {

constexpr size_t kQuotedBytes = 60;

struct Scale {
  double factor;
  std::string name;
};

// The unit in which `value` has one to three digits before the point.
Scale ScaleFor(double value, std::string_view unit) {
  value = std::abs(value);
  if (unit == "ns") {
    for (auto [ns, name] : {std::pair(1e9, "s"), {1e6, "ms"}, {1e3, "us"}}) {
      if (value >= ns) return {ns, name};
    }
    return {1, "ns"};
  }
  std::string base(unit);
  if (unit == "1") base = "";
  if (unit == "bytes") base = "B";
  if (unit == "%") return {1, "%"};
  double size = 1;
  if (unit == "GB/s") {
    base = "B/s";
    size = 1e9;
  }
  value *= size;
  // Words ("instructions") stand apart from the prefix, symbols (B, Hz) do not.
  if (base.size() > 3 && base.find('/') == std::string::npos) base = absl::StrCat(" ", base);
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int power = 0;
  for (; power < 6 && value >= std::pow(1000.0, power + 1); ++power) {
  }
  std::string name = absl::StrCat(kPrefixes[power], base);
  return {std::pow(1000.0, power) / size, std::string(absl::StripLeadingAsciiWhitespace(name))};
}

// Digits after the point for about four significant digits.
int Decimals(double scaled) {
  if (scaled == 0 || scaled == std::floor(scaled)) return scaled < 1000 ? 0 : 1;
  int digits = static_cast<int>(std::floor(std::log10(std::abs(scaled))));
  return std::clamp(3 - digits, 0, 6);
}

std::string WithUnit(double value, const Scale& scale, int decimals) {
  std::string number = absl::StrFormat("%.*f", decimals, value / scale.factor);
  return scale.name.empty() ? number : absl::StrCat(number, " ", scale.name);
}

constexpr double kMinuteNs = 60e9;

// The nearest whole number, or the one below. What differs by the rounding of doubles alone is the
// number itself.
double Whole(double value, bool down) {
  return down ? std::floor(value + std::abs(value) * 1e-12) : std::round(value);
}

// "3 min 20.0 s", "2 h 15 min", "3 d 4 h": what is smaller than `resolution_ns` is left out.
std::string LongDuration(double ns, double resolution_ns, bool down = false) {
  constexpr double kMostMs = 9e18;
  int64_t step_ms = 1;
  for (int64_t step : {10, 100, 1'000, 60'000, 3'600'000}) {
    if (resolution_ns >= static_cast<double>(step) * 1e6) step_ms = step;
  }
  double steps = Whole(std::min(std::abs(ns) * 1e-6, kMostMs) / static_cast<double>(step_ms), down);
  int64_t left_ms = static_cast<int64_t>(steps) * step_ms;
  std::string text;
  for (auto [ms, name] : {std::pair(86'400'000, "d"), {3'600'000, "h"}, {60'000, "min"}}) {
    if (ms < step_ms || (text.empty() && left_ms < ms)) continue;
    absl::StrAppend(&text, text.empty() ? "" : " ", left_ms / ms, " ", name);
    left_ms %= ms;
  }
  if (step_ms <= 1'000) {
    int decimals = step_ms == 1'000 ? 0 : step_ms == 100 ? 1 : step_ms == 10 ? 2 : 3;
    absl::StrAppendFormat(&text, "%s%.*f s", text.empty() ? "" : " ", decimals,
                          static_cast<double>(left_ms) * 1e-3);
  }
  if (text.empty()) text = "0 min";
  return absl::StrCat(ns < 0 ? "-" : "", text);
}

// `down`: a bound, which the text must not exceed.
std::string Quantity(double value, std::string_view unit, bool down) {
  if (unit == "ns" && std::abs(value) >= 2 * kMinuteNs) {
    return LongDuration(value, std::abs(value) / 2'000, down);  // three to four digits
  }
  Scale scale = ScaleFor(value, unit);
  const int decimals = Decimals(value / scale.factor);
  const double step = scale.factor / std::pow(10, decimals);
  return WithUnit(down ? Whole(value / step, down) * step : value, scale, decimals);
}

}  // namespace

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  size_t first = count < 0 ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatCount(int64_t count, const std::string& noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

std::string FormatShare(double share) {
  double percent = share * 100;
  if (percent > 0 && percent < 0.01) return "< 0.01 %";
  int decimals = std::abs(percent) >= 10 || percent == 0 ? 1 : 2;
  return absl::StrFormat("%.*f %%", decimals, percent);
}

std::string FormatRoundedShare(double share) {
  const double percent = 100 * share;
  return absl::StrFormat("%.*f %%", std::abs(percent) < 9.95 ? 1 : 0, percent);
}

std::string FormatTime(int64_t epoch_ns) {
  if (epoch_ns == 0) return "-";
  time_t seconds = epoch_ns / 1'000'000'000;
  tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string FormatQuantity(double value, std::string_view unit) {
  return Quantity(value, unit, /*down=*/false);
}

FormattedEstimate FormatInterval(double value, double low, double high, std::string_view unit) {
  if (std::isinf(high)) {
    return {Quantity(low, unit, /*down=*/true), "or more", ""};
  }
  double half = (high - low) / 2;
  if (!(half > 0)) return {FormatQuantity(value, unit), "exact", ""};
  FormattedEstimate result;
  if (unit == "ns" && std::abs(value) >= 2 * kMinuteNs) {
    // Two significant digits of the half-width.
    double resolution_ns = std::pow(10, std::floor(std::log10(half)) - 1);
    result.value = LongDuration(value, resolution_ns);
    result.interval =
        absl::StrCat(LongDuration(low, resolution_ns), " to ", LongDuration(high, resolution_ns));
  } else {
    Scale scale = ScaleFor(value, unit);
    int decimals = static_cast<int>(1 - std::floor(std::log10(half / scale.factor)));
    decimals = std::clamp(decimals, 0, 6);
    result.value = WithUnit(value, scale, decimals);
    result.interval = absl::StrFormat("%.*f to %s", decimals, low / scale.factor,
                                      WithUnit(high, scale, decimals));
  }
  if (value != 0) {
    // The value may be an end of its interval.
    const double reach = std::max(high - value, value - low);
    double percent = reach / std::abs(value) * 100;
    result.precision =
        percent < 0.01 ? "+-<0.01 %" : absl::StrFormat("+-%.*f %%", percent < 10 ? 2 : 0, percent);
  }
  return result;
}

std::string FormatReach(double share) {
  const double percent = share * 100;
  if (percent < 1e-9) return "+-0 %";
  return percent < 100 ? absl::StrFormat("+-%.2g %%", percent)
                       : absl::StrFormat("+-%s %%", FormatCount(std::llround(percent)));
}

std::string Cut(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  if (width <= 3) return text.substr(0, width);
  return absl::StrCat(text.substr(0, width - 3), "...");
}

std::string Printable(const std::string& text) { return EscapeUnprintable(text, LineEnds::kKept); }

std::string Quote(const std::string& text) {
  return absl::StrCat("\"", Cut(Printable(text), kQuotedBytes), "\"");
}

std::string Wrap(const std::string& first, const std::string& text, int width) {
  std::string result, line = first;
  bool begun = false;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' '))) {
    if (begun && width > 0 && line.size() + 1 + word.size() > static_cast<size_t>(width)) {
      absl::StrAppend(&result, line, "\n");
      line = std::string(first.size(), ' ');
      begun = false;
    }
    absl::StrAppend(&line, begun ? " " : "", word);
    begun = true;
  }
  return absl::StrCat(result, line, "\n");
}

std::string Demangle(const std::string& name) {
  if (name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  std::unique_ptr<char, decltype(&free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &free);
  return status == 0 ? plain.get() : name;
}

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::ToString(int max_width) const {
  std::vector<size_t> shown;
  std::vector<size_t> widths(titles_.size());
  const auto is_right = [&](size_t i) { return absl::StartsWith(titles_[i], ">"); };
  const auto title = [&](size_t i) { return titles_[i].substr(is_right(i) ? 1 : 0); };
  for (size_t i = 0; i < titles_.size(); ++i) {
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
    if (widths[i] == 0 && !rows_.empty()) continue;
    widths[i] = std::max(widths[i], title(i).size());
    shown.push_back(i);
  }
  if (max_width > 0 && !shown.empty()) {
    size_t before = 0;
    for (size_t i : shown) before += i == shown.back() ? 0 : widths[i] + 2;
    size_t left = static_cast<size_t>(max_width) > before ? max_width - before : 0;
    size_t& last = widths[shown.back()];
    last = std::min(last, std::max<size_t>(left, 16));
  }
  std::string text;
  auto add_line = [&](auto cell) {
    std::string line;
    for (size_t i : shown) {
      std::string content = Cut(cell(i), widths[i]);
      std::string fill(widths[i] - content.size(), ' ');
      absl::StrAppend(&line, line.empty() ? "" : "  ",
                      is_right(i) ? fill + content : content + fill);
    }
    absl::StrAppend(&text, std::string(absl::StripTrailingAsciiWhitespace(line)), "\n");
  };
  add_line(title);
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
  return text;
}

}  // namespace seqpoint::client
