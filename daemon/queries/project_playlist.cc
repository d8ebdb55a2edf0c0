#include "daemon/queries/project_playlist.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/log_playlist.h"
#include "daemon/seqpoint/estimate.h"

namespace seqpoint::queries {
namespace {

constexpr double kMostMissing = 0.01;  // of the iterations, that nobody measured
constexpr size_t kNamedPoints = 5;
constexpr size_t kSeenNoise = 4;  // points from which EstimateOther sees the noise itself
// Beyond these nothing real is meant, and no sum overflows.
constexpr double kMostWeight = 1e15;
constexpr double kMostPointNs = 1e18;

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

int32_t MeasurementsAt(const v1::ProjectPlaylistRequest& request, int i) {
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
  status.Update(positive("expected_duration_ns", point.expected_duration_ns(), kMostPointNs));
  if (!status.ok()) return status;
  const double noise = point.noise_duration_ns();
  if (!(noise >= 0 && noise <= kMostPointNs)) {
    return Invalid("points[", i, "].noise_duration_ns = ", noise, " is not a number from 0 to ",
                   kMostPointNs);
  }
  if (point.measurements() < 1) {
    return Invalid("points[", i, "].measurements = ", point.measurements(), " is not positive");
  }
  if (MeasurementsAt(request, i) < 0) {
    return Invalid("measured[", i, "] = ", request.measured(i), " is negative");
  }
  const double duration = request.durations_ns(i);
  if (MeasurementsAt(request, i) > 0 && !(duration > 0 && duration <= kMostPointNs)) {
    return Invalid("durations_ns[", i, "] = ", duration, " is not a positive number up to ",
                   kMostPointNs);
  }
  return absl::OkStatus();
}

}  // namespace

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
    if (MeasurementsAt(request, i) == 0) {
      missing.push_back(&point);
      missing_iterations += point.weight();
      continue;
    }
    measurements += MeasurementsAt(request, i);
    const double noise = std::max(point.noise_duration_ns(), kLeastNoise * cost);
    points.push_back(
        {{{}, point.weight(), MeasurementsAt(request, i), cost, noise}, request.durations_ns(i)});
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
  jobs::SetEstimate(total, projection.mutable_total());
  jobs::SetEstimate(Scaled(total, 1000 / iterations), projection.mutable_per_1000_iterations());
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
    jobs::SetEstimate(QuotientOf({expected_ns, expected_ns, expected_ns}, total),
                      reply.mutable_speedup());
  } else {
    absl::StrAppend(&basis, "; the measurements scatter too much to tell a speedup");
  }
  projection.set_basis(basis);
  return reply;
}

}  // namespace seqpoint::queries
