#include "daemon/whatif/request.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace seqpoint::whatif {
namespace {

template <typename T>
using Words = std::vector<std::pair<const char*, T>>;

const Words<Verb>& Verbs() {
  static const auto* words = new Words<Verb>{
      {"scale", Verb::kScale},   {"set", Verb::kSet},   {"remove", Verb::kRemove},
      {"insert", Verb::kInsert}, {"fuse", Verb::kFuse}, {"capture", Verb::kCapture}};
  return *words;
}
const Words<What>& Whats() {
  static const auto* words = new Words<What>{{"work", What::kWork},
                                             {"kernels", What::kKernels},
                                             {"copies", What::kCopies},
                                             {"memsets", What::kMemsets},
                                             {"collectives", What::kCollectives},
                                             {"launches", What::kLaunches},
                                             {"calls", What::kCalls},
                                             {"gaps", What::kGaps}};
  return *words;
}
const Words<Field>& Fields() {
  static const auto* words =
      new Words<Field>{{"name", Field::kName},         {"in", Field::kIn},
                       {"thread", Field::kThread},     {"stream", Field::kStream},
                       {"duration", Field::kDuration}, {"bytes", Field::kBytes},
                       {"bound", Field::kBound}};
  return *words;
}
const Words<Compare>& Compares() {
  static const auto* words = new Words<Compare>{
      {"~", Compare::kMatches},   {"!~", Compare::kMatchesNot}, {"=", Compare::kEqual},
      {"!=", Compare::kNotEqual}, {"<", Compare::kLess},        {">", Compare::kGreater}};
  return *words;
}
const Words<double>& TimeUnits() {
  static const auto* words = new Words<double>{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  return *words;
}
const Words<double>& ByteUnits() {
  static const auto* words =
      new Words<double>{{"B", 1},      {"KB", 1e3},      {"MB", 1e6},        {"GB", 1e9},
                        {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
  return *words;
}

template <typename T>
const T* Find(const Words<T>& words, std::string_view word) {
  for (const auto& [text, value] : words) {
    if (word == text) return &value;
  }
  return nullptr;
}
template <typename T>
std::string WordOf(const Words<T>& words, T value) {
  for (const auto& [text, known] : words) {
    if (known == value) return text;
  }
  return "";
}
template <typename T>
std::string List(const Words<T>& words) {
  return absl::StrJoin(words, ", ",
                       [](std::string* out, const auto& word) { out->append(word.first); });
}

bool IsText(Field field) {
  return field == Field::kName || field == Field::kIn || field == Field::kThread;
}
const Words<double>& UnitsOf(Field field) {
  static const auto* none = new Words<double>;
  return field == Field::kDuration ? TimeUnits() : field == Field::kBytes ? ByteUnits() : *none;
}

struct Token {
  std::string text;
  bool quoted = false;
};

// Words, numbers, quoted text (\" and \\ inside), and the signs of comparisons.
class Line {
 public:
  Line(int number, std::string_view text) : number_(number), text_(text) {}

  absl::Status Split() {
    size_t at = 0;
    while (at < text_.size()) {
      const char c = text_[at];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        ++at;
      } else if (c == '"') {
        Token token{.quoted = true};
        for (++at; at < text_.size() && text_[at] != '"'; ++at) {
          if (text_[at] == '\\' && at + 1 < text_.size() &&
              (text_[at + 1] == '"' || text_[at + 1] == '\\')) {
            ++at;
          }
          token.text += text_[at];
        }
        if (at == text_.size()) return Wrong("a closing \" is missing");
        ++at;
        tokens_.push_back(std::move(token));
      } else if (IsSign(c)) {
        size_t end = at;
        while (end < text_.size() && IsSign(text_[end])) ++end;
        tokens_.push_back({std::string(text_.substr(at, end - at))});
        at = end;
      } else {
        size_t end = at;
        while (end < text_.size() && text_[end] != '"' && !IsSign(text_[end]) &&
               std::isspace(static_cast<unsigned char>(text_[end])) == 0) {
          ++end;
        }
        tokens_.push_back({std::string(text_.substr(at, end - at))});
        at = end;
      }
    }
    return absl::OkStatus();
  }

  bool done() const { return next_ == tokens_.size(); }
  const Token* Peek() const { return done() ? nullptr : &tokens_[next_]; }
  bool Take(std::string_view word) {
    if (done() || tokens_[next_].quoted || tokens_[next_].text != word) return false;
    ++next_;
    return true;
  }
  const Token* Take() { return done() ? nullptr : &tokens_[next_++]; }

  absl::Status Wrong(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", number_, ": ", what));
  }
  // At the token that would be read next.
  absl::Status Expected(const std::string& what) const {
    return Wrong(absl::StrCat(
        done() ? "it ends" : absl::StrCat("\"", tokens_[next_].text.substr(0, 60), "\""), " where ",
        what, " is expected"));
  }

 private:
  static bool IsSign(char c) {
    return c == '~' || c == '=' || c == '!' || c == '<' || c == '>' || c == '*' || c == '/';
  }
  int number_;
  std::string_view text_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

// "12us", "1.5": the number and the unit behind it.
std::pair<std::string, std::string> SplitUnit(const std::string& text) {
  const size_t unit = text.find_first_not_of("0123456789.+-");
  if (unit == std::string::npos) return {text, ""};
  // 1e6 is a number.
  if ((text[unit] == 'e' || text[unit] == 'E') && unit > 0 && unit + 1 < text.size() &&
      text.find_first_not_of("0123456789.+-", unit + 1) == std::string::npos) {
    return {text, ""};
  }
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

class Parser {
 public:
  explicit Parser(Line* line) : line_(line) {}

  absl::StatusOr<Step> ParseStep() {
    Step step;
    const Token* verb = line_->Peek();
    const Verb* known = verb == nullptr || verb->quoted ? nullptr : Find(Verbs(), verb->text);
    if (known == nullptr) {
      return line_->Expected(absl::StrCat("one of ", List(Verbs())));
    }
    line_->Take();
    step.verb = *known;
    if (absl::Status status = Rest(&step); !status.ok()) return status;
    if (!line_->done()) return line_->Expected("the end of the step");
    return step;
  }

 private:
  absl::Status Rest(Step* step) {
    absl::Status status;
    switch (step->verb) {
      case Verb::kScale:
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        if (!line_->Take("by")) return line_->Expected("\"by FACTOR\"");
        return ParseAmount(/*time=*/false, &step->amount);
      case Verb::kSet:
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        if (!line_->Take("to")) return line_->Expected("\"to TIME\"");
        return ParseAmount(/*time=*/true, &step->amount);
      case Verb::kRemove:
      case Verb::kCapture:
        return ParseSelection(&step->selection);
      case Verb::kInsert:
        status = ParseName(&step->name);
        if (!status.ok()) return status;
        if (!line_->Take("of")) return line_->Expected("\"of TIME\"");
        status = ParseAmount(/*time=*/true, &step->amount);
        if (!status.ok()) return status;
        step->before = line_->Take("before");
        if (!step->before && !line_->Take("after")) {
          return line_->Expected("\"before\" or \"after\"");
        }
        return ParseSelection(&step->selection);
      case Verb::kFuse:
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        if (!line_->Take("into")) return line_->Expected("\"into \"NAME\"\"");
        return ParseName(&step->name);
    }
    return absl::OkStatus();
  }

  absl::Status ParseName(std::string* name) {
    const Token* token = line_->Peek();
    if (token == nullptr || !token->quoted || token->text.empty()) {
      return line_->Expected("a name in quotation marks");
    }
    *name = line_->Take()->text;
    return absl::OkStatus();
  }

  absl::Status ParseSelection(Selection* selection) {
    const Token* token = line_->Peek();
    const What* what = token == nullptr || token->quoted ? nullptr : Find(Whats(), token->text);
    if (what == nullptr) return line_->Expected(absl::StrCat("one of ", List(Whats())));
    line_->Take();
    selection->what = *what;
    if (!line_->Take("where")) return absl::OkStatus();
    do {
      Condition& condition = selection->conditions.emplace_back();
      if (absl::Status status = ParseCondition(&condition); !status.ok()) return status;
    } while (line_->Take("and"));
    return absl::OkStatus();
  }

  absl::Status ParseCondition(Condition* condition) {
    const Token* token = line_->Peek();
    const Field* field = token == nullptr || token->quoted ? nullptr : Find(Fields(), token->text);
    if (field == nullptr) return line_->Expected(absl::StrCat("one of ", List(Fields())));
    line_->Take();
    condition->field = *field;
    token = line_->Peek();
    const Compare* compare = token == nullptr ? nullptr : Find(Compares(), token->text);
    if (compare == nullptr) return line_->Expected(absl::StrCat("one of ", List(Compares())));
    const bool ordered = *compare == Compare::kLess || *compare == Compare::kGreater;
    const bool matches = *compare == Compare::kMatches || *compare == Compare::kMatchesNot;
    const bool text = IsText(*field);
    if (text ? ordered : matches) {
      return line_->Wrong(absl::StrCat(WordOf(Fields(), *field),
                                       text ? " is text: " : " is no text: ", token->text,
                                       " does not compare it"));
    }
    if (*field == Field::kBound && ordered) {
      return line_->Wrong("bound is one of compute, memory, latency: it has no order");
    }
    line_->Take();
    condition->compare = *compare;
    token = line_->Peek();
    if (token == nullptr) return line_->Expected("a value");
    if (text) {
      if (!token->quoted) return line_->Expected("text in quotation marks");
      condition->text = line_->Take()->text;
      if (!matches) return absl::OkStatus();
      const RE2 expression(condition->text, RE2::Quiet);
      if (expression.ok()) return absl::OkStatus();
      return line_->Wrong(absl::StrCat("\"", condition->text, "\": ", expression.error()));
    }
    if (*field == Field::kBound) {
      if (token->text != "compute" && token->text != "memory" && token->text != "latency") {
        return line_->Expected("one of compute, memory, latency");
      }
      condition->text = line_->Take()->text;
      return absl::OkStatus();
    }
    const absl::StatusOr<double> number = ParseNumber(token->text, UnitsOf(*field));
    if (!number.ok()) return line_->Wrong(std::string(number.status().message()));
    condition->number = *number;
    line_->Take();
    return absl::OkStatus();
  }

  absl::Status ParseAmount(bool time, Amount* amount) {
    amount->time = time;
    if (absl::Status status = ParseTerm(time, &amount->first); !status.ok()) return status;
    for (const char operation : {'*', '/'}) {
      if (!line_->Take(std::string(1, operation))) continue;
      amount->operation = operation;
      return ParseTerm(/*time=*/false, &amount->second);
    }
    return absl::OkStatus();
  }

  absl::Status ParseTerm(bool time, Amount::Term* term) {
    const Token* token = line_->Peek();
    if (token == nullptr || token->quoted) return line_->Expected(time ? "a time" : "a number");
    if (token->text.size() > 1 && token->text[0] == '$') {
      term->parameter = line_->Take()->text.substr(1);
      return absl::OkStatus();
    }
    const absl::StatusOr<double> number =
        ParseNumber(token->text, time ? TimeUnits() : Words<double>());
    if (!number.ok()) return line_->Wrong(std::string(number.status().message()));
    term->number = *number;
    line_->Take();
    return absl::OkStatus();
  }

  Line* line_;
};

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Shortest text that reads as the same number.
std::string NumberText(double number) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, number);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == number) return text;
  }
  return absl::StrFormat("%.17g", number);
}

// In the largest unit that leaves a short number; `units` ascend.
std::string WithUnit(double number, const Words<double>& units) {
  if (number == 0) return "0";
  for (size_t i = units.size(); i-- > 0;) {
    const double factor = units[i].second;
    const std::string text = absl::StrFormat("%g", number / factor);
    double back = 0;
    if (number >= factor && absl::SimpleAtod(text, &back) && back * factor == number) {
      return text + units[i].first;
    }
  }
  return NumberText(number) + units[0].first;
}

std::string TermText(const Amount::Term& term, bool time) {
  if (!term.parameter.empty()) return "$" + term.parameter;
  return time ? WithUnit(term.number, TimeUnits()) : NumberText(term.number);
}
std::string AmountText(const Amount& amount) {
  std::string text = TermText(amount.first, amount.time);
  if (amount.operation == 0) return text;
  return absl::StrCat(text, std::string(1, amount.operation), TermText(amount.second, false));
}

std::string SelectionText(const Selection& selection) {
  std::string text = WordOf(Whats(), selection.what);
  for (size_t i = 0; i < selection.conditions.size(); ++i) {
    const Condition& condition = selection.conditions[i];
    absl::StrAppend(&text, i == 0 ? " where " : " and ", WordOf(Fields(), condition.field), " ",
                    WordOf(Compares(), condition.compare), " ");
    if (IsText(condition.field)) {
      text += Quoted(condition.text);
    } else if (condition.field == Field::kBound) {
      text += condition.text;
    } else {
      text += condition.field == Field::kDuration ? WithUnit(condition.number, TimeUnits())
              : condition.field == Field::kBytes  ? WithUnit(condition.number, ByteUnits())
                                                  : NumberText(condition.number);
    }
  }
  return text;
}

absl::StatusOr<double> ValueOf(const Amount::Term& term,
                               const std::map<std::string, double>& parameters) {
  if (term.parameter.empty()) return term.number;
  const auto it = parameters.find(term.parameter);
  if (it != parameters.end()) return it->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "the parameter $", term.parameter, " has no value; give ", term.parameter, "=NUMBER"));
}

// Steps end at a line's end, or at a ';' that stands in no text.
std::vector<std::pair<int, std::string_view>> StepTexts(std::string_view text) {
  std::vector<std::pair<int, std::string_view>> steps;
  int line = 1;
  size_t begin = 0;
  bool quoted = false, comment = false;
  size_t end = std::string_view::npos;  // of the step, where a comment follows it
  for (size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : '\n';
    if (c == '\n' || (c == ';' && !quoted && !comment)) {
      const size_t until = std::min(end, at);
      const std::string_view step = text.substr(begin, until - begin);
      if (step.find_first_not_of(" \t\r\n") != std::string_view::npos)
        steps.emplace_back(line, step);
      begin = at + 1;
      end = std::string_view::npos;
      quoted = comment = false;
      if (c == '\n') ++line;
    } else if (!comment && c == '\\' && quoted) {
      ++at;
    } else if (!comment && c == '"') {
      quoted = !quoted;
    } else if (c == '#' && !quoted && !comment) {
      comment = true;
      end = at;
    }
  }
  return steps;
}

}  // namespace

absl::StatusOr<Request> ParseRequest(std::string_view text) {
  Request request;
  for (const auto& [number, step] : StepTexts(text)) {
    Line line(number, step);
    if (absl::Status status = line.Split(); !status.ok()) return status;
    absl::StatusOr<Step> parsed = Parser(&line).ParseStep();
    if (!parsed.ok()) return parsed.status();
    request.steps.push_back(*std::move(parsed));
  }
  if (request.steps.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a what-if needs a step; steps begin with ", List(Verbs())));
  }
  return request;
}

std::string FormatRequest(const Request& request) {
  std::string text;
  for (const Step& step : request.steps) {
    absl::StrAppend(&text, WordOf(Verbs(), step.verb), " ");
    switch (step.verb) {
      case Verb::kScale:
        absl::StrAppend(&text, SelectionText(step.selection), " by ", AmountText(step.amount));
        break;
      case Verb::kSet:
        absl::StrAppend(&text, SelectionText(step.selection), " to ", AmountText(step.amount));
        break;
      case Verb::kInsert:
        absl::StrAppend(&text, Quoted(step.name), " of ", AmountText(step.amount),
                        step.before ? " before " : " after ", SelectionText(step.selection));
        break;
      case Verb::kFuse:
        absl::StrAppend(&text, SelectionText(step.selection), " into ", Quoted(step.name));
        break;
      default:
        text += SelectionText(step.selection);
    }
    text += "\n";
  }
  return text;
}

std::string FormatSelection(const Selection& selection) { return SelectionText(selection); }

absl::StatusOr<double> Evaluate(const Amount& amount,
                                const std::map<std::string, double>& parameters) {
  absl::StatusOr<double> value = ValueOf(amount.first, parameters);
  if (!value.ok()) return value;
  if (amount.operation != 0) {
    const absl::StatusOr<double> second = ValueOf(amount.second, parameters);
    if (!second.ok()) return second;
    *value = amount.operation == '*' ? *value * *second : *value / *second;
  }
  if (!std::isfinite(*value) || *value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(AmountText(amount), " is ", *value, ", not a number from 0 on"));
  }
  return value;
}

absl::StatusOr<double> ParseTimeNs(std::string_view text) {
  std::string joined;  // "1.5 ms"
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) joined += c;
  }
  return ParseNumber(joined, TimeUnits());
}

}  // namespace seqpoint::whatif
