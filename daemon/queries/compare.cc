#include "daemon/queries/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/cumulative_rounder.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/kernel_statistics.h"
#include "daemon/queries/counters.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/metric_terms.h"
#include "daemon/queries/run_part.h"
#include "daemon/seqpoint/run_difference.h"

namespace seqpoint::queries {
namespace {

constexpr int kBase = 0, kOther = 1;
// Kernels with a part of their own; each takes a millisecond or two in each run.
constexpr size_t kMostKernels = 256;
// Runs of as many examples: the last batch of an epoch may be smaller or left out.
constexpr double kSameExamples = 0.02;

// A job's iterations, by the user's lengths.
struct StoredRun {
  RunToCompare run;
  absl::flat_hash_map<Key, Key> feature_of;  // the user's lengths -> what the rule reads

  int64_t iterations() const {
    return static_cast<int64_t>(run.log.size() + run.untimed.size()) + run.unkeyed + run.unknown;
  }
};

void AddStep(const jobs::SnapshotData& job, const IterationRow& row, StoredRun* to) {
  if (!IsTraining(row)) return;
  RunToCompare& run = to->run;
  if (HasOpenEnd(job, row)) {  // it says nothing of what its length takes
    ++run.unkeyed;
    run.unkeyed_time += static_cast<double>(row.duration_ns);
    run.rest += static_cast<double>(row.rest_ns);
    return;
  }
  const bool usable = HasUsableTime(job, row);
  // Iterations of an earlier rule have lengths of another kind.
  const bool has_length =
      row.number >= job.engine.closed_iterations() && (job.dimensions == 0 || row.length_count > 0);
  if (!has_length) {
    ++(usable ? run.unkeyed : run.unknown);
    if (usable) run.unkeyed_time += static_cast<double>(row.duration_ns);
    return;
  }
  Key key;
  if (job.dimensions > 0) {
    const std::vector<int64_t> lengths = job.units.Of(row.length, job.dimensions);
    key = {lengths[0], lengths.size() > 1 ? lengths[1] : 0};
    to->feature_of.try_emplace(key, Key{row.length[0], row.length[1]});
  }
  if (!usable) {
    run.untimed.push_back(key);
    return;
  }
  run.log.keys.push_back(key);
  run.log.times.push_back(static_cast<double>(row.duration_ns));
}

absl::StatusOr<StoredRun> ReadRun(const jobs::SnapshotData& job, const IterationRange& range,
                                  Store& store) {
  StoredRun run;
  SEQPOINT_RETURN_IF_ERROR(
      ForEachStep(job, range, store, [&](const IterationRow& row) { AddStep(job, row, &run); }));
  return run;
}

// "bytes of the 1st host-to-device copy ÷ 256": the unit depends on the batch.
std::string WithoutUnit(const std::string& words) {
  constexpr std::string_view kUnit = " ÷ ";
  std::string text;
  for (size_t at = 0; at < words.size();) {
    if (words.compare(at, kUnit.size(), kUnit) != 0) {
      text += words[at++];
      continue;
    }
    at += kUnit.size();
    while (at < words.size() && (absl::ascii_isdigit(words[at]) || words[at] == ',')) ++at;
  }
  return text;
}

double ToDouble(int64_t value) { return static_cast<double>(value); }

struct Batches {
  int64_t base = 0, other = 0;  // examples in a forward pass; 0: not known
  double ratio = 1;             // other / base
  bool same_examples = false;   // both runs had as many
};

// The measured work, as if these iterations were the run. FailedPrecondition for a job of several
// ranks, whose keys are a rank's own.
absl::StatusOr<jobs::RunEngine> WorkAt(const jobs::Snapshot& snapshot,
                                       std::vector<KeyCount> iterations) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_RETURN_IF_ERROR(CheckMeasurable(job));
  if (job.work) {
    return absl::FailedPreconditionError(absl::StrCat("job \"", job.name, "\"",
                                                      jobs::RanksInWords(job, " has "),
                                                      ", whose kernels run at the same time"));
  }
  absl::MutexLock lock(&snapshot.mutex());
  jobs::RunEngine engine = job.engine.Copy();
  Horizon horizon = Horizon::Histogram(std::move(iterations));
  horizon.another = true;
  SEQPOINT_RETURN_IF_ERROR(engine.SetHorizon(std::move(horizon)));
  return engine;
}

// Two jobs and what is known of both.
class Comparison {
 public:
  Comparison(const jobs::Snapshot& base, const jobs::Snapshot& other,
             const v1::CompareRequest& request, v1::CompareReply* reply)
      : snapshots_{&base, &other}, request_(request), reply_(*reply) {}

  absl::Status Read(Store& store) {
    for (int r = 0; r < 2; ++r) {
      IterationRange range;
      if (request_.has_part()) {
        SEQPOINT_ASSIGN_OR_RETURN(range, CountedRangeOf(request_.part(), job(r)));
      }
      SEQPOINT_ASSIGN_OR_RETURN(runs_[r], ReadRun(job(r), range, store));
      names_[r] = absl::StrCat(job(r).name, "@", job(r).run_id);
      parts_[r] = range.words;
    }
    return absl::OkStatus();
  }

  void Answer() {
    reply_.set_confidence(request_.confidence());
    Describe();
    if (const std::string why = OfOtherClock(); !why.empty()) {
      reply_.set_not_known(why);
      return;
    }
    for (int r = 0; r < 2 && !request_.has_part(); ++r) {
      const std::string& why = job(r).overcounted.empty() ? job(r).uncounted : job(r).overcounted;
      if (why.empty()) continue;
      reply_.set_not_known(absl::StrCat(
          "which iterations ", names_[r], " had is not known: ", why,
          job(r).counted_to > 0
              ? absl::StrCat("; a part of it can be compared (--to ", job(r).counted_to - 1, ")")
              : ""));
      return;
    }
    FindBatches();
    difference_ = CompareRuns(runs_[kBase].run, runs_[kOther].run,
                              {.confidence = request_.confidence(),
                               .base_name = names_[kBase],
                               .other_name = names_[kOther],
                               .incomparable = Incomparable()});
    if (!difference_.not_known.empty()) {
      reply_.set_not_known(difference_.not_known);
      return;
    }
    SetParts();
    SetKernels();
    SetCounters();
    SetMainCause();
    SetMessages();
  }

 private:
  const jobs::SnapshotData& job(int r) const { return snapshots_[r]->data(); }

  // Why the times cannot be compared; empty: they can. An imported log or trace does not say whose
  // its are: a machine's, most of them.
  std::string OfOtherClock() const {
    const auto foreign = [&](int r) { return job(r).clock_kind == v1::CLOCK_KIND_FOREIGN; };
    if (foreign(kBase) == foreign(kOther)) return "";
    const int other = foreign(kBase) ? kOther : kBase;
    const std::string here =
        absl::StrCat("those of ", names_[1 - other], " are a software GPU's, or another tool's, ");
    return job(other).imported
               ? absl::StrCat("whether the times are of one clock is not known: ", here,
                              "and what ", names_[other], " was made of does not say whose its are")
               : absl::StrCat("the times are of different clocks: ", here, "those of ",
                              names_[other], " are real");
  }

  static bool Proven(const Estimate& e) { return e.low > 0 || e.high < 0; }

  void Describe() {
    for (int r = 0; r < 2; ++r) {
      v1::ComparedRun& to = r == kBase ? *reply_.mutable_base() : *reply_.mutable_other();
      to.set_job_id(absl::StrCat(job(r).job_id));
      to.set_name(names_[r]);
      to.set_part(parts_[r]);
      to.set_iterations(runs_[r].iterations());
      to.set_timed_iterations(static_cast<int64_t>(runs_[r].run.log.size()) + runs_[r].run.unkeyed);
      to.set_live(job(r).live);
      to.set_clock_kind(job(r).clock_kind);
      *to.mutable_losses() = job(r).losses;
      to.set_traced_iterations(job(r).MeasurementsOf(jobs::kKernelTimeSet));
    }
  }

  std::string LengthWords(int r) const {
    return job(r).rule ? job(r).rule->length() : std::string();
  }
  bool Given(int r) const { return job(r).units.given || job(r).imported; }
  bool SameFeature() const {
    return WithoutUnit(LengthWords(kBase)) == WithoutUnit(LengthWords(kOther)) &&
           !job(kBase).imported && !job(kOther).imported;
  }
  bool SameExamples(double batch_ratio) const {
    const double examples = batch_ratio * ToDouble(runs_[kOther].iterations()) /
                            std::max(1.0, ToDouble(runs_[kBase].iterations()));
    return std::abs(examples - 1) <= kSameExamples;
  }

  // The batch was said, or the bytes that the batch copy has for each unit of length tell it.
  void FindBatches() {
    batches_.base = job(kBase).batch;
    batches_.other = job(kOther).batch;
    const double units = ToDouble(job(kOther).units.unit[0]) / ToDouble(job(kBase).units.unit[0]);
    if (batches_.base > 0 && batches_.other > 0) {
      batches_.ratio = ToDouble(batches_.other) / ToDouble(batches_.base);
    } else if (SameFeature() && ((Given(kBase) && Given(kOther)) || SameExamples(units))) {
      batches_.ratio = units;
    }
    batches_.same_examples = SameExamples(batches_.ratio);
    reply_.mutable_base()->set_batch(batches_.base);
    reply_.mutable_other()->set_batch(batches_.other);
  }

  // Why a length of the one is not the same length of the other; empty: it is.
  std::string Incomparable() const {
    const auto& a = job(kBase);
    const auto& b = job(kOther);
    if (a.dimensions != b.dimensions) {
      return absl::StrFormat("%s has %d lengths for each iteration, %s has %d", names_[kBase],
                             a.dimensions, names_[kOther], b.dimensions);
    }
    if (a.dimensions == 0 || (Given(kBase) && Given(kOther))) return "";
    if (!SameFeature()) {
      return absl::StrCat("their lengths are read from different things (", LengthWords(kBase),
                          "; ", LengthWords(kOther),
                          "); run both with --lengths FILE, then both are those of the file");
    }
    const double units = ToDouble(b.units.unit[0]) / ToDouble(a.units.unit[0]);
    if (units == 1 || batches_.ratio == units) return "";
    return absl::StrFormat(
        "a step of length is %d in %s and %d in %s, and whether the batch or the padding is "
        "another is not known; run both with --lengths FILE --batch N",
        a.units.unit[0], names_[kBase], b.units.unit[0], names_[kOther]);
  }

  v1::DifferencePart MakePart(v1::DifferenceCause cause, const std::string& name,
                              const Estimate& duration) const {
    v1::DifferencePart part;
    part.set_cause(cause);
    part.set_name(name);
    jobs::SetDifference(duration, part.mutable_duration_ns());
    part.set_proven(Proven(duration));
    const double all = difference_.difference.value;
    if (Proven(difference_.difference)) {
      const auto [low, high] = std::minmax({duration.low / all, duration.high / all});
      jobs::SetDifference({duration.value / all, low, high}, part.mutable_share());
    }
    return part;
  }

  void SetParts() {
    jobs::SetDifference(difference_.base, reply_.mutable_base()->mutable_duration_ns());
    jobs::SetDifference(difference_.other, reply_.mutable_other()->mutable_duration_ns());
    jobs::SetDifference(difference_.difference, reply_.mutable_difference_ns());
    reply_.mutable_base()->set_unmatched_share(difference_.base_alone);
    reply_.mutable_other()->set_unmatched_share(difference_.other_alone);
    reply_.set_not_comparable(difference_.not_comparable);
    reply_.set_iteration_ratio(difference_.cost_ratio);
    const auto add = [&](v1::DifferenceCause cause, const char* name, const Estimate& duration) {
      *reply_.add_parts() = MakePart(cause, name, duration);
    };
    add(v1::DIFFERENCE_CAUSE_ITERATIONS, "number of iterations", difference_.iterations);
    if (difference_.lengths) {
      add(v1::DIFFERENCE_CAUSE_LENGTHS, "lengths", *difference_.lengths);
      add(v1::DIFFERENCE_CAUSE_COST, "cost at equal lengths", difference_.cost);
    } else {
      add(v1::DIFFERENCE_CAUSE_MEAN_ITERATION, "cost of a mean iteration", difference_.cost);
    }
    if (difference_.disturbances) {
      add(v1::DIFFERENCE_CAUSE_DISTURBANCES, "stalls and first iterations of a length",
          *difference_.disturbances);
    }
  }

  // The measured work of a run, at the iterations at which cost is compared.
  absl::StatusOr<jobs::RunEngine> EngineAt(int r) const {
    const jobs::LengthUnits& units = job(r).units;
    std::map<Key, double> weights;
    for (const KeyWeight& at : difference_.at) {
      const auto seen = runs_[r].feature_of.find(at.key);
      Key feature = at.key;
      if (seen != runs_[r].feature_of.end()) {
        feature = seen->second;
      } else if (job(r).dimensions > 0) {
        if (units.swapped && job(r).dimensions == 2) std::swap(feature.first, feature.second);
        feature = {feature.first * units.unit[0], feature.second * units.unit[1]};
      }
      weights[feature] += at.weight;
    }
    // An engine's counts are whole: fractions go to the next length. They are not counted in
    // smaller units, as an engine takes them for iterations to come, and the more of these there
    // are the farther times may drift.
    jobs::CumulativeRounder round;
    std::vector<KeyCount> histogram;
    for (const auto& [key, weight] : weights) {
      if (const int64_t count = round.Next(weight); count > 0) histogram.push_back({key, count});
    }
    return WorkAt(*snapshots_[r], std::move(histogram));
  }

  // Zero where no measured iteration had any of it.
  absl::StatusOr<Estimate> StatisticAt(const jobs::RunEngine& engine, uint32_t set,
                                       const std::vector<int>& indices, StatisticKind kind) const {
    if (indices.empty()) return Estimate{};
    const absl::StatusOr<Projection> projection =
        engine.ProjectStatistics(set, indices, request_.confidence(), kind);
    if (absl::IsOutOfRange(projection.status())) return Estimate{};
    if (!projection.ok()) return projection.status();
    if (!projection->total) return absl::InternalError("a run of known lengths has no total");
    return *projection->total;
  }

  void SetKernels() {
    if (!difference_.not_comparable.empty()) {
      reply_.set_no_kernels("kernels are compared at equal lengths");
      return;
    }
    if (const absl::Status status = TrySetKernels(); !status.ok()) {
      reply_.clear_cost_parts();
      reply_.set_no_kernels(std::string(status.message()));
    }
  }

  absl::Status TrySetKernels() {
    // By name: its statistic in each run. Those that share one there are "other kernels" here.
    std::map<std::string, std::vector<int>> indices[2];
    std::map<std::string, double> longest;
    std::vector<int> all[2];
    std::vector<jobs::RunEngine> engines;
    for (int r = 0; r < 2; ++r) {
      SEQPOINT_ASSIGN_OR_RETURN(engines.emplace_back(), EngineAt(r));
      const std::vector<double> sums = engines[r].MeasuredSums(jobs::kKernelTimeSet);
      if (sums.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("no iteration of ", names_[r], " was traced"));
      }
      const std::vector<std::string>& names = job(r).kernels;
      for (size_t i = 0; i < sums.size(); ++i) {
        all[r].push_back(static_cast<int>(i));
        const bool named = names.size() <= kMaxValues || static_cast<int>(i) != jobs::kOtherKernels;
        if (!named || i >= names.size()) continue;
        indices[r][names[i]].push_back(static_cast<int>(i));
        const double share =
            sums[i] / std::max(1.0, ToDouble(job(r).MeasurementsOf(jobs::kKernelTimeSet)));
        longest[names[i]] = std::max(longest[names[i]], share);
      }
    }
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, time] : longest) order.emplace_back(-time, name);
    std::sort(order.begin(), order.end());
    if (order.size() > kMostKernels) order.resize(kMostKernels);

    const auto compare = [&](v1::DifferenceCause cause, const std::string& name,
                             const std::vector<int>& base,
                             const std::vector<int>& other) -> absl::StatusOr<v1::DifferencePart> {
      SEQPOINT_ASSIGN_OR_RETURN(const auto before, StatisticAt(engines[kBase], jobs::kKernelTimeSet,
                                                               base, StatisticKind::kTimeLike));
      SEQPOINT_ASSIGN_OR_RETURN(const auto after, StatisticAt(engines[kOther], jobs::kKernelTimeSet,
                                                              other, StatisticKind::kTimeLike));
      v1::DifferencePart part = MakePart(cause, name, DifferenceOf(after, before));
      jobs::SetDifference(before, part.mutable_base_duration_ns());
      jobs::SetDifference(after, part.mutable_other_duration_ns());
      return part;
    };
    std::vector<v1::DifferencePart> parts;
    for (const auto& [time, name] : order) {
      SEQPOINT_ASSIGN_OR_RETURN(
          parts.emplace_back(),
          compare(v1::DIFFERENCE_CAUSE_KERNEL, name, indices[kBase][name], indices[kOther][name]));
    }
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
      return std::abs(a.duration_ns().value()) > std::abs(b.duration_ns().value());
    });
    if (request_.limit() > 0 && parts.size() > static_cast<size_t>(request_.limit())) {
      parts.resize(request_.limit());
    }
    std::vector<int> rest[2];
    double listed = 0;
    for (int r = 0; r < 2; ++r) {
      std::set<int> own;
      for (const v1::DifferencePart& part : parts) {
        own.insert(indices[r][part.name()].begin(), indices[r][part.name()].end());
      }
      for (const int i : all[r]) {
        if (!own.contains(i)) rest[r].push_back(i);
      }
    }
    if (!rest[kBase].empty() || !rest[kOther].empty()) {
      SEQPOINT_ASSIGN_OR_RETURN(
          parts.emplace_back(),
          compare(v1::DIFFERENCE_CAUSE_OTHER_KERNELS, "other kernels", rest[kBase], rest[kOther]));
    }
    SEQPOINT_ASSIGN_OR_RETURN(const auto kernels, compare(v1::DIFFERENCE_CAUSE_OTHER_KERNELS, "",
                                                          all[kBase], all[kOther]));
    for (const v1::DifferencePart& part : parts) listed += part.duration_ns().value();
    const v1::Estimate& sum = kernels.duration_ns();
    Estimate between = DifferenceOf(difference_.cost, {sum.value(), sum.low(), sum.high()});
    // Kernel by kernel their sum is not quite that of all together.
    const double shift = difference_.cost.value - listed - between.value;
    between = {between.value + shift, between.low + shift, between.high + shift};
    parts.push_back(MakePart(v1::DIFFERENCE_CAUSE_BETWEEN_KERNELS, "between kernels", between));
    for (v1::DifferencePart& part : parts) *reply_.add_cost_parts() = std::move(part);
    return absl::OkStatus();
  }

  void SetCounters() {
    if (request_.has_part()) {
      reply_.set_no_counters(
          "they are compared of whole runs; `seqpoint counters` has those of a part");
      return;
    }
    v1::GetCountersRequest request;
    request.set_confidence(request_.confidence());
    absl::StatusOr<v1::GetCountersReply> replies[2];
    std::vector<jobs::RunEngine> engines;
    for (int r = 0; r < 2; ++r) {
      replies[r] = GetCounters(*snapshots_[r], request);
      if (!replies[r].ok()) {
        reply_.set_no_counters(std::string(replies[r].status().message()));
        return;
      }
      if (!difference_.not_comparable.empty()) continue;
      absl::StatusOr<jobs::RunEngine> engine = EngineAt(r);
      if (engine.ok()) engines.push_back(*std::move(engine));
    }
    for (const v1::Counter& base : replies[kBase]->counters()) {
      for (const v1::Counter& other : replies[kOther]->counters()) {
        if (base.metric() != other.metric() || base.unit() != other.unit()) continue;
        // A ratio has no sum over the run.
        if (base.ratio() || other.ratio() || !base.complete() || !other.complete()) continue;
        if (!base.projection().has_so_far() || !other.projection().has_so_far()) continue;
        v1::ComparedCounter& to = *reply_.add_counters();
        to.set_metric(base.metric());
        to.set_unit(base.unit());
        *to.mutable_base() = base.projection().so_far();
        *to.mutable_other() = other.projection().so_far();
        if (engines.size() == 2) SetAtEqualLengths(engines, &to);
      }
    }
    if (reply_.counters().empty()) {
      reply_.set_no_counters("there is none that was measured in both");
    }
  }

  void SetAtEqualLengths(const std::vector<jobs::RunEngine>& engines, v1::ComparedCounter* to) {
    std::optional<Estimate> values[2];
    for (int r = 0; r < 2; ++r) {
      for (const counters::OnePassConfig& config : job(r).metrics.set().configs) {
        for (size_t i = 0; i < config.metrics.size() && !values[r]; ++i) {
          if (config.metrics[i].name != to->metric()) continue;
          const absl::StatusOr<Estimate> value = StatisticAt(
              engines[r], config.config_id, {static_cast<int>(i)}, KindOf(config.metrics[i]));
          if (value.ok()) values[r] = *value;
        }
      }
      if (!values[r]) return;
    }
    const Estimate difference = DifferenceOf(*values[kOther], *values[kBase]);
    jobs::SetDifference(*values[kBase], to->mutable_base_at_equal_lengths());
    jobs::SetDifference(*values[kOther], to->mutable_other_at_equal_lengths());
    jobs::SetDifference(difference, to->mutable_difference_at_equal_lengths());
    to->set_proven(Proven(difference));
  }

  // The proven part that goes the way of the difference and is largest; of cost the kernel that
  // makes up most of it.
  void SetMainCause() {
    if (!Proven(difference_.difference)) return;
    if (batches_.ratio != 1) {
      Estimate all = difference_.difference;
      double apart = difference_.disturbances ? difference_.disturbances->value : 0;
      if (!batches_.same_examples) apart += difference_.iterations.value;
      all = {all.value - apart, all.low - apart, all.high - apart};
      const v1::DifferencePart batch = MakePart(v1::DIFFERENCE_CAUSE_BATCH, "batch size", all);
      if (batch.proven() && batch.share().value() >= 0.5) {
        *reply_.mutable_main_cause() = batch;
        return;
      }
    }
    const auto largest = [&](const auto& parts) {
      const v1::DifferencePart* best = nullptr;
      for (const v1::DifferencePart& part : parts) {
        if (!part.proven() || part.share().value() <= 0) continue;
        if (part.cause() == v1::DIFFERENCE_CAUSE_OTHER_KERNELS) continue;
        if (best == nullptr || part.share().value() > best->share().value()) best = &part;
      }
      return best;
    };
    const v1::DifferencePart* cause = largest(reply_.parts());
    if (cause == nullptr) return;
    *reply_.mutable_main_cause() = *cause;
    if (cause->cause() != v1::DIFFERENCE_CAUSE_COST) return;
    const v1::DifferencePart* kernel = largest(reply_.cost_parts());
    if (kernel == nullptr || kernel->share().value() < cause->share().value() / 2) return;
    *reply_.mutable_main_cause() = *kernel;
  }

  void SetMessages() {
    for (int r = 0; r < 2; ++r) {
      if (job(r).live) {
        reply_.add_messages(absl::StrCat(names_[r], " is running: its figures are those so far"));
      }
      const double alone = r == kBase ? difference_.base_alone : difference_.other_alone;
      if (alone > 0.01 && difference_.not_comparable.empty()) {
        reply_.add_messages(absl::StrFormat(
            "%.0f %% of the iterations of %s have lengths that %s lacks: what these "
            "cost there is taken from its other lengths, and the intervals say how "
            "far that may be off",
            100 * alone, names_[r], names_[1 - r]));
      }
    }
    if (job(kBase).ranks.size() != job(kOther).ranks.size()) {
      reply_.add_messages(absl::StrFormat("%s ran on %d ranks, %s on %d", names_[kBase],
                                          job(kBase).ranks.size(), names_[kOther],
                                          job(kOther).ranks.size()));
    }
    if (job(kBase).host_times != job(kOther).host_times) {
      reply_.add_messages(absl::StrCat(
          names_[job(kBase).host_times ? kBase : kOther],
          " ran without a GPU, the other one with: the times are of different machines"));
    }
    if (batches_.ratio != 1) {
      const std::string of = absl::StrFormat("a batch of %s has %.4g times as many examples",
                                             names_[kOther], batches_.ratio);
      reply_.add_messages(absl::StrCat(
          of, ": that changes the number of iterations, their lengths (a batch is padded to its ",
          "longest example) and what an iteration costs at equal lengths",
          batches_.same_examples ? "" : "; the runs did not have as many examples either"));
    }
  }

  const jobs::Snapshot* const snapshots_[2];
  const v1::CompareRequest& request_;
  v1::CompareReply& reply_;
  StoredRun runs_[2];
  std::string names_[2], parts_[2];
  Batches batches_;
  RunDifference difference_;
};

}  // namespace

absl::StatusOr<v1::CompareReply> Compare(const jobs::Snapshot& base, const jobs::Snapshot& other,
                                         const v1::CompareRequest& request, Store& store) {
  v1::CompareReply reply;
  Comparison comparison(base, other, request, &reply);
  SEQPOINT_RETURN_IF_ERROR(comparison.Read(store));
  comparison.Answer();
  return reply;
}

}  // namespace seqpoint::queries
