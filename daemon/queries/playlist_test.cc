#include "daemon/queries/playlist.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/queries/project_playlist.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recorded_epoch.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::queries {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<Playlist> PlaylistOf(const Epoch& run, int measurements = 0) {
  const jobs::Snapshot job({.job_id = 1, .name = "test", .dimensions = 1, .engine = EngineOf(run)});
  return MakePlaylist(job, {.points = measurements});
}

// What the other machine measures: as many iterations of each point's lengths as it asks for.
v1::ProjectPlaylistRequest MeasureThere(const v1::GetPlaylistReply& playlist, const Epoch& run,
                                        int seed) {
  std::mt19937 random(seed);
  std::map<int64_t, std::vector<double>> times;
  for (size_t i = 0; i < run.keys.size(); ++i) times[run.keys[i].first].push_back(run.there_ns[i]);
  v1::ProjectPlaylistRequest request;
  request.set_confidence(0.95);
  *request.mutable_points() = playlist.points();
  for (const v1::PlaylistPoint& point : playlist.points()) {
    const std::vector<double>& of_length = times.at(point.lengths(0));
    double sum = 0;
    for (int i = 0; i < point.measurements(); ++i) sum += of_length[random() % of_length.size()];
    request.add_durations_ns(sum / point.measurements());
  }
  return request;
}

bool Covers(const v1::Estimate& estimate, double truth) {
  return estimate.low() <= truth && truth <= estimate.high();
}

TEST(ProjectPlaylistTest, TheTruthOfAnotherMachineLiesInTheInterval) {
  constexpr int kSeeds = 100;
  int time_covered = 0, speedup_covered = 0;
  double error = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Epoch run = MakeEpoch(seed, 2'000);
    const auto playlist = PlaylistOf(run);
    ASSERT_TRUE(playlist.ok()) << playlist.status();
    const auto reply = ProjectPlaylist(MeasureThere(playlist->reply, run, seed));
    ASSERT_TRUE(reply.ok()) << reply.status();
    const v1::Projection& time = reply->projection();
    time_covered += Covers(time.total(), run.There());
    speedup_covered += Covers(reply->speedup(), run.Here() / run.There());
    error += std::abs(time.total().value() / run.There() - 1) / kSeeds;
    EXPECT_EQ(time.iterations_total(), 2'000);
    EXPECT_LT((time.total().high() - time.total().low()) / time.total().value(), 0.06);
    EXPECT_NEAR(time.per_1000_iterations().value() * 2, time.total().value(), 1e-3);
  }
  EXPECT_GE(time_covered, 90);
  EXPECT_GE(speedup_covered, 90);
  EXPECT_LT(error, 0.005);
}

TEST(ProjectPlaylistTest, TheSameMachineIsAsFastAsItself) {
  const Epoch run = MakeEpoch(3, 2'000);
  const auto playlist = PlaylistOf(run, 32);
  ASSERT_TRUE(playlist.ok());
  v1::ProjectPlaylistRequest request;
  request.set_confidence(0.95);
  *request.mutable_points() = playlist->reply.points();
  for (const v1::PlaylistPoint& point : request.points()) {
    request.add_durations_ns(point.expected_duration_ns());
  }
  const auto reply = ProjectPlaylist(request);
  ASSERT_TRUE(reply.ok());
  EXPECT_NEAR(reply->speedup().value(), 1, 1e-9);
  EXPECT_NEAR(reply->projection().total().value() / run.Here(), 1, 0.002);
}

v1::ProjectPlaylistRequest SmallRequest() {
  v1::ProjectPlaylistRequest request;
  request.set_confidence(0.95);
  for (int i = 0; i < 5; ++i) {
    v1::PlaylistPoint& point = *request.add_points();
    point.add_lengths(10 * (i + 1));
    point.set_weight(i == 2 ? 3 : 249.25);
    point.set_measurements(1);
    point.set_expected_duration_ns(1e6 * (i + 1));
    point.set_noise_duration_ns(1e4);
    request.add_durations_ns(2e6 * (i + 1) + 1e3 * i * i);
  }
  return request;
}

TEST(ProjectPlaylistTest, ALittleThatNobodyMeasuredCountsAsItsNeighbourDoesAndMoreIsRefused) {
  v1::ProjectPlaylistRequest request = SmallRequest();
  const auto whole = ProjectPlaylist(request);
  ASSERT_TRUE(whole.ok());
  EXPECT_NEAR(whole->speedup().value(), 0.5, 0.001);
  for (int i = 0; i < 5; ++i) request.add_measured(i == 2 ? 0 : 1);
  request.set_durations_ns(2, 0);
  const auto without = ProjectPlaylist(request);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_NEAR(without->projection().total().value() / whole->projection().total().value(), 1, 1e-4);
  EXPECT_EQ(without->projection().iterations_total(), 1'000);
  EXPECT_THAT(without->projection().basis(),
              HasSubstr("nobody measured length 30 (0.3 % of the iterations)"));
  request.set_measured(4, 0);
  const auto refused = ProjectPlaylist(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("nobody measured length 30, length 50 (25.2 % of the iterations)"));
}

TEST(ProjectPlaylistTest, EveryNumberIsCheckedAndNamed) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto refusal = [](auto change) {
    v1::ProjectPlaylistRequest request = SmallRequest();
    change(request);
    const auto reply = ProjectPlaylist(request);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(reply.status().message());
  };
  using R = v1::ProjectPlaylistRequest;
  EXPECT_THAT(refusal([](R& r) { r.Clear(); }), HasSubstr("points: there is none"));
  EXPECT_THAT(refusal([](R& r) { r.add_durations_ns(1); }),
              HasSubstr("durations_ns has 6 entries for 5 points"));
  EXPECT_THAT(refusal([](R& r) { r.add_measured(1); }),
              HasSubstr("measured has 1 entries for 5 points"));
  for (const double bad : {0.0, -1.0, kNan, double{INFINITY}, 1e300}) {
    EXPECT_THAT(refusal([&](R& r) { r.set_durations_ns(3, bad); }),
                HasSubstr(absl::StrCat("durations_ns[3] = ", bad)));
    EXPECT_THAT(refusal([&](R& r) { r.mutable_points(1)->set_weight(bad); }),
                HasSubstr(absl::StrCat("points[1].weight = ", bad)));
    EXPECT_THAT(refusal([&](R& r) { r.mutable_points(1)->set_expected_duration_ns(bad); }),
                HasSubstr("points[1].expected_duration_ns = "));
    if (bad == 0) continue;
    EXPECT_THAT(refusal([&](R& r) { r.mutable_points(0)->set_noise_duration_ns(bad); }),
                HasSubstr("points[0].noise_duration_ns = "));
  }
  EXPECT_THAT(refusal([](R& r) { r.mutable_points(4)->set_measurements(0); }),
              HasSubstr("points[4].measurements = 0"));
  EXPECT_THAT(refusal([](R& r) {
                r.mutable_measured()->Resize(5, 1);
                r.set_measured(2, -1);
              }),
              HasSubstr("measured[2] = -1"));
}

TEST(ProjectPlaylistTest, TimesThatNeverVariedHereAreNotTakenAsExactThere) {
  v1::ProjectPlaylistRequest request = SmallRequest();
  for (v1::PlaylistPoint& point : *request.mutable_points()) point.set_noise_duration_ns(0);
  const auto reply = ProjectPlaylist(request);
  ASSERT_TRUE(reply.ok());
  const v1::Estimate& total = reply->projection().total();
  EXPECT_GT(total.high() - total.low(), 1e-4 * total.value());
}

TEST(ProjectPlaylistTest, NoSpeedupIsToldWhereTheTotalMayBeNothing) {
  v1::ProjectPlaylistRequest request = SmallRequest();
  request.set_durations_ns(4, 1e12);
  const auto reply = ProjectPlaylist(request);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().total().low(), 0);
  EXPECT_FALSE(reply->has_speedup());
  EXPECT_THAT(reply->projection().basis(), HasSubstr("scatter too much"));
}

TEST(MakePlaylistTest, ATargetErrorSaysHowManyMeasurements) {
  const jobs::Snapshot job(
      {.job_id = 1, .name = "test", .dimensions = 1, .engine = EngineOf(MakeEpoch(1, 2'000))});
  const auto measurements = [&](double target_error, double confidence) {
    const auto playlist =
        MakePlaylist(job, {.target_error = target_error, .confidence = confidence});
    EXPECT_TRUE(playlist.ok()) << playlist.status();
    EXPECT_LE(playlist->reply.relative_error(), target_error);
    EXPECT_EQ(playlist->reply.confidence(), confidence);
    int sum = 0;
    for (const v1::PlaylistPoint& point : playlist->reply.points()) sum += point.measurements();
    return sum;
  };
  const int half = measurements(0.0005, 0.95);
  EXPECT_GT(half, 2 * measurements(0.001, 0.95));
  EXPECT_GT(measurements(0.0005, 0.99), half);
  const auto unreached = MakePlaylist(job, {.target_error = 1e-6});
  EXPECT_THAT(unreached->reply.message(), HasSubstr("+-0.0001 % are out of reach"));
}

TEST(MakePlaylistTest, LengthsThatExplainNothingAreSaid) {
  Epoch run = MakeEpoch(1, 1'000);
  std::shuffle(run.here_ns.begin(), run.here_ns.end(), std::mt19937(1));
  const auto playlist = PlaylistOf(run);
  ASSERT_TRUE(playlist.ok());
  EXPECT_EQ(playlist->reply.verdict(), v1::VERDICT_NOT_EXPLAINED);
  EXPECT_THAT(playlist->reply.message(), HasSubstr("the length does not explain time (0.0 %"));
}

TEST(MakePlaylistTest, WhatCameOnTopIsLeftOutAndSaid) {
  Epoch run = MakeEpoch(1, 1'000);
  const double ordinary = run.Here();
  std::map<Key, int> seen;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    if (++seen[run.keys[i]] == 1) run.here_ns[i] += 9'000'000;  // algorithm search
    if (i == 777) run.here_ns[i] *= 20;                         // a stall
  }
  const auto playlist = PlaylistOf(run);
  ASSERT_TRUE(playlist.ok());
  double expected_ns = 0;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) {
    expected_ns += point.weight() * point.expected_duration_ns();
  }
  EXPECT_NEAR(expected_ns / ordinary, 1, 0.005);
  EXPECT_THAT(playlist->reply.message(), HasSubstr("took on top is left out, "));
}

TEST(MakePlaylistTest, IterationsUnderAnEarlierRuleAreInTheWeights) {
  jobs::RunEngine engine = EngineOf(MakeEpoch(1, 500));
  engine.Close();
  const Epoch run = MakeEpoch(2, 1'000);
  for (size_t i = 0; i < run.keys.size(); ++i) {
    engine.current().AddIteration(
        {.iteration = 500 + i, .key = run.keys[i], .time_ns = run.here_ns[i]});
  }
  const jobs::Snapshot job({.name = "test", .dimensions = 1, .engine = std::move(engine)});
  const auto playlist = MakePlaylist(job, {.points = 8});
  ASSERT_TRUE(playlist.ok());
  double weight = 0;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) weight += point.weight();
  EXPECT_NEAR(weight, 1'500, 1e-6);
  EXPECT_EQ(playlist->first_number, 500);
  EXPECT_THAT(playlist->reply.message(), HasSubstr("500 iterations before the rule was learned"));
}

TEST(MakePlaylistTest, FeaturesThatAreTheSameLengthAreOnePoint) {
  const Epoch run = MakeEpoch(1, 2'000);
  const jobs::Snapshot job(
      {.name = "test", .dimensions = 1, .units = {.unit = {4, 1}}, .engine = EngineOf(run)});
  const auto playlist = MakePlaylist(job, {.points = 64});
  ASSERT_TRUE(playlist.ok());
  double weight = 0;
  std::set<int64_t> lengths;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) {
    weight += point.weight();
    EXPECT_TRUE(lengths.insert(point.lengths(0)).second) << point.lengths(0);
  }
  EXPECT_NEAR(weight, 2'000, 1e-6);
  EXPECT_GT(playlist->point_of.size(), lengths.size());
}

TEST(WithIterationsTest, AStepOfSeveralRanksIsFoundByTheLongestLengthOfAll) {
  const TempFolder folder;
  auto store = Store::Open(folder.path() / "store.db", {});
  ASSERT_TRUE(store.ok()) << store.status();
  WriteBatch batch;
  batch.jobs.push_back({.job_id = 1, .name = "test", .run_id = "1"});
  const auto add = [&](int32_t rank, int64_t number, int64_t length) {
    batch.iterations.push_back({.job_id = 1,
                                .rank = rank,
                                .number = number,
                                .length_count = length > 0 ? 1 : 0,
                                .length = {length, 0},
                                .duration_ns = 1000 * length});
  };
  // More than a page; the step of length 99 has it on the second rank, and that of 5,500 has none,
  // as a record was lost.
  for (int64_t number = 0; number < 6'000; ++number) {
    const int64_t first = number < 5'600 ? 20 : 10;
    const int64_t second = number == 5'700 ? 99 : 10;
    add(0, number, first);
    if (number != 5'500) add(1, number, second);
    add(kStepsRank, number, number == 5'500 ? 0 : std::max(first, second));
  }
  ASSERT_TRUE((*store)->Write(batch).ok());
  Playlist playlist{.job_id = 1, .ranks = {0, 1}};
  for (const int64_t length : {10, 20, 99}) {
    playlist.point_of[Key{length, 0}] = playlist.reply.points_size();
    v1::PlaylistPoint& point = *playlist.reply.add_points();
    point.add_lengths(length);
    point.set_iteration(-1);
    point.set_expected_duration_ns(static_cast<double>(1000 * length));
  }
  const auto reply = WithIterations(playlist, **store);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->points(0).iteration(), 5'600);
  EXPECT_EQ(reply->points(1).iteration(), 0);
  EXPECT_EQ(reply->points(2).iteration(), 5'700);
  store->reset();
}

}  // namespace
}  // namespace seqpoint::queries
