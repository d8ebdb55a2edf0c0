// A daemon of its own folder, for tests; and what a store has of jobs that are over.
#ifndef TESTS_SUPPORT_DAEMON_IN_PROCESS_H_
#define TESTS_SUPPORT_DAEMON_IN_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "daemon/service/daemon.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::service {

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    options_.ingest.directory = folder_.path();
    options_.store_path = folder_.path() / "store.db";
  }

  std::unique_ptr<Store> OpenStore() { return *Store::Open(options_.store_path, {}); }
  std::unique_ptr<Daemon> Start() {
    auto daemon = Daemon::Start(options_);
    EXPECT_TRUE(daemon.ok()) << daemon.status();
    return *std::move(daemon);
  }

  static std::string ExportCsv(Daemon& daemon, std::string_view job) {
    v1::ExportRequest request;
    request.set_job(std::string(job));
    request.set_format(v1::ExportRequest::FORMAT_CSV);
    std::string text;
    EXPECT_TRUE(daemon.backend()
                    .Export(request,
                            [&](std::string_view piece) {
                              text += piece;
                              return true;
                            })
                    .ok());
    return text;
  }

  // A job whose only process said goodbye, or did not, as the store has it.
  static void AddEndedJob(Store& store, WriteBatch& batch, bool orderly = true) {
    JobRow row{.job_id = store.NewJobId(), .name = "test", .state = v1::JOB_STATE_LEARNING};
    row.run_id = absl::StrCat(row.job_id);
    jobs::Job job(row, {});
    const int64_t process_id = store.NewProcessId();
    job.AddProcess({.process_id = process_id,
                    .job_id = row.job_id,
                    .ring_id = std::string(16, 'r'),
                    .start_ns = 1});
    job.OnProcessEnd(process_id, orderly, 1'700'000'000'000'000'000 + row.job_id);
    job.TakeRows(batch);
  }

  // A job whose state another version wrote, with iterations of two ranks.
  static void AddRefusedJob(Store& store, pid_t pid) {
    WriteBatch batch;
    const int64_t job_id = store.NewJobId();
    batch.jobs = {{.job_id = job_id, .name = "other", .run_id = "1", .start_ns = 1}};
    batch.states = {{.job_id = job_id,
                     .part = "job",
                     .version = jobs::kJobStateVersion + 1,
                     .bytes = "of another version"}};
    batch.processes = {{.process_id = store.NewProcessId(),
                        .job_id = job_id,
                        .pid = pid,
                        .ring_id = std::string(16, 'r'),
                        .start_ns = absl::GetCurrentTimeNanos()}};
    for (const int32_t rank : {0, 3}) {
      for (int64_t number = 0; number < 2 + rank; ++number) {
        batch.iterations.push_back({.job_id = job_id,
                                    .rank = rank,
                                    .number = number,
                                    .length_count = 1,
                                    .length = {37, 0},
                                    .duration_ns = 5'000'000});
      }
    }
    ASSERT_TRUE(store.Write(batch).ok());
  }

  const TempFolder folder_;
  DaemonOptions options_;
};

}  // namespace seqpoint::service

#endif  // TESTS_SUPPORT_DAEMON_IN_PROCESS_H_
