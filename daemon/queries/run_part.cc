#include "daemon/queries/run_part.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/step_rows.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::queries {
namespace {

absl::Status ForEachRow(const jobs::SnapshotData& job, const std::vector<int32_t>& ranks,
                        const IterationRange& range, Store& store,
                        absl::FunctionRef<void(const IterationRow&)> see) {
  StepRows reader(store, job.job_id, ranks, range.first);
  std::vector<IterationRow> rows;
  for (;;) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto more, reader.Read(rows));
    if (!more) return absl::OkStatus();
    for (const IterationRow& row : rows) {
      if (row.number > range.last) return absl::OkStatus();
      if (IsTraining(row)) see(row);
    }
  }
}

absl::Status NoIteration(const jobs::SnapshotData& job, const IterationRange& range) {
  return absl::FailedPreconditionError(
      absl::StrCat("job \"", job.name, "\" has none of ", range.words, "; it has ",
                   job.engine.Totals().iterations, " so far, which are counted from 0"));
}

double AsDouble(size_t count) { return static_cast<double>(count); }

double Sum(absl::Span<const double> times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

struct TimesInRow {
  double mean = 0, variance = 0;  // of the sum
  double seen = 0;                // so many were looked at
};

bool HasOwnTime(const jobs::SnapshotData& job, const IterationRow& row) {
  return row.duration_ns > 0 && (row.config_id == 0 || job.imported) &&
         (row.flags & kIterationDistorted) == 0;
}

// The time of `count` iterations in a row, from all such rows of the run. Where their
// order is not random (sorted lengths), those that are lost may all be long ones. Nothing where the
// run has too few of them for a variance.
std::optional<TimesInRow> TimesInRowOf(absl::Span<const double> times, size_t count) {
  const size_t stretches = times.size() / count;
  if (stretches < 4) return std::nullopt;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < stretches; ++i) sum += Sum(times.subspan(i * count, count));
  const double n = AsDouble(stretches);
  const double mean = sum / n;
  for (size_t i = 0; i < stretches; ++i) {
    squares += std::pow(Sum(times.subspan(i * count, count)) - mean, 2);
  }
  // As wide as Student's distribution, where there are few.
  return TimesInRow{.mean = mean, .variance = squares / (n - 3), .seen = n};
}

}  // namespace

absl::Status ForEachStep(const jobs::SnapshotData& job, const IterationRange& range, Store& store,
                         absl::FunctionRef<void(const IterationRow&)> see) {
  // A job that was made of a log has no ranks.
  const std::vector<int32_t> ranks = job.ranks.empty() ? std::vector<int32_t>{0} : job.ranks;
  return ForEachRow(job, ranks, range, store, see);
}

bool IsTraining(const IterationRow& row) {
  return row.phase == 0 && (row.flags & kIterationOther) == 0;
}

bool HasUsableTime(const jobs::SnapshotData& job, const IterationRow& row) {
  return HasOwnTime(job, row) && row.rest_ns == 0;
}

bool HasOpenEnd(const jobs::SnapshotData& job, const IterationRow& row) {
  return HasOwnTime(job, row) && row.rest_ns > 0;
}

absl::StatusOr<IterationRange> RangeOf(const v1::Part& part, const jobs::SnapshotData& job) {
  IterationRange range;
  if (part.epoch() != 0) {
    if (part.has_from() || part.has_to()) {
      return absl::InvalidArgumentError("part: give an epoch, or iterations from and to, not both");
    }
    if (part.epoch() < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("part.epoch = ", part.epoch(), " is not one from 1 on"));
    }
    if (job.epoch_iterations == 0) {
      return NoAnswer(
          job, "which iterations epoch ", part.epoch(),
          " had is not known, because it follows only from --iterations N or --lengths FILE, each "
          "with --epochs E, where all epochs have as many iterations and the run has no more than "
          "were said; ask for iterations with --from and --to");
    }
    range.first = (part.epoch() - 1) * job.epoch_iterations;
    range.last = part.epoch() * job.epoch_iterations - 1;
    range.words =
        absl::StrCat("epoch ", part.epoch(), ", iterations ", range.first, " to ", range.last);
    return range;
  }
  if (part.has_from()) range.first = part.from();
  if (part.has_to()) range.last = part.to();
  if (range.first < 0) {
    return absl::InvalidArgumentError(absl::StrCat("part.from = ", range.first, " is negative"));
  }
  if (range.last < range.first) {
    return absl::InvalidArgumentError(
        absl::StrCat("part.to = ", range.last, " is before part.from = ", range.first));
  }
  range.words = part.has_to() ? absl::StrCat("iterations ", range.first, " to ", range.last)
                              : absl::StrCat("iterations from ", range.first, " on");
  return range;
}

absl::StatusOr<IterationRange> CountedRangeOf(const v1::Part& part, const jobs::SnapshotData& job) {
  absl::StatusOr<IterationRange> range = RangeOf(part, job);
  const bool doubtful = !job.uncounted.empty() || !job.overcounted.empty();
  if (!range.ok() || !doubtful || range->last < job.counted_to) return range;
  if (!job.overcounted.empty()) {
    return NoAnswer(job, "which ones ", range->words, " are is not known: ", job.overcounted);
  }
  return NoAnswer(job, range->words, " are not known, because from iteration ", job.counted_to,
                  " on others may be missing: ", job.uncounted,
                  job.counted_to > 0 ? absl::StrCat("; ask for a part that ends before (--to ",
                                                    job.counted_to - 1, ")")
                                     : "");
}

absl::StatusOr<PartLengths> ReadLengths(const jobs::SnapshotData& job, const IterationRange& range,
                                        Store& store) {
  if (range.first < job.engine.closed_iterations()) {
    return NoAnswer(job, "the rule was learned anew at iteration ", job.engine.closed_iterations(),
                    "; of a part that begins earlier only the time is known");
  }
  int64_t all = 0, without = 0;
  std::map<Key, int64_t> counts;
  const auto see = [&](const IterationRow& row) {
    ++all;
    const bool known = job.dimensions == 0 || row.length_count > 0;
    if (!known) ++without;
    if (known) ++counts[job.dimensions == 0 ? Key{} : Key{row.length[0], row.length[1]}];
  };
  const auto take = [&] {
    // Those whose length is not known are taken to be like the others.
    std::vector<KeyCount> taken;
    for (const auto& [key, count] : counts) taken.push_back({key, count});
    counts.clear();
    return taken;
  };
  PartLengths lengths;
  SEQPOINT_RETURN_IF_ERROR(ForEachStep(job, range, store, see));
  if (all == 0) return NoIteration(job, range);
  if (without > 0) {
    return NoAnswer(job, without, " of ", range.words,
                    " have no length; of such a part only the time is known");
  }
  lengths.steps = take();
  if (!job.work) return lengths;
  for (const int32_t rank : job.ranks) {
    SEQPOINT_RETURN_IF_ERROR(ForEachRow(job, {rank}, range, store, see));
  }
  lengths.work = take();
  return lengths;
}

absl::StatusOr<v1::ProjectReply> ProjectPart(const jobs::Snapshot& snapshot,
                                             const IterationRange& range, double confidence,
                                             Store& store) {
  const jobs::SnapshotData& job = snapshot.data();
  double known = 0, rest = 0;
  int64_t timed = 0, in_run = 0;
  std::vector<double> times;  // of all of the run that have a usable one
  // How single iterations of the run differ from what their lengths take.
  double residual_squares = 0, residuals = 0;
  std::set<Key> timed_keys;
  std::map<Key, int64_t> untimed_keys;
  // Length of a row of iterations without time and length -> how often it comes.
  std::map<int64_t, int64_t> strange;
  int64_t last = -1, in_row = 0;
  const auto see = [&](const IterationRow& row) {
    ++in_run;
    last = row.number;
    const bool inside = row.number >= range.first && row.number <= range.last;
    const bool has_length = row.number >= job.engine.closed_iterations() &&
                            (job.dimensions == 0 || row.length_count > 0);
    const Key key = job.dimensions == 0 ? Key{} : Key{row.length[0], row.length[1]};
    const double expected = has_length ? snapshot.UsualStepTime(key) : 0;
    const bool usable = HasUsableTime(job, row), open_end = HasOpenEnd(job, row);
    if (inside && !usable && !open_end && expected <= 0) {
      ++in_row;
      return;
    }
    if (in_row > 0) ++strange[std::exchange(in_row, 0)];
    if (usable) {
      const auto time = static_cast<double>(row.duration_ns);
      times.push_back(time);
      if (inside) ++timed;
      if (inside) known += time;
      if (expected <= 0) return;
      residuals += 1;
      residual_squares += std::pow(time / expected - 1, 2);
      timed_keys.insert(key);
      return;
    }
    if (!inside) return;
    if (open_end) {
      ++timed;
      known += AsDouble(row.duration_ns);
      rest += AsDouble(row.rest_ns);
      return;
    }
    ++untimed_keys[key];
  };
  SEQPOINT_RETURN_IF_ERROR(ForEachStep(job, {}, store, see));
  if (in_row > 0) ++strange[in_row];
  int64_t untimed = 0, lost = 0;
  for (const auto& [key, count] : untimed_keys) untimed += count;
  for (const auto& [count, often] : strange) lost += count * often;
  if (timed + untimed + lost == 0) return NoIteration(job, range);
  const auto not_known = [&](int64_t count, absl::string_view what) {
    return NoAnswer(job, "the time of ", range.words, " is not known, because ", count,
                    " of them have ", what);
  };
  if (untimed > 0 && residuals < 2) {
    return not_known(untimed, "no time of their own, and too few others have one");
  }
  double usual = 0, variance = 0;
  const double run_mean = times.empty() ? 0 : Sum(times) / AsDouble(times.size());
  for (const auto& [key, count] : untimed_keys) {
    const double expected = snapshot.UsualStepTime(key);
    const auto count_of_key = static_cast<double>(count);
    usual += count_of_key * expected;
    variance += count_of_key * expected * expected * residual_squares / residuals;
    // A length that was never timed may take anything that is usual in this run on top, as the
    // first one of a length does.
    if (!timed_keys.contains(key)) variance += run_mean * run_mean;
  }
  for (const auto& [count, often] : strange) {
    const std::optional<TimesInRow> stretch = TimesInRowOf(times, static_cast<size_t>(count));
    if (!stretch) {
      return not_known(lost,
                       "neither a time nor a length, and the others are too few to tell what as "
                       "many in a row take");
    }
    const auto k = static_cast<double>(often);
    usual += k * stretch->mean;
    variance += stretch->variance * (k + k * k / stretch->seen);
  }
  const double reach = NormalQuantile(confidence) * std::sqrt(variance);
  const auto n = static_cast<double>(timed + untimed + lost);
  v1::ProjectReply reply;
  v1::Projection& projection = *reply.mutable_projection();
  projection.set_metric("time");
  projection.set_unit("ns");
  projection.set_confidence(confidence);
  projection.set_horizon_kind(v1::Horizon::KIND_UNKNOWN);
  projection.set_iterations_so_far(timed + untimed + lost);
  projection.set_iterations_total(timed + untimed + lost);
  projection.set_clock_kind(job.clock_kind);
  const Estimate total = {known + usual, known + std::max(0.0, usual - reach),
                          known + usual + reach + rest};
  jobs::SetEstimate(total, projection.mutable_total());
  jobs::SetEstimate(Scaled(total, 1000 / n), projection.mutable_per_1000_iterations());
  projection.set_basis(absl::StrCat(
      "the sum of ", timed, timed == 1 ? " time" : " times",
      untimed == 0 ? ""
                   : absl::StrCat("; ", untimed, untimed == 1 ? " iteration" : " iterations",
                                  " without a usable time (measured, distorted or without an end) ",
                                  untimed == 1 ? "counts" : "count", " with what ",
                                  untimed == 1 ? "its length takes" : "their lengths take"),
      lost == 0 ? ""
                : absl::StrCat("; ", lost, lost == 1 ? " iteration" : " iterations",
                               " with neither a time nor a length ", lost == 1 ? "counts" : "count",
                               " with what as many in a row take in this run")));
  if (rest > 0) {
    absl::StrAppend(
        projection.mutable_basis(),
        "; the last one's end is not known, and the interval has the most that it took");
  }
  if (range.last < std::numeric_limits<int64_t>::max() && range.last > last) {
    absl::StrAppend(projection.mutable_basis(), "; the run ", job.live ? "has had" : "had",
                    " no iteration beyond ", last);
  }
  if (const auto counted = static_cast<int64_t>(job.engine.Totals().iterations);
      !job.live && in_run != counted) {
    absl::StrAppend(projection.mutable_basis(), "; ", in_run, " of the run's ", counted,
                    " iterations are in its log, from which parts are read");
  }
  reply.set_part(range.words);
  *reply.mutable_losses() = job.losses;
  return reply;
}

}  // namespace seqpoint::queries
