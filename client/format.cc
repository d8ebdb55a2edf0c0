#include "client/format.h"

#include <cxxabi.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace seqpoint::client {
namespace {

struct Scale {
  double factor;
  std::string name;
};

// The unit in which `value` has one to three digits before the point.
Scale ScaleFor(double value, std::string_view unit) {
  value = std::abs(value);
  if (unit == "ns") {
    struct TimeUnit {
      double ns;
      const char* name;
    };
    constexpr TimeUnit kUnits[] = {{86'400e9, "d"}, {3'600e9, "h"}, {60e9, "min"}, {1e9, "s"},
                                   {1e6, "ms"},     {1e3, "us"},    {1, "ns"}};
    for (const TimeUnit& candidate : kUnits) {
      // From two minutes, hours and days on: "90 s" says more than "1.5 min".
      double from = candidate.ns * (candidate.ns >= 60e9 ? 2 : 1);
      if (value >= from || candidate.ns == 1) return {candidate.ns, candidate.name};
    }
  }
  std::string base(unit);
  if (unit == "1") base = "";
  if (unit == "bytes") base = "B";
  if (unit == "%") return {1, "%"};
  // Words ("instructions") stand apart from the prefix, symbols (B, Hz) do not.
  if (base.size() > 3 && base.find('/') == std::string::npos) base.insert(0, " ");
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  int power = 0;
  for (; power < 6 && value >= std::pow(1000.0, power + 1); ++power) {
  }
  std::string name = kPrefixes[power] + base;
  return {std::pow(1000.0, power), std::string(absl::StripLeadingAsciiWhitespace(name))};
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

std::string Cut(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  if (width <= 3) return text.substr(0, width);
  return absl::StrCat(text.substr(0, width - 3), "...");
}

std::string EnumWord(const std::string& name, std::string_view prefix) {
  return absl::AsciiStrToLower(name.substr(std::min(prefix.size(), name.size())));
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

std::string FormatShare(double share) {
  double percent = share * 100;
  int decimals = std::abs(percent) >= 10 || percent == 0 ? 1 : 2;
  return absl::StrFormat("%.*f %%", decimals, percent);
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
  Scale scale = ScaleFor(value, unit);
  return WithUnit(value, scale, Decimals(value / scale.factor));
}

FormattedEstimate FormatEstimate(const v1::Estimate& estimate, std::string_view unit) {
  double half = (estimate.high() - estimate.low()) / 2;
  if (!(half > 0)) return {FormatQuantity(estimate.value(), unit), "exact", ""};
  Scale scale = ScaleFor(estimate.value(), unit);
  // Two significant digits of the half-width, at most six decimals.
  int decimals = static_cast<int>(1 - std::floor(std::log10(half / scale.factor)));
  decimals = std::clamp(decimals, 0, 6);
  FormattedEstimate result;
  result.value = WithUnit(estimate.value(), scale, decimals);
  result.interval = absl::StrFormat("%.*f to %s", decimals, estimate.low() / scale.factor,
                                    WithUnit(estimate.high(), scale, decimals));
  if (estimate.value() != 0) {
    double percent = half / std::abs(estimate.value()) * 100;
    result.precision = absl::StrFormat("+-%.*f %%", percent < 10 ? 2 : 0, percent);
  }
  return result;
}

std::string JobStateName(v1::JobState state) {
  return EnumWord(v1::JobState_Name(state), "JOB_STATE_");
}
std::string FeatureStateName(v1::FeatureState state) {
  return EnumWord(v1::FeatureState_Name(state), "FEATURE_STATE_");
}
std::string LevelName(v1::Level level) { return EnumWord(v1::Level_Name(level), "LEVEL_"); }

std::string JobTitle(const v1::Job& job) {
  return absl::StrCat(job.name(), "@", job.run_id(), " (job ", job.id(), ")");
}

std::string FormatLosses(const v1::Losses& losses) {
  std::string text;
  auto add = [&](int64_t count, const char* one, const char* many) {
    if (count == 0) return;
    absl::StrAppend(&text, text.empty() ? "" : ", ", FormatCount(count), " ",
                    count == 1 ? one : many);
  };
  add(losses.distorted_iterations(), "distorted iteration", "distorted iterations");
  add(losses.redone_iterations(), "redone iteration", "redone iterations");
  add(losses.untimed_iterations(), "iteration without a time", "iterations without a time");
  add(losses.refused_measurements(), "refused measurement", "refused measurements");
  add(losses.ring_dropped(), "record dropped by a full ring", "records dropped by a full ring");
  add(losses.ring_lost(), "record missing", "records missing");
  add(losses.cupti_dropped(), "record dropped by CUPTI", "records dropped by CUPTI");
  add(losses.rejected(), "malformed record", "malformed records");
  add(losses.invalid_timestamps(), "invalid timestamp", "invalid timestamps");
  return text;
}

std::string ProgressLine(const v1::Job& job, int width) {
  std::string text = absl::StrCat(job.name(), ": ");
  if (job.state() == v1::JOB_STATE_WAITING) {
    text += "waiting for the first CUDA call";
  } else if (job.state() == v1::JOB_STATE_LEARNING && job.iterations() == 0) {
    text += "learning where an iteration begins";
  } else {
    absl::StrAppend(&text, FormatCount(job.iterations()));
    if (job.time().iterations_total() > 0) {
      absl::StrAppend(&text, " of ", FormatCount(job.time().iterations_total()));
    }
    absl::StrAppend(&text, " iterations, ", FormatCount(job.unique_lengths()), " lengths, ",
                    job.seqpoints().measured(), "/", job.seqpoints().seqpoints(), " SeqPoints");
    if (job.time().has_total()) {
      FormattedEstimate total = FormatEstimate(job.time().total(), "ns");
      absl::StrAppend(&text, ", whole run ", total.value, " (", total.interval, ")");
    } else if (job.time().has_per_1000_iterations()) {
      FormattedEstimate per_1000 = FormatEstimate(job.time().per_1000_iterations(), "ns");
      absl::StrAppend(&text, ", per 1,000 iterations ", per_1000.value, " ", per_1000.precision);
    }
  }
  if (job.state() == v1::JOB_STATE_PAUSED) text += ", paused";
  if (job.state() == v1::JOB_STATE_ENDED) text += ", ended";
  if (job.state() == v1::JOB_STATE_LOST) text += ", lost";
  if (!job.trouble().empty()) absl::StrAppend(&text, " - ", job.trouble());
  return Cut(text, static_cast<size_t>(std::max(width, 1)));
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
  std::vector<size_t> widths(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    for (const auto& row : rows_) widths[i] = std::max(widths[i], row[i].size());
    if (widths[i] == 0 && !rows_.empty()) continue;
    widths[i] = std::max(widths[i], columns_[i].title.size());
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
                      columns_[i].align == kRight ? fill + content : content + fill);
    }
    absl::StrAppend(&text, std::string(absl::StripTrailingAsciiWhitespace(line)), "\n");
  };
  add_line([&](size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) add_line([&](size_t i) { return row[i]; });
  return text;
}

}  // namespace seqpoint::client
