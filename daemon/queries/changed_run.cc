#include "daemon/queries/changed_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/downsampled.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/errors.h"

namespace seqpoint::queries {
namespace {

constexpr uint32_t kSavedSet = 0x20000;
constexpr size_t kMostReplayed = 64;

struct Shares {
  double sum = 0;
  int traces = 0;
  double mean() const { return sum / traces; }
};

double Distance(const Key& a, const Key& b) {
  return std::hypot(static_cast<double>(a.first) - static_cast<double>(b.first),
                    static_cast<double>(a.second) - static_cast<double>(b.second));
}

// Between the two nearest keys with another distance, by their distances; beyond all, the nearest.
double ShareAt(const Key& key, const std::map<Key, Shares>& shares) {
  if (const auto it = shares.find(key); it != shares.end()) return it->second.mean();
  std::vector<std::pair<double, double>> near;  // distance, share
  for (const auto& [at, share] : shares) near.emplace_back(Distance(key, at), share.mean());
  std::sort(near.begin(), near.end());
  const auto upper = shares.upper_bound(key);
  const bool inside = upper != shares.begin() && upper != shares.end();
  if (near.size() < 2 || !inside) return near[0].second;
  const double a = near[0].first, b = near[1].first;
  return (near[0].second * b + near[1].second * a) / (a + b);
}

}  // namespace

void ChangedRun::Widen(double by_ns) {
  for (Estimate* estimate : {&after, &saved}) {
    const double low = std::hypot(estimate->value - estimate->low, by_ns);
    const double high = std::hypot(estimate->high - estimate->value, by_ns);
    *estimate = {estimate->value, estimate->value - low, estimate->value + high};
  }
  after.low = std::max(after.low, 0.0);
}

void ChangedRun::MeetHalfway(const ChangedRun& other) {
  const double more_ns = (other.saved.value - saved.value) / 2;
  Move(more_ns);
  Widen(more_ns);
  for (size_t i = 0; i < std::min(points.size(), other.points.size()); ++i) {
    points[i].after_ns = (points[i].after_ns + other.points[i].after_ns) / 2;
  }
}

void ChangedRun::AddOnce(double cost_ns) {
  Move(-cost_ns);
  Widen(cost_ns);
}

void ChangedRun::MayCost(double cost_ns) {
  after.high += cost_ns;
  saved.low -= cost_ns;
}

void ChangedRun::Move(double more_saved_ns) {
  for (double* value : {&saved.value, &saved.low, &saved.high}) *value += more_saved_ns;
  for (double* value : {&after.value, &after.low, &after.high}) *value -= more_saved_ns;
}

absl::StatusOr<ChangedRun> ProjectChange(const jobs::Snapshot& snapshot,
                                         const std::vector<ReplayedStep>& steps, double confidence,
                                         double replay_error) {
  const jobs::SnapshotData& job = snapshot.data();
  absl::MutexLock lock(&snapshot.mutex());
  if (job.engine.Totals().iterations == 0) return NoIteration(job);
  if (!job.overcounted.empty()) return NoAnswer(job, job.overcounted);
  // Iterations of an earlier rule have other lengths; they are taken to save the same share.
  OnlineEngine engine = snapshot.work().current().Copy();
  std::map<Key, Shares> shares;
  std::vector<jobs::Measured> replayed;  // what is saved, what is usual, parts
  for (const ReplayedStep& step : steps) {
    if (!(step.before_ns > 0)) continue;
    const double share = 1 - step.after_ns / step.before_ns;
    const double usual_ns = engine.PredictTime(step.key);
    jobs::Measured& values = replayed.emplace_back();
    values = {static_cast<uint64_t>(step.number), step.key, {usual_ns * share, usual_ns}};
    for (const double part_ns : step.parts_ns) {
      values.values.push_back(part_ns * usual_ns / step.before_ns);
    }
    Shares& of_key = shares[step.key];
    of_key.sum += share;
    ++of_key.traces;
  }
  bool any = false;
  for (const jobs::Measured& one : jobs::Downsampled(std::move(replayed), kMostReplayed)) {
    // One on a first occurrence stands for nothing else, as with counters.
    any |= engine.AddMeasurement(kSavedSet, one.number, one.key, one.values).ok();
  }
  if (!any) {
    return NoAnswer(job, "of the traced iterations none stands for others yet");
  }
  // Shares of usual times: slow iterations and drift come with the run's own time, below.
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto saved, engine.ProjectStatistic(kSavedSet, 0, confidence, StatisticKind::kAmount));
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto usual, engine.ProjectStatistic(kSavedSet, 1, confidence, StatisticKind::kAmount));
  const Projection time = jobs::ProjectTime(job, confidence);
  if (!time.so_far && !time.total) {
    return NoAnswer(job, "no iteration has a time that a change could save");
  }
  const auto of = [](const Projection& projection) {
    return projection.total ? *projection.total : *projection.so_far;
  };
  ChangedRun run;
  run.whole_run = time.total.has_value();
  run.iterations = run.whole_run ? time.iterations_total : time.iterations_so_far;
  run.lengths = static_cast<int64_t>(engine.Totals().unique_keys);
  run.basis = time.basis;
  if (!job.uncounted.empty()) absl::StrAppend(&run.basis, "; ", job.uncounted);
  run.before = of(time);
  // The run saves the same share as the work: a step of several ranks takes what the slowest
  // takes, and their work is the sum over them.
  const double scale = of(usual).value > 0 ? run.before.value / of(usual).value : 0;
  const double value = of(saved).value * scale;
  const auto half = [](const Estimate& estimate) { return (estimate.high - estimate.low) / 2; };
  const double model = std::abs(replay_error * value);
  const double saved_half = std::hypot(half(of(saved)) * scale, model);
  run.saved = {value, value - saved_half, value + saved_half};
  const double left = run.before.value > 0 ? 1 - value / run.before.value : 1;
  const double after_half = std::hypot(half(run.before) * left, saved_half);
  const double after = run.before.value - value;
  run.after = {after, std::max(0.0, after - after_half), after + after_half};
  const size_t parts = steps.empty() ? 0 : steps[0].parts_ns.size();
  for (size_t i = 0; i < parts; ++i) {
    const auto part = engine.ProjectStatistic(kSavedSet, static_cast<int>(i) + 2, confidence,
                                              StatisticKind::kAmount);
    run.parts_ns.push_back(part.ok() ? of(*part).value * scale : 0);
  }
  for (const SeqPointInfo& point : engine.SeqPoints(job.plan)) {
    ChangedPoint& to = run.points.emplace_back();
    const int64_t length[2] = {point.key.first, point.key.second};
    to.lengths = job.units.Of(length, job.dimensions);
    to.weight = point.weight;
    to.before_ns = engine.PredictTime(point.key);
    to.after_ns = to.before_ns * (1 - ShareAt(point.key, shares));
    const auto at = shares.find(point.key);
    to.traces = at == shares.end() ? 0 : at->second.traces;
  }
  return run;
}

}  // namespace seqpoint::queries
