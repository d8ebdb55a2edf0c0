#include "daemon/playlist.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/import.h"
#include "daemon/jobs/log_playlist.h"
#include "daemon/queries/step_rows.h"
#include "daemon/seqpoint/analysis.h"
#include "daemon/seqpoint/estimate.h"

namespace seqpoint {
namespace {

constexpr size_t kPageRows = 4096;
constexpr double kMostMissing = 0.01;  // of the iterations, that nobody measured
constexpr size_t kNamedPoints = 5;
constexpr size_t kSeenNoise = 4;  // points from which EstimateOther sees the noise itself
// Beyond these nothing real is meant, and no sum overflows.
constexpr double kMostWeight = 1e15;
constexpr double kMostDurationNs = 1e18;
// Times that never varied where the points were chosen may vary elsewhere.
constexpr double kLeastNoise = 1e-6;

std::string Name(const v1::PlaylistPoint& point) {
  if (point.lengths_size() > 0)
    return absl::StrCat("length ", absl::StrJoin(point.lengths(), " x "));
  return absl::StrCat("iteration ", point.iteration());
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckCounts(const v1::ProjectPlaylistRequest& request) {
  const int points = request.points_size();
  if (points == 0) return Invalid("points: there is none; give those of GetPlaylist");
  if (request.durations_ns_size() != points) {
    return Invalid("durations_ns has ", request.durations_ns_size(), " entries for ", points,
                   " points; give the mean time of each");
  }
  if (request.measured_size() != 0 && request.measured_size() != points) {
    return Invalid("measured has ", request.measured_size(), " entries for ", points,
                   " points; give how many measurements each had, or none at all");
  }
  return absl::OkStatus();
}

int32_t Measured(const v1::ProjectPlaylistRequest& request, int i) {
  return request.measured_size() > 0 ? request.measured(i) : request.points(i).measurements();
}

absl::Status CheckPoint(const v1::ProjectPlaylistRequest& request, int i) {
  const v1::PlaylistPoint& point = request.points(i);
  const auto positive = [&](const char* field, double value, double most) {
    if (value > 0 && value <= most) return absl::OkStatus();
    return Invalid("points[", i, "].", field, " = ", value, " is not a positive number up to ",
                   most);
  };
  absl::Status status = positive("weight", point.weight(), kMostWeight);
  status.Update(positive("expected_duration_ns", point.expected_duration_ns(), kMostDurationNs));
  if (!status.ok()) return status;
  const double noise = point.noise_duration_ns();
  if (!(noise >= 0 && noise <= kMostDurationNs)) {
    return Invalid("points[", i, "].noise_duration_ns = ", noise, " is not a number from 0 to ",
                   kMostDurationNs);
  }
  if (point.measurements() < 1) {
    return Invalid("points[", i, "].measurements = ", point.measurements(), " is not positive");
  }
  if (Measured(request, i) < 0) {
    return Invalid("measured[", i, "] = ", request.measured(i), " is negative");
  }
  const double duration = request.durations_ns(i);
  if (Measured(request, i) > 0 && !(duration > 0 && duration <= kMostDurationNs)) {
    return Invalid("durations_ns[", i, "] = ", duration, " is not a positive number up to ",
                   kMostDurationNs);
  }
  return absl::OkStatus();
}

// The log that a job was made of, without rows that have no time.
absl::StatusOr<CleanLog> ReadBack(const jobs::Answers::Facts& job, Store& store) {
  RunLog log;
  std::vector<bool> start_up;
  std::vector<int64_t> numbers;
  for (int64_t next = 0;;) {
    const auto rows = store.ReadIterations(job.job_id, /*rank=*/0, next, kPageRows);
    if (!rows.ok()) return rows.status();
    for (const IterationRow& row : *rows) {
      if (row.duration_ns == 0) continue;
      numbers.push_back(row.number);
      log.keys.push_back({row.length[0], row.length[1]});
      log.times.push_back(static_cast<double>(row.duration_ns));
      start_up.push_back(row.phase == jobs::kStartUpPhase);
    }
    if (rows->size() < kPageRows) break;
    next = rows->back().number + 1;
  }
  if (log.size() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job.name, "\": its iterations are no longer stored; import the log anew"));
  }
  CleanLog clean = CleanUp(log, start_up);
  for (int64_t& row : clean.rows) row = numbers[static_cast<size_t>(row)];
  return clean;
}

void ToProto(const Estimate& from, double scale, v1::Estimate* to) {
  to->set_value(scale * from.value);
  to->set_low(scale * std::max(0.0, from.low));
  to->set_high(scale * from.high);
}

}  // namespace

absl::StatusOr<v1::GetPlaylistReply> WithIterations(const jobs::Playlist& playlist, Store& store) {
  using Ordinary = jobs::OrdinaryIterations;
  v1::GetPlaylistReply reply = playlist.reply;
  Ordinary ordinary(playlist.point_of, &reply);
  StepRows reader(store, playlist.job_id, playlist.ranks, playlist.first_number);
  std::vector<IterationRow> steps;
  while (!ordinary.settled()) {
    const absl::StatusOr<bool> more = reader.Read(steps);
    if (!more.ok()) return more.status();
    if (!*more) break;
    for (const IterationRow& row : steps) {
      if (row.phase != 0 || (row.flags & kIterationOther) != 0) continue;
      const bool disturbed =
          row.config_id != 0 || row.rest_ns > 0 || (row.flags & kIterationDistorted) != 0;
      const bool first = (row.flags & kIterationFirst) != 0;
      ordinary.See(Key{row.length[0], row.length[1]}, row.number,
                   static_cast<double>(row.duration_ns),
                   (disturbed ? Ordinary::kDisturbed : 0) + (first ? Ordinary::kFirst : 0));
    }
  }
  return reply;
}

absl::StatusOr<v1::GetPlaylistReply> PlaylistOfImport(const jobs::Answers::Facts& job,
                                                      const jobs::PlaylistOptions& options,
                                                      Store& store) {
  const absl::StatusOr<CleanLog> log = ReadBack(job, store);
  if (!log.ok()) return log.status();
  const KeyFit fit = FitOf(*log);
  const absl::Status enough = jobs::CheckEnough(absl::StrCat("job \"", job.name, "\""),
                                                static_cast<int64_t>(log->log.size()), fit.verdict);
  if (!enough.ok()) return enough;
  v1::GetPlaylistReply reply = jobs::PlaylistOfLog(*log, fit, job.dimensions, options);
  if (const uint64_t untimed = job.engine.Totals().untimed; untimed > 0) {
    absl::StrAppend(reply.mutable_sentence(), reply.sentence().empty() ? "" : "; ", untimed,
                    untimed == 1 ? " iteration" : " iterations",
                    " of the log without a time in no weight");
  }
  reply.set_job_id(absl::StrCat(job.job_id));
  return reply;
}

absl::StatusOr<v1::GetSeqPointsReply> SeqPointsOfImport(const jobs::Answers::Facts& job,
                                                        Store& store) {
  const absl::StatusOr<CleanLog> log = ReadBack(job, store);
  if (!log.ok()) return log.status();
  const KeyFit fit = FitOf(*log);
  if (fit.verdict == KeyVerdict::kNotExplained) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "job \"%s\": the length does not explain the time of an iteration (%.1f %% of its "
        "variance, 50 %% are needed): no length can stand for others, so there are no SeqPoints",
        job.name, 100 * fit.explained));
  }
  v1::GetSeqPointsReply reply;
  const v1::GetPlaylistReply playlist = jobs::PlaylistOfLog(*log, fit, job.dimensions, {});
  int measurements = 0;
  for (const v1::PlaylistPoint& point : playlist.points()) {
    v1::SeqPoint& to = *reply.add_seqpoints();
    *to.mutable_lengths() = point.lengths();
    to.set_weight(point.weight());
    to.set_share(point.weight() / static_cast<double>(playlist.iterations()));
    to.set_mean_duration_ns(point.expected_duration_ns());
    measurements += point.measurements();
  }
  if (job.rule) {
    *reply.mutable_rule() = *job.rule;
    jobs::SetFit(fit, reply.mutable_rule());
  }
  reply.set_unique_lengths(static_cast<int64_t>(log->by_key.size()));
  reply.set_iterations(playlist.iterations());
  reply.set_job_id(absl::StrCat(job.job_id));
  reply.set_sentence(absl::StrCat(
      "of an imported log nothing is measured: these are the lengths that ", measurements,
      " measurements would fall on, as in `seqpoint analyze`; `seqpoint playlist ", job.job_id,
      " --points K` lists those of K"));
  return reply;
}

absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(
    const v1::ProjectPlaylistRequest& request) {
  absl::Status status = CheckCounts(request);
  for (int i = 0; i < request.points_size() && status.ok(); ++i) status = CheckPoint(request, i);
  if (!status.ok()) return status;

  std::vector<MeasuredPoint> points;
  std::vector<const v1::PlaylistPoint*> missing;
  double iterations = 0, expected_ns = 0, missing_iterations = 0;
  int64_t measurements = 0;
  for (int i = 0; i < request.points_size(); ++i) {
    const v1::PlaylistPoint& point = request.points(i);
    const double cost = point.expected_duration_ns();
    iterations += point.weight();
    expected_ns += point.weight() * cost;
    if (Measured(request, i) == 0) {
      missing.push_back(&point);
      missing_iterations += point.weight();
      continue;
    }
    measurements += Measured(request, i);
    const double noise = std::max(point.noise_duration_ns(), kLeastNoise * cost);
    points.push_back(
        {{{}, point.weight(), Measured(request, i), cost, noise}, request.durations_ns(i)});
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(missing.size(), kNamedPoints); ++i) {
    names.push_back(Name(*missing[i]));
  }
  if (missing.size() > names.size()) {
    names.push_back(absl::StrCat(missing.size() - names.size(), " more"));
  }
  const std::string who =
      absl::StrFormat("%s (%.3g %% of the iterations)", absl::StrJoin(names, ", "),
                      100 * missing_iterations / iterations);
  if (missing_iterations >= kMostMissing * iterations) {
    return Invalid("nobody measured ", who,
                   "; measure it, too: the total needs a time of every point");
  }
  // As the nearest does: the weight goes there, by expected time.
  for (const v1::PlaylistPoint* point : missing) {
    const auto distance = [&](const MeasuredPoint& p) {
      return std::abs(p.point.cost - point->expected_duration_ns());
    };
    MeasuredPoint& nearest =
        *std::min_element(points.begin(), points.end(),
                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    nearest.point.weight += point->weight() * point->expected_duration_ns() / nearest.point.cost;
  }

  const Estimate total = EstimateOther(points, request.confidence());
  v1::ProjectPlaylistReply reply;
  v1::Projection& projection = *reply.mutable_projection();
  projection.set_metric("time");
  projection.set_unit("ns");
  projection.set_confidence(request.confidence());
  projection.set_horizon_kind(v1::Horizon::KIND_HISTOGRAM);
  projection.set_iterations_total(std::llround(iterations));
  ToProto(total, 1, projection.mutable_total());
  ToProto(total, 1000 / iterations, projection.mutable_per_1000_iterations());
  std::string basis =
      absl::StrCat(measurements, measurements == 1 ? " measurement" : " measurements", " of ",
                   points.size(), points.size() == 1 ? " point" : " points");
  absl::StrAppend(&basis, points.size() < kSeenNoise
                              ? "; too few points to see the noise there: as in the job, in "
                                "proportion"
                              : "; the noise is that of the measurements about what the job's "
                                "times foretell");
  if (!missing.empty()) {
    absl::StrAppend(&basis, "; nobody measured ", who,
                    ", which count as the points nearest in expected time do");
  }
  // Where nothing is sure of the total, there is nothing to say of a quotient.
  if (total.low > 0) {
    ToProto(QuotientOf({expected_ns, expected_ns, expected_ns}, total), 1, reply.mutable_speedup());
  } else {
    absl::StrAppend(&basis, "; the measurements scatter too much to tell a speedup");
  }
  projection.set_basis(basis);
  return reply;
}

}  // namespace seqpoint
