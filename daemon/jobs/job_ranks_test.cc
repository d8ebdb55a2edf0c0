// Several ranks of one training.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/queries/playlist.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/job_fixture.h"

namespace seqpoint::jobs {
namespace {

// Ranks of one synchronous training: each has a batch of its own, all wait for the longest.
class Ranks {
 public:
  explicit Ranks(int count) {
    for (int rank = 0; rank < count; ++rank) processes_.emplace_back(10 + rank);
  }

  std::vector<ProcessRow> Rows() const {
    std::vector<ProcessRow> rows;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      ProcessRow row = TrainingProcess();
      row.process_id = first_id + static_cast<int64_t>(rank);
      row.rank = static_cast<int32_t>(rank);
      row.start_ns = first_id;
      row.text = absl::StrCat("rank=", rank, "\nworld_size=", processes_.size(), "\n");
      rows.push_back(row);
    }
    return rows;
  }
  void Join(Job& job) {
    for (const ProcessRow& row : Rows()) job.AddProcess(row);
    Connect(job);
  }
  void Connect(Job& job) {
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      processes_[rank].Connect(job, first_id + static_cast<int64_t>(rank));
    }
  }
  void Step(size_t last_rank = 1000) {
    std::vector<int64_t> lengths;
    for (FakeProcess& process : processes_) lengths.push_back(process.DrawLength());
    Step(lengths, last_rank);
  }
  // Of the ranks up to `last_rank`; the others are killed.
  void Step(const std::vector<int64_t>& lengths, size_t last_rank = 1000) {
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    int64_t time_ns = processes_[0].TimeOf(longest);
    bool first = false;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      first |= seen_.emplace(rank, lengths[rank]).second;
    }
    if (first) time_ns += first_ns;
    time_all_ns += static_cast<double>(time_ns);
    for (size_t rank = 0; rank < processes_.size() && rank <= last_rank; ++rank) {
      processes_[rank].Iterate(lengths[rank], time_ns);
      flops += processes_[rank].truth.back().flops;
    }
  }
  void End(Job& job, bool orderly = true, int64_t now_ns = 1) {
    for (const ProcessRow& row : Rows()) job.OnProcessEnd(row.process_id, orderly, now_ns);
  }

  FakeProcess& process(size_t rank) { return processes_[rank]; }
  int64_t first_id = 20;
  int64_t first_ns = 0;  // a rank's first batch of a length makes all others wait
  double time_all_ns = 0, flops = 0;

 private:
  std::deque<FakeProcess> processes_;
  std::set<std::pair<size_t, int64_t>> seen_;  // rank, length
};

TEST(Job, RanksThatAreToldLaterAreRanks) {
  for (const bool after_calls : {false, true}) {
    Job job(Row(), {});
    ASSERT_TRUE(job.SetHorizon(AllLengths(40)).ok());
    FakeProcess first(5), second(6);
    ConnectTwo(job, first, second);
    for (int i = 0; i < 200; ++i) {
      if (i == (after_calls ? 3 : 0)) {
        second.SayRank(1, 2);
        first.SayRank(0, 2);
      }
      const int64_t a = first.DrawLength(), b = second.DrawLength();
      const int64_t time_ns = first.TimeOf(std::max(a, b));
      first.Iterate(a, time_ns);
      second.Iterate(b, time_ns);
    }
    const v1::Projection projection = Project(job, AskTime())->projection();
    EXPECT_EQ(projection.iterations_total(), 40 * 31 / 2);
    EXPECT_THAT(projection.basis(), testing::HasSubstr("the slowest of 2 ranks"));
    v1::Job described = job.Describe(true);
    ASSERT_EQ(described.processes_size(), 2);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(described.processes(rank).rank(), rank);
      EXPECT_EQ(described.processes(rank).incarnation(), 0);
      EXPECT_EQ(described.processes(rank).world_size(), 2);
    }
    EXPECT_EQ(described.error(), "");
    second.SayRank(5, 2);  // no such rank
    EXPECT_EQ(job.Describe(true).processes(1).losses().rejected(), 1);
    job.OnProcessEnd(7, true, 1);
    job.OnProcessEnd(8, true, 1);
    EXPECT_EQ(job.Describe(true).iterations(), 200);
    // The log has the run's steps, as its figures do.
    FakeStore store;
    store.Take(job);
    int64_t steps = 0, time_ns = 0;
    for (const auto& [place, row] : store.iterations) {
      if (row.rank != kStepsRank) continue;
      ++steps;
      time_ns += row.duration_ns;
    }
    EXPECT_EQ(steps, 200);
    const double so_far = Project(job, AskTime())->projection().so_far().value();
    EXPECT_NEAR(static_cast<double>(time_ns) / so_far, 1, 0.02) << "the last one has no end";
  }
}

TEST(Job, AStepOfSeveralRanksIsAsLongAsItsSlowestAndCountersAreOfAll) {
  Job job(Row(), {});
  v1::Horizon horizon;
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(600);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.Join(job);
  for (int i = 0; i < 600; ++i) ranks.Step();
  ranks.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 600);
  EXPECT_EQ(job.Describe(true).rule().verdict(), v1::VERDICT_EXPLAINED);
  EXPECT_GT(job.Describe(true).rule().explained_share(), 0.97);
  const auto time = Project(job, AskTime());
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_NEAR(time->projection().total().value() / ranks.time_all_ns, 1, 0.002);
  EXPECT_THAT(time->projection().basis(), testing::HasSubstr("the slowest of 4 ranks"));

  v1::GetCountersRequest request;
  request.set_confidence(0.999);
  const auto counters = GetCounters(job, request);
  ASSERT_TRUE(counters.ok());
  const v1::Projection& instructions = counters->counters(1).projection();
  EXPECT_NEAR(instructions.total().value() / ranks.flops, 1, 0.02);
  EXPECT_LE(instructions.total().low(), ranks.flops);
  EXPECT_GE(instructions.total().high(), ranks.flops);
  EXPECT_THAT(instructions.basis(), testing::HasSubstr("the sum over 4 ranks"));
  // Each takes a share of what is measured.
  size_t measured = 0;
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_GE(ranks.process(rank).measured_iterations.size(), 8u) << rank;
    measured += ranks.process(rank).measured_iterations.size();
  }
  EXPECT_LE(measured, 64u);
  const auto seqpoints = GetSeqPoints(job);
  ASSERT_TRUE(seqpoints.ok());
  double weight = 0;
  for (const v1::SeqPoint& point : seqpoints->seqpoints()) {
    weight += point.weight();
    // By metric set it is as many.
    int by_set = 0;
    for (const v1::ConfigCount& config : point.configs()) by_set += config.measured();
    EXPECT_EQ(by_set, point.measured());
    ASSERT_EQ(point.configs_size(), 2);
    EXPECT_EQ(point.configs(0).config(), "utilisation");
    EXPECT_EQ(point.configs(1).config(), "trace");
    EXPECT_EQ(point.configs(0).wanted() + point.configs(1).wanted(), point.wanted());
  }
  EXPECT_NEAR(weight, 4 * 600, 1e-6);
}

TEST(Job, OfARankThatJoinsLaterTheBasisSaysWhatIsInNoStep) {
  Job job(Row(), {});
  FakeProcess first(3), second(4);
  job.AddProcess(TrainingProcess());
  first.Connect(job, 7);
  for (int i = 0; i < 300; ++i) first.Iterate();
  ProcessRow row = TrainingProcess();
  row.process_id = 8;
  row.rank = 1;
  row.text = "rank=1\n";
  job.AddProcess(row);
  second.Connect(job, 8);
  for (int i = 0; i < 100; ++i) {
    first.Iterate();
    second.Iterate();
  }
  const auto time = Project(job, AskTime());
  ASSERT_TRUE(time.ok()) << time.status();
  EXPECT_THAT(time->projection().basis(),
              testing::HasSubstr("iterations came when their steps were over: a step counts "
                                 "without a rank that joins later"));
}

TEST(Job, EveryRankHasFirstOccurrencesOfItsOwn) {
  Job job(Row(), {});
  v1::Horizon horizon = AllLengths(80);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.first_ns = 3'000'000;  // as long as an iteration
  ranks.Join(job);
  v1::Estimate early;
  for (int i = 0; i < 620; ++i) {
    ranks.Step();
    if (i == 80) early = Project(job, AskTime())->projection().total();
  }
  ranks.End(job);
  const v1::Job end = job.Describe(true);
  EXPECT_GT(end.rule().explained_share(), 0.97);
  EXPECT_NEAR(end.time().total().value() / ranks.time_all_ns, 1, 0.002);
  EXPECT_NEAR(early.value() / ranks.time_all_ns, 1, 0.02);
  EXPECT_LE(early.low(), ranks.time_all_ns);
  EXPECT_GE(early.high(), ranks.time_all_ns);
}

TEST(Job, BatchesOfTheUsersAreSharedOutBetweenRanks) {
  Job job(Row(), {});
  v1::Horizon horizon = AllLengths(80);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  Ranks ranks(4);
  ranks.Join(job);
  for (int i = 0; i < 150; ++i) ranks.Step();
  auto reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 80 * 31 / 4);
  EXPECT_EQ(reply->projection().horizon_kind(), v1::Horizon::KIND_DISTRIBUTION);
  // The longest of four: 40 - sum over k of (k / 31)^4.
  double longest = 40;
  for (int k = 1; k <= 30; ++k) longest -= std::pow(k / 31.0, 4);
  const double expected = 620 * (2e5 + 1e5 * longest);
  EXPECT_NEAR(reply->projection().total().value() / expected, 1, 0.01);
  EXPECT_LE(reply->projection().total().low(), expected);
  EXPECT_GE(reply->projection().total().high(), expected);

  // Two of them work on the same batches: twice as many steps.
  horizon.set_data_parallel(2);
  ASSERT_TRUE(job.SetHorizon(horizon).ok());
  reply = Project(job, AskTime());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->projection().iterations_total(), 80 * 31 / 2);
}

TEST(Job, RanksThatWereKilledAtDifferentStepsAreInStepAgainWhenResumed) {
  Job job(Row(), {});
  Ranks ranks(3);
  ranks.Join(job);
  for (int i = 0; i < 150; ++i) ranks.Step();
  ranks.Step(/*last_rank=*/0);
  ranks.End(job, /*orderly=*/false);
  EXPECT_EQ(job.Describe(true).iterations(), 151);
  Ranks resumed(3);
  resumed.first_id = 40;
  for (int i = 0; i < 1000; ++i) resumed.process(0).DrawLength();  // another order
  resumed.Join(job);
  for (int i = 0; i < 200; ++i) resumed.Step();
  resumed.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 351);
  EXPECT_GT(job.Describe(true).rule().explained_share(), 0.97);
  EXPECT_EQ(job.Describe(true).working_ranks(), 3);
  // With fewer ranks: no number of them is that of the whole run.
  Ranks fewer(2);
  fewer.first_id = 80;
  fewer.Join(job);
  for (int i = 0; i < 100; ++i) fewer.Step();
  fewer.End(job);
  EXPECT_EQ(job.Describe(true).working_ranks(), 0);
}

// The daemon came later than the ranks, and hears of each from another iteration on.
TEST(Job, RanksThatAreHeardFromDifferentStepsOnAreNumberedByTheirCollectives) {
  Job job(Row(), {});
  FakeStore store;
  Ranks ranks(3);
  ranks.Join(job);
  for (int i = 0; i < 150; ++i) ranks.Step();
  ranks.End(job, /*orderly=*/false, /*now_ns=*/1000);  // was noticed late
  store.Take(job);
  const size_t before = store.iterations.size();

  Ranks resumed(3);
  resumed.first_id = 40;
  for (size_t rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 1000; ++i) resumed.process(rank).DrawLength();  // another order
  }
  resumed.Join(job);
  for (size_t rank = 0; rank < 3; ++rank) {
    resumed.process(rank).SayCommunicator(static_cast<int32_t>(rank), 3);
    *resumed.process(rank).next_reduction = static_cast<uint32_t>(5 * rank);
    while (resumed.process(rank).next_reduction < 10) resumed.process(rank).Iterate();
  }
  for (int i = 0; i < 200; ++i) resumed.Step();
  resumed.End(job);
  store.Take(job);
  // The last iteration of each rank is the same one.
  std::set<int64_t> last;
  for (int64_t rank = 0; rank < 3; ++rank) {
    const auto end = store.iterations.lower_bound(FakeStore::kRankStride * (rank + 1));
    last.insert(std::prev(end)->second.number);
  }
  EXPECT_GT(store.iterations.size(), before + 600);
  EXPECT_EQ(last.size(), 1u) << testing::PrintToString(last);
  EXPECT_GT(job.Describe(true).rule().explained_share(), 0.97);
}

// A daemon that comes late to a running job that it never saw. It reads what the rings hold of the
// start, and goes on with each rank at another iteration.
void RunLate(Ranks& ranks, Job& job, FakeStore& store, bool has_communicators) {
  ranks.Join(job);
  for (int rank = 0; rank < 3 && has_communicators; ++rank) {
    ranks.process(static_cast<size_t>(rank)).SayCommunicator(rank, 3);
  }
  for (int i = 0; i < 300; ++i) {
    for (size_t rank = 0; rank < 3; ++rank) {
      ranks.process(rank).deaf = i >= 2 && i < static_cast<int>(4 + 7 * rank);
    }
    ranks.Step(std::vector<int64_t>(3, ranks.process(0).DrawLength()));
    store.Take(job);
    for (const Job::WantedLog& log : job.WantedLogs()) job.SetLog(log.process_id, log.begin, {});
  }
}

TEST(Job, RanksOfARunningJobThatWasNeverSeenAreNumberedByTheirCollectives) {
  Job job(Row(), {});
  FakeStore store;
  Ranks ranks(3);
  RunLate(ranks, job, store, /*has_communicators=*/true);
  std::map<int64_t, std::vector<int64_t>> lengths;  // of the ranks, by number
  for (const auto& [key, row] : store.iterations) {
    if (row.rank >= 0) lengths[row.number].push_back(row.length[0]);
  }
  int whole = 0;
  for (const auto& [number, of_ranks] : lengths) {
    if (of_ranks.size() < 3) continue;
    ++whole;
    EXPECT_THAT(of_ranks, testing::Each(of_ranks[0])) << number;
  }
  EXPECT_GT(whole, 250);
  EXPECT_EQ(job.Describe(true).error(), "");
  EXPECT_EQ((*job.TakeSnapshot())->data().unmatched, "");
}

TEST(Job, RanksThatWereHeardLateAndShareNoCollectiveAreNotSetBesideEachOther) {
  constexpr char kUnknown[] = "not known, because ranks 0, 1, 2 were not heard from the start on";
  Job job(Row(), {});
  FakeStore store;
  Ranks ranks(3);
  RunLate(ranks, job, store, /*has_communicators=*/false);
  EXPECT_GT(store.iterations.size(), 800u);
  EXPECT_THAT(job.DescribeRanks().message(), testing::HasSubstr(kUnknown));
  EXPECT_FALSE(job.DescribeRanks().imbalance().has_loss());
  EXPECT_THAT(job.Describe(true).error(), testing::HasSubstr(kUnknown));
}

TEST(Job, TheLastIterationsOfTheRanksAreStored) {
  auto job = std::make_unique<Job>(Row(), JobOptions{});
  FakeStore store;
  Ranks ranks(2);
  ranks.Join(*job);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.process(static_cast<size_t>(rank)).SayCommunicator(rank, 2);
    ranks.process(static_cast<size_t>(rank)).timed = true;
  }
  for (int i = 0; i < 200; ++i) ranks.Step();
  store.Take(*job);
  ranks.End(*job);
  store.Take(*job);
  const v1::GetRanksReply at_end = job->DescribeRanks();
  EXPECT_EQ(at_end.last_iteration(), 199);
  const v1::GetRanksReply later = store.Restart(ranks.Rows())->DescribeRanks();
  EXPECT_EQ(later.last_iteration(), at_end.last_iteration());
  EXPECT_EQ(later.iterations(), at_end.iterations());
}

// Without windows of all ranks nothing tells by how much the kernels of the slow one are slower.
TEST(Job, MeasurementsFromBeforeARankBecameSlowAreNoFigureOfTheWholeRun) {
  Job job(Row(), {});
  FakeStore store;
  Ranks ranks(4);
  ranks.Join(job);
  for (int rank = 0; rank < 4; ++rank) {
    ranks.process(static_cast<size_t>(rank)).SayCommunicator(rank, 4);
    ranks.process(static_cast<size_t>(rank)).timed = true;
  }
  for (int i = 0; i < 1200; ++i) {
    for (size_t rank = 0; rank < 4; ++rank) {
      // No two are quite alike.
      ranks.process(rank).waits_ns = (i * 7919 + static_cast<int64_t>(rank) * 104729) % 5000 +
                                     (i >= 500 && rank != 2 ? 1'000'000 : 0);
    }
    ranks.Step();
  }
  ranks.End(job);
  store.Take(job);
  const v1::GetRanksReply verdicts = job.DescribeRanks();
  ASSERT_EQ(verdicts.ranks(2).course(), v1::RANK_COURSE_SLOW) << verdicts.DebugString();
  const auto kernels = GetKernels(job, {});
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  EXPECT_THAT(kernels->message(),
              testing::ContainsRegex("rank 2 became slower at iteration [0-9]+; [0-9]+ of its "
                                     "[0-9]+ measurements are of iterations before it"));
  EXPECT_TRUE(std::isinf(kernels->kernels(0).duration_ns().high()));
  const auto later = GetKernels(*store.Restart(ranks.Rows()), {});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->message(), kernels->message());
}

TEST(Job, OfRanksThatDidNotEndWellTheFirstIsNamed) {
  constexpr int64_t kMs = 1'000'000;
  const auto words = [](const EndSeen& first, const EndSeen& second, bool stopped = false) {
    Job job(Row(), {});
    Ranks ranks(3);
    ranks.Join(job);
    for (int i = 0; i < 100; ++i) ranks.Step();
    // The launcher ends the others, whose rings may be read earlier.
    job.OnProcessEnd(20, /*orderly=*/true, 1, /*failed=*/true, second);
    job.OnProcessEnd(21, /*orderly=*/false, 2, /*failed=*/false, first);
    EXPECT_EQ(job.DescribeRanks().first_end(), "");  // another one still runs
    job.OnProcessEnd(22, /*orderly=*/true, 3, /*failed=*/false, {1 * kMs, 2 * kMs});
    ProgramEndState end;
    end.set_launch("torchrun");
    end.set_exit_status(1);
    if (stopped) end.set_signal(SIGINT);
    job.EndProgram(end);
    EXPECT_EQ(job.Describe(true).ranks(), job.DescribeRanks().summary());
    return job.DescribeRanks().first_end();
  };
  EXPECT_EQ(words({990 * kMs, 1000 * kMs}, {1300 * kMs, 1310 * kMs}),
            "rank 1 ended first: it was killed or crashed, 0.31 s before rank 0, the next one");
  EXPECT_EQ(words({1300 * kMs, 1310 * kMs}, {990 * kMs, 1000 * kMs}),
            "rank 0 ended first: it ended with an error, 0.31 s before rank 1, the next one");
  EXPECT_THAT(words({990 * kMs, 1000 * kMs}, {995 * kMs, 1005 * kMs}),
              testing::HasSubstr("not known, because ranks 1 and 0 ended within 16 ms"));
  EXPECT_THAT(words({}, {995 * kMs, 1005 * kMs}),
              testing::HasSubstr("no daemon watched when rank 1 ended"));
  EXPECT_EQ(words({990 * kMs, 1000 * kMs}, {1300 * kMs, 1310 * kMs}, /*stopped=*/true), "");
}

TEST(Job, ARestartedDaemonKnowsWhereEachRankWas) {
  const auto run = [](bool restarts) {
    auto job = std::make_unique<Job>(Row(), JobOptions{});
    FakeStore store;
    Ranks ranks(3);
    ranks.Join(*job);
    for (int i = 0; i < 300; ++i) {
      // Half a step is under way when the daemon is killed.
      ranks.Step();
      if (i % 7 == 0) ranks.process(0).Iterate();
      if (i % 7 == 3) {
        ranks.process(1).Iterate();
        ranks.process(2).Iterate();
      }
      store.Take(*job);
      if (restarts && i % 25 == 24) {
        job = store.Restart(ranks.Rows());
        ranks.Connect(*job);
      }
    }
    ranks.End(*job);
    store.Take(*job);
    const v1::Job end = job->Describe(false);
    return std::tuple(end.iterations(), end.iterations_duration_ns(), end.unique_lengths());
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Job, ARankWithoutIterationsHoldsNobodyUp) {
  Job job(Row(), {});
  Ranks ranks(2);
  ranks.Join(job);
  const int64_t second = 1'000'000'000;
  for (int i = 0; i < 200; ++i) {
    ranks.process(0).Iterate();
    ranks.process(0).PassTime(second / 4);
    ranks.process(1).PassTime(0);
  }
  EXPECT_GT(job.Describe(true).iterations(), 100);
  ranks.End(job);
  EXPECT_EQ(job.Describe(true).iterations(), 200);
}

TEST(Job, APlaylistHasTheUsersLengthsAndTheIterationsOfTheRanks) {
  Job job(Row(), {});
  FakeProcess process(4);
  ProcessRow row = TrainingProcess();
  row.rank = 3;
  job.AddProcess(row);
  process.Connect(job, 7);
  for (int i = 0; i < 30; ++i) process.Iterate();
  EXPECT_EQ(queries::MakePlaylist(**job.TakeSnapshot(), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 270; ++i) process.Iterate();
  const auto playlist = queries::MakePlaylist(**job.TakeSnapshot(), {.points = 8});
  ASSERT_TRUE(playlist.ok()) << playlist.status();
  EXPECT_EQ(playlist->ranks, std::vector<int32_t>{3});
  double weight = 0;
  for (const v1::PlaylistPoint& point : playlist->reply.points()) {
    weight += point.weight();
    ASSERT_EQ(point.lengths_size(), 1);
    const int64_t length = point.lengths(0);
    EXPECT_TRUE(std::any_of(process.truth.begin(), process.truth.end(), [&](const auto& truth) {
      return truth.length == length;
    })) << length;
    // 200,000 + 100,000 x length
    EXPECT_NEAR(point.expected_duration_ns() / (2e5 + 1e5 * static_cast<double>(length)), 1, 0.01);
  }
  EXPECT_NEAR(weight, static_cast<double>(job.Describe(false).iterations()), 1e-6);
}

}  // namespace
}  // namespace seqpoint::jobs
