#include "daemon/whatif/preset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/whatif/preset_files.h"

namespace seqpoint::whatif {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// A selection stands in a step that does nothing.
absl::StatusOr<Selection> ParseSelection(absl::string_view text) {
  absl::StatusOr<Request> request = ParseRequest(absl::StrCat("remove ", text));
  if (!request.ok()) return request.status();
  return std::move(request->steps[0].selection);
}

absl::StatusOr<Parameter> ParseParameter(absl::string_view declared, absl::string_view meaning) {
  const std::vector<std::string> parts = absl::StrSplit(declared, absl::MaxSplits('=', 1));
  Parameter parameter;
  parameter.name = std::string(absl::StripAsciiWhitespace(parts[0]));
  parameter.meaning = std::string(meaning);
  if (parameter.name.empty()) return absl::InvalidArgumentError("a parameter needs a name");
  if (parts.size() == 1) return parameter;
  const std::string value(absl::StripAsciiWhitespace(parts[1]));
  double number = 0;
  if (absl::SimpleAtod(value, &number)) {
    parameter.value = number;
    return parameter;
  }
  const absl::StatusOr<double> time = ParseTimeNs(value);
  if (!time.ok()) return time.status();
  parameter.value = *time;
  parameter.time = true;
  return parameter;
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
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return wrong("\"KEY: VALUE\" is expected");
    const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (key == "title") {
      preset.title = std::string(value);
    } else if (key == "source") {
      preset.source = std::string(value);
    } else if (key == "assumes") {
      preset.assumption = std::string(value);
    } else if (key == "unfit because") {
      preset.unfit_because = std::string(value);
    } else if (key == "needs" || key == "unfit") {
      absl::StatusOr<Selection> selection = ParseSelection(value);
      if (!selection.ok()) return wrong(selection.status().message());
      needs = needs || key == "needs";
      (key == "needs" ? preset.needs : preset.unfit.emplace()) = *std::move(selection);
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
      return wrong(absl::StrCat("\"", key, "\" is none of title, source, assumes, needs, unfit, ",
                                "unfit because, param NAME, steps"));
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
  const size_t comma = std::min(text.find(','), text.size());
  absl::StatusOr<Preset> preset =
      FindPreset(std::string(absl::StripAsciiWhitespace(View(text.substr(0, comma)))));
  if (!preset.ok()) return preset.status();
  return WithParameters(*preset, text.substr(std::min(comma + 1, text.size())));
}

absl::StatusOr<Change> WithParameters(const Preset& preset, std::string_view parameters) {
  const std::string& name = preset.name;
  std::vector<std::string> parts;
  if (!parameters.empty()) parts = absl::StrSplit(View(parameters), ',');
  Change change = {name, preset.request, {}};
  for (const Parameter& parameter : preset.parameters) {
    if (parameter.value) change.parameters[parameter.name] = *parameter.value;
  }
  for (const std::string& part : parts) {
    const std::vector<std::string> pair = absl::StrSplit(part, absl::MaxSplits('=', 1));
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
    double number = 0;
    if (known->time) {
      const absl::StatusOr<double> time = ParseTimeNs(value);
      if (!time.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": ", key, ": ", std::string(time.status().message())));
      }
      number = *time;
    } else if (!absl::SimpleAtod(value, &number) || !std::isfinite(number) || number < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", key, ": \"", value, "\" is not a number from 0 on"));
    }
    change.parameters[key] = number;
  }
  for (const Parameter& parameter : preset.parameters) {
    if (change.parameters.count(parameter.name) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " needs ", parameter.name, " (",
                                                   parameter.meaning, "): ", name, ",",
                                                   parameter.name, "=NUMBER"));
  }
  return change;
}

Fit FitOf(const Preset& preset, const Bounds& bounds, const Graph& graph) {
  Fit fit;
  const SelectedTime needs = TimeOf(preset.needs, bounds, graph);
  if (needs.tasks == 0) {
    fit.applies = false;
    fit.warning = "there is nothing in the trace that it could change";
    return fit;
  }
  if (!preset.unfit) return fit;
  const SelectedTime unfit = TimeOf(*preset.unfit, bounds, graph);
  if (unfit.tasks == 0) return fit;
  Selection all;
  all.what = preset.unfit->what;
  const SelectedTime whole = TimeOf(all, bounds, graph);
  const double share = whole.time_ns > 0
                           ? static_cast<double>(unfit.time_ns) / static_cast<double>(whole.time_ns)
                           : 1;
  fit.warning = absl::StrFormat("doubtful for %.3g %% of the time of %s: %s", 100 * share,
                                FormatSelection(all), preset.unfit_because);
  return fit;
}

}  // namespace seqpoint::whatif
