// The registry, the committer, retention and the questions at the same time, on one store: what
// ThreadSanitizer should see.
#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/support/daemon_in_process.h"

namespace seqpoint::service {
namespace {

class StressTest : public DaemonTest {};

// A log of 200 iterations of five lengths.
v1::ImportJobRequest LogOf(const std::string& name, int run) {
  v1::ImportJobRequest request;
  request.set_name(name);
  request.set_run_id(absl::StrCat(run));
  for (int i = 0; i < 200; ++i) {
    request.mutable_log()->add_lengths(8 * (1 + i % 5));
    request.mutable_log()->add_durations(1e6 * (1 + i % 5) + 1e3 * (i % 7));
  }
  return request;
}

TEST_F(StressTest, QuestionsChangesImportsAndPruningAtTheSameTime) {
  options_.retention.max_store_bytes = 1;  // every job that ended goes as soon as it may
  options_.ingest.prune_interval = absl::Milliseconds(20);
  auto daemon = Start();
  Backend& backend = daemon->backend();
  std::atomic<bool> stop = false;
  std::atomic<int> answers = 0;
  // A job may be gone, or not there yet; nothing else may be wrong.
  const auto check = [&](const absl::Status& status) {
    if (status.ok()) ++answers;
    const bool expected = status.ok() || absl::IsNotFound(status) ||
                          absl::IsFailedPrecondition(status) || absl::IsAlreadyExists(status) ||
                          absl::IsDeadlineExceeded(status);
    EXPECT_TRUE(expected) << status;
  };
  const auto repeat = [&](auto question) {
    return std::thread([&stop, question] {
      for (int i = 0; !stop; ++i) question(i);
    });
  };
  std::vector<std::thread> threads;
  threads.push_back(repeat([&](int i) { check(backend.ImportJob(LogOf("log", i)).status()); }));
  threads.push_back(repeat([&](int i) {
    v1::PrepareJobRequest prepare;
    prepare.set_name("prepared");
    prepare.set_run_id(absl::StrCat(i % 3));
    check(backend.PrepareJob(prepare).status());
    v1::ControlRequest end;
    end.set_job(absl::StrCat("prepared@", i % 3));
    end.set_action(v1::ControlRequest::ACTION_END_WAITING);
    check(backend.Control(end).status());
  }));
  threads.push_back(repeat([&](int i) {
    v1::UpdateJobRequest update;
    update.set_job("log");
    update.add_add_tags(absl::StrCat("tag", i % 5));
    check(backend.UpdateJob(update).status());
    v1::DeleteJobRequest remove;
    remove.set_job("log");
    check(backend.DeleteJob(remove).status());
  }));
  threads.push_back(repeat([&](int) {
    const auto list = backend.ListJobs({});
    check(list.status());
    for (const v1::Job& job : list->jobs()) {
      v1::GetJobRequest get;
      get.set_job(job.id());
      check(backend.GetJob(get).status());
    }
  }));
  for (int reader = 0; reader < 2; ++reader) {
    threads.push_back(repeat([&](int) {
      v1::ProjectRequest project;
      project.set_job("log");
      project.set_confidence(0.95);
      check(backend.Project(project).status());
      v1::ListIterationsRequest iterations;
      iterations.set_job("log");
      iterations.set_page_size(100);
      check(backend.ListIterations(iterations).status());
      v1::GetSeqPointsRequest seqpoints;
      seqpoints.set_job("log");
      check(backend.GetSeqPoints(seqpoints).status());
      v1::ExportRequest csv;
      csv.set_job("log");
      csv.set_format(v1::ExportRequest::FORMAT_CSV);
      check(backend.Export(csv, [](std::string_view) { return true; }));
    }));
  }
  threads.push_back(repeat([&](int) {
    check(backend.WaitForJob("prepared", -1, absl::Milliseconds(10)).status());
    check(backend.GetDaemon({}).status());
  }));
  absl::SleepFor(absl::Seconds(2));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(answers, 100);
  daemon->Stop();
}

}  // namespace
}  // namespace seqpoint::service
