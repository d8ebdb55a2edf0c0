#include <signal.h>
#include <sys/resource.h>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/store/sqlite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/ring/connection.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

using ::testing::HasSubstr;

// The wall clock is one that people set.
class SetClock : public Clock {
 public:
  int64_t WallNs() const override { return Clock::WallNs() + set_by_ns_; }
  void SetBy(int64_t ns) { set_by_ns_ += ns; }

 private:
  std::atomic<int64_t> set_by_ns_ = 0;
};

TEST_F(DaemonTest, CommitsGoOnWhereverTheWallClockIsSet) {
  constexpr int64_t kHourNs = 3'600'000'000'000;
  SetClock clock;
  options_.clock = &clock;
  options_.ingest.prune_interval = absl::ZeroDuration();
  auto daemon = Start();
  auto database = *Database::Open(options_.store_path, "");
  int64_t jobs = 0;
  for (const int64_t by_ns : {int64_t{-30'000'000'000}, -kHourNs, 2 * kHourNs, 48 * kHourNs}) {
    clock.SetBy(by_ns);
    v1::PrepareJobRequest request;
    request.set_name(absl::StrCat("set by ", by_ns));
    ASSERT_TRUE(daemon->backend().PrepareJob(request).ok());
    ++jobs;
    for (int i = 0; i < 500 && *database->Int("SELECT count(*) FROM job") < jobs; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    ASSERT_EQ(*database->Int("SELECT count(*) FROM job"), jobs) << by_ns;
  }
  // None of them has waited for a day.
  const auto list = daemon->backend().ListJobs({});
  ASSERT_TRUE(list.ok());
  for (const v1::Job& job : list->jobs()) EXPECT_EQ(job.state(), v1::JOB_STATE_WAITING);
}

TEST_F(DaemonTest, AnAnswerThatWaitedInVainForACommitSaysSo) {
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  prepare.set_name("j");
  ASSERT_TRUE(daemon->backend().PrepareJob(prepare).ok());
  v1::ListIterationsRequest list;
  list.set_job("j");
  list.set_page_size(10);
  auto reply = daemon->backend().ListIterations(list);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->message(), "");
  // As on a full disk: no file may grow.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {.rlim_cur = 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  prepare.set_name("k");
  ASSERT_TRUE(daemon->backend().PrepareJob(prepare).ok());
  reply = daemon->backend().ListIterations(list);
  v1::ExportRequest csv;
  csv.set_job("j");
  csv.set_format(v1::ExportRequest::FORMAT_CSV);
  const absl::Status exported =
      daemon->backend().Export(csv, [](std::string_view) { return true; });
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->message(), HasSubstr("may lack what came last: nothing was written"));
  EXPECT_TRUE(absl::IsUnavailable(exported)) << exported;
}

TEST_F(DaemonTest, AProcessWhoseJobCannotBeNamedSoIsToldWhy) {
  auto daemon = Start();
  const std::string socket = options_.ingest.directory + "/inject.sock";
  injection::RingWriter ring;
  ASSERT_TRUE(ring.Create(injection::kSmallRing).ok());
  const auto connect = [&](const std::string& name, const std::string& run_id) {
    const std::string text = absl::StrCat("job=", name, "\nrun_id=", run_id, "\n");
    injection::Connection connection;
    return std::string(
        connection.Connect(socket.c_str(), ring, text.data(), text.size(), 5000).message);
  };
  EXPECT_THAT(connect(std::string(8000, 'n'), "1"), HasSubstr("8000 bytes, more than 255"));
  EXPECT_THAT(connect("n", std::string(8000, '1')), HasSubstr("8000 bytes, more than 255"));
  EXPECT_THAT(connect("a@b", "1"), HasSubstr("parts name and run id"));
  EXPECT_THAT(connect("", "1"), HasSubstr("name is empty"));
  EXPECT_EQ(daemon->backend().ListJobs({})->jobs_size(), 0);
  EXPECT_EQ(connect("n", "1"), "");
  EXPECT_EQ(daemon->backend().ListJobs({})->jobs_size(), 1);
  ring.Destroy();
}

// kill -9 leaves locks for a moment.
TEST_F(DaemonTest, ADaemonThatIsStartedAtOnceAgainWaitsForTheLocks) {
  auto first = Start();
  EXPECT_TRUE(absl::IsAlreadyExists(Daemon::Start(options_).status()));
  std::thread end([&] {
    absl::SleepFor(absl::Milliseconds(200));
    first.reset();
  });
  options_.ingest.lock_patience = absl::Minutes(1);
  const auto second = Daemon::Start(options_);
  end.join();
  EXPECT_TRUE(second.ok()) << second.status();
}

}  // namespace
}  // namespace seqpoint::service
