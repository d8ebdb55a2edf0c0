#include "daemon/queries/presets.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/ranks/rank_changes.h"
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

struct RankChangeWords {
  const char* name;
  const char* title;
  const char* assumption;
  const char *parameter, *unit, *example, *meaning;  // null: it has none
};
constexpr RankChangeWords kRankChanges[] = {
    {"without-slow-rank", "a rank works as its peers do",
     "its kernels and its host take what those of its peers take at its lengths", "rank", "number",
     "3", "the slow rank"},
    {"balance-lengths", "all ranks have the same length in each iteration",
     "the same batches are dealt so that all ranks of an iteration have equal lengths", nullptr,
     nullptr, nullptr, nullptr},
    {"bucket-size", "gradients are reduced in buckets of another size",
     "all-reduces take a latency and a time for each byte, as measured", "bytes", "bytes", "50MB",
     "of a bucket"},
    {"bandwidth", "collectives move their bytes faster", "their latency stays", "factor", "number",
     "2", "so many times as fast"},
    {"ranks", "another number of ranks",
     "each rank has as many examples as now, shards are parts of the model, and collectives go "
     "over a ring",
     "count", "number", "16", "ranks"}};

void AddTo(const RankChangeWords& words, v1::ListPresetsReply* reply) {
  v1::Preset& to = *reply->add_rank_changes();
  to.set_name(words.name);
  to.set_title(words.title);
  to.set_assumption(words.assumption);
  if (words.parameter == nullptr) return;
  v1::PresetParameter& parameter = *to.add_parameters();
  parameter.set_name(words.parameter);
  parameter.set_unit(words.unit);
  parameter.set_example(words.example);
  parameter.set_meaning(words.meaning);
}

}  // namespace

absl::StatusOr<v1::ListPresetsReply> ListPresets(const v1::ListPresetsRequest& request) {
  v1::ListPresetsReply reply;
  if (request.name().empty()) {
    for (const whatif::Preset& preset : whatif::Presets()) AddTo(preset, &reply);
    for (const RankChangeWords& words : kRankChanges) AddTo(words, &reply);
    return reply;
  }
  for (const RankChangeWords& words : kRankChanges) {
    if (request.name() == words.name) {
      AddTo(words, &reply);
      return reply;
    }
  }
  const absl::StatusOr<whatif::Preset> preset = whatif::FindPreset(request.name());
  if (!preset.ok()) return absl::InvalidArgumentError(preset.status().message());
  AddTo(*preset, &reply);
  return reply;
}

absl::Status CheckPresets(const v1::WhatIfRequest& request) {
  for (const v1::WhatIfChange& change : request.changes()) {
    const std::string name = change.preset().substr(0, change.preset().find(','));
    const bool of_ranks = std::any_of(std::begin(kRankChanges), std::end(kRankChanges),
                                      [&](const auto& words) { return name == words.name; });
    if (of_ranks) {
      const auto parsed = ranks::ParseRankChange(change.preset());
      if (!parsed.ok()) return parsed.status();
    }
    if (change.preset().empty() || of_ranks) continue;
    if (const auto parsed = whatif::ParseChange(change.preset()); !parsed.ok()) {
      return absl::InvalidArgumentError(parsed.status().message());
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::queries
