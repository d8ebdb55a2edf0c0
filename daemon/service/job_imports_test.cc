#include <signal.h>
#include <sys/resource.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "daemon/store/sqlite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

using ::testing::HasSubstr;

class JobImportsTest : public DaemonTest {};

template <typename Lengths>
std::string FormatKey(const Lengths& lengths) {
  return absl::StrJoin(lengths, " x ");
}

// Two epochs of 100 iterations, 1 ms per unit of length; the second epoch begins with a wait.
v1::ImportJobRequest ImportRequest() {
  v1::ImportJobRequest request;
  request.set_name("log");
  request.set_run_id("1");
  request.set_source("log.csv, lengths in len, times in time_ms");
  for (int i = 0; i < 200; ++i) {
    const int64_t length = 8 * (1 + i % 7);  // no other unit may be made of the common factor
    request.mutable_log()->add_lengths(length);
    const double noise = 1 + 0.01 * (i % 5 - 2);
    request.mutable_log()->add_durations(1e6 * static_cast<double>(length) *
                                         (i == 100 ? 20 : noise));
    request.mutable_log()->add_groups(i / 100);
  }
  return request;
}

TEST_F(JobImportsTest, AnImportedLogIsAJobThatAnswersAlsoAfterARestart) {
  const v1::ImportJobRequest request = ImportRequest();
  double training_ns = 0, start_up_ns = 0;
  for (int i = 0; i < 200; ++i) {
    (i == 100 ? start_up_ns : training_ns) += request.log().durations(i);
  }
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    auto daemon = Start();
    if (!restarted) {
      const auto reply = daemon->backend().ImportJob(request);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->job().processes_size(), 1);
    }
    v1::GetJobRequest get;
    get.set_job("log");
    const auto got = daemon->backend().GetJob(get);
    ASSERT_TRUE(got.ok()) << got.status();
    const v1::Job& job = got->job();
    EXPECT_EQ(job.state(), v1::JOB_STATE_ENDED);
    EXPECT_EQ(job.command(), request.source());
    EXPECT_TRUE(job.imported());
    EXPECT_EQ(job.seqpoints().seqpoints(), 0);  // none is to be measured
    EXPECT_EQ(job.iterations(), 199);
    EXPECT_EQ(job.unique_lengths(), 7);
    EXPECT_EQ(job.rule().length(), request.source());
    EXPECT_EQ(job.rule().verdict(), v1::VERDICT_EXPLAINED);
    EXPECT_GT(job.rule().explained_share(), 0.99);
    ASSERT_EQ(job.phases_size(), 1);
    EXPECT_EQ(job.phases(0).name(), "start-up");
    EXPECT_EQ(job.phases(0).iterations(), 1);
    EXPECT_EQ(static_cast<double>(job.phases(0).duration_ns()), start_up_ns);
    EXPECT_FALSE(job.has_overhead());
    EXPECT_EQ(job.end_ns() - job.start_ns(), static_cast<int64_t>(training_ns + start_up_ns));

    v1::ProjectRequest project;
    project.set_job("log@1");
    project.set_confidence(0.95);
    const auto itself = daemon->backend().Project(project);
    ASSERT_TRUE(itself.ok()) << itself.status();
    const v1::Estimate& total = itself->projection().total();
    EXPECT_EQ(total.value(), training_ns);
    EXPECT_EQ(total.low(), total.high());
    EXPECT_EQ(itself->projection().basis(),
              "the sum of the log's 199 iterations; start-up is apart");

    // Another run, of other lengths: 60 was never seen, the factor is 1 all the same.
    v1::Horizon& horizon = *project.mutable_horizon();
    horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
    horizon.set_epochs(3);
    for (const int64_t length : {16, 60}) {
      v1::LengthCount& entry = *horizon.add_histogram();
      entry.add_lengths(length);
      entry.set_count(100);
    }
    const auto other = daemon->backend().Project(project);
    ASSERT_TRUE(other.ok()) << other.status();
    const v1::Estimate& answer = other->projection().total();
    EXPECT_EQ(other->projection().iterations_total(), 600);
    EXPECT_NEAR(answer.value(), 300 * 76e6, 0.02 * 300 * 76e6);
    EXPECT_LT(answer.low(), answer.value());
    EXPECT_GT(answer.high(), answer.value());
    for (v1::LengthCount& entry : *horizon.mutable_histogram()) entry.set_lengths(0, 100'000);
    EXPECT_THAT(std::string(daemon->backend().Project(project).status().message()),
                testing::AllOf(HasSubstr("8 to 56"), HasSubstr("same column and unit")));
    for (v1::LengthCount& entry : *horizon.mutable_histogram()) entry.add_lengths(1);
    EXPECT_THAT(std::string(daemon->backend().Project(project).status().message()),
                HasSubstr("an iteration has 2 lengths in what is given and 1 in the job"));

    v1::GetSeqPointsRequest ask_points;
    ask_points.set_job("log");
    const auto points = daemon->backend().GetSeqPoints(ask_points);
    ASSERT_TRUE(points.ok()) << points.status();
    double weight = 0;
    for (const v1::SeqPoint& point : points->seqpoints()) {
      weight += point.weight();
      EXPECT_EQ(point.lengths(0) % 8, 0);
      EXPECT_EQ(point.wanted(), 0);
    }
    EXPECT_NEAR(weight, 199, 1e-6);
    EXPECT_THAT(points->message(), HasSubstr("of an imported log nothing is measured"));
    v1::GetCountersRequest counters;
    counters.set_job("log");
    counters.set_confidence(0.95);
    EXPECT_THAT(std::string(daemon->backend().GetCounters(counters).status().message()),
                HasSubstr("another tool's log"));

    v1::ListIterationsRequest list;
    list.set_job("log");
    list.set_page_size(1'000);
    const auto iterations = daemon->backend().ListIterations(list);
    ASSERT_TRUE(iterations.ok()) << iterations.status();
    ASSERT_EQ(iterations->iterations_size(), 200);
    EXPECT_EQ(iterations->total(), 200);
    int64_t next_ns = job.start_ns();
    for (int i = 0; i < 200; ++i) {
      const v1::Iteration& iteration = iterations->iterations(i);
      EXPECT_EQ(iteration.start_ns(), next_ns);
      EXPECT_EQ(iteration.lengths(0), request.log().lengths(i));
      EXPECT_EQ(iteration.phase(), i == 100 ? "start-up" : "");
      EXPECT_EQ(iteration.first_occurrence(), i < 7);
      next_ns += iteration.duration_ns();
    }
    const std::string text = ExportCsv(*daemon, "log");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 201);
    EXPECT_THAT(text, HasSubstr("\n0,100,0,24,,"));
    EXPECT_THAT(text, HasSubstr(",start-up\n"));
    EXPECT_EQ(daemon->backend().WaitForJob("log", -1, absl::ZeroDuration())->state(),
              v1::JOB_STATE_ENDED);
  }
}

// A log in which everything happens that is set apart: start-up, first iterations of a length that
// take more, stalls, drift.
v1::IterationLog BusyLog(bool two_dimensional) {
  std::mt19937 random(3);
  std::gamma_distribution<double> length(4, 8);
  std::normal_distribution<double> normal;
  std::set<int64_t> seen;
  v1::IterationLog log;
  for (int i = 0; i < 3'000; ++i) {
    const auto l = static_cast<int64_t>(8 + length(random));
    log.add_lengths(l);
    double ms = 5 + 0.2 * static_cast<double>(l) + 0.0005 * i;
    if (two_dimensional) {
      log.add_second_lengths(static_cast<int64_t>(8 + length(random)));
      ms += 0.1 * static_cast<double>(log.second_lengths(i));
    }
    ms *= std::exp(0.01 * normal(random));
    if (seen.insert(l).second) ms += 4;
    if (i % 97 == 50) ms *= 3;
    if (i % 1'000 == 0) ms *= 30;
    log.add_durations(1e6 * ms);
    log.add_groups(i / 1'000);
  }
  return log;
}

TEST_F(JobImportsTest, TheListsOfOneLogAgree) {
  auto daemon = Start();
  for (const bool two_dimensional : {false, true}) {
    v1::AnalyzeRequest analyze;
    *analyze.mutable_log() = BusyLog(two_dimensional);
    analyze.set_confidence(0.9);
    analyze.set_playlist(true);
    v1::ImportJobRequest import;
    import.set_name(two_dimensional ? "two" : "one");
    *import.mutable_log() = analyze.log();
    ASSERT_TRUE(daemon->backend().ImportJob(import).ok());
    v1::GetPlaylistRequest ask;
    ask.set_job(import.name());
    ask.set_confidence(0.9);
    for (const auto& [points, target_error] :
         {std::pair(0, 0.0), {5, 0.0}, {200, 0.0}, {0, 0.002}}) {
      analyze.set_points(points);
      analyze.set_target_error(target_error);
      const auto analyzed = daemon->backend().Analyze(analyze);
      ASSERT_TRUE(analyzed.ok()) << analyzed.status();
      ask.set_points(points);
      ask.set_target_error(target_error);
      auto listed = daemon->backend().GetPlaylist(ask);
      ASSERT_TRUE(listed.ok()) << listed.status();
      ASSERT_EQ(listed->points_size(), analyzed->points_size());
      int64_t measurements = 0;
      for (int i = 0; i < listed->points_size(); ++i) {
        const v1::PlaylistPoint& point = listed->points(i);
        const v1::AnalyzedPoint& same = analyzed->points(i);
        EXPECT_EQ(FormatKey(point.lengths()), FormatKey(same.lengths()));
        EXPECT_EQ(point.weight(), same.weight());
        EXPECT_EQ(point.measurements(), same.measurements());
        EXPECT_EQ(point.expected_duration_ns(), same.expected());
        EXPECT_EQ(point.noise_duration_ns(), same.noise());
        measurements += point.measurements();
        // An ordinary iteration, counted as in the log.
        const auto iteration = static_cast<int>(point.iteration());
        ASSERT_LT(iteration, 3'000);
        EXPECT_EQ(analyze.log().lengths(iteration), point.lengths(0));
        EXPECT_NEAR(analyze.log().durations(iteration) / point.expected_duration_ns(), 1, 0.25);
      }
      EXPECT_EQ(listed->iterations(), analyzed->iterations());
      EXPECT_LE(listed->relative_error(), target_error > 0 ? target_error : 1);
      if (points > 0) {
        EXPECT_EQ(measurements, points);
      }
      EXPECT_THAT(listed->message(), HasSubstr("took on top is left out"));
      listed->clear_job_id();
      EXPECT_EQ(listed->SerializeAsString(), analyzed->playlist().SerializeAsString());
      if (points > 0 || target_error > 0) continue;
      v1::GetSeqPointsRequest ask_points;
      ask_points.set_job(import.name());
      const auto seqpoints = daemon->backend().GetSeqPoints(ask_points);
      ASSERT_TRUE(seqpoints.ok()) << seqpoints.status();
      ASSERT_EQ(seqpoints->seqpoints_size(), listed->points_size());
      for (int i = 0; i < listed->points_size(); ++i) {
        const v1::SeqPoint& point = seqpoints->seqpoints(i);
        EXPECT_EQ(FormatKey(point.lengths()), FormatKey(listed->points(i).lengths()));
        EXPECT_EQ(point.weight(), listed->points(i).weight());
        EXPECT_EQ(point.mean_duration_ns(), listed->points(i).expected_duration_ns());
      }
    }
  }
}

TEST_F(JobImportsTest, ALogWhoseLengthsExplainNothingHasNoSeqPointsAndAShortOneNoPlaylist) {
  auto daemon = Start();
  v1::ImportJobRequest import;
  import.set_name("log");
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 500; ++i) {
    import.mutable_log()->add_lengths(10 + i % 37);
    import.mutable_log()->add_durations(std::round(1e7 * std::exp(0.2 * normal(random))));
  }
  ASSERT_TRUE(daemon->backend().ImportJob(import).ok());
  v1::GetSeqPointsRequest ask;
  ask.set_job("log");
  absl::Status status = daemon->backend().GetSeqPoints(ask).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("so there are no SeqPoints"));
  v1::GetPlaylistRequest list;
  list.set_job("log");
  list.set_confidence(0.95);
  EXPECT_THAT(daemon->backend().GetPlaylist(list)->message(),
              HasSubstr("no better than any would"));

  import.set_name("short");
  import.mutable_log()->mutable_lengths()->Truncate(40);
  import.mutable_log()->mutable_durations()->Truncate(40);
  ASSERT_TRUE(daemon->backend().ImportJob(import).ok());
  list.set_job("short");
  status = daemon->backend().GetPlaylist(list).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 40 iterations too few"));
  v1::AnalyzeRequest analyze;
  *analyze.mutable_log() = import.log();
  analyze.set_confidence(0.95);
  EXPECT_TRUE(daemon->backend().Analyze(analyze).ok());
  analyze.set_playlist(true);
  EXPECT_THAT(std::string(daemon->backend().Analyze(analyze).status().message()),
              HasSubstr("of 40 iterations too few"));
}

TEST_F(JobImportsTest, AnImportedJobIsNeitherImportedAgainNorGoneOnWith) {
  auto daemon = Start();
  v1::ImportJobRequest request = ImportRequest();
  ASSERT_TRUE(daemon->backend().ImportJob(request).ok());
  const absl::Status again = daemon->backend().ImportJob(request).status();
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("--run-id"));
  v1::PrepareJobRequest prepare;
  prepare.set_name("log");
  prepare.set_run_id("1");
  EXPECT_TRUE(absl::IsFailedPrecondition(daemon->backend().PrepareJob(prepare).status()));
  request.clear_run_id();
  EXPECT_TRUE(daemon->backend().ImportJob(request).ok());
  EXPECT_TRUE(daemon->backend().ImportJob(request).ok());
  EXPECT_EQ(daemon->backend().ListJobs({})->jobs_size(), 3);
  request.set_name("");
  EXPECT_TRUE(absl::IsInvalidArgument(daemon->backend().ImportJob(request).status()));
}

TEST_F(JobImportsTest, RowsWithoutATimeAreIterationsOfTheImportedLog) {
  v1::ImportJobRequest request = ImportRequest();
  double known_ns = 0;
  for (const int i : {0, 50, 199}) request.mutable_log()->set_durations(i, 0);
  for (int i = 0; i < 200; ++i) known_ns += i == 100 ? 0 : request.log().durations(i);
  auto daemon = Start();
  const auto reply = daemon->backend().ImportJob(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job().iterations(), 199);  // one is start-up
  v1::ProjectRequest project;
  project.set_job("log");
  project.set_confidence(0.95);
  const auto itself = daemon->backend().Project(project);
  ASSERT_TRUE(itself.ok()) << itself.status();
  const v1::Estimate& total = itself->projection().total();
  EXPECT_GT(total.low(), known_ns);
  EXPECT_LT(total.low(), total.high());
  // Lengths 8 x (1 + {0, 1, 3}), of 1 ms each.
  EXPECT_NEAR(total.value(), known_ns + 56e6, 2e6);
  EXPECT_EQ(itself->projection().basis().find("the sum of"), std::string::npos);
  v1::GetPlaylistRequest ask;
  ask.set_job("log");
  ask.set_confidence(0.95);
  const auto playlist = daemon->backend().GetPlaylist(ask);
  ASSERT_TRUE(playlist.ok()) << playlist.status();
  EXPECT_THAT(playlist->message(), HasSubstr("3 iterations of the log without a time"));
  for (const v1::PlaylistPoint& point : playlist->points()) {
    EXPECT_EQ(request.log().lengths(static_cast<int>(point.iteration())), point.lengths(0));
    EXPECT_GT(request.log().durations(static_cast<int>(point.iteration())), 0);
  }
}

TEST_F(JobImportsTest, OddLogsHaveAnswers) {
  auto daemon = Start();
  const auto import = [&](const std::vector<int64_t>& lengths, double duration) {
    v1::ImportJobRequest request;
    request.set_name("odd");
    for (const int64_t length : lengths) {
      request.mutable_log()->add_lengths(length);
      request.mutable_log()->add_durations(duration);
    }
    return daemon->backend().ImportJob(request);
  };
  const auto one = import({0}, 0.2);  // less than a nanosecond
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->job().time().total().value(), 1);
  const auto equal = import(std::vector<int64_t>(500, int64_t{1} << 53), 1e6);
  ASSERT_TRUE(equal.ok()) << equal.status();
  EXPECT_EQ(equal->job().unique_lengths(), 1);
  EXPECT_EQ(equal->job().time().total().value(), 500e6);
  EXPECT_EQ(equal->job().rule().verdict(), v1::VERDICT_TIME_HARDLY_VARIES);
  // More lengths than are told apart: all of them are in the sum.
  std::vector<int64_t> many((1 << 18) + 1'000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i);
  const auto unique = import(many, 1e6);
  ASSERT_TRUE(unique.ok()) << unique.status();
  EXPECT_EQ(unique->job().time().total().value(), 1e6 * static_cast<double>(many.size()));
  EXPECT_THAT(unique->job().rule().message(), HasSubstr("only the first 262144"));
  for (const auto& [rows, duration] : {std::pair(1, 1e18), {100, 5e16}}) {
    const absl::Status status = import(std::vector<int64_t>(rows, 5), duration).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is the unit of time right?"));
  }
}

TEST_F(JobImportsTest, AnImportThatTheStoreCannotTakeLeavesNoJob) {
  auto daemon = Start();
  v1::ImportJobRequest request = ImportRequest();
  for (int i = 0; i < 200'000; ++i) {
    request.mutable_log()->add_lengths(8);
    request.mutable_log()->add_durations(8e6);
    request.mutable_log()->add_groups(0);
  }
  // As on a full disk: no file may grow beyond 1 MiB.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = daemon->backend().ImportJob(request).status();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(daemon->backend().ListJobs({})->jobs_size(), 0);
  EXPECT_TRUE(daemon->backend().ImportJob(request).ok());
  daemon.reset();
  auto store = OpenStore();
  ASSERT_EQ(store->ListJobs()->size(), 1u);
  while (store->Prune({})->more) continue;
  EXPECT_EQ(store->CountIterations(1)->size(), 0u);
  EXPECT_EQ(store->CountIterations(2)->at(0), 200'200);
}

}  // namespace
}  // namespace seqpoint::service
