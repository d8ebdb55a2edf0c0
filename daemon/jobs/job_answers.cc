// What a job answers to its clients.
#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/job_process.h"

namespace seqpoint::jobs {
namespace {

v1::Level ToProtoLevel(uint8_t level) {
  switch (static_cast<abi::Level>(level)) {
    case abi::Level::kLearn:
      return v1::LEVEL_LEARN;
    case abi::Level::kMark:
      return v1::LEVEL_MARK;
    case abi::Level::kTrace:
      return v1::LEVEL_TRACE;
    default:
      return v1::LEVEL_OFF;
  }
}

// Each projected kernel takes a millisecond or two.
constexpr int kMostKernels = 256;
constexpr int kSpareKernels = 16;

void ToProto(const Estimate& from, v1::Estimate* to) {
  to->set_value(from.value);
  to->set_low(from.low);
  to->set_high(from.high);
}

int HelloNumber(const ProcessRow& row, std::string_view key, int fallback) {
  int value;
  return absl::SimpleAtoi(HelloField(row, key), &value) ? value : fallback;
}

StatisticKind KindOf(const counters::Metric& metric) {
  return metric.unit == "bytes" || metric.unit == "instructions" ? StatisticKind::kAmount
                                                                 : StatisticKind::kTimeLike;
}

}  // namespace

v1::ClockKind Job::clock_kind() const {
  v1::ClockKind kind = v1::CLOCK_KIND_UNSPECIFIED;
  for (const auto& [id, process] : processes_) {
    const auto of_process = static_cast<v1::ClockKind>(std::min<uint32_t>(process->clock_kind, 2));
    if (of_process != v1::CLOCK_KIND_UNSPECIFIED) kind = of_process;
  }
  return kind;
}

v1::Losses Job::SumLosses() const {
  v1::Losses sum;
  for (const auto& [id, process] : processes_) {
    const v1::Losses& losses = process->losses;
    sum.set_ring_dropped(sum.ring_dropped() + losses.ring_dropped());
    sum.set_ring_lost(sum.ring_lost() + losses.ring_lost() +
                      static_cast<int64_t>(process->builder.lost_iterations()));
    sum.set_rejected(sum.rejected() + losses.rejected());
    sum.set_cupti_dropped(sum.cupti_dropped() + losses.cupti_dropped());
    sum.set_invalid_timestamps(sum.invalid_timestamps() + losses.invalid_timestamps());
  }
  const EngineTotals totals = engine_.Totals();
  sum.set_distorted_iterations(static_cast<int64_t>(totals.distorted));
  sum.set_redone_iterations(static_cast<int64_t>(totals.redone));
  sum.set_untimed_iterations(static_cast<int64_t>(totals.untimed));
  sum.set_refused_measurements(static_cast<int64_t>(totals.measurements_refused));
  return sum;
}

v1::Rule Job::DescribeRule() const {
  v1::Rule rule;
  rule.set_generation(static_cast<int32_t>(rule_->rule.generation));
  rule.set_boundary(rule_->boundary_words);
  rule.set_length(rule_->length_words);
  rule.set_confidence(rule_->confidence);
  rule.set_length_dimensions(static_cast<int32_t>(rule_->rule.length_count));
  const KeyFit fit = engine_.current().Explained();
  rule.set_explained_share(fit.explained);
  switch (fit.verdict) {
    case KeyVerdict::kTooFew:
      rule.set_verdict(v1::VERDICT_TOO_FEW);
      break;
    case KeyVerdict::kExplained:
      rule.set_verdict(v1::VERDICT_EXPLAINED);
      break;
    case KeyVerdict::kNotExplained:
      rule.set_verdict(v1::VERDICT_NOT_EXPLAINED);
      break;
    case KeyVerdict::kTimeHardlyVaries:
      rule.set_verdict(v1::VERDICT_TIME_HARDLY_VARIES);
      break;
  }
  rule.set_sentence(!sentence_.empty() ? sentence_ : !relearned_.empty() ? relearned_ : gap_);
  return rule;
}

v1::Projection Job::ToProto(const Projection& projection, std::string_view metric,
                            std::string_view unit) const {
  v1::Projection to;
  to.set_metric(std::string(metric));
  to.set_unit(std::string(unit));
  to.set_confidence(projection.confidence);
  if (projection.total) {
    jobs::ToProto(*projection.total, to.mutable_total());
    jobs::ToProto(projection.remaining, to.mutable_remaining());
  }
  jobs::ToProto(projection.so_far, to.mutable_so_far());
  jobs::ToProto(projection.per_1000, to.mutable_per_1000_iterations());
  to.set_horizon_kind(projection.total ? horizon_.kind() : v1::Horizon::KIND_UNKNOWN);
  to.set_iterations_so_far(projection.iterations_so_far);
  to.set_iterations_total(projection.iterations_total);
  to.set_basis(projection.basis);
  to.set_clock_kind(clock_kind());
  return to;
}

const Job::Summary& Job::RecentSummary() const {
  const uint64_t iterations = engine_.Totals().iterations;
  const bool recent = iterations <= summary_.iterations + summary_.iterations / 256;
  if (summary_.generation == generation_ || (summary_.generation != 0 && live() && recent)) {
    return summary_;
  }
  summary_ = {
      .time = engine_.ProjectTime(0.95), .generation = generation_, .iterations = iterations};
  const Plan plan = engine_.current().MakePlan(MakePlanOptions());
  for (const SeqPointInfo& point : engine_.current().SeqPoints(MakePlanOptions())) {
    v1::SeqPointsSummary& summary = summary_.seqpoints;
    summary.set_seqpoints(summary.seqpoints() + 1);
    if (point.measured > 0 && point.measured >= point.wanted) {
      summary.set_measured(summary.measured() + 1);
    }
  }
  summary_.seqpoints.set_measurements(plan.measured);
  summary_.seqpoints.set_measurements_wanted(plan.wanted);
  return summary_;
}

v1::Job Job::Describe(bool with_details, bool with_histogram) const {
  v1::Job job;
  job.set_id(absl::StrCat(row_.job_id));
  job.set_name(row_.name);
  job.set_run_id(row_.run_id);
  job.set_host(row_.host);
  job.set_command(row_.command);
  job.set_start_ns(row_.start_ns);
  job.set_end_ns(row_.end_ns);
  job.set_generation(generation_);
  job.set_state(live() && released_ ? v1::JOB_STATE_RELEASED
                : live() && paused_ ? v1::JOB_STATE_PAUSED
                                    : static_cast<v1::JobState>(row_.state));
  if (rule_) *job.mutable_rule() = DescribeRule();
  const EngineTotals totals = engine_.Totals();
  job.set_iterations(static_cast<int64_t>(totals.iterations));
  job.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  job.set_iterations_duration_ns(static_cast<int64_t>(totals.observed_time_ns));
  *job.mutable_losses() = SumLosses();
  if (totals.iterations > 0) {
    *job.mutable_time() = ToProto(RecentSummary().time, "time", "ns");
    *job.mutable_seqpoints() = RecentSummary().seqpoints;
  }
  for (const auto& [name, others] :
       {std::pair("start-up", startup_), std::pair("evaluation", evaluation_)}) {
    if (others.count == 0) continue;
    v1::PhaseSummary& phase = *job.add_phases();
    phase.set_name(name);
    phase.set_iterations(others.count);
    phase.set_duration_ns(others.duration_ns);
  }
  job.set_clock_kind(clock_kind());
  job.set_process_count(static_cast<int32_t>(processes_.size()));
  const int64_t stopped_ns = StoppedNs();
  for (const auto& [id, process] : processes_) {
    if (process->alive()) job.set_live_processes(job.live_processes() + 1);
    for (const auto& [number, feature] : process->features) {
      if (feature.state() == v1::FEATURE_STATE_FAILED && job.trouble().empty()) {
        job.set_trouble(feature.sentence());
      }
    }
  }
  if (job.trouble().empty()) job.set_trouble(refused_.empty() ? config_trouble_ : refused_);
  if (!rule_ && job.trouble().empty()) {
    job.set_trouble(former_rule_ ? relearned_ : sentence_);
  }
  for (const auto& [id, process] : processes_) {
    if (job.trouble().empty() && process->learning && !process->learning->wants_calls()) {
      job.set_trouble(process->learning->Explanation());
    }
  }
  if (const int64_t dropped = job.losses().ring_dropped(); dropped > 0 && job.trouble().empty()) {
    job.set_trouble(absl::StrCat(
        dropped, " records were dropped: the daemon did not keep up. Give it processor time, or a ",
        "larger ring to the program (SEQPOINT_RING_BYTES)",
        forced_level_ == v1::LEVEL_TRACE ? ", or do not trace everything (control JOB level auto)"
                                         : ""));
  }
  job.mutable_overhead()->set_budget_share(options_.overhead_budget_share);
  job.mutable_overhead()->set_stopped_duration_ns(stopped_ns);
  job.mutable_overhead()->set_sentence(waits_);
  if (totals.observed_time_ns > 0) {
    job.mutable_overhead()->set_spent_share(static_cast<double>(stopped_ns) /
                                            totals.observed_time_ns);
  }
  v1::Horizon& horizon = *job.mutable_horizon();
  if (with_histogram) {
    horizon = horizon_;
  } else {
    horizon.set_kind(horizon_.kind());
    horizon.set_iterations(horizon_.iterations());
    horizon.set_epochs(horizon_.epochs());
    horizon.set_source(horizon_.source());
  }
  if (!with_details) return job;
  for (const auto& [id, process] : processes_) {
    v1::Process& to = *job.add_processes();
    const ProcessRow& row = process->row;
    to.set_rank(row.rank);
    to.set_local_rank(HelloNumber(row, "local_rank", row.rank));
    to.set_world_size(HelloNumber(row, "world_size", 1));
    to.set_pid(row.pid);
    to.set_incarnation(row.incarnation);
    to.set_host(row.host);
    to.set_command(HelloField(row, "command"));
    to.set_working_directory(HelloField(row, "cwd"));
    to.set_library_version(HelloField(row, "library_version"));
    to.set_cupti_version(HelloField(row, "cupti_version"));
    to.set_driver_version(HelloField(row, "driver_version"));
    to.set_clock_kind(static_cast<v1::ClockKind>(std::min<uint32_t>(process->clock_kind, 2)));
    to.set_start_ns(row.start_ns);
    to.set_end_ns(row.end_ns);
    to.set_lost(row.lost);
    to.set_level(ToProtoLevel(process->level));
    for (const auto& [number, feature] : process->features) *to.add_features() = feature;
    *to.mutable_losses() = process->losses;
    to.set_stopped_duration_ns(process->stopped_ns);
    to.set_given_up_windows(process->given_up_windows);
    to.set_device(process->device);
    to.set_chip(process->chip);
    to.set_compute_capability(process->compute_capability);
  }
  return job;
}

absl::StatusOr<v1::ProjectReply> Job::Project(const v1::ProjectRequest& request) const {
  std::optional<RunEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const RunEngine& engine = **found;
  if (engine.Totals().iterations == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", row_.name,
                     "\": no iteration was found yet; ask again when `seqpoint jobs` shows some"));
  }
  v1::ProjectReply reply;
  reply.set_job_id(absl::StrCat(row_.job_id));
  *reply.mutable_losses() = SumLosses();
  const std::string metric = request.metric().empty() ? "time" : request.metric();
  if (metric == "time") {
    *reply.mutable_projection() = ToProto(engine.ProjectTime(request.confidence()), "time", "ns");
    return reply;
  }
  // A metric may be in several configurations: any that was measured answers.
  absl::Status missing;
  std::vector<std::string> known = {"time"};
  for (const counters::OnePassConfig& config : metric_set_.configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      if (std::find(known.begin(), known.end(), config.metrics[i].name) == known.end()) {
        known.push_back(config.metrics[i].name);
      }
      if (config.metrics[i].name != metric) continue;
      absl::StatusOr<Projection> projection = engine.ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
      if (!projection.ok()) {
        missing = projection.status();
        continue;
      }
      *reply.mutable_projection() = ToProto(*projection, metric, config.metrics[i].unit);
      return reply;
    }
  }
  if (!missing.ok()) return missing;
  return absl::InvalidArgumentError(
      absl::StrCat("metric: \"", metric,
                   "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
}

std::string Job::ConfigName(uint32_t config_id) const {
  if (config_id == abi::kConfigNone) return "";
  if (config_id == abi::kConfigTrace) return "trace";
  for (const counters::MetricSet& set : counters::MetricSets()) {
    for (const counters::OnePassConfig& config : set.configs) {
      if (config.config_id == config_id) return set.name;
    }
  }
  return absl::StrCat("configuration ", config_id);
}

int32_t Job::MeasurementsOf(uint32_t set) const {
  const auto it = measurements_.find(set);
  return it == measurements_.end() ? 0 : it->second;
}

std::map<int32_t, int64_t> Job::IterationsPerRank() const {
  std::map<int32_t, int64_t> ranks;
  for (const auto& [id, process] : processes_) {
    ranks[process->row.rank] += static_cast<int64_t>(process->iterations);
  }
  return ranks;
}

absl::StatusOr<v1::GetSeqPointsReply> Job::GetSeqPoints() const {
  v1::GetSeqPointsReply reply;
  const EngineTotals totals = engine_.Totals();
  if (totals.iterations == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", row_.name, "\": no iteration was found yet; SeqPoints need some"));
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  const std::vector<SeqPointInfo> points = engine_.current().SeqPoints(MakePlanOptions());
  double total_weight = 0;
  for (const SeqPointInfo& point : points) total_weight += point.weight;
  for (const SeqPointInfo& point : points) {
    v1::SeqPoint& to = *reply.add_seqpoints();
    const int64_t length[2] = {point.key.first, point.key.second};
    for (const int64_t value : UserLengths(length, dimensions)) to.add_lengths(value);
    to.set_weight(point.weight);
    to.set_share(total_weight > 0 ? point.weight / total_weight : 0);
    to.set_mean_duration_ns(engine_.current().PredictTime(point.key));
    to.set_measured(point.measured);
    to.set_wanted(point.wanted);
  }
  if (rule_) *reply.mutable_rule() = DescribeRule();
  reply.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

absl::StatusOr<v1::GetCountersReply> Job::GetCounters(const v1::GetCountersRequest& request) const {
  std::optional<RunEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const RunEngine& engine = **found;
  const auto wanted = [&](const std::string& name) {
    return request.metrics().empty() ||
           std::find(request.metrics().begin(), request.metrics().end(), name) !=
               request.metrics().end();
  };
  std::vector<std::string> known;
  for (const counters::OnePassConfig& config : metric_set_.configs) {
    for (const counters::Metric& metric : config.metrics) known.push_back(metric.name);
  }
  for (const counters::Ratio& ratio : metric_set_.ratios) known.push_back(ratio.name);
  for (const std::string& metric : request.metrics()) {
    if (std::find(known.begin(), known.end(), metric) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("metrics: \"", metric.substr(0, 100),
                     "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
  }
  v1::GetCountersReply reply;
  std::map<std::string, Projection> projected;
  const auto counter_of = [&](const counters::Metric& metric) -> v1::Counter& {
    for (v1::Counter& counter : *reply.mutable_counters()) {
      if (counter.metric() == metric.name) return counter;
    }
    v1::Counter& counter = *reply.add_counters();
    counter.set_metric(metric.name);
    counter.set_unit(metric.unit);
    return counter;
  };
  std::string missing;
  for (const counters::OnePassConfig& config : metric_set_.configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      const counters::Metric& metric = config.metrics[i];
      if (projected.contains(metric.name)) continue;  // by another configuration
      absl::StatusOr<Projection> projection = engine.ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
      if (!projection.ok()) {
        missing = std::string(projection.status().message());
        if (!wanted(metric.name)) continue;
        counter_of(metric).set_sentence(missing);
        continue;
      }
      projected[metric.name] = *projection;
      if (!wanted(metric.name)) continue;
      v1::Counter& counter = counter_of(metric);
      counter.clear_sentence();
      *counter.mutable_projection() = ToProto(*projection, metric.name, metric.unit);
      jobs::ToProto(Estimate{projection->per_1000.value / 1000, projection->per_1000.low / 1000,
                             projection->per_1000.high / 1000},
                    counter.mutable_per_iteration());
      counter.set_measured_iterations(MeasurementsOf(config.config_id));
      counter.set_complete(true);
    }
  }
  for (const counters::Ratio& ratio : metric_set_.ratios) {
    if (!wanted(ratio.name)) continue;
    const auto numerator = projected.find(ratio.numerator);
    const auto denominator = projected.find(ratio.denominator);
    v1::Counter& counter = *reply.add_counters();
    counter.set_metric(ratio.name);
    counter.set_unit(ratio.unit);
    counter.set_ratio(true);
    if (numerator == projected.end() || denominator == projected.end()) {
      counter.set_sentence(missing);
      continue;
    }
    const auto value = RatioOf(numerator->second.per_1000, denominator->second.per_1000);
    if (!value) {
      counter.set_sentence(absl::StrCat(ratio.denominator, " may be zero"));
      continue;
    }
    jobs::ToProto(
        Estimate{value->value * ratio.scale, value->low * ratio.scale, value->high * ratio.scale},
        counter.mutable_per_iteration());
    counter.set_complete(true);
  }
  if (projected.empty() && !missing.empty() && engine.Totals().iterations == 0) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", row_.name, "\": ", missing));
  }
  reply.set_measured_iterations(engine.current().MakePlan(MakePlanOptions()).measured);
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

absl::StatusOr<v1::GetKernelsReply> Job::GetKernels(const v1::GetKernelsRequest& request) const {
  std::optional<RunEngine> other;
  const auto found = EngineFor(request.has_horizon() ? &request.horizon() : nullptr, other);
  if (!found.ok()) return found.status();
  const RunEngine& engine = **found;
  v1::GetKernelsReply reply;
  // The longest ones of what was measured, some more than are wanted as their order may be another;
  // the others as one.
  const std::vector<double> measured = engine.MeasuredSums(kKernelTimeSet);
  std::vector<int> order, rest;
  for (size_t i = 0; i < measured.size(); ++i) {
    const bool named = kernels_.size() <= kMaxValues || static_cast<int>(i) != kOtherKernels;
    (named ? order : rest).push_back(static_cast<int>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return measured[a] > measured[b]; });
  const bool all = request.limit() <= 0 || request.limit() > kMostKernels;
  const size_t wanted = all ? kMostKernels : static_cast<size_t>(request.limit());
  const size_t leading = std::min(order.size(), wanted + (all ? 0 : kSpareKernels));
  rest.insert(rest.end(), order.begin() + static_cast<ptrdiff_t>(leading), order.end());
  double total_ns = 0;
  std::vector<v1::Kernel> kernels;
  const auto project = [&](absl::Span<const int> indices, const std::string& name) -> absl::Status {
    const absl::StatusOr<Projection> time =
        engine.ProjectStatistics(kKernelTimeSet, indices, request.confidence());
    const absl::StatusOr<Projection> launches = engine.ProjectStatistics(
        kKernelLaunchSet, indices, request.confidence(), StatisticKind::kAmount);
    if (!time.ok()) return time.status();
    if (!launches.ok()) return launches.status();
    v1::Kernel& kernel = kernels.emplace_back();
    kernel.set_name(name);
    const Estimate& duration = time->total ? *time->total : time->so_far;
    jobs::ToProto(duration, kernel.mutable_duration_ns());
    kernel.set_launches(launches->total ? launches->total->value : launches->so_far.value);
    total_ns += duration.value;
    reply.set_horizon_kind(time->total ? horizon_.kind() : v1::Horizon::KIND_UNKNOWN);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < leading; ++i) {
    const absl::Status status = project({&order[i], 1}, kernels_[order[i]]);
    // A kernel that only refused measurements had.
    if (!status.ok() && !absl::IsOutOfRange(status)) return status;
  }
  if (kernels.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", row_.name, "\": no iteration was traced yet; kernels are known after the first"));
  }
  std::sort(kernels.begin(), kernels.end(), [](const v1::Kernel& a, const v1::Kernel& b) {
    return a.duration_ns().value() > b.duration_ns().value();
  });
  if (!rest.empty()) {
    const absl::Status status = project(rest, "(others)");
    if (!status.ok() && !absl::IsOutOfRange(status)) return status;
  }
  for (v1::Kernel& kernel : kernels) {
    if (!all && reply.kernels_size() == request.limit()) break;
    kernel.set_share(total_ns > 0 ? kernel.duration_ns().value() / total_ns : 0);
    *reply.add_kernels() = std::move(kernel);
  }
  reply.set_kernel_names(
      static_cast<int32_t>(kernels_.size() > kMaxValues ? kernels_.size() : measured.size()));
  reply.set_measured_iterations(MeasurementsOf(kKernelTimeSet));
  reply.set_confidence(request.confidence());
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

}  // namespace seqpoint::jobs
