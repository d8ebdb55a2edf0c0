#include "daemon/jobs/figures.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::jobs {
void SetEstimate(const Estimate& from, v1::Estimate* to) {
  SetDifference({from.value, std::max(0.0, from.low), from.high}, to);
}

void SetDifference(const Estimate& from, v1::Estimate* to) {
  to->set_value(from.value);
  to->set_low(from.low);
  to->set_high(from.high);
}

v1::Verdict VerdictOf(KeyVerdict verdict) {
  // The API's are in the same order, behind the one that is not set.
  static_assert(static_cast<int>(KeyVerdict::kTimeHardlyVaries) + 1 ==
                v1::VERDICT_TIME_HARDLY_VARIES);
  return static_cast<v1::Verdict>(static_cast<int>(verdict) + 1);
}

void SetFit(const KeyFit& fit, v1::Rule* rule) {
  rule->set_explained_share(fit.explained);
  rule->set_verdict(VerdictOf(fit.verdict));
}

Projection ProjectTime(const SnapshotData& job, double confidence) {
  Projection time = job.engine.ProjectTime(confidence, job.host_times);
  if (!job.mostly_untimed || !time.so_far) return time;
  // The GPU was idle until the host went on; it is not where the host runs ahead.
  time.total.reset();
  time.so_far.reset();
  time.per_1000.reset();
  time.remaining = {};
  absl::StrAppend(&time.basis,
                  "; most iterations have no time, and the others are those that the "
                  "host waited for, which take longer");
  return time;
}

Projection WithDoubts(const SnapshotData& job, Projection projection) {
  if (!job.uncounted.empty()) {
    if (projection.so_far) projection.so_far->high = std::numeric_limits<double>::infinity();
    projection.remaining.low = 0;  // it may have run
  } else if (!job.another && projection.per_1000) {
    // The mean of a run that is over is no forecast: its iterations took so much.
    const bool over = projection.total
                          ? projection.iterations_so_far >= projection.iterations_total
                          : !job.live && projection.so_far && projection.iterations_so_far > 0;
    const auto iterations = static_cast<double>(projection.iterations_so_far);
    if (over) {
      projection.per_1000 =
          Scaled(projection.total ? *projection.total : *projection.so_far, 1000 / iterations);
    }
  }
  if (!job.overcounted.empty()) {
    // The mean is that of evaluation, too, so nobody knows what a training iteration takes.
    projection.total.reset();
    projection.per_1000.reset();
    projection.remaining = {};
    if (projection.so_far) projection.so_far->low = 0;
    if (!job.uncounted.empty()) projection.so_far.reset();
  }
  return projection;
}

Projection WithSlowRanks(const SnapshotData& job, uint32_t set, Projection projection,
                         StatisticKind kind, KernelTimes times) {
  if (job.slow.empty()) return projection;
  const auto ranks = static_cast<double>(job.ranks.size());
  const std::map<int32_t, std::vector<int64_t>> measured = job.MeasuredIn(set);
  const int32_t count = job.MeasurementsOf(set);
  const auto past = static_cast<int64_t>(static_cast<double>(projection.iterations_so_far) / ranks);
  const auto total = static_cast<int64_t>(static_cast<double>(projection.iterations_total) / ranks);
  for (const SlowSpan& slow : job.slow) {
    const SlowSpan span = times == KernelTimes::kCollectives ? OfCollectives(slow) : slow;
    if (kind == StatisticKind::kAmount ? !span.more_work : span.most <= 1) continue;
    const auto apply = [&](Estimate& estimate, int64_t begin, int64_t end) {
      const SlowShares shares =
          SharesOf(span, measured, count, job.ranks.size(), begin, job.another ? -1 : end);
      estimate = WithSpan(estimate, span, shares, times == KernelTimes::kKernels);
    };
    if (projection.total) apply(*projection.total, 0, total);
    if (projection.so_far) apply(*projection.so_far, 0, past);
    if (projection.total && past < total) apply(projection.remaining, past, total);
    if (projection.per_1000) apply(*projection.per_1000, 0, total > 0 ? total : past);
    absl::StrAppend(&projection.basis, "; ", SpanInWords(slow, measured, count));
  }
  return projection;
}

std::string SlowRanksInWords(const SnapshotData& job, uint32_t set) {
  const std::map<int32_t, std::vector<int64_t>> measured = job.MeasuredIn(set);
  std::vector<std::string> words;
  for (const SlowSpan& span : job.slow) {
    words.push_back(SpanInWords(span, measured, job.MeasurementsOf(set)));
  }
  return absl::StrJoin(words, "; ");
}

v1::Projection ProjectionOf(const SnapshotData& job, const Projection& known,
                            std::string_view metric, std::string_view unit) {
  const Projection projection = WithDoubts(job, known);
  v1::Projection to;
  to.set_metric(std::string(metric));
  to.set_unit(std::string(unit));
  to.set_confidence(projection.confidence);
  if (projection.total) {
    SetEstimate(*projection.total, to.mutable_total());
    if (!job.another) SetEstimate(projection.remaining, to.mutable_remaining());
  }
  if (!job.another && projection.so_far) {
    SetEstimate(*projection.so_far, to.mutable_so_far());
  }
  if (projection.per_1000) {
    SetEstimate(*projection.per_1000, to.mutable_per_1000_iterations());
  }
  to.set_horizon_kind(projection.total ? job.horizon_kind : v1::Horizon::KIND_UNKNOWN);
  // All iterations of a part ran, and it has no horizon.
  const bool part = job.another && job.horizon_kind == v1::Horizon::KIND_UNKNOWN;
  to.set_iterations_so_far(part          ? projection.iterations_total
                           : job.another ? 0
                                         : projection.iterations_so_far);
  to.set_iterations_total(projection.iterations_total);
  const bool through = !job.another && projection.total &&
                       projection.iterations_so_far >= projection.iterations_total;
  to.set_basis(through && job.imported && job.engine.Totals().untimed == 0
                   ? absl::StrCat("the sum of the ", job.traced() ? "traces' " : "log's ",
                                  projection.iterations_so_far,
                                  projection.iterations_so_far == 1 ? " iteration" : " iterations",
                                  job.traced() ? "" : "; start-up is apart")
                   : projection.basis);
  if (!job.another && !job.uncounted.empty()) {
    absl::StrAppend(to.mutable_basis(), "; ", job.uncounted);
  }
  if (!job.overcounted.empty()) absl::StrAppend(to.mutable_basis(), "; ", job.overcounted);
  if (!job.another && job.begun) {
    absl::StrAppend(to.mutable_basis(), "; what began behind them has no end and is not counted");
  }
  to.set_clock_kind(job.clock_kind);
  return to;
}

std::string StepsInWords(const SnapshotData& job) {
  std::string words = RanksInWords(job, "; a step is as long as the slowest of ");
  if (job.late > 0) {
    absl::StrAppend(&words, "; ", job.late, job.late == 1 ? " iteration" : " iterations",
                    " came when their steps were over: a step counts without a rank that joins "
                    "later, and without a time where a rank was far behind");
  }
  return words;
}

std::string RanksInWords(const SnapshotData& job, absl::string_view before) {
  return job.work ? absl::StrCat(before, job.ranks.size(), " ranks") : "";
}

}  // namespace seqpoint::jobs
