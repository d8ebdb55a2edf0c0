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

std::vector<counters::OwnSet> OwnSets(
    const google::protobuf::RepeatedPtrField<v1::MetricSet>& from) {
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

MetricChoice::MetricChoice() {
  set_.name = std::string(counters::kDefaultMetricSet);
  state_.add_names(set_.name);
}

absl::StatusOr<MetricChoice> MetricChoice::From(const v1::PrepareJobRequest& request,
                                                const MetricChoice& current) {
  MetricChoice choice;
  MetricChoiceState& state = choice.state_;
  auto names = request.metric_sets();
  *state.mutable_own() = request.own_metric_sets();
  state.set_backend(current.state_.backend());
  // Where no set is named, all sets of the file are collected.
  if (names.empty()) {
    for (const v1::MetricSet& own : state.own()) *names.Add() = own.name();
  }
  if (names.empty()) {
    names = current.state_.names();
    *state.mutable_own() = current.state_.own();
  }
  state.clear_names();
  for (const std::string& name : names) {
    const auto& known = state.names();
    if (std::find(known.begin(), known.end(), name) == known.end()) state.add_names(name);
  }
  for (const counters::OwnSet& own : OwnSets(state.own())) {
    SEQPOINT_RETURN_IF_ERROR(counters::CheckOwnSet(own));
  }
  if (request.counter_backend() != v1::COUNTER_BACKEND_UNSPECIFIED) {
    const bool pm = request.counter_backend() == v1::COUNTER_BACKEND_PM;
    state.set_backend(
        static_cast<uint32_t>(pm ? counters::Backend::kPm : counters::Backend::kRange));
  }
  state.set_roofline(request.roofline() || current.wants_roofline());
  if (choice.wants_roofline() && choice.backend() == counters::Backend::kPm) {
    return absl::InvalidArgumentError(
        "roofline: single kernels are measured by the range backend only; leave out --roofline, or "
        "--counter-backend pm");
  }
  // The names are checked now. The number of their configurations depends on the chip.
  SEQPOINT_RETURN_IF_ERROR(choice.Resolve("").status());
  choice.set_.name = absl::StrJoin(state.names(), ",");
  return choice;
}

absl::StatusOr<counters::MetricSet> MetricChoice::Resolve(std::string_view chip) const {
  return counters::CombineMetricSets({state_.names().begin(), state_.names().end()},
                                     OwnSets(state_.own()), chip, backend());
}

absl::StatusOr<bool> MetricChoice::SetChip(std::string_view chip) {
  if (!this->chip().empty() || chip.empty()) return false;
  state_.set_chip(std::string(chip));
  absl::StatusOr<counters::MetricSet> set = Resolve(chip);
  if (!set.ok()) {
    SetNothing(set.status());
    return set.status();
  }
  set_ = *std::move(set);
  for (const counters::OnePassConfig& config : set_.configs) {
    MetricConfigState& to = *state_.add_configs();
    to.set_config_id(config.config_id);
    to.set_set(config.set);
    for (const counters::Metric& metric : config.metrics) to.add_metrics(metric.name);
  }
  ChooseRoofline();
  return true;
}

void MetricChoice::SetNothing(const absl::Status& why) {
  no_counters_ = std::string(why.message());
  if (wants_roofline()) no_roofline_ = no_counters_;
}

// For a known chip, in addition to the sets.
void MetricChoice::ChooseRoofline() {
  if (!wants_roofline()) return;
  roofline_ = counters::MakeRoofline(chip());
  const size_t together = set_.configs.size() + roofline_.configs.size();
  if (roofline_.configs.empty()) {
    no_roofline_ = absl::StrCat("the roofline of the chip ", chip(), " is not known");
  } else if (together > counters::kMaxConfigsOfJob) {
    no_roofline_ = absl::StrCat("the roofline needs ", roofline_.configs.size(),
                                " configurations, the metric sets have ", set_.configs.size(),
                                ", and a job at most ", counters::kMaxConfigsOfJob,
                                ": ask for fewer sets (--metrics) with --roofline");
    roofline_ = {};
  }
}

bool MetricChoice::Fits(std::string_view chip) const {
  if (this->chip().empty() || chip == this->chip()) return true;
  const absl::StatusOr<counters::MetricSet> other = Resolve(chip);
  return other.ok() && other->configs == set_.configs;
}

std::string MetricChoice::InWords() const {
  return absl::StrCat(absl::StrJoin(state_.names(), ","),
                      backend() == counters::Backend::kPm ? " (pm)" : "",
                      wants_roofline() ? " and the roofline" : "");
}

bool MetricChoice::SameAs(const MetricChoice& other) const {
  const auto asked = [](MetricChoiceState state) {
    state.clear_chip();
    state.clear_configs();
    return state.SerializeAsString();
  };
  return asked(state_) == asked(other.state_);
}

absl::StatusOr<MetricChoice> MetricChoice::Restore(const MetricChoiceState& state) {
  MetricChoice choice;
  choice.state_ = state;
  choice.set_ = {.name = absl::StrJoin(state.names(), ",")};
  if (state.chip().empty()) return choice;
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
