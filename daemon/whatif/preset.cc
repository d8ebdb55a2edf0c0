#include "daemon/whatif/preset.h"

#include <re2/re2.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/base/status_macros.h"
#include "daemon/whatif/language/parser.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/language/units.h"
#include "daemon/whatif/preset_files.h"

namespace seqpoint::whatif {
namespace {

constexpr double kSmallShare = 0.001;  // smaller ones are all shown as "<"

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// A selection stands in a step that does nothing.
absl::StatusOr<Selection> ParseSelection(absl::string_view text) {
  SEQPOINT_ASSIGN_OR_RETURN(Request request, ParseRequest(absl::StrCat("remove ", text)));
  return std::move(request.steps[0].selection);
}

// "text", or \"text\" with \" and \\ inside.
std::string Unquoted(absl::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::string(text);
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
    out += text[i];
  }
  return out;
}
// The first place of a character outside of quotation marks.
size_t FindOutside(absl::string_view text, char wanted) {
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (quoted && text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      quoted = !quoted;
    } else if (text[at] == wanted && !quoted) {
      return at;
    }
  }
  return absl::string_view::npos;
}

absl::Status Give(absl::string_view value, Parameter* parameter) {
  if (parameter->is_text) {
    parameter->text = Unquoted(value);
    const RE2 expression(*parameter->text, RE2::Quiet);
    if (!parameter->text->empty() && expression.ok()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", *parameter->text, "\": ", expression.ok() ? "is empty" : expression.error()));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const Amount::Term given, ParseQuantity({value.data(), value.size()}));
  if (given.unit != parameter->unit && given.number != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not ", UnitInWords(parameter->unit)));
  }
  parameter->value = given.number;
  return absl::OkStatus();
}

// "NAME [in UNIT] [= VALUE]"
absl::StatusOr<Parameter> ParseParameter(absl::string_view declared, absl::string_view meaning) {
  const std::vector<std::string> parts = absl::StrSplit(declared, absl::MaxSplits('=', 1));
  const std::vector<std::string> words = absl::StrSplit(parts[0], ' ', absl::SkipEmpty());
  Parameter parameter;
  parameter.meaning = std::string(meaning);
  if (words.empty()) return absl::InvalidArgumentError("a parameter needs a name");
  parameter.name = words[0];
  const std::string value(parts.size() < 2 ? "" : absl::StripAsciiWhitespace(parts[1]));
  if (words.size() == 3 && words[1] == "in") {
    parameter.is_text = words[2] == "text";
    parameter.unit = words[2] == "time"      ? Unit::kTime
                     : words[2] == "bytes"   ? Unit::kBytes
                     : words[2] == "bytes/s" ? Unit::kRate
                                             : Unit::kNumber;
    if (!parameter.is_text && parameter.unit == Unit::kNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", words[2], "\" is none of time, bytes, bytes/s, text"));
    }
  } else if (words.size() != 1) {
    return absl::InvalidArgumentError("\"param NAME [in UNIT] [= VALUE]: MEANING\" is expected");
  } else if (!value.empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(const Amount::Term quantity, ParseQuantity(value));
    parameter.unit = quantity.unit;
  }
  if (value.empty()) return parameter;
  SEQPOINT_RETURN_IF_ERROR(Give(value, &parameter));
  return parameter;
}

// Puts texts in the place of their parameters. A parameter without a text stays.
void PutTexts(const std::map<std::string, std::string>& texts, Selection* selection) {
  for (Condition& condition : selection->conditions) {
    const auto it = texts.find(condition.parameter);
    if (condition.parameter.empty() || it == texts.end()) continue;
    condition.text = it->second;
    condition.parameter.clear();
  }
}

// Takes the text up to the next comma outside of quotes, and the comma.
absl::string_view NextPart(absl::string_view* rest) {
  const size_t comma = std::min(FindOutside(*rest, ','), rest->size());
  const absl::string_view part = absl::StripAsciiWhitespace(rest->substr(0, comma));
  rest->remove_prefix(std::min(comma + 1, rest->size()));
  return part;
}

}  // namespace

absl::StatusOr<Preset> ParsePreset(std::string_view name, std::string_view text) {
  Preset preset;
  preset.name = std::string(name);
  preset.text = std::string(text);
  int number = 0;
  bool needs = false;
  absl::string_view rest = View(text);
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("preset ", preset.name, ", line ", number, ": ", what));
  };
  while (!rest.empty()) {
    const std::pair<absl::string_view, absl::string_view> split =
        absl::StrSplit(rest, absl::MaxSplits('\n', 1));
    rest = split.second;
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(split.first);
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = FindOutside(line, ':');
    if (colon == absl::string_view::npos) return wrong("\"KEY: VALUE\" is expected");
    const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (key == "title") {
      preset.title = std::string(value);
    } else if (key == "source") {
      preset.source = std::string(value);
    } else if (key == "assumes") {
      preset.assumption = std::string(value);
    } else if (key == "off by") {
      if (!absl::SimpleAtod(value, &preset.off_by) || !(preset.off_by >= 0 && preset.off_by <= 1)) {
        return wrong(absl::StrCat("\"", value, "\" is no share from 0 to 1"));
      }
    } else if (key == "unfit because") {
      if (preset.unfit.empty()) return wrong("of what, is not said before");
      preset.unfit.back().because = std::string(value);
    } else if (key == "needs because" || key == "excludes because") {
      if (preset.requirements.empty()) return wrong("of what, is not said before");
      preset.requirements.back().because = std::string(value);
    } else if (key == "needs" || key == "excludes" || key == "unfit") {
      absl::StatusOr<Selection> selection = ParseSelection(value);
      if (!selection.ok()) return wrong(selection.status().message());
      if (key == "unfit") {
        preset.unfit.push_back({*std::move(selection), ""});
        continue;
      }
      needs |= key == "needs";
      preset.requirements.push_back({key == "needs", *std::move(selection), ""});
    } else if (key.substr(0, 6) == "param ") {
      absl::StatusOr<Parameter> parameter = ParseParameter(key.substr(6), value);
      if (!parameter.ok()) return wrong(parameter.status().message());
      preset.parameters.push_back(*std::move(parameter));
    } else if (key == "steps") {
      absl::StatusOr<Request> request = ParseRequest({rest.data(), rest.size()});
      if (!request.ok()) return wrong(request.status().message());
      preset.request = *std::move(request);
      rest = {};
    } else {
      return wrong(absl::StrCat("\"", key, "\" is none of title, source, assumes, off by, needs, ",
                                "excludes, unfit (each with because), param NAME, steps"));
    }
  }
  if (preset.title.empty() || preset.source.empty() || preset.assumption.empty() || !needs ||
      preset.request.steps.empty()) {
    return wrong("title, source, assumes, needs and steps are wanted");
  }
  return preset;
}

const std::vector<Preset>& Presets() {
  static const auto* presets = [] {
    auto* all = new std::vector<Preset>;
    for (const PresetFile& file : kPresetFiles) {
      absl::StatusOr<Preset> preset = ParsePreset(file.name, file.text);
      if (preset.ok()) all->push_back(*std::move(preset));  // a test reads each of them
    }
    return all;
  }();
  return *presets;
}

absl::StatusOr<Preset> FindPreset(std::string_view name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset;
  }
  return absl::NotFoundError(absl::StrCat(
      "no preset \"", View(name),
      "\"; there are: ", absl::StrJoin(Presets(), ", ", [](std::string* out, const Preset& preset) {
        out->append(preset.name);
      })));
}

absl::StatusOr<Change> ParseChange(std::string_view text) {
  absl::string_view rest = View(text);
  const std::string name(NextPart(&rest));
  SEQPOINT_ASSIGN_OR_RETURN(const Preset preset, FindPreset(name));
  return WithParameters(preset, {rest.data(), rest.size()});
}

absl::StatusOr<Change> WithParameters(Preset preset, std::string_view parameters) {
  const std::string& name = preset.name;
  absl::string_view rest = View(parameters);
  while (!rest.empty()) {
    const std::vector<std::string> pair = absl::StrSplit(NextPart(&rest), absl::MaxSplits('=', 1));
    const std::string key(absl::StripAsciiWhitespace(pair[0]));
    const auto known = std::find_if(preset.parameters.begin(), preset.parameters.end(),
                                    [&](const Parameter& each) { return each.name == key; });
    if (known == preset.parameters.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has no parameter \"", key, "\"",
          preset.parameters.empty()
              ? ""
              : absl::StrCat("; it has ", absl::StrJoin(preset.parameters, ", ",
                                                        [](std::string* out, const Parameter& p) {
                                                          out->append(p.name);
                                                        }))));
    }
    const std::string value(pair.size() < 2 ? "" : absl::StripAsciiWhitespace(pair[1]));
    if (absl::Status status = Give(value, &*known); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", key, ": ", std::string(status.message())));
    }
  }
  Change change = {preset.name, preset.request, {}, {}};
  for (const Parameter& parameter : preset.parameters) {
    if (parameter.text) change.texts[parameter.name] = *parameter.text;
    if (parameter.value) change.parameters[parameter.name] = *parameter.value;
    if (parameter.text || parameter.value) continue;
    const char* example = parameter.is_text                ? "TEXT"
                          : parameter.unit == Unit::kTime  ? "10us"
                          : parameter.unit == Unit::kBytes ? "100MB"
                          : parameter.unit == Unit::kRate  ? "10GB/s"
                                                           : "NUMBER";
    return absl::InvalidArgumentError(absl::StrCat(name, " needs ", parameter.name, " (",
                                                   parameter.meaning, "): ", name, ",",
                                                   parameter.name, "=", example));
  }
  for (Step& step : change.request.steps) {
    PutTexts(change.texts, &step.selection);
    if (step.needed_by) PutTexts(change.texts, &*step.needed_by);
  }
  return change;
}

Fit FitOf(const Preset& preset, const Bounds& bounds, const Graph& graph, const Change* change) {
  Fit fit;
  std::map<std::string, std::string> texts;
  for (const Parameter& parameter : preset.parameters) {
    if (parameter.text) texts[parameter.name] = *parameter.text;
  }
  if (change != nullptr) texts = change->texts;
  for (const Requirement& requirement : preset.requirements) {
    Selection selection = requirement.selection;
    PutTexts(texts, &selection);
    if ((TimeOf(selection, bounds, graph).tasks > 0) == requirement.wanted) continue;
    fit.applies = false;
    // The reason first: lists show a warning up to its first colon.
    fit.why_not =
        absl::StrCat(requirement.because, requirement.because.empty() ? "" : ": ",
                     requirement.wanted ? "there is nothing in the trace that it could change (no "
                                        : "it makes no sense for this trace (there are ",
                     FormatSelection(selection), ")");
    return fit;
  }
  for (const Doubt& doubt : preset.unfit) {
    Selection selection = doubt.selection;
    PutTexts(texts, &selection);
    const SelectedTime unfit = TimeOf(selection, bounds, graph);
    if (unfit.tasks == 0) continue;
    Selection all;
    all.target = selection.target;
    const SelectedTime whole = TimeOf(all, bounds, graph);
    const double share =
        whole.time_ns > 0 ? static_cast<double>(unfit.time_ns) / static_cast<double>(whole.time_ns)
                          : 1;
    fit.doubtful[absl::StrCat("of the time of ", FormatSelection(all), ": ", doubt.because)] =
        share;
  }
  return fit;
}

void Doubts::Add(const Fit& fit) {
  for (const auto& [of, share] : fit.doubtful) {
    Shares& shares = shares_[of];
    shares.least = std::min(shares.least, share);
    shares.most = std::max(shares.most, share);
  }
}

std::vector<std::string> Doubts::InWords() const {
  std::vector<std::string> messages;
  for (const auto& [of, shares] : shares_) {
    const auto percent = [](double share) { return absl::StrFormat("%.3g", 100 * share); };
    const std::string least = percent(shares.least), most = percent(shares.most);
    messages.push_back(absl::StrCat("doubtful for ",
                                    shares.most < kSmallShare
                                        ? absl::StrFormat("< %g", 100 * kSmallShare)
                                    : least == most ? most
                                                    : absl::StrCat(least, " to ", most),
                                    " % ", of));
  }
  return messages;
}

}  // namespace seqpoint::whatif
