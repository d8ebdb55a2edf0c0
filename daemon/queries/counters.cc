#include "daemon/queries/counters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/counters/metric_sets.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/metric_terms.h"
#include "daemon/seqpoint/estimate.h"

namespace seqpoint::queries {
absl::StatusOr<v1::GetCountersReply> GetCounters(const jobs::Snapshot& snapshot,
                                                 const v1::GetCountersRequest& request) {
  const jobs::SnapshotData& job = snapshot.data();
  if (job.traced()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.name,
                     "\" was made of traces, which have times alone; `seqpoint run` measures "
                     "counters"));
  }
  SEQPOINT_RETURN_IF_ERROR(CheckMeasurable(job));
  absl::MutexLock lock(&snapshot.mutex());
  const jobs::RunEngine& engine = snapshot.work();
  const auto wanted = [&](const std::string& name) {
    return request.metrics().empty() ||
           std::find(request.metrics().begin(), request.metrics().end(), name) !=
               request.metrics().end();
  };
  std::vector<std::string> known;
  for (const counters::OnePassConfig& config : job.metrics.set().configs) {
    for (const counters::Metric& metric : config.metrics) known.push_back(metric.name);
  }
  for (const counters::Ratio& ratio : job.metrics.set().ratios) known.push_back(ratio.name);
  for (const std::string& metric : request.metrics()) {
    if (std::find(known.begin(), known.end(), metric) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: \"", metric.substr(0, 100),
                     "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
  }
  v1::GetCountersReply reply;
  std::map<std::string, Projection> projected;
  // The same, but what elapses while an iteration runs is that of its usual time: a measured range
  // is longer by what CUPTI does at its ends (NVIDIA's developer forum, 353002: a kernel of 3.5 us
  // in an automatic range takes "much" longer in a user range), and the GPU is idle meanwhile.
  std::map<std::string, Projection> in_usual_time;
  Projection usual_time;  // its per_1000 alone
  if (!job.mostly_untimed) {
    usual_time = engine.ProjectTime(request.confidence(), job.host_times);
  }
  const auto counter_of = [&](const counters::Metric& metric) -> v1::Counter& {
    for (v1::Counter& counter : *reply.mutable_counters()) {
      if (counter.metric() == metric.name) return counter;
    }
    v1::Counter& counter = *reply.add_counters();
    counter.set_metric(metric.name);
    counter.set_unit(metric.unit);
    return counter;
  };
  const auto set = [&](const Projection& projection, v1::Counter* counter) {
    v1::Projection& to = *counter->mutable_projection();
    to = jobs::ProjectionOf(job, projection, counter->metric(), counter->unit());
    to.mutable_basis()->append(jobs::RanksInWords(job, "; the sum over "));
    if (const auto per_1000 = jobs::WithDoubts(job, projection).per_1000) {
      jobs::SetEstimate(Scaled(*per_1000, 1e-3), counter->mutable_per_iteration());
      counter->set_complete(true);
    } else {
      counter->set_message(job.overcounted);
    }
  };
  std::string missing;
  for (const counters::OnePassConfig& config : job.metrics.set().configs) {
    std::optional<Estimate> range_time;
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      if (config.metrics[i].name != counters::kRangeTime) continue;
      absl::StatusOr<Projection> time = engine.ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
      if (time.ok()) range_time = time->per_1000;
    }
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      const counters::Metric& metric = config.metrics[i];
      if (projected.contains(metric.name)) continue;  // by another configuration
      absl::StatusOr<Projection> projection = engine.ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(metric));
      if (!projection.ok()) {
        const auto refused = job.refused_configs.find(config.config_id);
        missing = refused != job.refused_configs.end() ? refused->second
                                                       : std::string(projection.status().message());
        if (!wanted(metric.name)) continue;
        counter_of(metric).set_message(missing);
        continue;
      }
      *projection =
          jobs::WithSlowRanks(job, config.config_id, *std::move(projection), KindOf(metric));
      projected[metric.name] = in_usual_time[metric.name] = *projection;
      if (counters::CountsElapsedTime(metric.name) && usual_time.per_1000 && range_time &&
          range_time->value > 0 && projection->per_1000) {
        in_usual_time[metric.name].per_1000 =
            Scaled(*usual_time.per_1000, projection->per_1000->value / range_time->value);
      }
      if (!wanted(metric.name)) continue;
      v1::Counter& counter = counter_of(metric);
      counter.clear_message();
      set(*projection, &counter);
      counter.set_measured_iterations(job.MeasurementsOf(config.config_id));
    }
  }
  for (const counters::Ratio& ratio : job.metrics.set().ratios) {
    if (!wanted(ratio.name)) continue;
    v1::Counter& counter = *reply.add_counters();
    counter.set_metric(ratio.name);
    counter.set_unit(ratio.unit);
    counter.set_ratio(true);
    const bool is_sum = ratio.denominator.empty();
    const std::optional<Projection> numerator =
        SumOf(ratio.numerator, is_sum ? projected : in_usual_time);
    const std::optional<Projection> denominator = SumOf(ratio.denominator, in_usual_time);
    if (!numerator || (!denominator && !is_sum)) {
      counter.set_message(missing);
      continue;
    }
    if (is_sum) {
      set(*numerator, &counter);
      counter.set_ratio(false);
      counter.set_derived(true);
      continue;
    }
    if (!job.overcounted.empty()) {
      counter.set_message(job.overcounted);
      continue;
    }
    const auto value = RatioOf(*numerator->per_1000, *denominator->per_1000);
    if (!value) {
      counter.set_message("what it is divided by may be zero");
      continue;
    }
    jobs::SetEstimate(*value, counter.mutable_per_iteration());
    counter.set_complete(true);
  }
  if (projected.empty() && !missing.empty() && engine.Totals().iterations == 0) {
    return NoAnswer(job, missing);
  }
  reply.set_measured_iterations(engine.current().MakePlan(job.plan).measured);
  reply.set_metric_sets(job.metrics.set().name);
  reply.set_chip(job.metrics.chip());
  const bool pm = job.metrics.backend() == counters::Backend::kPm;
  reply.set_backend(pm ? v1::COUNTER_BACKEND_PM : v1::COUNTER_BACKEND_RANGE);
  std::vector<std::string> messages;
  if (pm) {
    messages.push_back(
        "PM sampling counts the whole GPU, other processes included; values at both ends of an "
        "iteration are shared out by time");
    if (const jobs::SampledState& sampled = job.sampled; sampled.duration_ns() > 0) {
      messages.push_back(absl::StrFormat(
          "its samples cover %.3g %% of the measured iterations' time (least: %.3g %%), and those "
          "that lie across an end are %.2g %% of it",
          100 * sampled.covered_ns() / sampled.duration_ns(), 100 * sampled.least_covered_share(),
          100 * sampled.edge_ns() / sampled.duration_ns()));
    }
  }
  if (!projected.empty()) {
    messages.push_back(
        usual_time.per_1000
            ? "rates and shares of a peak or of cycles are over the usual time of iterations; "
              "measured ranges, whose time and cycles are listed, last longer"
            : "no usual time of iterations is known: rates and shares are over measured "
              "ranges, which last longer");
  }
  if (job.metrics.chip().empty()) {
    messages.push_back(
        "which GPU the job runs on is not known to counters; `seqpoint jobs` says why");
  }
  if (!job.metrics.no_counters().empty()) messages.push_back(job.metrics.no_counters());
  if (!job.metrics.set().missing.empty()) {
    messages.push_back(absl::StrCat("on ", job.metrics.chip(), ": ", job.metrics.set().missing));
  }
  reply.set_message(absl::StrJoin(messages, "; "));
  *reply.mutable_losses() = job.losses;
  return reply;
}

absl::Status AddMeasuredIterations(const jobs::Snapshot& snapshot, const IterationRange& range,
                                   Store& store, v1::GetCountersReply* reply) {
  constexpr size_t kMostListed = 1000;
  constexpr int kMostRead = 1 << 20;
  const jobs::SnapshotData& job = snapshot.data();
  std::vector<IterationRow> measured;
  for (const int32_t rank : job.ranks) {
    SEQPOINT_ASSIGN_OR_RETURN(auto rows,
                              store.ReadIterations(job.job_id, rank, range.first, kMostRead,
                                                   /*measured_only=*/true));
    std::erase_if(rows, [&](const IterationRow& row) {
      const bool traced = row.config_id == jobs::kKernelTimeSet;
      return traced || row.number > range.last;
    });
    const size_t last = std::min(rows.size(), kMostListed);
    measured.insert(measured.end(), rows.end() - static_cast<ptrdiff_t>(last), rows.end());
  }
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows, store.ReadMeasurements(job.job_id));
  std::set<std::pair<int32_t, int64_t>> complete;  // rank and number
  for (const MeasurementRow& row : rows) {
    if (row.complete) complete.emplace(row.rank, row.number);
  }
  std::stable_sort(
      measured.begin(), measured.end(),
      [](const IterationRow& a, const IterationRow& b) { return a.number < b.number; });
  if (measured.size() > kMostListed) {
    measured.erase(measured.begin(), measured.end() - static_cast<ptrdiff_t>(kMostListed));
  }
  absl::MutexLock lock(&snapshot.mutex());
  const jobs::RunEngine& engine = snapshot.work();
  double taken_ns = 0, usual_ns = 0;
  for (const IterationRow& row : measured) {
    v1::MeasuredIteration& to = *reply->add_iterations();
    to.set_number(row.number);
    to.set_rank(row.rank);
    for (const int64_t value : job.units.Of(row.length, row.length_count)) to.add_lengths(value);
    to.set_config(job.metrics.NameOf(row.config_id));
    if (row.duration_ns > 0) to.set_duration_ns(row.duration_ns);
    to.set_complete(complete.contains({row.rank, row.number}));
    // Lengths of an earlier rule are others.
    if (row.length_count != job.dimensions || row.number < engine.closed_iterations()) continue;
    const double usual = engine.current().PredictTime({row.length[0], row.length[1]});
    if (usual > 0) to.set_usual_duration_ns(usual);
    if (row.duration_ns <= 0 || !(usual > 0)) continue;
    taken_ns += static_cast<double>(row.duration_ns);
    usual_ns += to.usual_duration_ns();
  }
  if (usual_ns > 0) reply->set_slowdown(taken_ns / usual_ns);
  return absl::OkStatus();
}

}  // namespace seqpoint::queries
