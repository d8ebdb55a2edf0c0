#include "daemon/queries/presets.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/whatif/language/printer.h"
#include "daemon/whatif/language/units.h"
#include "daemon/whatif/preset.h"

namespace seqpoint::queries {
namespace {

// From the largest on; what is read back is the same.
std::string WithUnit(double value, const std::vector<const char*>& units) {
  for (const char* unit : units) {
    const auto one = whatif::ParseQuantity(absl::StrCat("1", unit));
    const std::string text = absl::StrFormat("%g%s", value / one->number, unit);
    const auto back = whatif::ParseQuantity(text);
    const bool large_enough = value >= one->number || unit == units.back();
    if (large_enough && back.ok() && back->number == value) return text;
  }
  return absl::StrFormat("%.17g%s", value, units.back());
}

struct UnitWords {
  const char* name;     // as a file of a preset says it
  const char* example;  // of a value
  std::vector<const char*> units;
};
UnitWords WordsOf(const whatif::Parameter& parameter) {
  if (parameter.is_text) return {"text", "\"gemm|conv\"", {}};
  switch (parameter.unit) {
    case whatif::Unit::kTime:
      return {"time", "10us", {"s", "ms", "us", "ns"}};
    case whatif::Unit::kBytes:
      return {"bytes", "100MB", {"TB", "GB", "MB", "KB", "B"}};
    case whatif::Unit::kRate:
      return {"bytes/s", "10GB/s", {"TB/s", "GB/s", "MB/s", "KB/s"}};
    case whatif::Unit::kNumber:
      break;
  }
  return {"number", "2", {""}};
}

// As an option takes it: "3", "50us"; empty: it has to be given.
std::string ValueOf(const whatif::Parameter& parameter) {
  if (parameter.is_text) return parameter.text ? whatif::Quoted(*parameter.text) : "";
  return parameter.value ? WithUnit(*parameter.value, WordsOf(parameter).units) : "";
}

void AddTo(const whatif::Preset& preset, v1::ListPresetsReply* reply) {
  v1::Preset& to = *reply->add_presets();
  to.set_name(preset.name);
  to.set_title(preset.title);
  to.set_assumption(preset.assumption);
  to.set_source(preset.source);
  to.set_text(preset.text);
  for (const whatif::Parameter& parameter : preset.parameters) {
    const UnitWords words = WordsOf(parameter);
    v1::PresetParameter& added = *to.add_parameters();
    added.set_name(parameter.name);
    added.set_value(ValueOf(parameter));
    added.set_unit(words.name);
    if (added.value().empty()) added.set_example(words.example);
    added.set_meaning(parameter.meaning);
  }
}

}  // namespace

absl::StatusOr<v1::ListPresetsReply> ListPresets(const v1::ListPresetsRequest& request) {
  v1::ListPresetsReply reply;
  if (request.name().empty()) {
    for (const whatif::Preset& preset : whatif::Presets()) AddTo(preset, &reply);
    return reply;
  }
  const absl::StatusOr<whatif::Preset> preset = whatif::FindPreset(request.name());
  if (!preset.ok()) return absl::InvalidArgumentError(preset.status().message());
  AddTo(*preset, &reply);
  return reply;
}

absl::Status CheckPresets(const v1::WhatIfRequest& request) {
  for (const v1::WhatIfChange& change : request.changes()) {
    if (change.preset().empty()) continue;
    if (const auto parsed = whatif::ParseChange(change.preset()); !parsed.ok()) {
      return absl::InvalidArgumentError(parsed.status().message());
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::queries
