#include "daemon/playlist.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/daemon.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A run, here and on another machine, whose cost has another shape.
struct Epoch {
  std::vector<Key> keys;
  std::vector<int64_t> here_ns;
  std::vector<double> there_ns;

  double Here() const { return std::accumulate(here_ns.begin(), here_ns.end(), 0.0); }
  double There() const { return std::accumulate(there_ns.begin(), there_ns.end(), 0.0); }
};

Epoch MakeEpoch(int seed, int iterations, bool two_dimensional = false) {
  std::mt19937 random(seed);
  std::gamma_distribution<double> gamma(4, 6);
  std::normal_distribution<double> normal;
  const auto length = [&] { return static_cast<int64_t>(std::min(8 + gamma(random), 120.0)); };
  Epoch run;
  for (int i = 0; i < iterations; ++i) {
    const Key key = {length(), two_dimensional ? length() : 0};
    const auto l = static_cast<double>(key.first + key.second);
    run.keys.push_back(key);
    run.here_ns.push_back(std::llround((5e6 + 2e5 * l) * std::exp(0.005 * normal(random))));
    run.there_ns.push_back((4e6 + 7e4 * l + 9e2 * l * l) * std::exp(0.01 * normal(random)));
  }
  return run;
}

jobs::RunEngine EngineOf(const Epoch& run) {
  jobs::RunEngine engine;
  for (size_t i = 0; i < run.keys.size(); ++i) {
    engine.current().AddIteration({.iteration = i, .key = run.keys[i], .time_ns = run.here_ns[i]});
  }
  return engine;
}

absl::StatusOr<jobs::Playlist> PlaylistOf(const Epoch& run, int measurements = 0) {
  return jobs::Answers({.job_id = 1, .name = "test", .dimensions = 1, .engine = EngineOf(run)})
      .MakePlaylist({.points = measurements});
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

// ------------------------------------------------------------------------------ the daemon's part

class PlaylistDaemonTest : public ::testing::Test {
 protected:
  PlaylistDaemonTest() {
    options_.directory = folder_.path();
    options_.store_path = options_.directory + "/store.db";
  }

  // An ended job with these iterations, of which some are not like the others, and a daemon.
  void StartWith(const Epoch& run) {
    auto store = *Store::Open(options_.store_path, {});
    WriteBatch batch;
    JobRow row{.job_id = store->NewJobId(), .name = "test", .run_id = "1"};
    row.state = v1::JOB_STATE_LEARNING;
    jobs::Job job(row, {});
    job.AddProcess({.process_id = store->NewProcessId(),
                    .job_id = row.job_id,
                    .ring_id = std::string(16, 'r'),
                    .start_ns = 1});
    job.OnProcessEnd(1, /*orderly=*/true, 1'700'000'000'000'000'000);
    job.TakeRows(batch);
    std::erase_if(batch.states,
                  [](const StateRow& part) { return absl::StartsWith(part.part, "engine"); });
    for (StateRow& part : batch.states) {
      if (part.part != "job") continue;
      jobs::JobState state;
      ASSERT_TRUE(state.ParseFromString(part.bytes));
      (*state.mutable_ranks()->mutable_next_number())[0] = static_cast<int64_t>(run.keys.size());
      part.bytes = state.SerializeAsString();
    }
    batch.states.push_back({.job_id = row.job_id,
                            .part = "engine",
                            .version = jobs::kJobStateVersion,
                            .bytes = EngineOf(run).Serialize()});
    std::map<Key, int> seen;
    for (size_t i = 0; i < run.keys.size(); ++i) {
      IterationRow& iteration = rows_.emplace_back();
      iteration = {.job_id = row.job_id,
                   .number = static_cast<int64_t>(i),
                   .length_count = run.keys[i].second > 0 ? 2 : 1,
                   .length = {run.keys[i].first, run.keys[i].second},
                   .duration_ns = run.here_ns[i]};
      if (++seen[run.keys[i]] == 1) iteration.flags |= kIterationFirst;
      if (i % 5 == 1) iteration.flags |= kIterationDistorted;
      if (i % 5 == 2) iteration.config_id = 3;
    }
    batch.iterations = rows_;
    ASSERT_TRUE(store->Write(batch).ok());
    store.reset();
    auto daemon = Daemon::Start(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  absl::StatusOr<v1::GetPlaylistReply> Ask(int points) {
    v1::GetPlaylistRequest request;
    request.set_job("test");
    request.set_points(points);
    request.set_confidence(0.95);
    return daemon_->GetPlaylist(request);
  }

  const TempFolder folder_;
  DaemonOptions options_;
  std::vector<IterationRow> rows_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(PlaylistDaemonTest, WeightsSumToTheIterationsAndEachPointIsAnOrdinaryIteration) {
  for (const bool two_dimensional : {false, true}) {
    rows_.clear();
    daemon_.reset();
    std::filesystem::remove(options_.store_path);
    const Epoch run = MakeEpoch(1, 10'000, two_dimensional);
    StartWith(run);
    for (const int points : {0, 1, 5, 64}) {
      const auto reply = Ask(points);
      ASSERT_TRUE(reply.ok()) << reply.status();
      double weight = 0, expected_ns = 0;
      int measurements = 0;
      std::vector<int64_t> before;
      for (const v1::PlaylistPoint& point : reply->points()) {
        weight += point.weight();
        expected_ns += point.weight() * point.expected_duration_ns();
        measurements += point.measurements();
        const std::vector<int64_t> lengths(point.lengths().begin(), point.lengths().end());
        EXPECT_LT(before, lengths);
        before = lengths;
        ASSERT_GE(point.iteration(), 0);
        const IterationRow& row = rows_.at(static_cast<size_t>(point.iteration()));
        EXPECT_EQ(lengths, std::vector<int64_t>(row.length, row.length + row.length_count));
        const auto alike = std::count_if(rows_.begin(), rows_.end(), [&](const IterationRow& r) {
          return r.length[0] == row.length[0] && r.length[1] == row.length[1] && r.flags == 0 &&
                 r.config_id == 0;
        });
        if (alike > 0) {
          EXPECT_EQ(row.flags, 0u);
          EXPECT_EQ(row.config_id, 0u);
        }
      }
      EXPECT_NEAR(weight, 10'000, 1e-6);
      EXPECT_EQ(measurements, points == 0 ? 16 : points);
      EXPECT_NEAR(expected_ns / run.Here(), 1, points == 1 ? 0.02 : 0.001);
      EXPECT_EQ(reply->iterations(), 10'000);
      EXPECT_EQ(reply->verdict(), v1::VERDICT_EXPLAINED);
      EXPECT_EQ(reply->sentence(), "");
    }
  }
}

TEST_F(PlaylistDaemonTest, TooFewIterationsAreRefused) {
  StartWith(MakeEpoch(1, 63));
  EXPECT_EQ(Ask(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Ask(0).status().message()),
              AllOf(HasSubstr("of 63 iterations too few"), HasSubstr("needs 64")));
}

TEST(MakePlaylistTest, ATargetErrorSaysHowManyMeasurements) {
  const jobs::Answers job(
      {.job_id = 1, .name = "test", .dimensions = 1, .engine = EngineOf(MakeEpoch(1, 2'000))});
  const auto measurements = [&](double target_error, double confidence) {
    const auto playlist =
        job.MakePlaylist({.target_error = target_error, .confidence = confidence});
    EXPECT_TRUE(playlist.ok()) << playlist.status();
    EXPECT_LE(playlist->reply.reach(), target_error);
    EXPECT_EQ(playlist->reply.confidence(), confidence);
    int sum = 0;
    for (const v1::PlaylistPoint& point : playlist->reply.points()) sum += point.measurements();
    return sum;
  };
  const int half = measurements(0.0005, 0.95);
  EXPECT_GT(half, 2 * measurements(0.001, 0.95));
  EXPECT_GT(measurements(0.0005, 0.99), half);
  const auto unreached = job.MakePlaylist({.target_error = 1e-6});
  EXPECT_THAT(unreached->reply.sentence(), HasSubstr("+-0.0001 % are out of reach"));
}

TEST(MakePlaylistTest, LengthsThatExplainNothingAreSaid) {
  Epoch run = MakeEpoch(1, 1'000);
  std::shuffle(run.here_ns.begin(), run.here_ns.end(), std::mt19937(1));
  const auto playlist = PlaylistOf(run);
  ASSERT_TRUE(playlist.ok());
  EXPECT_EQ(playlist->reply.verdict(), v1::VERDICT_NOT_EXPLAINED);
  EXPECT_THAT(playlist->reply.sentence(), HasSubstr("the length does not explain time (0.0 %"));
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
  EXPECT_THAT(playlist->reply.sentence(), HasSubstr("took on top is left out, "));
}

TEST(MakePlaylistTest, IterationsUnderAnEarlierRuleAreInTheWeights) {
  jobs::RunEngine engine = EngineOf(MakeEpoch(1, 500));
  engine.Close();
  const Epoch run = MakeEpoch(2, 1'000);
  for (size_t i = 0; i < run.keys.size(); ++i) {
    engine.current().AddIteration(
        {.iteration = 500 + i, .key = run.keys[i], .time_ns = run.here_ns[i]});
  }
  const auto playlist =
      jobs::Answers({.name = "test", .dimensions = 1, .engine = std::move(engine)})
          .MakePlaylist({.points = 8});
  ASSERT_TRUE(playlist.ok());
  double weight = 0;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) weight += point.weight();
  EXPECT_NEAR(weight, 1'500, 1e-6);
  EXPECT_EQ(playlist->first_number, 500);
  EXPECT_THAT(playlist->reply.sentence(), HasSubstr("500 iterations before the rule was learned"));
}

TEST(MakePlaylistTest, FeaturesThatAreTheSameLengthAreOnePoint) {
  const Epoch run = MakeEpoch(1, 2'000);
  const auto playlist =
      jobs::Answers(
          {.name = "test", .dimensions = 1, .units = {.unit = {4, 1}}, .engine = EngineOf(run)})
          .MakePlaylist({.points = 64});
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
  std::string pattern = (std::filesystem::temp_directory_path() / "playlist.XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(pattern.data());
  auto store = Store::Open(folder / "store.db", {});
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
  jobs::Playlist playlist{.job_id = 1, .ranks = {0, 1}};
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
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace seqpoint
