#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_in_process.h"
#include "tests/support/recorded_epoch.h"

namespace seqpoint::service {
namespace {

using queries::EngineOf;
using queries::Epoch;
using queries::MakeEpoch;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PlaylistDaemonTest : public ::testing::Test {
 protected:
  PlaylistDaemonTest() {
    options_.ingest.directory = folder_.path();
    options_.store_path = options_.ingest.directory + "/store.db";
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
    return daemon_->backend().GetPlaylist(request);
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
      EXPECT_EQ(reply->message(), "");
    }
  }
}

TEST_F(PlaylistDaemonTest, TooFewIterationsAreRefused) {
  StartWith(MakeEpoch(1, 63));
  EXPECT_EQ(Ask(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Ask(0).status().message()),
              AllOf(HasSubstr("of 63 iterations too few"), HasSubstr("needs 64")));
}

}  // namespace
}  // namespace seqpoint::service
