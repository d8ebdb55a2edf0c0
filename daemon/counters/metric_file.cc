#include "daemon/counters/metric_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/utf8.h"

namespace seqpoint::counters {
namespace {

constexpr size_t kMaxShown = 100;  // of a value, in a message

std::string Quoted(absl::string_view value) {
  return absl::StrCat("\"", value.substr(0, kMaxShown), value.size() > kMaxShown ? "..." : "",
                      "\"");
}

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Is it text? Bytes of other encodings and control characters would go to people's terminals.
bool IsText(std::string_view line) {
  while (!line.empty()) {
    const size_t size = CharacterBytes(line);
    const auto byte = static_cast<unsigned char>(line[0]);
    const bool control = size == 1   ? (byte < 0x20 && byte != '\t' && byte != '\r') || byte == 0x7f
                         : size == 2 ? byte == 0xc2 && static_cast<unsigned char>(line[1]) < 0xa0
                                     : false;
    if (size == 0 || control) return false;
    line.remove_prefix(size);
  }
  return true;
}

// "2 * a + b", or "(2 * a + b)". `divided`: next to a "/", where a sum needs parentheses to be read
// as it is meant.
absl::StatusOr<std::vector<Term>> ParseTerms(absl::string_view text, bool divided) {
  std::vector<Term> terms;
  text = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&text, "(")) {
    if (!absl::ConsumeSuffix(&text, ")")) {
      return Wrong(absl::StrCat("a \")\" is missing at the end of ", Quoted(text)));
    }
  } else if (divided && absl::StrContains(text, "+")) {
    return Wrong(absl::StrCat("beside \"/\" a sum stands in parentheses: write ",
                              Quoted(absl::StrCat("(", text, ")"))));
  }
  for (absl::string_view part : absl::StrSplit(text, '+')) {
    Term term;
    const std::vector<absl::string_view> factors = absl::StrSplit(part, '*');
    absl::string_view metric = absl::StripAsciiWhitespace(factors.back());
    if (factors.size() > 2 ||
        (factors.size() == 2 &&
         (!absl::SimpleAtod(absl::StripAsciiWhitespace(factors[0]), &term.weight) ||
          !std::isfinite(term.weight)))) {
      return Wrong(absl::StrCat(Quoted(absl::StripAsciiWhitespace(part)),
                                " is neither METRIC nor NUMBER * METRIC"));
    }
    if (metric.empty()) return Wrong("a metric is missing beside \"+\" or \"/\"");
    term.metric = std::string(metric);
    terms.push_back(std::move(term));
  }
  return terms;
}

}  // namespace

absl::StatusOr<Ratio> ParseRatio(absl::string_view text) {
  constexpr absl::string_view kForm =
      " is not of the form NAME (UNIT): METRIC + METRIC / METRIC, as in \"hits (%): "
      "100 * a.sum / (a.sum + b.sum)\"";
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return Wrong(absl::StrCat(Quoted(text), kForm));
  Ratio ratio;
  absl::string_view name = absl::StripAsciiWhitespace(text.substr(0, colon));
  if (absl::ConsumeSuffix(&name, ")")) {
    const size_t open = name.rfind('(');
    if (open == absl::string_view::npos) return Wrong(absl::StrCat(Quoted(text), kForm));
    ratio.unit = std::string(name.substr(open + 1));
    name = absl::StripAsciiWhitespace(name.substr(0, open));
  }
  if (name.empty()) return Wrong(absl::StrCat(Quoted(text), kForm));
  ratio.name = std::string(name);
  const std::vector<absl::string_view> sides = absl::StrSplit(text.substr(colon + 1), '/');
  if (sides.size() > 2) return Wrong(absl::StrCat(Quoted(text), kForm));
  const bool divided = sides.size() == 2;
  auto numerator = ParseTerms(sides[0], divided);
  if (!numerator.ok()) return numerator.status();
  ratio.numerator = *std::move(numerator);
  if (!divided) return ratio;
  auto denominator = ParseTerms(sides[1], divided);
  if (!denominator.ok()) return denominator.status();
  ratio.denominator = *std::move(denominator);
  return ratio;
}

namespace {

class Parser {
 public:
  absl::Status Line(absl::string_view line) {
    if (!IsText({line.data(), line.size()})) {
      return Wrong(
          "is no line of UTF-8 text: write the file in an editor, without control "
          "characters");
    }
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) return absl::OkStatus();
    if (absl::ConsumePrefix(&line, "[")) {
      if (!absl::ConsumeSuffix(&line, "]")) return Wrong("a \"]\" is missing: write [NAME]");
      return Begin(std::string(absl::StripAsciiWhitespace(line)));
    }
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts.first);
    const absl::string_view value = absl::StripAsciiWhitespace(parts.second);
    if (!absl::StrContains(line, "=") ||
        (key != "description" && key != "config" && key != "ratio")) {
      return Wrong(absl::StrCat(Quoted(line),
                                " is none of [NAME], description = TEXT, config = "
                                "METRIC, METRIC, ... and ratio = NAME (UNIT): METRIC / METRIC"));
    }
    if (sets.empty()) return Wrong("stands before the first set: begin with a line [NAME]");
    if (value.empty()) return Wrong(absl::StrCat(key, " is empty"));
    OwnSet& set = sets.back();
    if (key == "description") {
      set.description = std::string(value);
    } else if (key == "config") {
      std::vector<std::string>& config = set.configs.emplace_back();
      for (absl::string_view metric : absl::StrSplit(value, ',')) {
        metric = absl::StripAsciiWhitespace(metric);
        if (auto known = OwnMetric({metric.data(), metric.size()}); !known.ok()) {
          return known.status();
        }
        if (std::find(config.begin(), config.end(), metric) != config.end()) {
          return Wrong(absl::StrCat(Quoted(metric), " stands here twice; once is enough"));
        }
        config.emplace_back(metric);
      }
    } else {
      auto ratio = ParseRatio(value);
      if (!ratio.ok()) return ratio.status();
      set.ratios.push_back(*std::move(ratio));
      ratio_lines_.push_back(this->line);
    }
    return absl::OkStatus();
  }

  // Checks a set at its end. `line`: the line that an error names.
  absl::Status Finish(int* line) const {
    if (sets.empty()) return absl::OkStatus();
    *line = set_line;
    OwnSet set = sets.back();
    const std::vector<Ratio> ratios = std::exchange(set.ratios, {});
    absl::Status status = CheckOwnSet(set);
    for (size_t i = 0; status.ok() && i < ratios.size(); ++i) {
      *line = ratio_lines_[i];
      set.ratios.push_back(ratios[i]);
      status = CheckOwnSet(set);
    }
    return status;
  }

  std::vector<OwnSet> sets;
  int line = 0;      // that is being read
  int set_line = 0;  // where the last set begins

 private:
  absl::Status Begin(std::string name) {
    int wrong_line = 0;
    if (absl::Status status = Finish(&wrong_line); !status.ok()) {
      line = wrong_line;
      return status;
    }
    for (const MetricSet& shipped : MetricSets("", Backend::kRange)) {
      if (shipped.name == name) {
        return Wrong(absl::StrCat("\"", name, "\" is the name of a shipped set; take another"));
      }
    }
    for (const OwnSet& set : sets) {
      if (set.name == name) {
        return Wrong(absl::StrCat("\"", name, "\" is here twice; take another name"));
      }
    }
    sets.push_back({.name = std::move(name)});
    set_line = line;
    ratio_lines_.clear();
    return absl::OkStatus();
  }

  std::vector<int> ratio_lines_;  // of the last set
};

}  // namespace

absl::StatusOr<std::vector<OwnSet>> ParseMetricFile(std::string_view text, std::string_view name) {
  const auto at = [&](int line, const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(name), ":", line, ": ", status.message()));
  };
  if (text.size() > kMaxMetricFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(name), ": more than ", kMaxMetricFileBytes, " bytes are no list of metrics"));
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());
  }
  Parser parser;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++parser.line;
    if (absl::Status status = parser.Line(line); !status.ok()) return at(parser.line, status);
  }
  int wrong_line = 0;
  if (absl::Status status = parser.Finish(&wrong_line); !status.ok()) return at(wrong_line, status);
  if (parser.sets.empty()) {
    return at(parser.line, Wrong("there is no metric set: begin with a line [NAME]"));
  }
  return std::move(parser.sets);
}

}  // namespace seqpoint::counters
