#include "daemon/daemon.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "daemon/store/sqlite.h"
#include "daemon/traces/trace_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"
#include "injection/ring/connection.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    options_.directory = folder_.path();
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
    EXPECT_TRUE(daemon
                    .Export(request,
                            [&](std::string_view piece) {
                              text += piece;
                              return true;
                            })
                    .ok());
    return text;
  }

  // What the store has of a job whose only process said goodbye, or did not.
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

TEST_F(DaemonTest, ManyEndedJobsAreListedWithoutBeingLoaded) {
  constexpr int kJobs = 500;
  {
    auto store = OpenStore();
    WriteBatch batch;
    for (int i = 0; i < kJobs; ++i) AddEndedJob(*store, batch);
    // As an earlier version left it.
    std::erase_if(batch.states, [](const StateRow& row) {
      return row.part == jobs::kSummaryPart && row.job_id % 100 == 7;
    });
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  const auto list = daemon->ListJobs({});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs_size(), kJobs);
  EXPECT_EQ(daemon->loaded_jobs(), 0u);
  for (int i = 0; i < kJobs; ++i) {
    EXPECT_EQ(list->jobs(i).id(), absl::StrCat(kJobs - i));  // the latest first
    EXPECT_EQ(list->jobs(i).process_count(), 1);
    EXPECT_EQ(list->jobs(i).state(), v1::JOB_STATE_ENDED);
  }

  // Those that are asked for come, and go again.
  v1::GetJobRequest request;
  for (int i = 1; i <= 20; ++i) {
    request.set_job(absl::StrCat(i));
    const auto reply = daemon->GetJob(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->job().processes_size(), 1);
  }
  while (daemon->loaded_jobs() > Daemon::kEndedJobsKept) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  request.set_job("3");
  EXPECT_TRUE(daemon->GetJob(request).ok());
  const auto again = daemon->ListJobs({});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->jobs_size(), kJobs);
  EXPECT_EQ(daemon->GetDaemon({})->jobs(), kJobs);
}

TEST_F(DaemonTest, WhatAnotherVersionWroteCanBeExportedAndIsRemovedInItsTurn) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  AddRefusedJob(*OpenStore(), gone);
  {
    auto daemon = Start();
    v1::ListIterationsRequest request;
    request.set_job("other");
    request.set_page_size(100);
    const auto list = daemon->ListIterations(request);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->total(), 2);
    EXPECT_EQ(list->iterations_size(), 2);
    const std::string text = ExportCsv(*daemon, "other");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 2 + 5) << text;
    const auto jobs = daemon->ListJobs({});
    ASSERT_TRUE(jobs.ok());
    EXPECT_THAT(jobs->jobs(0).trouble(), HasSubstr("cannot be read"));
  }
  auto store = OpenStore();
  EXPECT_GT((*store->ListJobs())[0].end_ns, 0);
  EXPECT_EQ((*store->LoadStates(1))[0].bytes, "of another version");
  const auto pruned = store->Prune({.ended_before_ns = INT64_MAX});
  ASSERT_TRUE(pruned.ok());
  EXPECT_THAT(pruned->removed_jobs, testing::ElementsAre(1));
}

TEST_F(DaemonTest, WhatAnotherVersionWroteLivesAsLongAsItsProcess) {
  AddRefusedJob(*OpenStore(), getpid());
  Start().reset();
  EXPECT_EQ((*OpenStore()->ListJobs())[0].end_ns, 0);
}

TEST_F(DaemonTest, ARefusedPrepareJobLeavesNothingBehind) {
  int64_t end_ns = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    AddEndedJob(*store, batch);
    end_ns = batch.jobs[0].end_ns;
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest metrics, horizon, budget;
  metrics.add_metric_sets("cache");  // it collected others
  horizon.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.mutable_horizon()->set_iterations(INT64_MAX);
  budget.set_overhead_budget_share(7);
  for (v1::PrepareJobRequest request : {metrics, horizon, budget}) {
    request.set_name("test");
    request.set_run_id("1");
    EXPECT_FALSE(daemon->PrepareJob(request).ok()) << request.ShortDebugString();
  }
  for (v1::PrepareJobRequest request : {horizon, budget}) {
    for (const char* run_id : {"", "new"}) {
      request.set_name("other");
      request.set_run_id(run_id);
      EXPECT_FALSE(daemon->PrepareJob(request).ok()) << request.ShortDebugString();
    }
  }
  const auto list = daemon->ListJobs({});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).state(), v1::JOB_STATE_ENDED);
  EXPECT_EQ(list->jobs(0).end_ns(), end_ns);
}

TEST_F(DaemonTest, AJobWhoseProgramDoesNotComeAgainIsWhatItWasBefore) {
  int64_t end_ns = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    AddEndedJob(*store, batch, /*orderly=*/false);
    end_ns = batch.jobs[0].end_ns;
    ASSERT_TRUE(store->Write(batch).ok());
  }
  v1::PrepareJobRequest request;
  request.set_name("test");
  request.set_run_id("1");
  const auto waiting = Start()->PrepareJob(request);
  ASSERT_TRUE(waiting.ok()) << waiting.status();
  EXPECT_EQ(waiting->job().state(), v1::JOB_STATE_WAITING);
  auto daemon = Start();  // also when the daemon was stopped meanwhile
  v1::ControlRequest end;
  end.set_job("test@1");
  end.set_action(v1::ControlRequest::ACTION_END_WAITING);
  const auto ended = daemon->Control(end);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->job().state(), v1::JOB_STATE_LOST);
  EXPECT_EQ(ended->job().end_ns(), end_ns);
}

TEST_F(DaemonTest, ANameWithAnAtSignIsNoOtherJobsNameAndRun) {
  int64_t mixed_up = 0;
  {
    auto store = OpenStore();
    WriteBatch batch;
    batch.jobs = {{.job_id = mixed_up = store->NewJobId(),
                   .name = "a@b",
                   .run_id = "c",
                   .state = v1::JOB_STATE_ENDED,
                   .start_ns = 1,
                   .end_ns = 2}};
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest request;
  request.set_name("a");
  request.set_run_id("b@c");
  const auto reply = daemon->PrepareJob(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job().name(), "a");
  EXPECT_NE(reply->job().id(), absl::StrCat(mixed_up));
  const auto again = daemon->PrepareJob(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job().id(), reply->job().id());
}

TEST_F(DaemonTest, RetentionTakesTheEndedJobAndNotTheOneThatIsOpenedAgain) {
  const int64_t now_ns = absl::GetCurrentTimeNanos();
  {
    auto store = OpenStore();
    WriteBatch batch;
    // Texts that look the same; and one that is too young until it is opened again.
    batch.jobs = {{.job_id = store->NewJobId(), .name = "a@b", .run_id = "c", .end_ns = 1},
                  {.job_id = store->NewJobId(),
                   .name = "a",
                   .run_id = "b@c",
                   .start_ns = now_ns,
                   .end_ns = now_ns},
                  {.job_id = store->NewJobId(),
                   .name = "next",
                   .run_id = "1",
                   .start_ns = now_ns,
                   .end_ns = now_ns}};
    ASSERT_TRUE(store->Write(batch).ok());
  }
  options_.max_job_age_s = 3'600;
  options_.prune_interval = absl::ZeroDuration();
  {
    auto daemon = Start();
    while (daemon->GetDaemon({})->jobs() > 2) absl::SleepFor(absl::Milliseconds(5));
    v1::PrepareJobRequest request;
    request.set_name("a");
    request.set_run_id("b@c");
    EXPECT_EQ(daemon->PrepareJob(request)->job().id(), "2");
  }
  options_.max_job_age_s = 0;
  options_.max_store_bytes = 1;
  auto daemon = Start();
  while (daemon->GetDaemon({})->jobs() > 1) absl::SleepFor(absl::Milliseconds(5));
  const auto list = daemon->ListJobs({});
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).id(), "2");
  EXPECT_EQ(list->jobs(0).state(), v1::JOB_STATE_WAITING);
}

TEST_F(DaemonTest, TheTraceIsJsonWithNamedRowsAndExactTimes) {
  constexpr int64_t kJobStartNs = 1'767'348'900'123'456'789;
  constexpr int64_t kStepStartNs = kJobStartNs + 2'000'000'001;
  {
    auto store = OpenStore();
    WriteBatch batch;
    const int64_t job_id = store->NewJobId();
    const int64_t process_id = store->NewProcessId();
    for (const char* name : {"traced", "not traced"}) {
      batch.jobs.push_back({.job_id = name[0] == 't' ? job_id : store->NewJobId(),
                            .name = name,
                            .run_id = "1",
                            .command = "train \"x\"",
                            .state = v1::JOB_STATE_ENDED,
                            .start_ns = kJobStartNs,
                            .end_ns = kJobStartNs + 9'000'000'000});
    }
    batch.names = {{.process_id = process_id, .name_id = 5, .text = "_Z4axpyfPf"}};
    batch.iterations = {{.job_id = job_id,
                         .number = 40,
                         .length_count = 1,
                         .length = {37, 0},
                         .start_ns = kStepStartNs,
                         .duration_ns = 1'000'000,
                         .config_id = abi::kConfigTrace}};
    std::string records;
    for (const uint32_t stream : {7, 7, 20}) {
      abi::DataRecord record = {};
      record.kernel.type = static_cast<uint16_t>(abi::DataType::kKernel);
      record.kernel.name_id = 5;
      record.kernel.start_ns = kStepStartNs + records.size() + 1;
      record.kernel.end_ns = record.kernel.start_ns + 333;
      record.kernel.stream = stream;
      records.append(reinterpret_cast<const char*>(&record), sizeof(record));
    }
    abi::DataRecord copy = {};
    copy.copy.type = static_cast<uint16_t>(abi::DataType::kCopy);
    copy.copy.kind = 1;  // host to device
    copy.copy.bytes = 4096;
    copy.copy.correlation_id = 77;
    copy.copy.start_ns = kStepStartNs + records.size() + 1;
    copy.copy.end_ns = copy.copy.start_ns + 333;
    copy.copy.stream = 20;
    records.append(reinterpret_cast<const char*>(&copy), sizeof(copy));
    abi::DataRecord graph = {};
    graph.graph.type = static_cast<uint16_t>(abi::DataType::kGraph);
    graph.graph.start_ns = kStepStartNs + records.size() + 1;
    graph.graph.end_ns = graph.graph.start_ns + 333;
    graph.graph.stream = 20;
    records.append(reinterpret_cast<const char*>(&graph), sizeof(graph));
    batch.trace_segments = {
        {.job_id = job_id, .number = 40, .process_id = process_id, .records = records}};
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  std::string text;
  v1::ExportRequest request;
  request.set_format(v1::ExportRequest::FORMAT_CHROME);
  const auto export_job = [&](const char* name) {
    request.set_job(name);
    return daemon->Export(request, [&](std::string_view piece) {
      text += piece;
      return true;
    });
  };
  // An ended job has nothing to wait for.
  EXPECT_THAT(
      std::string(export_job("not traced").message()),
      testing::AllOf(HasSubstr("no iteration was traced"), testing::Not(HasSubstr("wait"))));
  EXPECT_EQ(text, "");
  ASSERT_TRUE(export_job("traced").ok());

  google::protobuf::Struct trace;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(text, &trace).ok()) << text;
  EXPECT_THAT(text, HasSubstr(absl::StrCat("\"baseTimeNanoseconds\":", kJobStartNs)));
  std::map<std::pair<double, double>, std::string> threads;  // (pid, tid) -> name
  std::map<double, std::string> processes;
  std::vector<double> times_us;
  for (const auto& value : trace.fields().at("traceEvents").list_value().values()) {
    const auto& event = value.struct_value().fields();
    const double pid = event.at("pid").number_value(), tid = event.at("tid").number_value();
    if (event.at("ph").string_value() == "M") {
      const auto& arguments = event.at("args").struct_value().fields();
      const std::string& what = event.at("name").string_value();
      if (what == "process_name") processes[pid] = arguments.at("name").string_value();
      if (what == "thread_name") threads[{pid, tid}] = arguments.at("name").string_value();
      continue;
    }
    // Every event lies in a row that has a name by then.
    EXPECT_EQ(processes.count(pid), 1u) << event.at("name").string_value();
    EXPECT_EQ(threads.count({pid, tid}), 1u) << event.at("name").string_value();
    times_us.push_back(event.at("ts").number_value());
  }
  EXPECT_THAT(processes, testing::ElementsAre(testing::Pair(0, "GPU 0"),
                                              testing::Pair(1e6, "train \"x\", rank 0")));
  EXPECT_EQ((threads[{0, 20}]), "stream 20");
  EXPECT_EQ(threads.size(), 3u);
  // The step, and that nothing was recorded behind it.
  EXPECT_THAT(times_us,
              testing::ElementsAre(2'000'000.001, 2'001'000.001, 2'000'000.002, 2'000'000.066,
                                   2'000'000.130, 2'000'000.194, 2'000'000.258));

  // And it is a trace that we read ourselves, to the nanosecond.
  traces::TraceReader reader({.name = "out.json"});
  ASSERT_TRUE(reader.Add(text).ok());
  const auto read = reader.Finish();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->source, "SeqPoint, out.json");
  EXPECT_EQ(traces::LeftOutInWords(read->left_out), "");
  ASSERT_EQ(read->spans.size(), 2u);
  EXPECT_EQ(read->names[read->spans[0].name], "ProfilerStep#40 lengths=[37]");
  EXPECT_EQ(read->spans[0].begin_ns, kStepStartNs);
  EXPECT_EQ(read->spans[0].end_ns, kStepStartNs + 1'000'000);
  ASSERT_EQ(read->works.size(), 5u);
  EXPECT_EQ(read->works[3].kind, trace::WorkKind::kCopyH2D);
  EXPECT_EQ(read->works[3].bytes, 4096u);
  EXPECT_EQ(read->works[3].correlation, 77u);
  EXPECT_EQ(read->works[4].kind, trace::WorkKind::kGraph);
  for (size_t i = 0; i < 5; ++i) {
    const trace::Work& work = read->works[i];
    if (i < 3) {
      EXPECT_EQ(work.kind, trace::WorkKind::kKernel);
      EXPECT_EQ(read->names[work.name], "axpy(float, float*)");
    }
    EXPECT_EQ(work.start_ns, kStepStartNs + 1 + static_cast<int64_t>(i * sizeof(abi::DataRecord)));
    EXPECT_EQ(work.end_ns, work.start_ns + 333);
    EXPECT_EQ(read->streams[work.stream].id, i < 2 ? 7 : 20);
  }
}

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

TEST_F(DaemonTest, AnImportedLogIsAJobThatAnswersAlsoAfterARestart) {
  const v1::ImportJobRequest request = ImportRequest();
  double training_ns = 0, start_up_ns = 0;
  for (int i = 0; i < 200; ++i) {
    (i == 100 ? start_up_ns : training_ns) += request.log().durations(i);
  }
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    auto daemon = Start();
    if (!restarted) {
      const auto reply = daemon->ImportJob(request);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->job().processes_size(), 1);
    }
    v1::GetJobRequest get;
    get.set_job("log");
    const auto got = daemon->GetJob(get);
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
    const auto itself = daemon->Project(project);
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
    const auto other = daemon->Project(project);
    ASSERT_TRUE(other.ok()) << other.status();
    const v1::Estimate& answer = other->projection().total();
    EXPECT_EQ(other->projection().iterations_total(), 600);
    EXPECT_NEAR(answer.value(), 300 * 76e6, 0.02 * 300 * 76e6);
    EXPECT_LT(answer.low(), answer.value());
    EXPECT_GT(answer.high(), answer.value());
    for (v1::LengthCount& entry : *horizon.mutable_histogram()) entry.set_lengths(0, 100'000);
    EXPECT_THAT(std::string(daemon->Project(project).status().message()),
                testing::AllOf(HasSubstr("8 to 56"), HasSubstr("same column and unit")));
    for (v1::LengthCount& entry : *horizon.mutable_histogram()) entry.add_lengths(1);
    EXPECT_THAT(std::string(daemon->Project(project).status().message()),
                HasSubstr("an iteration has 2 lengths in what is given and 1 in the job"));

    v1::GetSeqPointsRequest ask_points;
    ask_points.set_job("log");
    const auto points = daemon->GetSeqPoints(ask_points);
    ASSERT_TRUE(points.ok()) << points.status();
    double weight = 0;
    for (const v1::SeqPoint& point : points->seqpoints()) {
      weight += point.weight();
      EXPECT_EQ(point.lengths(0) % 8, 0);
      EXPECT_EQ(point.wanted(), 0);
    }
    EXPECT_NEAR(weight, 199, 1e-6);
    EXPECT_THAT(points->sentence(), HasSubstr("of an imported log nothing is measured"));
    v1::GetCountersRequest counters;
    counters.set_job("log");
    counters.set_confidence(0.95);
    EXPECT_THAT(std::string(daemon->GetCounters(counters).status().message()),
                HasSubstr("another tool's log"));

    v1::ListIterationsRequest list;
    list.set_job("log");
    list.set_page_size(1'000);
    const auto iterations = daemon->ListIterations(list);
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
    EXPECT_EQ(daemon->WaitForJob("log", -1, absl::ZeroDuration())->state(), v1::JOB_STATE_ENDED);
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

TEST_F(DaemonTest, TheListsOfOneLogAgree) {
  auto daemon = Start();
  for (const bool two_dimensional : {false, true}) {
    v1::AnalyzeRequest analyze;
    *analyze.mutable_log() = BusyLog(two_dimensional);
    analyze.set_confidence(0.9);
    analyze.set_playlist(true);
    v1::ImportJobRequest import;
    import.set_name(two_dimensional ? "two" : "one");
    *import.mutable_log() = analyze.log();
    ASSERT_TRUE(daemon->ImportJob(import).ok());
    v1::GetPlaylistRequest ask;
    ask.set_job(import.name());
    ask.set_confidence(0.9);
    for (const auto& [points, target_error] :
         {std::pair(0, 0.0), {5, 0.0}, {200, 0.0}, {0, 0.002}}) {
      analyze.set_points(points);
      analyze.set_target_error(target_error);
      const auto analyzed = daemon->Analyze(analyze);
      ASSERT_TRUE(analyzed.ok()) << analyzed.status();
      ask.set_points(points);
      ask.set_target_error(target_error);
      auto listed = daemon->GetPlaylist(ask);
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
      EXPECT_LE(listed->reach(), target_error > 0 ? target_error : 1);
      if (points > 0) {
        EXPECT_EQ(measurements, points);
      }
      EXPECT_THAT(listed->sentence(), HasSubstr("took on top is left out"));
      listed->clear_job_id();
      EXPECT_EQ(listed->SerializeAsString(), analyzed->playlist().SerializeAsString());
      if (points > 0 || target_error > 0) continue;
      v1::GetSeqPointsRequest ask_points;
      ask_points.set_job(import.name());
      const auto seqpoints = daemon->GetSeqPoints(ask_points);
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

TEST_F(DaemonTest, ALogWhoseLengthsExplainNothingHasNoSeqPointsAndAShortOneNoPlaylist) {
  auto daemon = Start();
  v1::ImportJobRequest import;
  import.set_name("log");
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 500; ++i) {
    import.mutable_log()->add_lengths(10 + i % 37);
    import.mutable_log()->add_durations(std::round(1e7 * std::exp(0.2 * normal(random))));
  }
  ASSERT_TRUE(daemon->ImportJob(import).ok());
  v1::GetSeqPointsRequest ask;
  ask.set_job("log");
  absl::Status status = daemon->GetSeqPoints(ask).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("so there are no SeqPoints"));
  v1::GetPlaylistRequest list;
  list.set_job("log");
  list.set_confidence(0.95);
  EXPECT_THAT(daemon->GetPlaylist(list)->sentence(), HasSubstr("no better than any would"));

  import.set_name("short");
  import.mutable_log()->mutable_lengths()->Truncate(40);
  import.mutable_log()->mutable_durations()->Truncate(40);
  ASSERT_TRUE(daemon->ImportJob(import).ok());
  list.set_job("short");
  status = daemon->GetPlaylist(list).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of 40 iterations too few"));
  v1::AnalyzeRequest analyze;
  *analyze.mutable_log() = import.log();
  analyze.set_confidence(0.95);
  EXPECT_TRUE(daemon->Analyze(analyze).ok());
  analyze.set_playlist(true);
  EXPECT_THAT(std::string(daemon->Analyze(analyze).status().message()),
              HasSubstr("of 40 iterations too few"));
}

TEST_F(DaemonTest, AnImportedJobIsNeitherImportedAgainNorGoneOnWith) {
  auto daemon = Start();
  v1::ImportJobRequest request = ImportRequest();
  ASSERT_TRUE(daemon->ImportJob(request).ok());
  const absl::Status again = daemon->ImportJob(request).status();
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr("--run-id"));
  v1::PrepareJobRequest prepare;
  prepare.set_name("log");
  prepare.set_run_id("1");
  EXPECT_TRUE(absl::IsFailedPrecondition(daemon->PrepareJob(prepare).status()));
  request.clear_run_id();
  EXPECT_TRUE(daemon->ImportJob(request).ok());
  EXPECT_TRUE(daemon->ImportJob(request).ok());
  EXPECT_EQ(daemon->ListJobs({})->jobs_size(), 3);
  request.set_name("");
  EXPECT_TRUE(absl::IsInvalidArgument(daemon->ImportJob(request).status()));
}

TEST_F(DaemonTest, RowsWithoutATimeAreIterationsOfTheImportedLog) {
  v1::ImportJobRequest request = ImportRequest();
  double known_ns = 0;
  for (const int i : {0, 50, 199}) request.mutable_log()->set_durations(i, 0);
  for (int i = 0; i < 200; ++i) known_ns += i == 100 ? 0 : request.log().durations(i);
  auto daemon = Start();
  const auto reply = daemon->ImportJob(request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job().iterations(), 199);  // one is start-up
  v1::ProjectRequest project;
  project.set_job("log");
  project.set_confidence(0.95);
  const auto itself = daemon->Project(project);
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
  const auto playlist = daemon->GetPlaylist(ask);
  ASSERT_TRUE(playlist.ok()) << playlist.status();
  EXPECT_THAT(playlist->sentence(), HasSubstr("3 iterations of the log without a time"));
  for (const v1::PlaylistPoint& point : playlist->points()) {
    EXPECT_EQ(request.log().lengths(static_cast<int>(point.iteration())), point.lengths(0));
    EXPECT_GT(request.log().durations(static_cast<int>(point.iteration())), 0);
  }
}

TEST_F(DaemonTest, WhatRanBesideIsMarkedInEachRow) {
  {
    auto store = OpenStore();
    WriteBatch batch;
    batch.jobs.push_back({.job_id = store->NewJobId(),
                          .name = "j",
                          .run_id = "1",
                          .state = v1::JOB_STATE_ENDED,
                          .start_ns = 1,
                          .end_ns = 2});
    batch.processes.push_back({.process_id = store->NewProcessId(),
                               .job_id = batch.jobs[0].job_id,
                               .ring_id = std::string(16, 'r'),
                               .end_ns = 2});
    for (const uint32_t flags : {0u, uint32_t{kIterationBeside}}) {
      batch.iterations.push_back({.job_id = batch.jobs[0].job_id,
                                  .number = 4,
                                  .incarnation = flags == 0 ? 0 : 1,
                                  .length_count = 1,
                                  .length = {37, 0},
                                  .start_ns = 9,
                                  .duration_ns = 7,
                                  .flags = flags});
    }
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::ListIterationsRequest list;
  list.set_job("j");
  list.set_page_size(10);
  const auto reply = daemon->ListIterations(list);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->iterations_size(), 2);
  EXPECT_FALSE(reply->iterations(0).beside());
  EXPECT_TRUE(reply->iterations(1).beside());
  const std::string text = ExportCsv(*daemon, "j");
  EXPECT_EQ(
      text,
      "rank,iteration,incarnation,length,length2,start_ns,duration_ns,rest_ns,config,distorted,"
      "redone,beside,phase\n0,4,0,37,,9,7,0,,0,0,0,\n0,4,1,37,,9,7,0,,0,0,1,\n");
}

TEST_F(DaemonTest, OddLogsHaveAnswers) {
  auto daemon = Start();
  const auto import = [&](const std::vector<int64_t>& lengths, double duration) {
    v1::ImportJobRequest request;
    request.set_name("odd");
    for (const int64_t length : lengths) {
      request.mutable_log()->add_lengths(length);
      request.mutable_log()->add_durations(duration);
    }
    return daemon->ImportJob(request);
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
  EXPECT_THAT(unique->job().rule().sentence(), HasSubstr("only the first 262144"));
  for (const auto& [rows, duration] : {std::pair(1, 1e18), {100, 5e16}}) {
    const absl::Status status = import(std::vector<int64_t>(rows, 5), duration).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is the unit of time right?"));
  }
}

TEST_F(DaemonTest, AnImportThatTheStoreCannotTakeLeavesNoJob) {
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
  const absl::Status status = daemon->ImportJob(request).status();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(daemon->ListJobs({})->jobs_size(), 0);
  EXPECT_TRUE(daemon->ImportJob(request).ok());
  daemon.reset();
  auto store = OpenStore();
  ASSERT_EQ(store->ListJobs()->size(), 1u);
  while (store->Prune({})->more) continue;
  EXPECT_EQ(store->CountIterations(1)->size(), 0u);
  EXPECT_EQ(store->CountIterations(2)->at(0), 200'200);
}

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
  options_.prune_interval = absl::ZeroDuration();
  auto daemon = Start();
  auto database = *Database::Open(options_.store_path, "");
  int64_t jobs = 0;
  for (const int64_t by_ns : {int64_t{-30'000'000'000}, -kHourNs, 2 * kHourNs, 48 * kHourNs}) {
    clock.SetBy(by_ns);
    v1::PrepareJobRequest request;
    request.set_name(absl::StrCat("set by ", by_ns));
    ASSERT_TRUE(daemon->PrepareJob(request).ok());
    ++jobs;
    for (int i = 0; i < 500 && *database->Int("SELECT count(*) FROM job") < jobs; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    ASSERT_EQ(*database->Int("SELECT count(*) FROM job"), jobs) << by_ns;
  }
  // None of them has waited for a day.
  const auto list = daemon->ListJobs({});
  ASSERT_TRUE(list.ok());
  for (const v1::Job& job : list->jobs()) EXPECT_EQ(job.state(), v1::JOB_STATE_WAITING);
}

TEST_F(DaemonTest, AnAnswerThatWaitedInVainForACommitSaysSo) {
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  prepare.set_name("j");
  ASSERT_TRUE(daemon->PrepareJob(prepare).ok());
  v1::ListIterationsRequest list;
  list.set_job("j");
  list.set_page_size(10);
  auto reply = daemon->ListIterations(list);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->sentence(), "");
  // As on a full disk: no file may grow.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {.rlim_cur = 1, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  prepare.set_name("k");
  ASSERT_TRUE(daemon->PrepareJob(prepare).ok());
  reply = daemon->ListIterations(list);
  v1::ExportRequest csv;
  csv.set_job("j");
  csv.set_format(v1::ExportRequest::FORMAT_CSV);
  const absl::Status exported = daemon->Export(csv, [](std::string_view) { return true; });
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->sentence(), HasSubstr("may lack what came last: nothing was written"));
  EXPECT_TRUE(absl::IsUnavailable(exported)) << exported;
}

TEST_F(DaemonTest, AListOfJobsHasPages) {
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  for (int i = 1; i <= 5; ++i) {
    prepare.set_name(absl::StrCat("job", i));
    ASSERT_TRUE(daemon->PrepareJob(prepare).ok());
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  for (int page = 0; page < 3; ++page) {
    const auto reply = daemon->ListJobs(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const v1::Job& job : reply->jobs()) names.push_back(job.name());
    EXPECT_EQ(reply->next_page_token().empty(), page == 2);
    request.set_page_token(reply->next_page_token());
  }
  EXPECT_THAT(names, testing::ElementsAre("job5", "job4", "job3", "job2", "job1"));
  request.set_page_token("x");
  EXPECT_TRUE(absl::IsInvalidArgument(daemon->ListJobs(request).status()));
}

TEST_F(DaemonTest, TextsOfAnyLengthLeaveTheListAnAnswer) {
  const std::string huge(12 << 20, 'x');
  {
    auto store = OpenStore();  // as an earlier version left it
    WriteBatch batch;
    for (int i = 0; i < 3; ++i) {
      AddEndedJob(*store, batch);
      batch.jobs.back().command = huge;
      for (StateRow& state : batch.states) {
        if (state.part != jobs::kSummaryPart || state.job_id != batch.jobs.back().job_id) continue;
        v1::Job summary;
        ASSERT_TRUE(summary.ParseFromString(state.bytes));
        summary.set_command(huge);
        summary.mutable_horizon()->set_source(huge);
        state.bytes = summary.SerializeAsString();
      }
    }
    ASSERT_TRUE(store->Write(batch).ok());
  }
  auto daemon = Start();
  v1::PrepareJobRequest prepare;
  prepare.set_command(huge);
  for (int i = 0; i < 3; ++i) {
    prepare.set_name(absl::StrCat("new", i));
    const auto reply = daemon->PrepareJob(prepare);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_LE(reply->job().command().size(), 4096u);
    EXPECT_THAT(reply->job().command(), testing::EndsWith("x ..."));
  }
  for (int restart = 0; restart < 2; ++restart) {
    const auto list = daemon->ListJobs({});
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_EQ(list->jobs_size(), 6);
    EXPECT_LT(list->ByteSizeLong(), 200'000u);
    daemon.reset();
    daemon = Start();
  }
  for (const char* name : {"a@b", "", "line\nbreak"}) {
    prepare.set_name(name);
    EXPECT_TRUE(absl::IsInvalidArgument(daemon->PrepareJob(prepare).status())) << name;
  }
}

TEST_F(DaemonTest, AProcessWhoseJobCannotBeNamedSoIsToldWhy) {
  auto daemon = Start();
  const std::string socket = options_.directory + "/inject.sock";
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
  EXPECT_EQ(daemon->ListJobs({})->jobs_size(), 0);
  EXPECT_EQ(connect("n", "1"), "");
  EXPECT_EQ(daemon->ListJobs({})->jobs_size(), 1);
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
  options_.lock_patience = absl::Minutes(1);
  const auto second = Daemon::Start(options_);
  end.join();
  EXPECT_TRUE(second.ok()) << second.status();
}

}  // namespace
}  // namespace seqpoint
