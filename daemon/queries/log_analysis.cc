#include "daemon/queries/log_analysis.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/horizon.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/figures.h"
#include "daemon/queries/log_playlist.h"

namespace seqpoint::queries {
namespace {

// From here on parts of a log are said to differ.
constexpr double kWorthSaying = 0.002;
constexpr double kMuchDrift = 0.03;

void SetPoints(const Selection& selection, bool two_dimensional,
               google::protobuf::RepeatedPtrField<v1::AnalyzedPoint>* points) {
  for (const SeqPoint& p : selection.points) {
    v1::AnalyzedPoint* point = points->Add();
    point->add_lengths(p.key.first);
    if (two_dimensional) point->add_lengths(p.key.second);
    point->set_weight(p.weight);
    point->set_measurements(p.measurements);
    point->set_expected(p.cost);
    point->set_noise(p.noise);
  }
}

absl::StatusOr<Horizon> HorizonOf(const v1::Horizon& horizon, int dimensions) {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_ITERATIONS:
      return Horizon::Iterations(horizon.iterations());
    case v1::Horizon::KIND_HISTOGRAM:
    case v1::Horizon::KIND_DISTRIBUTION:
      break;
    default:
      return Horizon::Unknown();
  }
  std::vector<KeyCount> histogram;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (entry.lengths_size() != dimensions) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the lengths of the other run have ", entry.lengths_size(),
          entry.lengths_size() == 1 ? " dimension" : " dimensions", ", those of the ", "log have ",
          dimensions, "; name as many columns with --length-column (the other ",
          "run) as with --key (the log)"));
    }
    histogram.push_back(
        {{entry.lengths(0), dimensions == 2 ? entry.lengths(1) : 0}, entry.count()});
  }
  const int64_t epochs = RepeatsOf(horizon);
  return horizon.kind() == v1::Horizon::KIND_HISTOGRAM
             ? Horizon::Histogram(std::move(histogram), epochs)
             : Horizon::Distribution(std::move(histogram), epochs);
}

std::string Iterations(int64_t count, const char* singular, const char* plural) {
  return absl::StrCat(count, count == 1 ? " iteration" : " iterations",
                      count == 1 ? singular : plural);
}

void AddMessages(const LogAnalysis& a, const AnalysisOptions& options, v1::AnalyzeReply* reply) {
  const auto say = [&](std::string message) { reply->add_messages(std::move(message)); };
  const double share = 100 * a.fit.explained;
  const double reach = 100 * (a.random.high / a.random.value - 1);
  switch (a.fit.verdict) {
    case KeyVerdict::kTooFew:
      say(absl::StrCat(Iterations(static_cast<int64_t>(a.clean.log.size()), " is", " are"),
                       " too few to say whether the length explains the time; 64 are needed"));
      break;
    case KeyVerdict::kNotExplained:
      say(absl::StrFormat(
          "the length does not explain the time of an iteration (%.1f %% of its variance, 50 %% "
          "are needed): no length can stand for others, so there are no SeqPoints; %s the "
          "total to +-%.*f %%",
          share,
          Iterations(a.random_measurements, " drawn at random gives", " drawn at random give"),
          reach < 10 ? 1 : 0, reach));
      break;
    case KeyVerdict::kTimeHardlyVaries:
      say(absl::StrFormat("time hardly varies (%.1f %%): any iteration stands for all others",
                          100 * a.fit.robust_variation));
      break;
    case KeyVerdict::kExplained:
      break;
  }
  const bool explained = a.fit.verdict != KeyVerdict::kNotExplained;
  if (a.stationarity.drift > (explained ? kMuchDrift : kWorthSaying)) {
    say(
        absl::StrFormat("not stationary: consecutive parts of the log differ by %.1f %%%s, which "
                        "is in no interval here",
                        100 * a.stationarity.drift, explained ? " at equal length" : ""));
  } else if (a.stationarity.drift > kWorthSaying) {
    say(
        absl::StrFormat("the time at equal length drifts by %.1f %% (standard deviation of parts "
                        "of the log); measure in all parts of the run",
                        100 * a.stationarity.drift));
  }
  if (a.stationarity.moving) {
    say("not stationary: lengths come in an order that has to do with their cost (sorted, "
        "curriculum), so a part of this log says little about the rest");
  }
  if (a.clean.slow_count > 0) {
    say(absl::StrCat(
        Iterations(a.clean.slow_count, "", ""), " took far more or less than ",
        a.clean.slow_count == 1 ? "its length does; it is" : "their lengths do; they are",
        " in the total, and in nothing else"));
  }
  if (a.clean.first_count > 0) {
    say(absl::StrFormat(
        "the first iterations with a length, %d, take %.*f %% more than others: they "
        "are in the total, and in nothing else; measure later ones",
        a.clean.first_count, a.clean.first_share < 0.1 ? 1 : 0, 100 * a.clean.first_share));
  }
  if (a.clean.by_key.size() == 1) say("all iterations have one length");
  if (options.points == 0 && options.target_error > 0 && !a.selection.points.empty()) {
    // Told is that of the total, of which a part is known without measurements.
    const double of_total = a.projection.high / a.projection.value - 1;
    const bool within = ReachOf(a.selection, options.confidence) <= options.target_error;
    const std::string unreached = Unreached(options.target_error, of_total);
    if (!within && !unreached.empty()) say(unreached);
  }
}

}  // namespace

RunLog ReadLog(const v1::IterationLog& log) {
  RunLog run;
  for (int i = 0; i < log.lengths_size(); ++i) {
    run.keys.push_back({log.lengths(i), log.second_lengths_size() > 0 ? log.second_lengths(i) : 0});
  }
  run.times.assign(log.durations().begin(), log.durations().end());
  run.groups.assign(log.groups().begin(), log.groups().end());
  return run;
}

absl::StatusOr<v1::AnalyzeReply> AnalyzeLogs(const v1::AnalyzeRequest& request) {
  const bool two_dimensional = request.log().second_lengths_size() > 0;
  AnalysisOptions options{.points = request.points(),
                          .target_error = request.target_error(),
                          .confidence = request.confidence()};
  SEQPOINT_ASSIGN_OR_RETURN(options.horizon, HorizonOf(request.horizon(), two_dimensional ? 2 : 1));
  RunLog log = ReadLog(request.log());
  if (request.playlist()) {
    // Whole ones, as an import has them: then both choose the same, to the last digit.
    for (double& ns : log.times) ns = std::max(std::round(ns), 1.0);
  }
  RunLog against;
  if (request.has_against()) {
    if ((request.against().second_lengths_size() > 0) != two_dimensional) {
      return absl::InvalidArgumentError(
          "one log has one length and the other two; name the columns of both with --key");
    }
    against = ReadLog(request.against());
  }
  const LogAnalysis a = AnalyzeLog(log, request.has_against() ? &against : nullptr, options);
  SEQPOINT_RETURN_IF_ERROR(a.no_other_run);

  v1::AnalyzeReply reply;
  reply.set_iterations(static_cast<int64_t>(a.clean.log.size()));
  reply.set_unique_lengths(static_cast<int64_t>(a.clean.by_key.size()));
  reply.set_total(a.clean.total);
  reply.set_verdict(jobs::VerdictOf(a.fit.verdict));
  reply.set_explained_share(a.fit.explained);
  reply.set_drift_share(a.stationarity.drift);
  reply.set_start_up_iterations(a.clean.start_up);
  reply.set_start_up_duration(a.clean.start_up_time);
  reply.set_slow_iterations(a.clean.slow_count);
  reply.set_confidence(options.confidence);
  AddMessages(a, options, &reply);
  SetPoints(a.selection, two_dimensional, reply.mutable_points());
  if (request.playlist()) {
    SEQPOINT_RETURN_IF_ERROR(CheckEnough("the log", reply.iterations(), a.fit.verdict));
    *reply.mutable_playlist() = PlaylistOfLog(a.clean, a.fit, two_dimensional ? 2 : 1,
                                              {.points = options.points,
                                               .target_error = options.target_error,
                                               .confidence = options.confidence});
  }
  if (!a.selection.points.empty()) jobs::SetEstimate(a.projection, reply.mutable_projection());
  SetPoints(a.paper, two_dimensional, reply.mutable_paper_points());
  reply.set_paper_error(a.paper.error);
  reply.set_random_measurements(a.random_measurements);
  jobs::SetEstimate(a.random, reply.mutable_random());
  if (a.other_run && a.other_run->total) {
    reply.set_horizon_iterations(a.other_run->iterations_total);
    jobs::SetEstimate(*a.other_run->total, reply.mutable_horizon_projection());
  }
  if (request.has_against() && !a.speedup) {
    reply.add_messages("the two logs have no length in common, so they cannot be compared");
  }
  if (a.speedup) {
    reply.set_against_iterations(a.speedup->iterations);
    reply.set_against_total(a.speedup->total);
    reply.set_against_unknown_lengths(a.speedup->unknown_keys);
    if (a.speedup->from_points) {
      jobs::SetEstimate(*a.speedup->from_points, reply.mutable_speedup());
    } else if (!a.selection.points.empty()) {
      reply.add_messages(
          "times of the SeqPoints in the other log scatter too much to tell a speedup from them "
          "alone");
    }
    jobs::SetEstimate(a.speedup->all, reply.mutable_speedup_all());
    reply.set_speedup_means(a.speedup->means);
  }
  return reply;
}

}  // namespace seqpoint::queries
