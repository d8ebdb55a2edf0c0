#include "daemon/whatif/language/printer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/whatif/language/units.h"
#include "daemon/whatif/language/words.h"

namespace seqpoint::whatif {
namespace {

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

std::string InsertText(const Step& step) {
  std::string text = absl::StrCat(step.made == Made::kKernel ? "" : WordOf(kMades, step.made) + " ",
                                  Quoted(step.name), " of ", FormatAmount(step.amount));
  if (!step.lane.empty()) absl::StrAppend(&text, " into ", Quoted(step.lane));
  absl::StrAppend(&text,
                  step.before ? " before "
                  : step.with ? " with "
                              : " after ",
                  FormatSelection(step.selection));
  if (step.shared) absl::StrAppend(&text, " sharing ", FormatAmount(*step.shared));
  if (step.transfer) absl::StrAppend(&text, " in ", FormatAmount(*step.transfer));
  if (step.needed_by) {
    absl::StrAppend(&text, " needed by ", FormatSelection(*step.needed_by),
                    step.reversed ? " in reverse" : "");
  }
  return text;
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

std::string FormatAmount(const Amount& amount) {
  std::string text = TermText(amount.first);
  if (amount.operation == 0) return text;
  return absl::StrCat(text, std::string(1, amount.operation), TermText(amount.second));
}

std::string FormatSelection(const Selection& selection) {
  std::string text = WordOf(kTargets, selection.target);
  for (size_t i = 0; i < selection.conditions.size(); ++i) {
    const Condition& condition = selection.conditions[i];
    absl::StrAppend(&text, i == 0 ? " where " : " and ", WordOf(kFields, condition.field), " ",
                    condition.field == Field::kCounter ? Quoted(condition.text) + " " : "",
                    WordOf(kCompares, condition.compare), " ");
    if (!condition.parameter.empty()) {
      absl::StrAppend(&text, "$", condition.parameter);
    } else if (IsText(condition.field)) {
      text += Quoted(condition.text);
    } else if (condition.field == Field::kBound || condition.field == Field::kPhase) {
      text += condition.text;
    } else {
      text += QuantityText(condition.number, UnitOf(condition.field));
    }
  }
  return text;
}

std::string FormatRequest(const Request& request) {
  std::string text;
  for (const Step& step : request.steps) {
    absl::StrAppend(&text, WordOf(kVerbs, step.verb), " ");
    switch (step.verb) {
      case Verb::kScale:
        absl::StrAppend(&text, FormatSelection(step.selection), " by ", FormatAmount(step.amount));
        break;
      case Verb::kSet:
        absl::StrAppend(&text, FormatSelection(step.selection), " to ", FormatAmount(step.amount));
        break;
      case Verb::kInsert:
        text += InsertText(step);
        break;
      case Verb::kFuse:
        absl::StrAppend(&text, step.chains ? "chains of " : "", FormatSelection(step.selection),
                        " into ", Quoted(step.name), step.longest ? " of longest" : "");
        break;
      case Verb::kReschedule:
        absl::StrAppend(&text, FormatSelection(step.selection), step.first ? " first" : " by need");
        break;
      default:
        text += FormatSelection(step.selection);
    }
    text += "\n";
  }
  return text;
}

}  // namespace seqpoint::whatif
