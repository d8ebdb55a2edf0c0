#include "daemon/jobs/answers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/job.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint::jobs {
namespace {

// Each projected kernel takes a millisecond or two.
constexpr int kMostKernels = 256;
constexpr int kSpareKernels = 16;

void ToProto(const Estimate& from, v1::Estimate* to) {
  to->set_value(from.value);
  to->set_low(std::max(0.0, from.low));  // no time and no count is less
  to->set_high(from.high);
}

StatisticKind KindOf(const counters::Metric& metric) {
  return metric.follows_time ? StatisticKind::kTimeLike : StatisticKind::kAmount;
}

Estimate Scaled(const Estimate& estimate, double by) {
  Estimate scaled{estimate.value * by, estimate.low * by, estimate.high * by};
  if (by < 0) std::swap(scaled.low, scaled.high);
  return scaled;
}

void AddScaled(const Estimate& estimate, double by, Estimate& sum) {
  const Estimate scaled = Scaled(estimate, by);
  sum.value += scaled.value;
  sum.low += scaled.low;
  sum.high += scaled.high;
}

// Weighted sum of projections; their errors are taken to agree, which is the widest they can be.
// Nothing without terms, or while one of them was not measured.
std::optional<Projection> SumOf(const std::vector<counters::Term>& terms,
                                const std::map<std::string, Projection>& projected) {
  std::optional<Projection> sum;
  for (const counters::Term& term : terms) {
    const auto it = projected.find(term.metric);
    if (it == projected.end()) return std::nullopt;
    const Projection& part = it->second;
    if (!sum) {
      sum = part;
      for (std::optional<Estimate>* e : {&sum->total, &sum->so_far, &sum->per_1000}) {
        if (*e) *e = Estimate{};
      }
      sum->remaining = Estimate{};
    }
    if (sum->total && part.total) AddScaled(*part.total, term.weight, *sum->total);
    if (sum->so_far && part.so_far) AddScaled(*part.so_far, term.weight, *sum->so_far);
    if (sum->per_1000 && part.per_1000) AddScaled(*part.per_1000, term.weight, *sum->per_1000);
    AddScaled(part.remaining, term.weight, sum->remaining);
  }
  return sum;
}

}  // namespace

std::vector<int64_t> LengthUnits::Of(const int64_t length[2], int count) const {
  std::vector<int64_t> lengths(count);
  for (int i = 0; i < count; ++i)
    lengths[swapped && count == 2 ? 1 - i : i] = (length[i] + unit[i] / 2) / unit[i];
  return lengths;
}

void SetFit(const KeyFit& fit, v1::Rule* rule) {
  rule->set_explained_share(fit.explained);
  switch (fit.verdict) {
    case KeyVerdict::kTooFew:
      rule->set_verdict(v1::VERDICT_TOO_FEW);
      break;
    case KeyVerdict::kExplained:
      rule->set_verdict(v1::VERDICT_EXPLAINED);
      break;
    case KeyVerdict::kNotExplained:
      rule->set_verdict(v1::VERDICT_NOT_EXPLAINED);
      break;
    case KeyVerdict::kTimeHardlyVaries:
      rule->set_verdict(v1::VERDICT_TIME_HARDLY_VARIES);
      break;
  }
}

v1::Projection Answers::ToProto(const Projection& known, std::string_view metric,
                                std::string_view unit) const {
  const Projection projection = Doubted(known);
  v1::Projection to;
  to.set_metric(std::string(metric));
  to.set_unit(std::string(unit));
  to.set_confidence(projection.confidence);
  if (projection.total) {
    jobs::ToProto(*projection.total, to.mutable_total());
    if (!facts_.another) jobs::ToProto(projection.remaining, to.mutable_remaining());
  }
  if (!facts_.another && projection.so_far) {
    jobs::ToProto(*projection.so_far, to.mutable_so_far());
  }
  if (projection.per_1000) {
    jobs::ToProto(*projection.per_1000, to.mutable_per_1000_iterations());
  }
  to.set_horizon_kind(projection.total ? facts_.horizon_kind : v1::Horizon::KIND_UNKNOWN);
  // All iterations of a part ran, and it has no horizon.
  const bool part = facts_.another && facts_.horizon_kind == v1::Horizon::KIND_UNKNOWN;
  to.set_iterations_so_far(part             ? projection.iterations_total
                           : facts_.another ? 0
                                            : projection.iterations_so_far);
  to.set_iterations_total(projection.iterations_total);
  const bool through = !facts_.another && projection.total &&
                       projection.iterations_so_far >= projection.iterations_total;
  to.set_basis(through && facts_.imported && facts_.engine.Totals().untimed == 0
                   ? absl::StrCat("the sum of the ", facts_.traced() ? "traces' " : "log's ",
                                  projection.iterations_so_far,
                                  projection.iterations_so_far == 1 ? " iteration" : " iterations",
                                  facts_.traced() ? "" : "; start-up is apart")
                   : projection.basis);
  if (!facts_.another && !facts_.uncounted.empty()) {
    absl::StrAppend(to.mutable_basis(), "; ", facts_.uncounted);
  }
  if (!facts_.overcounted.empty()) absl::StrAppend(to.mutable_basis(), "; ", facts_.overcounted);
  if (!facts_.another && facts_.begun) {
    absl::StrAppend(to.mutable_basis(), "; what began behind them has no end and is not counted");
  }
  to.set_clock_kind(facts_.clock_kind);
  return to;
}

Projection Answers::Doubted(Projection projection) const {
  if (!facts_.uncounted.empty()) {
    if (projection.so_far) projection.so_far->high = std::numeric_limits<double>::infinity();
    projection.remaining.low = 0;  // it may have run
  } else if (!facts_.another && projection.per_1000) {
    // The mean of a run that is over is no forecast: its iterations took so much.
    const bool over = projection.total
                          ? projection.iterations_so_far >= projection.iterations_total
                          : !facts_.live && projection.so_far && projection.iterations_so_far > 0;
    const auto iterations = static_cast<double>(projection.iterations_so_far);
    if (over) {
      projection.per_1000 =
          Scaled(projection.total ? *projection.total : *projection.so_far, 1000 / iterations);
    }
  }
  if (!facts_.overcounted.empty()) {
    // The mean is that of evaluation, too, so nobody knows what a training iteration takes.
    projection.total.reset();
    projection.per_1000.reset();
    projection.remaining = {};
    if (projection.so_far) projection.so_far->low = 0;
    if (!facts_.uncounted.empty()) projection.so_far.reset();
  }
  return projection;
}

absl::Status Answers::OvercountedError() const {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", facts_.name, "\": ", facts_.overcounted));
}

std::string Answers::StepsInWords() const {
  std::string words = RanksInWords("; a step is as long as the slowest of ");
  if (facts_.late > 0) {
    absl::StrAppend(&words, "; ", facts_.late, facts_.late == 1 ? " iteration" : " iterations",
                    " came when their steps were over: a step counts without a rank that joins "
                    "later, and without a time where a rank was far behind");
  }
  return words;
}

std::string Answers::RanksInWords(absl::string_view before) const {
  return facts_.work ? absl::StrCat(before, facts_.ranks.size(), " ranks") : "";
}

int32_t Answers::MeasurementsOf(uint32_t set) const {
  const auto it = facts_.measurements.find(set);
  return it == facts_.measurements.end() ? 0 : it->second;
}

absl::Status Answers::CheckMeasurable() const {
  if (!facts_.measurements.empty()) return absl::OkStatus();
  if (!facts_.imported && !facts_.measurable) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", facts_.name, "\": its processes have no CUPTI, so nothing is measured ",
        "but time; `seqpoint jobs ", facts_.name, "` says why"));
  }
  if (!facts_.imported) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", facts_.name,
                   "\" was made of another tool's log, which has times alone; `seqpoint run` "
                   "measures counters and kernels"));
}

absl::Status Answers::NoIteration() const {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", facts_.name, "\"",
                   facts_.ended_without.empty()
                       ? ": no iteration was found yet; ask again when `seqpoint jobs` shows some"
                       : absl::StrCat(" ended without iterations: ", facts_.ended_without)));
}

Projection Answers::Time(double confidence) const {
  Projection time = facts_.engine.ProjectTime(confidence, facts_.host_times);
  if (!facts_.mostly_untimed || !time.so_far) return time;
  // The GPU was idle until the host went on, and is not where it runs ahead.
  time.total.reset();
  time.so_far.reset();
  time.per_1000.reset();
  time.remaining = {};
  absl::StrAppend(&time.basis,
                  "; most iterations have no time, and the others are those that the "
                  "host waited for, which take longer");
  return time;
}

Answers::Summary Answers::Summarise() const {
  absl::MutexLock lock(&mutex_);
  if (summary_) return *summary_;
  const RunEngine& engine = facts_.engine;
  Summary summary;
  summary.time = ToProto(Time(0.95), "time", "ns");
  summary.time.mutable_basis()->append(StepsInWords());
  summary.fit = engine.current().Explained();
  summary.generation = facts_.generation;
  summary.iterations = engine.Totals().iterations;
  if (facts_.imported) {
    summary_ = std::move(summary);
    return *summary_;  // nothing will ever be measured
  }
  const Plan plan = Work().current().MakePlan(facts_.plan);
  for (const SeqPointInfo& point : Work().current().SeqPoints(facts_.plan)) {
    summary.seqpoints.set_seqpoints(summary.seqpoints.seqpoints() + 1);
    if (point.measured > 0 && point.measured >= point.wanted) {
      summary.seqpoints.set_measured(summary.seqpoints.measured() + 1);
    }
  }
  summary.seqpoints.set_measurements(plan.measured);
  // Those that were taken for an earlier plan count, too, also where this one would have fewer.
  summary.seqpoints.set_measurements_wanted(facts_.measurable ? std::max(plan.wanted, plan.measured)
                                                              : plan.measured);
  summary_ = std::move(summary);
  return *summary_;
}

absl::StatusOr<RunEngine> Answers::WorkAt(std::vector<KeyCount> iterations) const {
  if (absl::Status status = CheckMeasurable(); !status.ok()) return status;
  if (facts_.work) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", facts_.name, "\"",
                                                      RanksInWords(" has "),
                                                      ", whose kernels run at the same time"));
  }
  absl::MutexLock lock(&mutex_);
  RunEngine engine = facts_.engine.Copy();
  Horizon horizon = Horizon::Histogram(std::move(iterations));
  horizon.another = true;
  if (absl::Status status = engine.SetHorizon(std::move(horizon)); !status.ok()) return status;
  return engine;
}

absl::StatusOr<v1::ProjectReply> Answers::Project(const v1::ProjectRequest& request) const {
  absl::MutexLock lock(&mutex_);
  const RunEngine& engine = facts_.engine;
  if (engine.Totals().iterations == 0) {
    return NoIteration();
  }
  v1::ProjectReply reply;
  reply.set_job_id(absl::StrCat(facts_.job_id));
  *reply.mutable_losses() = facts_.losses;
  const std::string metric = request.metric().empty() ? "time" : request.metric();
  if (metric == "time") {
    *reply.mutable_projection() = ToProto(Time(request.confidence()), "time", "ns");
    reply.mutable_projection()->mutable_basis()->append(StepsInWords());
    return reply;
  }
  if (absl::Status status = CheckMeasurable(); !status.ok()) return status;
  // A metric may be in several configurations: any that was measured answers.
  absl::Status missing;
  std::vector<std::string> known = {"time"};
  for (const counters::OnePassConfig& config : facts_.metrics.set().configs) {
    for (size_t i = 0; i < config.metrics.size(); ++i) {
      if (std::find(known.begin(), known.end(), config.metrics[i].name) == known.end()) {
        known.push_back(config.metrics[i].name);
      }
      if (config.metrics[i].name != metric) continue;
      absl::StatusOr<Projection> projection = Work().ProjectStatistic(
          config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
      if (!projection.ok()) {
        missing = projection.status();
        continue;
      }
      *reply.mutable_projection() = ToProto(*projection, metric, config.metrics[i].unit);
      *reply.mutable_projection()->mutable_basis() += RanksInWords("; the sum over ");
      return reply;
    }
  }
  for (const counters::Ratio& ratio : facts_.metrics.set().ratios) {
    if (!ratio.denominator.empty()) continue;  // no sum over the run
    known.push_back(ratio.name);
    if (ratio.name != metric) continue;
    std::map<std::string, Projection> parts;
    for (const counters::OnePassConfig& config : facts_.metrics.set().configs) {
      for (size_t i = 0; i < config.metrics.size(); ++i) {
        absl::StatusOr<Projection> projection = Work().ProjectStatistic(
            config.config_id, static_cast<int>(i), request.confidence(), KindOf(config.metrics[i]));
        if (projection.ok()) parts.emplace(config.metrics[i].name, *std::move(projection));
      }
    }
    const std::optional<Projection> sum = SumOf(ratio.numerator, parts);
    if (!sum) {
      return absl::FailedPreconditionError(
          absl::StrCat("job \"", facts_.name, "\": not everything that \"", metric,
                       "\" is made of was measured yet; `seqpoint counters` says what"));
    }
    *reply.mutable_projection() = ToProto(*sum, metric, ratio.unit);
    *reply.mutable_projection()->mutable_basis() += RanksInWords("; the sum over ");
    return reply;
  }
  if (!missing.ok()) return missing;
  return absl::InvalidArgumentError(
      absl::StrCat("metric: \"", metric,
                   "\" is not collected for this job; there are: ", absl::StrJoin(known, ", ")));
}

absl::StatusOr<v1::GetSeqPointsReply> Answers::GetSeqPoints() const {
  v1::GetSeqPointsReply reply;
  absl::MutexLock lock(&mutex_);
  const RunEngine& engine = Work();
  const EngineTotals totals = engine.Totals();
  if (totals.iterations == 0) {
    return NoIteration();
  }
  const std::vector<SeqPointInfo> points = engine.current().SeqPoints(facts_.plan);
  double total_weight = 0;
  for (const SeqPointInfo& point : points) total_weight += point.weight;
  for (const SeqPointInfo& point : points) {
    v1::SeqPoint& to = *reply.add_seqpoints();
    const int64_t length[2] = {point.key.first, point.key.second};
    for (const int64_t value : facts_.units.Of(length, facts_.dimensions)) to.add_lengths(value);
    for (int i = 0; i < facts_.dimensions; ++i) to.add_read_lengths(length[i]);
    to.set_weight(point.weight);
    to.set_share(total_weight > 0 ? point.weight / total_weight : 0);
    const double mean_ns = engine.current().PredictTime(point.key);
    if (mean_ns > 0) to.set_mean_duration_ns(mean_ns);
    to.set_measured(point.measured);
    to.set_wanted(facts_.measurable ? point.wanted : point.measured);
  }
  if (facts_.rule) {
    *reply.mutable_rule() = *facts_.rule;
    SetFit(engine.current().Explained(), reply.mutable_rule());
  }
  if (facts_.work) {
    reply.set_sentence(
        absl::StrCat("iterations are those of all ", facts_.ranks.size(),
                     " ranks, each with its own length; a step of the job is one of each"));
  }
  reply.set_unique_lengths(static_cast<int64_t>(totals.unique_keys));
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  *reply.mutable_losses() = facts_.losses;
  reply.set_job_id(absl::StrCat(facts_.job_id));
  return reply;
}

absl::StatusOr<Playlist> Answers::MakePlaylist(const PlaylistOptions& options) const {
  absl::MutexLock lock(&mutex_);
  const OnlineEngine& engine = facts_.engine.current();
  const EngineTotals totals = facts_.engine.Totals();
  const KeyFit fit = engine.Explained();
  const absl::Status enough =
      CheckEnough(absl::StrCat("job \"", facts_.name, "\""),
                  static_cast<int64_t>(engine.Totals().iterations), fit.verdict);
  if (!enough.ok()) return enough;
  Playlist playlist{.job_id = facts_.job_id,
                    .ranks = facts_.ranks,
                    .first_number = facts_.engine.closed_iterations()};
  const std::vector<KeyTimes> times = engine.OrdinaryTimes();
  double ordinary_ns = 0;
  for (const KeyTimes& t : times) ordinary_ns += t.count * t.mean;
  const Selection selection =
      Select(times, options.points, options.target_error, options.confidence);
  const double scale =
      static_cast<double>(totals.iterations) / static_cast<double>(engine.Totals().iterations);
  // While a rule is learned anew there is none to ask.
  int dimensions = facts_.dimensions;
  for (const SeqPoint& point : selection.points) {
    dimensions = std::max(dimensions, point.key.second > 0 ? 2 : point.key.first > 0 ? 1 : 0);
  }
  // Features that round to the same length are one point.
  std::map<std::vector<int64_t>, SeqPoint> points;
  std::map<Key, std::vector<int64_t>> lengths_of;
  for (const SeqPoint& point : selection.points) {
    const int64_t length[2] = {point.key.first, point.key.second};
    const std::vector<int64_t> lengths = facts_.units.Of(length, dimensions);
    lengths_of[point.key] = lengths;
    const auto [it, added] = points.try_emplace(lengths, point);
    if (added) continue;
    SeqPoint& sum = it->second;
    const double share = point.weight / (sum.weight + point.weight);
    sum.cost += share * (point.cost - sum.cost);
    sum.noise += share * (point.noise - sum.noise);
    sum.weight += point.weight;
    sum.measurements += point.measurements;
  }
  v1::GetPlaylistReply& reply = playlist.reply;
  for (const auto& [lengths, point] : points) {
    for (const auto& [key, of_key] : lengths_of) {
      if (of_key == lengths) playlist.point_of[key] = reply.points_size();
    }
    v1::PlaylistPoint& to = *reply.add_points();
    for (const int64_t length : lengths) to.add_lengths(length);
    to.set_iteration(-1);
    to.set_weight(scale * point.weight);
    to.set_measurements(point.measurements);
    to.set_expected_duration_ns(point.cost);
    to.set_noise_duration_ns(point.noise);
  }
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  v1::Rule rule;
  SetFit(fit, &rule);
  reply.set_verdict(rule.verdict());
  reply.set_job_id(absl::StrCat(facts_.job_id));

  std::vector<std::string> sentences = {SetReach(selection, options, &reply), NotExplained(fit)};
  if (facts_.engine.closed_iterations() > 0) {
    sentences.push_back(absl::StrCat(facts_.engine.closed_iterations(),
                                     " iterations before the rule was learned anew are taken to "
                                     "be like the later ones"));
  }
  if (const std::optional<Estimate> all = engine.ProjectTime(0.95).so_far) {
    sentences.push_back(LeftOut(1 - ordinary_ns / all->value));
  }
  sentences.push_back(facts_.uncounted);
  sentences.push_back(facts_.overcounted);
  std::erase(sentences, "");
  reply.set_sentence(absl::StrJoin(sentences, "; "));
  return playlist;
}

absl::StatusOr<v1::GetCountersReply> Answers::GetCounters(
    const v1::GetCountersRequest& request) const {
  if (facts_.traced()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", facts_.name,
                     "\" was made of traces, which have times alone; `seqpoint run` measures "
                     "counters"));
  }
  if (absl::Status status = CheckMeasurable(); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  const RunEngine& engine = Work();
  const auto wanted = [&](const std::string& name) {
    return request.metrics().empty() ||
           std::find(request.metrics().begin(), request.metrics().end(), name) !=
               request.metrics().end();
  };
  std::vector<std::string> known;
  for (const counters::OnePassConfig& config : facts_.metrics.set().configs) {
    for (const counters::Metric& metric : config.metrics) known.push_back(metric.name);
  }
  for (const counters::Ratio& ratio : facts_.metrics.set().ratios) known.push_back(ratio.name);
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
  if (!facts_.mostly_untimed) {
    usual_time = engine.ProjectTime(request.confidence(), facts_.host_times);
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
  const auto set_per_iteration = [&](const Projection& projection, v1::Counter* counter) {
    if (const auto per_1000 = Doubted(projection).per_1000) {
      jobs::ToProto(Scaled(*per_1000, 1e-3), counter->mutable_per_iteration());
      counter->set_complete(true);
    } else {
      counter->set_sentence(facts_.overcounted);
    }
  };
  std::string missing;
  for (const counters::OnePassConfig& config : facts_.metrics.set().configs) {
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
        const auto refused = facts_.refused_configs.find(config.config_id);
        missing = refused != facts_.refused_configs.end()
                      ? refused->second
                      : std::string(projection.status().message());
        if (!wanted(metric.name)) continue;
        counter_of(metric).set_sentence(missing);
        continue;
      }
      projected[metric.name] = in_usual_time[metric.name] = *projection;
      if (counters::CountsElapsedTime(metric.name) && usual_time.per_1000 && range_time &&
          range_time->value > 0 && projection->per_1000) {
        in_usual_time[metric.name].per_1000 =
            Scaled(*usual_time.per_1000, projection->per_1000->value / range_time->value);
      }
      if (!wanted(metric.name)) continue;
      v1::Counter& counter = counter_of(metric);
      counter.clear_sentence();
      *counter.mutable_projection() = ToProto(*projection, metric.name, metric.unit);
      *counter.mutable_projection()->mutable_basis() += RanksInWords("; the sum over ");
      set_per_iteration(*projection, &counter);
      counter.set_measured_iterations(MeasurementsOf(config.config_id));
    }
  }
  for (const counters::Ratio& ratio : facts_.metrics.set().ratios) {
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
      counter.set_sentence(missing);
      continue;
    }
    if (is_sum) {
      *counter.mutable_projection() = ToProto(*numerator, ratio.name, ratio.unit);
      *counter.mutable_projection()->mutable_basis() += RanksInWords("; the sum over ");
      set_per_iteration(*numerator, &counter);
      counter.set_ratio(false);
      counter.set_derived(true);
      continue;
    }
    if (!facts_.overcounted.empty()) {
      counter.set_sentence(facts_.overcounted);
      continue;
    }
    const auto value = RatioOf(*numerator->per_1000, *denominator->per_1000);
    if (!value) {
      counter.set_sentence("what it is divided by may be zero");
      continue;
    }
    jobs::ToProto(*value, counter.mutable_per_iteration());
    counter.set_complete(true);
  }
  if (projected.empty() && !missing.empty() && engine.Totals().iterations == 0) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", facts_.name, "\": ", missing));
  }
  reply.set_measured_iterations(engine.current().MakePlan(facts_.plan).measured);
  reply.set_metric_sets(facts_.metrics.set().name);
  reply.set_chip(facts_.metrics.chip());
  const bool pm = facts_.metrics.backend() == counters::Backend::kPm;
  reply.set_backend(pm ? v1::COUNTER_BACKEND_PM : v1::COUNTER_BACKEND_RANGE);
  std::vector<std::string> sentences;
  if (pm) {
    sentences.push_back(
        "PM sampling counts the whole GPU, other processes included; values at both ends of an "
        "iteration are shared out by time");
    if (const SampledState& sampled = facts_.sampled; sampled.duration_ns() > 0) {
      sentences.push_back(absl::StrFormat(
          "its samples cover %.3g %% of the measured iterations' time (least: %.3g %%), and those "
          "that lie across an end are %.2g %% of it",
          100 * sampled.covered_ns() / sampled.duration_ns(), 100 * sampled.least_covered_share(),
          100 * sampled.edge_ns() / sampled.duration_ns()));
    }
  }
  if (!projected.empty()) {
    sentences.push_back(
        usual_time.per_1000
            ? "rates and shares of a peak or of cycles are over the usual time of iterations; "
              "measured ranges, whose time and cycles are listed, last longer"
            : "no usual time of iterations is known: rates and shares are over measured "
              "ranges, which last longer");
  }
  if (facts_.metrics.chip().empty()) {
    sentences.push_back(
        "which GPU the job runs on is not known to counters; `seqpoint jobs` says why");
  }
  if (!facts_.metrics.no_counters().empty()) sentences.push_back(facts_.metrics.no_counters());
  if (!facts_.metrics.set().missing.empty()) {
    sentences.push_back(
        absl::StrCat("on ", facts_.metrics.chip(), ": ", facts_.metrics.set().missing));
  }
  reply.set_sentence(absl::StrJoin(sentences, "; "));
  *reply.mutable_losses() = facts_.losses;
  reply.set_job_id(absl::StrCat(facts_.job_id));
  return reply;
}

void Answers::AddMeasured(const std::vector<IterationRow>& rows,
                          const std::set<std::pair<int32_t, int64_t>>& complete,
                          v1::GetCountersReply* reply) const {
  absl::MutexLock lock(&mutex_);
  const RunEngine& engine = Work();
  double taken_ns = 0, usual_ns = 0;
  for (const IterationRow& row : rows) {
    v1::MeasuredIteration& to = *reply->add_iterations();
    to.set_number(row.number);
    to.set_rank(row.rank);
    for (const int64_t value : facts_.units.Of(row.length, row.length_count)) to.add_lengths(value);
    for (const counters::OnePassConfig& config : facts_.metrics.set().configs) {
      if (config.config_id == row.config_id) to.set_config(config.set);
    }
    if (MetricChoice::OfKernels(row.config_id)) to.set_config(std::string(counters::kRooflineSet));
    if (row.duration_ns > 0) to.set_duration_ns(row.duration_ns);
    to.set_complete(complete.contains({row.rank, row.number}));
    // Lengths of an earlier rule are others.
    if (row.length_count != facts_.dimensions || row.number < engine.closed_iterations()) continue;
    Key key;
    if (row.length_count > 0) key.first = row.length[0];
    if (row.length_count > 1) key.second = row.length[1];
    const double usual = engine.current().PredictTime(key);
    if (usual > 0) to.set_usual_duration_ns(usual);
    if (row.duration_ns <= 0 || !(usual > 0)) continue;
    taken_ns += static_cast<double>(row.duration_ns);
    usual_ns += to.usual_duration_ns();
  }
  if (usual_ns > 0) reply->set_slowdown(taken_ns / usual_ns);
}

absl::StatusOr<v1::GetKernelsReply> Answers::GetKernels(
    const v1::GetKernelsRequest& request) const {
  if (absl::Status status = CheckMeasurable(); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  const RunEngine& engine = Work();
  v1::GetKernelsReply reply;
  // The longest ones of what was measured, some more than are wanted as their order may be another;
  // the others as one.
  const std::vector<double> measured = engine.MeasuredSums(kKernelTimeSet);
  std::vector<int> order, rest;
  for (size_t i = 0; i < measured.size(); ++i) {
    const bool named = facts_.kernels.size() <= kMaxValues || static_cast<int>(i) != kOtherKernels;
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
    absl::StatusOr<Projection> time =
        engine.ProjectStatistics(kKernelTimeSet, indices, request.confidence());
    absl::StatusOr<Projection> launches = engine.ProjectStatistics(
        kKernelLaunchSet, indices, request.confidence(), StatisticKind::kAmount);
    if (!time.ok()) return time.status();
    if (!launches.ok()) return launches.status();
    time = Doubted(*std::move(time));
    launches = Doubted(*std::move(launches));
    if (!time->total && (facts_.another || !time->so_far)) return OvercountedError();
    const Estimate& duration = time->total ? *time->total : *time->so_far;
    v1::Kernel& kernel = kernels.emplace_back();
    kernel.set_name(name);
    jobs::ToProto(duration, kernel.mutable_duration_ns());
    const Estimate& number = launches->total ? *launches->total : *launches->so_far;
    kernel.set_launches(number.value);
    kernel.set_launches_low(number.low);
    kernel.set_launches_high(number.high);
    kernel.set_measured_iterations(static_cast<int32_t>(time->measured_with));
    total_ns += duration.value;
    reply.set_horizon_kind(time->total ? facts_.horizon_kind : v1::Horizon::KIND_UNKNOWN);
    return absl::OkStatus();
  };
  for (size_t i = 0; i < leading; ++i) {
    const absl::Status status = project({&order[i], 1}, facts_.kernels[order[i]]);
    // A kernel that only refused measurements had.
    if (!status.ok() && !absl::IsOutOfRange(status)) return status;
  }
  if (kernels.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", facts_.name,
                     "\": no iteration was traced; kernels are known after the first that is"));
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
  reply.set_kernel_names(static_cast<int32_t>(
      facts_.kernels.size() > kMaxValues ? facts_.kernels.size() : measured.size()));
  reply.set_measured_iterations(MeasurementsOf(kKernelTimeSet));
  reply.set_confidence(request.confidence());
  *reply.mutable_losses() = facts_.losses;
  reply.set_job_id(absl::StrCat(facts_.job_id));
  return reply;
}

}  // namespace seqpoint::jobs
