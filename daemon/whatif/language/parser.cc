#include "daemon/whatif/language/parser.h"

#include <re2/re2.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/evaluate.h"
#include "daemon/whatif/language/lexer.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/language/units.h"
#include "daemon/whatif/language/words.h"

namespace seqpoint::whatif {
namespace {

constexpr int kMostNested = 4;  // functions

class Parser {
 public:
  explicit Parser(Line* line) : line_(line) {}

  absl::StatusOr<Step> ParseStep() {
    Step step;
    const Verb* verb = TakeWord(kVerbs);
    if (verb == nullptr) return line_->Expected(absl::StrCat("one of ", List(kVerbs)));
    step.verb = *verb;
    SEQPOINT_RETURN_IF_ERROR(Rest(&step));
    if (!line_->done()) return line_->Expected("the end of the step");
    return step;
  }

 private:
  absl::Status Rest(Step* step) {
    if (step->verb == Verb::kInsert) return ParseInsert(step);
    if (step->verb == Verb::kFuse) step->chains = line_->Take("chains", "of");
    SEQPOINT_RETURN_IF_ERROR(ParseSelection(&step->selection));
    switch (step->verb) {
      case Verb::kScale:
        if (!line_->Take("by")) return line_->Expected("\"by FACTOR\"");
        return ParseAmount(Unit::kNumber, &step->amount);
      case Verb::kSet:
        if (!line_->Take("to")) return line_->Expected("\"to TIME\"");
        return ParseAmount(Unit::kTime, &step->amount);
      case Verb::kFuse:
        if (!line_->Take("into")) return line_->Expected("\"into \"NAME\"\"");
        SEQPOINT_RETURN_IF_ERROR(ParseName(&step->name));
        step->longest = line_->Take("of", "longest");
        return absl::OkStatus();
      case Verb::kReschedule:
        step->first = line_->Take("first");
        if (step->first || line_->Take("by", "need")) return absl::OkStatus();
        return line_->Expected("\"first\" or \"by need\"");
      default:
        return absl::OkStatus();
    }
  }

  absl::Status ParseInsert(Step* step) {
    if (const Made* made = TakeWord(kMades); made != nullptr) step->made = *made;
    SEQPOINT_RETURN_IF_ERROR(ParseName(&step->name));
    if (!line_->Take("of")) return line_->Expected("\"of TIME\"");
    SEQPOINT_RETURN_IF_ERROR(ParseAmount(Unit::kTime, &step->amount));
    const bool call = step->made == Made::kCall;
    const bool own = !call && line_->Take("into");
    if (own) {
      SEQPOINT_RETURN_IF_ERROR(ParseName(&step->lane));
    }
    (own ? step->with : step->before) = line_->Take(own ? "with" : "before");
    if (!step->with && !step->before && (call || !line_->Take("after"))) {
      return line_->Expected(own    ? "\"after\" or \"with\""
                             : call ? "\"before\""
                                    : "\"before\" or \"after\"");
    }
    SEQPOINT_RETURN_IF_ERROR(ParseSelection(&step->selection));
    if (own && line_->Take("sharing")) {
      SEQPOINT_RETURN_IF_ERROR(ParseAmount(Unit::kBytes, &step->shared.emplace()));
      if (line_->Take("in")) {
        SEQPOINT_RETURN_IF_ERROR(ParseAmount(Unit::kBytes, &step->transfer.emplace()));
      }
    }
    if (own && line_->Take("needed", "by")) {
      SEQPOINT_RETURN_IF_ERROR(ParseSelection(&step->needed_by.emplace()));
      step->reversed = line_->Take("in", "reverse");
    }
    return absl::OkStatus();
  }

  // The meaning of the next token, which is taken; nullptr: it is none of these words.
  template <typename Words>
  auto TakeWord(const Words& words) -> decltype(Find(words, "")) {
    const Token* token = line_->Peek();
    const auto* meaning = token == nullptr || token->quoted ? nullptr : Find(words, token->text);
    if (meaning != nullptr) line_->Take();
    return meaning;
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
    const Target* target = TakeWord(kTargets);
    if (target == nullptr) return line_->Expected(absl::StrCat("one of ", List(kTargets)));
    selection->target = *target;
    if (!line_->Take("where")) return absl::OkStatus();
    do {
      Condition& condition = selection->conditions.emplace_back();
      SEQPOINT_RETURN_IF_ERROR(ParseCondition(&condition));
    } while (line_->Take("and"));
    return absl::OkStatus();
  }

  absl::Status ParseCondition(Condition* condition) {
    const Field* field = TakeWord(kFields);
    if (field == nullptr) return line_->Expected(absl::StrCat("one of ", List(kFields)));
    condition->field = *field;
    if (*field == Field::kCounter) {
      SEQPOINT_RETURN_IF_ERROR(ParseName(&condition->text));
    }
    const Token* token = line_->Peek();
    const Compare* compare = token == nullptr ? nullptr : Find(kCompares, token->text);
    if (compare == nullptr) return line_->Expected(absl::StrCat("one of ", List(kCompares)));
    const bool ordered = *compare == Compare::kLess || *compare == Compare::kGreater;
    const bool matches = *compare == Compare::kMatches || *compare == Compare::kMatchesNot;
    const bool text = IsText(*field);
    if (text ? ordered : matches) {
      return line_->Wrong(absl::StrCat(WordOf(kFields, *field),
                                       text ? " is text: " : " is no text: ", token->text,
                                       " does not compare it"));
    }
    const bool word = *field == Field::kBound || *field == Field::kPhase;
    if (word && ordered) {
      return line_->Wrong(
          absl::StrCat(WordOf(kFields, *field), " is ", WordsOf(*field), ": it has no order"));
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
    const absl::StatusOr<double> number = ParseNumber(token->text, UnitsOf(UnitOf(*field)));
    if (!number.ok()) return line_->Wrong(std::string(number.status().message()));
    condition->number = *number;
    line_->Take();
    return absl::OkStatus();
  }

  absl::Status ParseAmount(Unit wanted, Amount* amount) {
    amount->time = wanted == Unit::kTime;
    SEQPOINT_RETURN_IF_ERROR(ParseTerm(&amount->first));
    for (const char operation : {'*', '/'}) {
      if (!line_->Take(std::string(1, operation))) continue;
      amount->operation = operation;
      SEQPOINT_RETURN_IF_ERROR(ParseTerm(&amount->second));
      break;
    }
    return CheckUnit(*amount, wanted);
  }

  // The powers of time and bytes in a unit; none: a parameter has any unit.
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
    const std::string text = FormatAmount(amount);
    if (amount.operation == 0 && wanted == Unit::kNumber) {
      return line_->Wrong(absl::StrCat("\"", text, "\" has a unit where none belongs"));
    }
    if (amount.operation == 0 && amount.first.function.empty() && *powers == std::pair(0, 0)) {
      return line_->Wrong(
          absl::StrCat("\"", text, "\" needs one of the units ", List(UnitsOf(wanted))));
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
    if (Find(kByteUnits, SplitUnit(text).second) != nullptr && line_->Take("/", "s")) text += "/s";
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
      SEQPOINT_RETURN_IF_ERROR(ParseTerm(&argument.first, depth + 1));
      SEQPOINT_RETURN_IF_ERROR(CheckUnit(argument, function.arguments[i]));
      term->arguments.push_back(std::move(argument.first));
    }
    return line_->Take(")") ? absl::OkStatus() : line_->Expected("\")\"");
  }

  Line* line_;
};

}  // namespace

absl::StatusOr<Request> ParseRequest(std::string_view text) {
  Request request;
  for (const auto& [number, step] : StepTexts(text)) {
    Line line(number, step);
    SEQPOINT_RETURN_IF_ERROR(line.Split());
    SEQPOINT_ASSIGN_OR_RETURN(Step parsed, Parser(&line).ParseStep());
    request.steps.push_back(std::move(parsed));
  }
  if (request.steps.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a what-if needs a step; steps begin with ", List(kVerbs)));
  }
  return request;
}

}  // namespace seqpoint::whatif
