#include "daemon/jobs/metric_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "injection/abi/control.h"

namespace seqpoint::jobs {
namespace {

std::vector<counters::Term> TermsOf(
    const google::protobuf::RepeatedPtrField<v1::MetricTerm>& from) {
  std::vector<counters::Term> terms;
  for (const v1::MetricTerm& term : from) terms.push_back({term.metric(), term.weight()});
  return terms;
}

std::vector<counters::OwnSet> OwnSets(const std::vector<v1::MetricSet>& from) {
  std::vector<counters::OwnSet> sets;
  for (const v1::MetricSet& set : from) {
    counters::OwnSet& to = sets.emplace_back();
    to.name = set.name();
    to.description = set.description();
    for (const v1::MetricConfiguration& config : set.configurations()) {
      to.configs.emplace_back(config.metrics().begin(), config.metrics().end());
    }
    for (const v1::MetricRatio& ratio : set.ratios()) {
      to.ratios.push_back(
          {ratio.name(), ratio.unit(), TermsOf(ratio.numerator()), TermsOf(ratio.denominator())});
    }
  }
  return sets;
}

}  // namespace

MetricChoice::MetricChoice() : names_{std::string(counters::kDefaultMetricSet)} {
  set_.name = names_[0];
}

absl::StatusOr<MetricChoice> MetricChoice::From(const v1::PrepareJobRequest& request,
                                                const MetricChoice& current) {
  MetricChoice choice;
  choice.names_ = {request.metric_sets().begin(), request.metric_sets().end()};
  choice.own_ = {request.own_metric_sets().begin(), request.own_metric_sets().end()};
  choice.backend_ = current.backend_;
  // Where no set is named, all sets of the file are collected.
  if (choice.names_.empty()) {
    for (const v1::MetricSet& own : choice.own_) choice.names_.push_back(own.name());
  }
  if (choice.names_.empty()) {
    choice.names_ = current.names_;
    choice.own_ = current.own_;
  }
  std::vector<std::string> once;
  for (const std::string& name : choice.names_) {
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  }
  choice.names_ = std::move(once);
  for (const counters::OwnSet& own : OwnSets(choice.own_)) {
    SEQPOINT_RETURN_IF_ERROR(counters::CheckOwnSet(own));
  }
  if (request.counter_backend() != v1::COUNTER_BACKEND_UNSPECIFIED) {
    choice.backend_ = request.counter_backend() == v1::COUNTER_BACKEND_PM
                          ? counters::Backend::kPm
                          : counters::Backend::kRange;
  }
  choice.wants_roofline_ = request.roofline() || current.wants_roofline_;
  if (choice.wants_roofline_ && choice.backend_ == counters::Backend::kPm) {
    return absl::InvalidArgumentError(
        "roofline: single kernels are measured by the range backend only; leave out --roofline, or "
        "--counter-backend pm");
  }
  // The names are checked now. The number of their configurations depends on the chip.
  SEQPOINT_RETURN_IF_ERROR(choice.Resolve("").status());
  choice.set_.name = absl::StrJoin(choice.names_, ",");
  return choice;
}

absl::StatusOr<counters::MetricSet> MetricChoice::Resolve(std::string_view chip) const {
  return counters::CombineMetricSets(names_, OwnSets(own_), chip, backend_);
}

absl::StatusOr<bool> MetricChoice::SetChip(std::string_view chip) {
  if (!chip_.empty() || chip.empty()) return false;
  chip_ = std::string(chip);
  absl::StatusOr<counters::MetricSet> set = Resolve(chip);
  if (!set.ok()) {
    SetNothing(set.status());
    return set.status();
  }
  set_ = *std::move(set);
  ChooseRoofline();
  return true;
}

void MetricChoice::SetNothing(const absl::Status& why) {
  no_counters_ = std::string(why.message());
  if (wants_roofline_) no_roofline_ = no_counters_;
}

// For a known chip, in addition to the sets.
void MetricChoice::ChooseRoofline() {
  if (!wants_roofline_) return;
  roofline_ = counters::MakeRoofline(chip_);
  const size_t together = set_.configs.size() + roofline_.configs.size();
  if (roofline_.configs.empty()) {
    no_roofline_ = absl::StrCat("the roofline of the chip ", chip_, " is not known");
  } else if (together > counters::kMaxConfigsOfJob) {
    no_roofline_ = absl::StrCat("the roofline needs ", roofline_.configs.size(),
                                " configurations, the metric sets have ", set_.configs.size(),
                                ", and a job at most ", counters::kMaxConfigsOfJob,
                                ": ask for fewer sets (--metrics) with --roofline");
    roofline_ = {};
  }
}

bool MetricChoice::Fits(std::string_view chip) const {
  if (chip_.empty() || chip == chip_) return true;
  const absl::StatusOr<counters::MetricSet> other = Resolve(chip);
  return other.ok() && other->configs == set_.configs;
}

std::string MetricChoice::InWords() const {
  return absl::StrCat(absl::StrJoin(names_, ","), backend_ == counters::Backend::kPm ? " (pm)" : "",
                      wants_roofline_ ? " and the roofline" : "");
}

bool MetricChoice::SameAs(const MetricChoice& other) const {
  return names_ == other.names_ && backend_ == other.backend_ &&
         wants_roofline_ == other.wants_roofline_ &&
         std::equal(own_.begin(), own_.end(), other.own_.begin(), other.own_.end(),
                    [](const v1::MetricSet& a, const v1::MetricSet& b) {
                      return a.SerializeAsString() == b.SerializeAsString();
                    });
}

MetricChoiceState MetricChoice::Save() const {
  MetricChoiceState state;
  for (const std::string& name : names_) state.add_names(name);
  for (const v1::MetricSet& own : own_) *state.add_own() = own;
  state.set_backend(static_cast<uint32_t>(backend_));
  state.set_chip(chip_);
  state.set_roofline(wants_roofline_);
  for (const counters::OnePassConfig& config : set_.configs) {
    MetricConfigState& to = *state.add_configs();
    to.set_config_id(config.config_id);
    to.set_set(config.set);
    for (const counters::Metric& metric : config.metrics) to.add_metrics(metric.name);
  }
  return state;
}

absl::StatusOr<MetricChoice> MetricChoice::Restore(const MetricChoiceState& state) {
  MetricChoice choice;
  choice.names_ = {state.names().begin(), state.names().end()};
  choice.own_ = {state.own().begin(), state.own().end()};
  choice.backend_ = state.backend() == static_cast<uint32_t>(counters::Backend::kPm)
                        ? counters::Backend::kPm
                        : counters::Backend::kRange;
  choice.set_ = {.name = absl::StrJoin(choice.names_, ",")};
  choice.wants_roofline_ = state.roofline();
  if (state.chip().empty()) return choice;
  choice.chip_ = state.chip();
  std::vector<counters::OnePassConfig> saved;
  for (const MetricConfigState& config : state.configs()) {
    counters::OnePassConfig& to = saved.emplace_back();
    to.config_id = static_cast<uint16_t>(config.config_id());
    to.set = config.set();
    for (const std::string& name : config.metrics()) {
      SEQPOINT_ASSIGN_OR_RETURN(counters::Metric metric, counters::OwnMetric(name));
      to.metrics.push_back(std::move(metric));
    }
  }
  const auto set = choice.Resolve(state.chip());
  if (saved.empty() && !set.ok()) {
    choice.SetNothing(set.status());
    return choice;
  }
  if (set.ok() && set->configs == saved) {
    choice.set_ = *set;
  } else {
    choice.set_.configs = std::move(saved);  // of another release: they have no ratios
  }
  choice.ChooseRoofline();
  return choice;
}

std::string MetricChoice::NameOf(uint32_t config_id) const {
  if (config_id == abi::kConfigNone) return "";
  if (config_id == abi::kConfigTrace) return "trace";
  for (const counters::OnePassConfig& config : set_.configs) {
    if (config.config_id == config_id) return config.set;
  }
  if (OfKernels(config_id)) return std::string(counters::kRooflineSet);
  return absl::StrCat("configuration ", config_id);
}

}  // namespace seqpoint::jobs
