#include "daemon/queries/log_playlist.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/figures.h"

namespace seqpoint::queries {
namespace {

constexpr double kOrdinaryDeviations = 1;  // an iteration so near to what is expected will do
constexpr double kToldShare = 0.005;       // of the run's time, that a playlist leaves out

}  // namespace

bool OrdinaryIterations::Strangeness::settled() const {
  return reasons == 0 && deviation <= kOrdinaryDeviations;
}

OrdinaryIterations::OrdinaryIterations(const absl::flat_hash_map<Key, int>& point_of,
                                       v1::GetPlaylistReply* reply)
    : point_of_(point_of),
      reply_(reply),
      best_(reply->points_size()),
      unsettled_(reply->points_size()) {}

void OrdinaryIterations::See(const Key& key, int64_t number, double duration_ns, int reasons) {
  const auto it = point_of_.find(key);
  if (it == point_of_.end()) return;
  Strangeness& best = best_[it->second];
  if (best.settled()) return;
  v1::PlaylistPoint& point = *reply_->mutable_points(it->second);
  Strangeness strangeness{.reasons = reasons};
  if (duration_ns <= 0) {
    strangeness.reasons += kUntimed;
  } else {
    const double noise =
        std::max(point.noise_duration_ns(), kLeastNoise * point.expected_duration_ns());
    strangeness.deviation = std::abs(duration_ns - point.expected_duration_ns()) / noise;
  }
  if (strangeness >= best) return;
  best = strangeness;
  point.set_iteration(number);
  if (best.settled()) --unsettled_;
}

std::string Unreached(double target_error, double reach) {
  if (reach <= target_error) return "";
  return absl::StrFormat(
      "+-%.3g %% are out of reach: even all usable iterations, each measured once, give +-%.3g %%",
      100 * target_error, 100 * reach);
}

std::string SetReach(const Selection& selection, const PlaylistOptions& options,
                     v1::GetPlaylistReply* reply) {
  if (selection.points.empty()) return "";
  const double reach = ReachOf(selection, options.confidence);
  reply->set_relative_error(reach);
  reply->set_confidence(options.confidence);
  return options.points > 0 || options.target_error == 0 ? ""
                                                         : Unreached(options.target_error, reach);
}

void AddPoint(const std::vector<int64_t>& lengths, const SeqPoint& point, double weight,
              v1::GetPlaylistReply* reply) {
  v1::PlaylistPoint& to = *reply->add_points();
  to.mutable_lengths()->Add(lengths.begin(), lengths.end());
  to.set_iteration(-1);
  to.set_weight(weight);
  to.set_measurements(point.measurements);
  to.set_expected_duration_ns(point.cost);
  to.set_noise_duration_ns(point.noise);
}

std::string NotExplained(const KeyFit& fit) {
  if (fit.verdict != KeyVerdict::kNotExplained) return "";
  return absl::StrFormat(
      "the length does not explain time (%.1f %% of its variance), so these iterations stand "
      "for the others no better than any would",
      100 * fit.explained);
}

std::string LeftOut(double share) {
  if (share < kToldShare) return "";
  return absl::StrFormat(
      "what first iterations of a length, slow ones and stalls took on top is left out, %.1f %% "
      "of the run's time",
      100 * share);
}

absl::Status CheckEnough(const std::string& what, int64_t iterations, KeyVerdict verdict) {
  if (verdict != KeyVerdict::kTooFew) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": of ", iterations,
                   " iterations too few have a usable time to tell what a length costs; a "
                   "playlist needs 64"));
}

v1::GetPlaylistReply PlaylistOfLog(const CleanLog& clean, const KeyFit& fit, int dimensions,
                                   const PlaylistOptions& options) {
  v1::GetPlaylistReply reply;
  const Selection selection =
      Select(clean.by_key, options.points, options.target_error, options.confidence);
  absl::flat_hash_map<Key, int> point_of;
  for (const SeqPoint& point : selection.points) {
    point_of[point.key] = reply.points_size();
    std::vector<int64_t> lengths = {point.key.first};
    if (dimensions > 1) lengths.push_back(point.key.second);
    AddPoint(lengths, point, point.weight, &reply);
  }
  OrdinaryIterations ordinary(point_of, &reply);
  absl::flat_hash_set<Key> seen;
  for (size_t i = 0; i < clean.log.size() && !ordinary.settled(); ++i) {
    const Key& key = clean.log.keys[i];
    const bool first = seen.insert(key).second;
    ordinary.See(key, clean.rows[i], clean.log.times[i],
                 (clean.apart[i] ? OrdinaryIterations::kDisturbed : 0) +
                     (first ? OrdinaryIterations::kFirst : 0));
  }
  reply.set_iterations(static_cast<int64_t>(clean.log.size()));
  reply.set_verdict(jobs::VerdictOf(fit.verdict));

  std::vector<std::string> messages = {SetReach(selection, options, &reply), NotExplained(fit),
                                       LeftOut(clean.excess / clean.total)};
  std::erase(messages, "");
  reply.set_message(absl::StrJoin(messages, "; "));
  return reply;
}

}  // namespace seqpoint::queries
