#include "daemon/jobs/metric_collection.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/limits.h"
#include "injection/abi/control.h"

namespace seqpoint::jobs {

bool MetricCollection::OnChip(const std::string& chip, int32_t rank) {
  const absl::StatusOr<bool> chosen = choice_.SetChip(chip);
  if (!chosen.ok()) error_ = std::string(chosen.status().message());
  if (!choice_.Fits(chip)) {
    error_ =
        absl::StrCat("rank ", rank, " runs on ", chip, ", whose counters differ from those of ",
                     choice_.chip(), ": its iterations are traced and timed, and not counted");
  }
  if (!chosen.ok() || !*chosen) return false;
  if (!choice_.no_roofline().empty()) error_ = choice_.no_roofline();
  const counters::MetricSet& set = choice_.set();
  if (set.configs.empty() && !set.missing.empty()) {
    error_ = absl::StrCat("nothing is counted on ", choice_.chip(), ": ", set.missing);
  }
  return true;
}

bool MetricCollection::full() const { return refused_.size() >= kMaxRefusedConfigs; }

void MetricCollection::Refuse(uint32_t config_id, const std::string& why) {
  refused_[config_id] = why;
  error_ = absl::StrCat(Describe(config_id), " cannot be collected: ", why);
}

std::vector<uint32_t> MetricCollection::Collected(
    const std::vector<counters::OnePassConfig>& configs) const {
  std::vector<uint32_t> ids;
  for (const counters::OnePassConfig& config : configs) {
    if (!refused_.contains(config.config_id)) ids.push_back(config.config_id);
  }
  return ids;
}

std::string MetricCollection::Describe(uint32_t config_id) const {
  for (const counters::OnePassConfig& config : choice_.set().configs) {
    if (config.config_id != config_id || config.metrics.empty()) continue;
    return absl::StrCat(
        "a configuration of the metric set \"", config.set, "\" (", config.metrics[0].name,
        config.metrics.size() > 1 ? absl::StrCat(" and ", config.metrics.size() - 1, " more") : "",
        ")");
  }
  return absl::StrCat("configuration ", config_id);
}

std::vector<ConfigRow> MetricCollection::Rows(int64_t job_id) const {
  std::vector<ConfigRow> rows;
  for (const auto* configs : {&choice_.set().configs, &choice_.roofline().configs}) {
    for (const counters::OnePassConfig& config : *configs) {
      ConfigRow& row = rows.emplace_back(ConfigRow{.job_id = job_id,
                                                   .config_id = config.config_id,
                                                   .name = choice_.NameOf(config.config_id)});
      for (const counters::Metric& metric : config.metrics) row.metrics.push_back(metric.name);
    }
  }
  return rows;
}

}  // namespace seqpoint::jobs
