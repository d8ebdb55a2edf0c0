#include "client/format.h"

#include <cxxabi.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/utf8.h"

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

std::string FormatCount(int64_t count, const std::string& noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

std::string FormatShare(double share) {
  double percent = share * 100;
  if (percent > 0 && percent < 0.01) return "< 0.01 %";
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

std::string FormatEnd(const v1::ExpectedEnd& end) {
  const std::string day = FormatTime(end.time_ns()).substr(0, 10);
  const auto clock = [&](int64_t epoch_ns) {
    const std::string text = FormatTime(epoch_ns);
    return text.substr(0, 10) == day ? text.substr(11) : text;
  };
  return absl::StrCat(FormatTime(end.time_ns()), " (", clock(end.low_ns()), " to ",
                      clock(end.high_ns()), ")");
}

std::string FormatQuantity(double value, std::string_view unit) {
  return Quantity(value, unit, /*down=*/false);
}

FormattedEstimate FormatEstimate(const v1::Estimate& estimate, std::string_view unit) {
  if (std::isinf(estimate.high())) {
    return {Quantity(estimate.low(), unit, /*down=*/true), "or more", ""};
  }
  double half = (estimate.high() - estimate.low()) / 2;
  if (!(half > 0)) return {FormatQuantity(estimate.value(), unit), "exact", ""};
  FormattedEstimate result;
  if (unit == "ns" && std::abs(estimate.value()) >= 2 * kMinuteNs) {
    // Two significant digits of the half-width.
    double resolution_ns = std::pow(10, std::floor(std::log10(half)) - 1);
    result.value = LongDuration(estimate.value(), resolution_ns);
    result.interval = absl::StrCat(LongDuration(estimate.low(), resolution_ns), " to ",
                                   LongDuration(estimate.high(), resolution_ns));
  } else {
    Scale scale = ScaleFor(estimate.value(), unit);
    int decimals = static_cast<int>(1 - std::floor(std::log10(half / scale.factor)));
    decimals = std::clamp(decimals, 0, 6);
    result.value = WithUnit(estimate.value(), scale, decimals);
    result.interval = absl::StrFormat("%.*f to %s", decimals, estimate.low() / scale.factor,
                                      WithUnit(estimate.high(), scale, decimals));
  }
  if (estimate.value() != 0) {
    // The value may be an end of its interval.
    const double reach =
        std::max(estimate.high() - estimate.value(), estimate.value() - estimate.low());
    double percent = reach / std::abs(estimate.value()) * 100;
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

std::string JobStateName(v1::JobState state) {
  if (state == v1::JOB_STATE_LOST) return "interrupted";
  return EnumWord(v1::JobState_Name(state), "JOB_STATE_");
}
std::string JobEndText(const v1::Job& job) {
  std::string text = JobStateName(job.state());
  if (job.has_signal()) {
    absl::StrAppend(&text, ": signal ", job.signal(), " (", strsignal(job.signal()), ")");
  } else if (job.has_exit_status() && job.exit_status() != 0) {
    absl::StrAppend(&text, ": exit status ", job.exit_status());
  }
  return text;
}
std::string FeatureText(const v1::Process& process, const v1::Feature& feature) {
  const std::string& sentence = feature.sentence();
  return absl::StrCat(
      "rank ", process.rank(), ", ", feature.name(), ": ",
      sentence.empty() ? EnumWord(v1::FeatureState_Name(feature.state()), "FEATURE_STATE_")
                       : sentence,
      // Others than those of a failure tell a program what the sentence tells people.
      feature.state() == v1::FEATURE_STATE_FAILED && feature.code() != 0
          ? absl::StrCat(" (error ", feature.code(), ")")
          : "");
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
  add(losses.uncounted_processes(), "process not read completely (figures are lower bounds)",
      "processes not read completely (figures are lower bounds)");
  return text;
}

std::string ProgressLine(const v1::Job& job, int width) {
  std::string text = absl::StrCat(job.name(), ": ");
  if (job.state() == v1::JOB_STATE_WAITING) {
    text += "waiting for the program to train";
  } else if (job.state() == v1::JOB_STATE_LEARNING && job.iterations() == 0) {
    text += "learning where an iteration begins";
  } else {
    absl::StrAppend(&text, FormatCount(job.iterations()));
    if (job.time().iterations_total() > 0) {
      absl::StrAppend(&text, " of ", FormatCount(job.time().iterations_total()));
    }
    absl::StrAppend(&text, " iterations, ", FormatCount(job.unique_lengths()), " lengths");
    if (!job.time_only().empty()) {
      text += ", time only";
    } else if (!job.imported()) {
      absl::StrAppend(&text, ", ", job.seqpoints().measured(), "/", job.seqpoints().seqpoints(),
                      " SeqPoints");
    }
    if (job.time().has_total()) {
      FormattedEstimate total = FormatEstimate(job.time().total(), "ns");
      absl::StrAppend(&text, ", whole run ", total.value, " (", total.interval, ")");
      if (job.has_expected_end()) {
        absl::StrAppend(&text, ", ends ", FormatEnd(job.expected_end()).substr(11));
      }
    } else if (job.time().has_per_1000_iterations()) {
      FormattedEstimate per_1000 = FormatEstimate(job.time().per_1000_iterations(), "ns");
      absl::StrAppend(&text, ", per 1,000 iterations ", per_1000.value, " ", per_1000.precision);
    }
  }
  if (job.state() == v1::JOB_STATE_PAUSED || job.state() == v1::JOB_STATE_RELEASED || IsOver(job)) {
    absl::StrAppend(&text, ", ", JobEndText(job));
  }
  if (!job.trouble().empty()) absl::StrAppend(&text, " - ", job.trouble());
  return Cut(text, static_cast<size_t>(std::max(width, 1)));
}

bool IsOver(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_ENDED || job.state() == v1::JOB_STATE_LOST ||
         job.state() == v1::JOB_STATE_FAILED;
}

int64_t EndedBefore(const v1::Job& job) {
  if (!IsOver(job)) return 0;
  if (job.losses().uncounted_processes() > 0) return 0;  // nobody knows
  int64_t wanted = job.time().iterations_total();
  if (wanted == 0 && job.horizon().kind() == v1::Horizon::KIND_ITERATIONS) {
    wanted = job.horizon().iterations();
  }
  return wanted > job.iterations() ? wanted : 0;
}

std::string EndedBeforeText(const v1::Job& job) {
  int64_t wanted = EndedBefore(job);
  if (wanted == 0) return "";
  return absl::StrCat("the run ended after ", FormatCount(job.iterations()), " of ",
                      FormatCount(wanted), " iterations");
}

std::string Printable(const std::string& text) {
  std::string result;
  for (std::string_view left = text; !left.empty();) {
    const size_t size = CharacterBytes(left);
    const auto first = static_cast<unsigned char>(left[0]);
    if (size == 0 || (absl::ascii_iscntrl(first) && first != '\n')) {
      absl::StrAppendFormat(&result, "\\x%02x", first);
      left.remove_prefix(1);
    } else {
      result += left.substr(0, size);
      left.remove_prefix(size);
    }
  }
  return result;
}

void MakePrintable(google::protobuf::Message* message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection* reflection = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) {
    bool text = field->type() == FieldDescriptor::TYPE_STRING;
    if (!text && field->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (text) {
        reflection->SetString(message, field, Printable(reflection->GetString(*message, field)));
      } else {
        MakePrintable(reflection->MutableMessage(message, field));
      }
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      if (text) {
        reflection->SetRepeatedString(message, field, i,
                                      Printable(reflection->GetRepeatedString(*message, field, i)));
      } else {
        MakePrintable(reflection->MutableRepeatedMessage(message, field, i));
      }
    }
  }
}

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
