#include "daemon/whatif/request.h"

#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {
namespace {

constexpr int kMostNested = 4;  // functions

template <typename T>
using Words = std::vector<std::pair<const char*, T>>;

const Words<Verb>& Verbs() {
  static const auto* words = new Words<Verb>{
      {"scale", Verb::kScale},          {"set", Verb::kSet},   {"remove", Verb::kRemove},
      {"insert", Verb::kInsert},        {"fuse", Verb::kFuse}, {"capture", Verb::kCapture},
      {"reschedule", Verb::kReschedule}};
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
                                             {"gaps", What::kGaps},
                                             {"iterations", What::kIterations}};
  return *words;
}
const Words<Field>& Fields() {
  static const auto* words =
      new Words<Field>{{"name", Field::kName},         {"in", Field::kIn},
                       {"thread", Field::kThread},     {"stream", Field::kStream},
                       {"duration", Field::kDuration}, {"bytes", Field::kBytes},
                       {"bound", Field::kBound},       {"phase", Field::kPhase},
                       {"counter", Field::kCounter}};
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
      new Words<double>{{"B", 1},     {"KB", 1e3},   {"MB", 1e6},      {"GB", 1e9},
                        {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
  return *words;
}

// Bytes per nanosecond.
const Words<double>& RateUnits() {
  static const auto* words =
      new Words<double>{{"B/s", 1e-9}, {"KB/s", 1e-6}, {"MB/s", 1e-3}, {"GB/s", 1}, {"TB/s", 1e3}};
  return *words;
}
const Words<Made>& Mades() {
  static const auto* words = new Words<Made>{{"kernel", Made::kKernel},
                                             {"copy", Made::kCopy},
                                             {"collective", Made::kCollective},
                                             {"call", Made::kCall}};
  return *words;
}

double RingNs(double bytes, double workers, double rate, double latency_ns) {
  return 2 * (workers - 1) / workers * bytes / rate + 2 * (workers - 1) * latency_ns;
}
// Models of communication: what they take, in order (docs/whatif.md has the formulas).
struct Function {
  const char* name;
  std::vector<Unit> arguments;
  double (*time_ns)(const std::vector<double>& arguments);
};
const std::vector<Function>& Functions() {
  static const std::vector<Unit> kOneLevel = {Unit::kBytes, Unit::kNumber, Unit::kRate,
                                              Unit::kTime};
  static const auto* functions = new std::vector<Function>{
      {"allreduce_ring", kOneLevel,
       [](const std::vector<double>& a) { return RingNs(a[0], a[1], a[2], a[3]); }},
      {"allreduce_tree", kOneLevel,
       [](const std::vector<double>& a) {
         return a[1] <= 1 ? 0 : 2 * a[0] / a[2] + 2 * std::ceil(std::log2(a[1])) * a[3];
       }},
      {"parameter_server", kOneLevel,
       [](const std::vector<double>& a) {
         return a[1] <= 1 ? 0 : RingNs(a[0], a[1], a[2], 0) + 2 * a[3];
       }},
      {"allreduce_two_level",
       {Unit::kBytes, Unit::kNumber, Unit::kNumber, Unit::kRate, Unit::kRate, Unit::kTime},
       [](const std::vector<double>& a) {
         const double per_host = std::min(a[1], a[2]);
         return RingNs(a[0], per_host, a[3], a[5]) +
                RingNs(a[0] / per_host, a[1] / per_host, a[4], a[5]);
       }}};
  return *functions;
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

bool IsOneOf(Field field, const std::string& word) {
  if (field == Field::kBound) return word == "compute" || word == "memory" || word == "latency";
  return PhaseOf(word).has_value();
}
const char* WordsOf(Field field) {
  return field == Field::kBound ? "one of compute, memory, latency"
                                : "one of forward, backward, optimizer, loading, other, unknown";
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
      } else if (IsAlone(c)) {
        tokens_.push_back({std::string(1, c)});
        ++at;
      } else if (IsSign(c)) {
        size_t end = at;
        while (end < text_.size() && IsSign(text_[end])) ++end;
        tokens_.push_back({std::string(text_.substr(at, end - at))});
        at = end;
      } else {
        size_t end = at;
        while (end < text_.size() && text_[end] != '"' && !IsSign(text_[end]) &&
               !IsAlone(text_[end]) && std::isspace(static_cast<unsigned char>(text_[end])) == 0) {
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
  // Two words or signs that follow each other.
  bool Take(std::string_view word, std::string_view next) {
    if (next_ + 1 >= tokens_.size() || tokens_[next_ + 1].quoted ||
        tokens_[next_ + 1].text != next) {
      return false;
    }
    return Take(word) && Take(next);
  }

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
  static bool IsAlone(char c) { return c == '(' || c == ')' || c == ','; }

  int number_;
  std::string_view text_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

// "12us", "1.5": the number and the unit behind it.
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

std::string AmountText(const Amount& amount);

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
        return ParseAmount(Unit::kNumber, &step->amount);
      case Verb::kSet:
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        if (!line_->Take("to")) return line_->Expected("\"to TIME\"");
        return ParseAmount(Unit::kTime, &step->amount);
      case Verb::kRemove:
      case Verb::kCapture:
        return ParseSelection(&step->selection);
      case Verb::kInsert:
        return ParseInsert(step);
      case Verb::kFuse:
        step->chains = line_->Take("chains", "of");
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        if (!line_->Take("into")) return line_->Expected("\"into \"NAME\"\"");
        status = ParseName(&step->name);
        step->longest = line_->Take("of", "longest");
        return status;
      case Verb::kReschedule:
        status = ParseSelection(&step->selection);
        if (!status.ok()) return status;
        step->first = line_->Take("first");
        if (step->first || line_->Take("by", "need")) return absl::OkStatus();
        return line_->Expected("\"first\" or \"by need\"");
    }
    return absl::OkStatus();
  }

  absl::Status ParseInsert(Step* step) {
    const Token* token = line_->Peek();
    const Made* made = token == nullptr || token->quoted ? nullptr : Find(Mades(), token->text);
    if (made != nullptr) {
      step->made = *made;
      line_->Take();
    }
    absl::Status status = ParseName(&step->name);
    if (!status.ok()) return status;
    if (!line_->Take("of")) return line_->Expected("\"of TIME\"");
    status = ParseAmount(Unit::kTime, &step->amount);
    if (!status.ok()) return status;
    const bool call = step->made == Made::kCall;
    const bool own = !call && line_->Take("into");
    if (own) status = ParseName(&step->queue);
    if (!status.ok()) return status;
    (own ? step->with : step->before) = line_->Take(own ? "with" : "before");
    if (!step->with && !step->before && (call || !line_->Take("after"))) {
      return line_->Expected(own    ? "\"after\" or \"with\""
                             : call ? "\"before\""
                                    : "\"before\" or \"after\"");
    }
    status = ParseSelection(&step->selection);
    if (status.ok() && own && line_->Take("sharing")) {
      status = ParseAmount(Unit::kBytes, &step->shared.emplace());
      if (status.ok() && line_->Take("in")) {
        status = ParseAmount(Unit::kBytes, &step->piece.emplace());
      }
    }
    if (status.ok() && own && line_->Take("needed", "by")) {
      status = ParseSelection(&step->needed_by.emplace());
      step->reversed = status.ok() && line_->Take("in", "reverse");
    }
    return status;
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
    if (*field == Field::kCounter) {
      if (absl::Status status = ParseName(&condition->text); !status.ok()) return status;
    }
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
    const bool word = *field == Field::kBound || *field == Field::kPhase;
    if (word && ordered) {
      return line_->Wrong(
          absl::StrCat(WordOf(Fields(), *field), " is ", WordsOf(*field), ": it has no order"));
    }
    line_->Take();
    condition->compare = *compare;
    token = line_->Peek();
    if (token == nullptr) return line_->Expected("a value");
    if (text && !token->quoted && token->text.size() > 1 && token->text[0] == '$') {
      condition->parameter = line_->Take()->text.substr(1);
      return absl::OkStatus();
    }
    if (text) {
      if (!token->quoted) return line_->Expected("text in quotation marks");
      condition->text = line_->Take()->text;
      if (!matches) return absl::OkStatus();
      const RE2 expression(condition->text, RE2::Quiet);
      if (expression.ok()) return absl::OkStatus();
      return line_->Wrong(absl::StrCat("\"", condition->text, "\": ", expression.error()));
    }
    if (word) {
      if (token->quoted || !IsOneOf(*field, token->text)) return line_->Expected(WordsOf(*field));
      condition->text = line_->Take()->text;
      return absl::OkStatus();
    }
    const absl::StatusOr<double> number = ParseNumber(token->text, UnitsOf(*field));
    if (!number.ok()) return line_->Wrong(std::string(number.status().message()));
    condition->number = *number;
    line_->Take();
    return absl::OkStatus();
  }

  absl::Status ParseAmount(Unit wanted, Amount* amount) {
    amount->time = wanted == Unit::kTime;
    if (absl::Status status = ParseTerm(&amount->first); !status.ok()) return status;
    for (const char operation : {'*', '/'}) {
      if (!line_->Take(std::string(1, operation))) continue;
      amount->operation = operation;
      if (absl::Status status = ParseTerm(&amount->second); !status.ok()) return status;
      break;
    }
    return CheckUnit(*amount, wanted);
  }

  // Times and bytes in it, as powers; none: a parameter has any unit.
  using Powers = std::optional<std::pair<int, int>>;
  static Powers PowersOf(Unit unit) {
    return std::pair(unit == Unit::kTime   ? 1
                     : unit == Unit::kRate ? -1
                                           : 0,
                     unit == Unit::kBytes || unit == Unit::kRate ? 1 : 0);
  }
  static Powers PowersOf(const Amount::Term& term) {
    if (!term.parameter.empty()) return std::nullopt;
    if (term.function.empty()) return PowersOf(term.unit);
    return PowersOf(term.function == "bytes" ? Unit::kBytes : Unit::kTime);
  }
  absl::Status CheckUnit(const Amount& amount, Unit wanted) const {
    Powers powers = PowersOf(amount.first);
    const Powers second = PowersOf(amount.second);
    const bool zero = amount.first.parameter.empty() && amount.first.function.empty() &&
                      amount.first.number == 0 && amount.first.unit == Unit::kNumber;
    if (!powers || !second || zero) return absl::OkStatus();
    if (amount.operation != 0) {
      const int sign = amount.operation == '*' ? 1 : -1;
      powers->first += sign * second->first;
      powers->second += sign * second->second;
    }
    if (powers == PowersOf(wanted)) return absl::OkStatus();
    const std::string text = AmountText(amount);
    if (amount.operation == 0 && wanted == Unit::kNumber) {
      return line_->Wrong(absl::StrCat("\"", text, "\" has a unit where none belongs"));
    }
    if (amount.operation == 0 && amount.first.function.empty() && *powers == std::pair(0, 0)) {
      return line_->Wrong(absl::StrCat("\"", text, "\" needs one of the units ",
                                       List(wanted == Unit::kBytes ? ByteUnits() : TimeUnits())));
    }
    return line_->Wrong(absl::StrCat("\"", text, "\" is not ", UnitInWords(wanted),
                                     wanted == Unit::kTime ? "; bytes/2GB/s would be one" : ""));
  }

  absl::Status ParseTerm(Amount::Term* term, int depth = 0) {
    const Token* token = line_->Peek();
    if (token == nullptr || token->quoted) return line_->Expected("a number");
    if (token->text.size() > 1 && token->text[0] == '$') {
      term->parameter = line_->Take()->text.substr(1);
      return absl::OkStatus();
    }
    if (token->text == "bytes" || token->text == "duration") {
      term->function = line_->Take()->text;
      return absl::OkStatus();
    }
    for (const Function& function : Functions()) {
      if (token->text == function.name) return ParseArguments(function, depth, term);
    }
    std::string text = token->text;
    line_->Take();
    if (Find(ByteUnits(), SplitUnit(text).second) != nullptr && line_->Take("/", "s")) text += "/s";
    absl::StatusOr<Amount::Term> quantity = ParseQuantity(text);
    if (!quantity.ok()) return line_->Wrong(std::string(quantity.status().message()));
    *term = *std::move(quantity);
    return absl::OkStatus();
  }

  absl::Status ParseArguments(const Function& function, int depth, Amount::Term* term) {
    if (depth == kMostNested) {
      return line_->Wrong(absl::StrCat("functions within each other, more than ", kMostNested));
    }
    term->function = line_->Take()->text;
    for (size_t i = 0; i < function.arguments.size(); ++i) {
      if (!line_->Take(i == 0 ? "(" : ",")) return line_->Expected(i == 0 ? "\"(\"" : "\",\"");
      Amount argument;
      if (absl::Status status = ParseTerm(&argument.first, depth + 1); !status.ok()) return status;
      if (absl::Status status = CheckUnit(argument, function.arguments[i]); !status.ok()) {
        return status;
      }
      term->arguments.push_back(std::move(argument.first));
    }
    return line_->Take(")") ? absl::OkStatus() : line_->Expected("\")\"");
  }

  Line* line_;
};

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

std::string TermText(const Amount::Term& term) {
  if (!term.parameter.empty()) return "$" + term.parameter;
  if (term.function.empty()) return QuantityText(term.number, term.unit);
  if (term.arguments.empty()) return term.function;
  return absl::StrCat(
      term.function, "(",
      absl::StrJoin(term.arguments, ", ",
                    [](std::string* out, const Amount::Term& each) { *out += TermText(each); }),
      ")");
}
std::string AmountText(const Amount& amount) {
  std::string text = TermText(amount.first);
  if (amount.operation == 0) return text;
  return absl::StrCat(text, std::string(1, amount.operation), TermText(amount.second));
}

std::string SelectionText(const Selection& selection) {
  std::string text = WordOf(Whats(), selection.what);
  for (size_t i = 0; i < selection.conditions.size(); ++i) {
    const Condition& condition = selection.conditions[i];
    absl::StrAppend(&text, i == 0 ? " where " : " and ", WordOf(Fields(), condition.field), " ",
                    condition.field == Field::kCounter ? Quoted(condition.text) + " " : "",
                    WordOf(Compares(), condition.compare), " ");
    if (!condition.parameter.empty()) {
      absl::StrAppend(&text, "$", condition.parameter);
    } else if (IsText(condition.field)) {
      text += Quoted(condition.text);
    } else if (condition.field == Field::kBound || condition.field == Field::kPhase) {
      text += condition.text;
    } else {
      text += QuantityText(condition.number, condition.field == Field::kDuration ? Unit::kTime
                                             : condition.field == Field::kBytes  ? Unit::kBytes
                                                                                 : Unit::kNumber);
    }
  }
  return text;
}

std::string InsertText(const Step& step) {
  std::string text =
      absl::StrCat(step.made == Made::kKernel ? "" : WordOf(Mades(), step.made) + " ",
                   Quoted(step.name), " of ", AmountText(step.amount));
  if (!step.queue.empty()) absl::StrAppend(&text, " into ", Quoted(step.queue));
  absl::StrAppend(&text,
                  step.before ? " before "
                  : step.with ? " with "
                              : " after ",
                  SelectionText(step.selection));
  if (step.shared) absl::StrAppend(&text, " sharing ", AmountText(*step.shared));
  if (step.piece) absl::StrAppend(&text, " in ", AmountText(*step.piece));
  if (step.needed_by) {
    absl::StrAppend(&text, " needed by ", SelectionText(*step.needed_by),
                    step.reversed ? " in reverse" : "");
  }
  return text;
}

absl::StatusOr<double> ValueOf(const Amount::Term& term,
                               const std::map<std::string, double>& parameters,
                               const TaskValues& task) {
  if (term.function == "bytes") return task.bytes;
  if (term.function == "duration") return task.duration_ns;
  for (const Function& function : Functions()) {
    if (term.function != function.name) continue;
    std::vector<double> arguments;
    for (const Amount::Term& argument : term.arguments) {
      const absl::StatusOr<double> value = ValueOf(argument, parameters, task);
      if (!value.ok()) return value;
      arguments.push_back(*value);
    }
    return function.time_ns(arguments);
  }
  if (term.parameter.empty()) return term.number;
  const auto it = parameters.find(term.parameter);
  if (it != parameters.end()) return it->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "the parameter $", term.parameter, " has no value; give ", term.parameter, "=NUMBER"));
}

// "bytes" or "duration".
bool Has(const Amount::Term& term, const char* word) {
  return term.function == word ||
         std::any_of(term.arguments.begin(), term.arguments.end(),
                     [word](const Amount::Term& each) { return Has(each, word); });
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

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

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
        text += InsertText(step);
        break;
      case Verb::kFuse:
        absl::StrAppend(&text, step.chains ? "chains of " : "", SelectionText(step.selection),
                        " into ", Quoted(step.name), step.longest ? " of longest" : "");
        break;
      case Verb::kReschedule:
        absl::StrAppend(&text, SelectionText(step.selection), step.first ? " first" : " by need");
        break;
      default:
        text += SelectionText(step.selection);
    }
    text += "\n";
  }
  return text;
}

std::string FormatSelection(const Selection& selection) { return SelectionText(selection); }

bool NeedsBytes(const Amount& amount) {
  return Has(amount.first, "bytes") || Has(amount.second, "bytes");
}
bool NeedsTask(const Amount& amount) {
  return NeedsBytes(amount) || Has(amount.first, "duration") || Has(amount.second, "duration");
}

absl::StatusOr<double> Evaluate(const Amount& amount,
                                const std::map<std::string, double>& parameters,
                                const TaskValues& task) {
  absl::StatusOr<double> value = ValueOf(amount.first, parameters, task);
  if (!value.ok()) return value;
  if (amount.operation != 0) {
    const absl::StatusOr<double> second = ValueOf(amount.second, parameters, task);
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
  const absl::StatusOr<double> number =
      ParseNumber(word, units == nullptr ? Words<double>() : *units);
  if (!number.ok()) return number.status();
  term.number = *number;
  return term;
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
