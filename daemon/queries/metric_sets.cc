#include "daemon/queries/metric_sets.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/const_init.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/status_macros.h"
#include "daemon/counters/host_library.h"
#include "daemon/counters/metric_file.h"
#include "daemon/counters/metric_sets.h"

namespace seqpoint::queries {
namespace {

using counters::Backend;
using counters::HostLibrary;
using counters::OnePassConfig;

constexpr char kDefaultChip[] = "GH100";

// The host library asks for one thread at a time.
ABSL_CONST_INIT absl::Mutex host_library_mutex(absl::kConstInit);

v1::CounterBackend ToProto(Backend backend) {
  return backend == Backend::kPm ? v1::COUNTER_BACKEND_PM : v1::COUNTER_BACKEND_RANGE;
}

void AddTerms(const std::vector<counters::Term>& from,
              google::protobuf::RepeatedPtrField<v1::MetricTerm>* to) {
  for (const counters::Term& term : from) {
    v1::MetricTerm& added = *to->Add();
    added.set_metric(term.metric);
    added.set_weight(term.weight);
  }
}

void AddRatios(const std::vector<counters::Ratio>& from,
               google::protobuf::RepeatedPtrField<v1::MetricRatio>* to) {
  for (const counters::Ratio& ratio : from) {
    v1::MetricRatio& added = *to->Add();
    added.set_name(ratio.name);
    added.set_unit(ratio.unit);
    AddTerms(ratio.numerator, added.mutable_numerator());
    AddTerms(ratio.denominator, added.mutable_denominator());
  }
}

v1::MetricSet ToProto(const counters::OwnSet& set) {
  v1::MetricSet to;
  to.set_name(set.name);
  to.set_description(set.description);
  for (const std::vector<std::string>& config : set.configs) {
    v1::MetricConfiguration& configuration = *to.add_configurations();
    for (const std::string& metric : config) configuration.add_metrics(metric);
  }
  AddRatios(set.ratios, to.mutable_ratios());
  return to;
}

absl::StatusOr<std::vector<counters::OwnSet>> Parse(const v1::MetricFile& file) {
  if (file.text().empty()) return std::vector<counters::OwnSet>();
  return counters::ParseMetricFile(file.text(), file.name());
}

absl::Status NoSuchSet(const std::string& name, const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(
      absl::StrCat("no metric set \"", name, "\"; there are: ", absl::StrJoin(known, ", ")));
}

std::vector<std::string> ShippedNames() {
  std::vector<std::string> names;
  for (const counters::MetricSet& set : counters::MetricSets("", Backend::kRange)) {
    names.push_back(set.name);
  }
  return names;
}

// The passes of an own configuration, which the host library counts.
void CountPasses(const OnePassConfig& config, Backend backend, const std::string& chip,
                 const absl::StatusOr<HostLibrary>& library, v1::OfferedConfiguration* to) {
  if (!library.ok()) {
    to->set_problem(std::string(library.status().message()));
    return;
  }
  std::vector<std::string> names;
  for (const counters::Metric& metric : config.metrics) names.push_back(metric.name);
  const absl::StatusOr<int> passes = library->Passes(chip, backend, names);
  to->set_passes(passes.value_or(0));
  if (!passes.ok()) {
    to->set_problem(std::string(passes.status().message()));
  } else if (*passes > 1) {
    to->set_problem(
        absl::StrCat(*passes, " passes: one iteration gives one, split the configuration"));
  }
}

// The configurations of a set with one backend on the chip. Shipped configurations are one pass
// each: a test asks the host library for every chip.
absl::Status AddOffer(const std::string& name, const std::vector<counters::OwnSet>& own,
                      bool is_own, const std::string& chip, Backend backend,
                      const absl::StatusOr<HostLibrary>& library, v1::OfferedMetricSet* to) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto resolved,
                            counters::CombineMetricSets({name}, own, chip, backend));
  v1::MetricSetOffer& offer = *to->add_offers();
  offer.set_backend(ToProto(backend));
  offer.set_missing(is_own ? resolved.missing
                           : counters::FindMetricSet(name, chip, backend)->missing);
  for (const OnePassConfig& config : resolved.configs) {
    v1::OfferedConfiguration& added = *offer.add_configurations();
    for (const counters::Metric& metric : config.metrics) {
      v1::OfferedMetric& shown = *added.add_metrics();
      shown.set_name(metric.name);
      shown.set_unit(metric.unit);
    }
    if (is_own) {
      CountPasses(config, backend, chip, library, &added);
    } else {
      added.set_passes(1);
    }
  }
  AddRatios(resolved.ratios, offer.mutable_ratios());
  return absl::OkStatus();
}

absl::Status CheckOffered(const std::vector<counters::OwnSet>& sets, Backend backend,
                          const std::string& file) {
  absl::MutexLock lock(&host_library_mutex);
  const absl::StatusOr<HostLibrary> library = HostLibrary::Open();
  if (!library.ok()) return absl::OkStatus();
  const auto offered = [&](const std::string& metric) {
    const std::vector<std::string>& chips = counters::KnownChips();
    return std::any_of(chips.begin(), chips.end(), [&](const std::string& chip) {
      return library->Passes(chip, backend, {metric}).ok();
    });
  };
  for (const counters::OwnSet& set : sets) {
    for (const std::vector<std::string>& config : set.configs) {
      for (const std::string& metric : config) {
        if (offered(metric)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": set \"", set.name, "\": no chip offers \"", metric, "\" to the ",
                         std::string(counters::BackendName(backend)),
                         " backend; `ncu --query-metrics` lists what a GPU has"));
      }
    }
  }
  return absl::OkStatus();
}

// Chips are written in capitals, and people do not always.
absl::StatusOr<std::string> ChipOf(const std::string& asked) {
  if (asked.empty()) return std::string(kDefaultChip);
  const std::string upper = absl::AsciiStrToUpper(asked);
  if (counters::IsKnownChip(upper)) return upper;
  if (counters::IsKnownChip(asked)) return asked;
  return absl::InvalidArgumentError(absl::StrCat("chip: \"", asked, "\" is none of ",
                                                 absl::StrJoin(counters::KnownChips(), ", "),
                                                 " and their families"));
}

}  // namespace

absl::StatusOr<v1::ListMetricSetsReply> ListMetricSets(const v1::ListMetricSetsRequest& request) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto chip, ChipOf(request.chip()));
  SEQPOINT_ASSIGN_OR_RETURN(const auto own, Parse(request.file()));
  v1::ListMetricSetsReply reply;
  reply.set_chip(chip);
  for (const std::string& known : counters::KnownChips()) reply.add_known_chips(known);
  struct Found {
    std::string name, description;
    bool own;
  };
  std::vector<Found> sets;
  std::vector<std::string> known;
  for (const counters::OwnSet& set : own) sets.push_back({set.name, set.description, true});
  for (counters::MetricSet& set : counters::MetricSets(chip, Backend::kRange)) {
    sets.push_back({std::move(set.name), std::move(set.description), false});
  }
  for (const Found& set : sets) known.push_back(set.name);
  if (!request.set().empty()) {
    std::erase_if(sets, [&](const Found& set) { return set.name != request.set(); });
    if (sets.empty()) return NoSuchSet(request.set(), known);
  }
  absl::MutexLock lock(&host_library_mutex);
  const absl::StatusOr<HostLibrary> library =
      own.empty() ? absl::StatusOr<HostLibrary>(absl::NotFoundError("")) : HostLibrary::Open();
  for (const Found& set : sets) {
    v1::OfferedMetricSet& to = *reply.add_sets();
    to.set_name(set.name);
    to.set_description(set.description);
    for (const Backend backend : {Backend::kRange, Backend::kPm}) {
      SEQPOINT_RETURN_IF_ERROR(AddOffer(set.name, own, set.own, chip, backend, library, &to));
    }
  }
  return reply;
}

absl::Status ResolveMetricSets(v1::PrepareJobRequest* request) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto own, Parse(request->metric_file()));
  const Backend backend =
      request->counter_backend() == v1::COUNTER_BACKEND_PM ? Backend::kPm : Backend::kRange;
  if (!own.empty()) {
    SEQPOINT_RETURN_IF_ERROR(CheckOffered(own, backend, request->metric_file().name()));
  }
  for (const counters::OwnSet& set : own) *request->add_own_metric_sets() = ToProto(set);
  request->clear_metric_file();
  if (request->metric_sets().empty()) return absl::OkStatus();
  std::vector<std::string> known;
  for (const v1::MetricSet& set : request->own_metric_sets()) known.push_back(set.name());
  for (std::string& name : ShippedNames()) known.push_back(std::move(name));
  for (const std::string& name : request->metric_sets()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) return NoSuchSet(name, known);
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::queries
