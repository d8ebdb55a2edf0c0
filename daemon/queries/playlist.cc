#include "daemon/queries/playlist.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/queries/errors.h"
#include "daemon/queries/log_playlist.h"
#include "daemon/queries/step_rows.h"
#include "daemon/seqpoint/analysis.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint::queries {
namespace {

// The log that a job was made of, without rows that have no time.
absl::StatusOr<CleanLog> ReadBack(const jobs::SnapshotData& job, Store& store) {
  RunLog log;
  std::vector<bool> start_up;
  std::vector<int64_t> numbers;
  for (int64_t next = 0;;) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                              store.ReadIterations(job.job_id, /*rank=*/0, next, kPageRows));
    for (const IterationRow& row : rows) {
      if (row.duration_ns == 0) continue;
      numbers.push_back(row.number);
      log.keys.push_back({row.length[0], row.length[1]});
      log.times.push_back(static_cast<double>(row.duration_ns));
      start_up.push_back(row.phase == jobs::kStartUpPhase);
    }
    if (rows.size() < kPageRows) break;
    next = rows.back().number + 1;
  }
  if (log.size() == 0) {
    return NoAnswer(job, "its iterations are no longer stored; import the log again");
  }
  CleanLog clean = CleanUp(log, start_up);
  for (int64_t& row : clean.rows) row = numbers[static_cast<size_t>(row)];
  return clean;
}

}  // namespace

absl::StatusOr<v1::GetPlaylistReply> WithIterations(const Playlist& playlist, Store& store) {
  using Ordinary = OrdinaryIterations;
  v1::GetPlaylistReply reply = playlist.reply;
  Ordinary ordinary(playlist.point_of, &reply);
  StepRows reader(store, playlist.job_id, playlist.ranks, playlist.first_number);
  std::vector<IterationRow> steps;
  while (!ordinary.settled()) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto more, reader.Read(steps));
    if (!more) break;
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

absl::StatusOr<v1::GetPlaylistReply> PlaylistOfImport(const jobs::SnapshotData& job,
                                                      const PlaylistOptions& options,
                                                      Store& store) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto log, ReadBack(job, store));
  const KeyFit fit = FitOf(log);
  SEQPOINT_RETURN_IF_ERROR(CheckEnough(absl::StrCat("job \"", job.name, "\""),
                                       static_cast<int64_t>(log.log.size()), fit.verdict));
  v1::GetPlaylistReply reply = PlaylistOfLog(log, fit, job.dimensions, options);
  if (const uint64_t untimed = job.engine.Totals().untimed; untimed > 0) {
    absl::StrAppend(reply.mutable_message(), reply.message().empty() ? "" : "; ", untimed,
                    untimed == 1 ? " iteration" : " iterations",
                    " of the log without a time in no weight");
  }
  reply.set_job_id(absl::StrCat(job.job_id));
  return reply;
}

absl::StatusOr<v1::GetSeqPointsReply> SeqPointsOfImport(const jobs::SnapshotData& job,
                                                        Store& store) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto log, ReadBack(job, store));
  const KeyFit fit = FitOf(log);
  if (fit.verdict == KeyVerdict::kNotExplained) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "job \"%s\": the length does not explain the time of an iteration (%.1f %% of its "
        "variance, 50 %% are needed): no length can stand for others, so there are no SeqPoints",
        job.name, 100 * fit.explained));
  }
  v1::GetSeqPointsReply reply;
  const v1::GetPlaylistReply playlist = PlaylistOfLog(log, fit, job.dimensions, {});
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
  reply.set_unique_lengths(static_cast<int64_t>(log.by_key.size()));
  reply.set_iterations(playlist.iterations());
  reply.set_job_id(absl::StrCat(job.job_id));
  reply.set_message(absl::StrCat(
      "of an imported log nothing is measured: these are the lengths that ", measurements,
      " measurements would fall on, as in `seqpoint analyze`; `seqpoint playlist ", job.job_id,
      " --points K` lists those of K"));
  return reply;
}

absl::StatusOr<Playlist> MakePlaylist(const jobs::Snapshot& snapshot,
                                      const PlaylistOptions& options) {
  const jobs::SnapshotData& job = snapshot.data();
  absl::MutexLock lock(&snapshot.mutex());
  const OnlineEngine& engine = job.engine.current();
  const EngineTotals totals = job.engine.Totals();
  const KeyFit fit = engine.Explained();
  SEQPOINT_RETURN_IF_ERROR(CheckEnough(absl::StrCat("job \"", job.name, "\""),
                                       static_cast<int64_t>(engine.Totals().iterations),
                                       fit.verdict));
  Playlist playlist{
      .job_id = job.job_id, .ranks = job.ranks, .first_number = job.engine.closed_iterations()};
  const std::vector<KeyTimes> times = engine.OrdinaryTimes();
  double ordinary_ns = 0;
  for (const KeyTimes& t : times) ordinary_ns += t.count * t.mean;
  const Selection selection =
      Select(times, options.points, options.target_error, options.confidence);
  const double scale =
      static_cast<double>(totals.iterations) / static_cast<double>(engine.Totals().iterations);
  // While a rule is learned again there is none to ask.
  int dimensions = job.dimensions;
  for (const SeqPoint& point : selection.points) {
    dimensions = std::max(dimensions, point.key.second > 0 ? 2 : point.key.first > 0 ? 1 : 0);
  }
  // Features that round to the same length are one point.
  std::map<std::vector<int64_t>, SeqPoint> points;
  std::map<Key, std::vector<int64_t>> lengths_of;
  for (const SeqPoint& point : selection.points) {
    const int64_t length[2] = {point.key.first, point.key.second};
    const std::vector<int64_t> lengths = job.units.Of(length, dimensions);
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
    AddPoint(lengths, point, scale * point.weight, &reply);
  }
  reply.set_iterations(static_cast<int64_t>(totals.iterations));
  reply.set_verdict(jobs::VerdictOf(fit.verdict));
  reply.set_job_id(absl::StrCat(job.job_id));

  std::vector<std::string> messages = {SetReach(selection, options, &reply), NotExplained(fit)};
  if (job.engine.closed_iterations() > 0) {
    messages.push_back(absl::StrCat(job.engine.closed_iterations(),
                                    " iterations before the rule was learned anew are taken to "
                                    "be like the later ones"));
  }
  if (const std::optional<Estimate> all = engine.ProjectTime(0.95).so_far) {
    messages.push_back(LeftOut(1 - ordinary_ns / all->value));
  }
  messages.push_back(job.uncounted);
  messages.push_back(job.overcounted);
  std::erase(messages, "");
  reply.set_message(absl::StrJoin(messages, "; "));
  return playlist;
}

}  // namespace seqpoint::queries
