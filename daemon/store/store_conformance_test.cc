// Every backend of the store passes the same tests: a SQLite file, and a PostgreSQL server of the
// test's own.
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <pqxx/pqxx>
#include <random>
#include <thread>

#include "daemon/base/retry.h"
#include "daemon/store/postgres_schema.h"
#include "daemon/store/store.h"
#include "daemon/store/stored_rows_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/private_postgres.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The server learns of a killed daemon from its socket, which takes it a moment.
constexpr absl::Duration kPatience = absl::Seconds(20);

class StoreConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "PostgreSQL") return;
    const std::string missing = PrivatePostgres::Missing();
    if (!missing.empty()) {
      std::cout << "skipped: " << missing << "\n";
      GTEST_SKIP() << missing;
    }
    // One server for all tests, a database for each.
    static PrivatePostgres server;
    static int databases = 0;
    postgres_ = &server;
    ASSERT_TRUE(server.Start()) << server.Log();
    database_ = "test" + std::to_string(++databases);
    ASSERT_TRUE(server.CreateDatabase(database_)) << server.Log();
  }

  std::string address() const {
    return postgres_ != nullptr ? postgres_->AddressOf(database_)
                                : (folder_.path() / "seqpoint.db").string();
  }
  std::unique_ptr<Store> OpenStore(const StoreOptions& options = {}) {
    auto store = RetryWhileTaken(kPatience, [&] { return Store::Open(address(), options); });
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  // By hand, as a person would. No store is open on a SQLite file meanwhile.
  void RunSql(const std::string& sql) {
    if (postgres_ != nullptr) {
      pqxx::connection connection(address());
      pqxx::work transaction(connection);
      transaction.exec0("SET search_path = seqpoint");
      transaction.exec0(sql);
      transaction.commit();
      return;
    }
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(address().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  const TempFolder folder_;
  PrivatePostgres* postgres_ = nullptr;
  std::string database_;
};

INSTANTIATE_TEST_SUITE_P(Backend, StoreConformanceTest, ::testing::Values("SQLite", "PostgreSQL"),
                         [](const auto& info) { return info.param; });

TEST_P(StoreConformanceTest, KeepsEveryRowOverARestart) {
  WriteBatch batch;
  int64_t job_id = 0;
  int64_t process_id = 0;
  {
    std::unique_ptr<Store> store = OpenStore();
    job_id = store->NewJobId();
    process_id = store->NewProcessId();
    batch.jobs.push_back({.job_id = job_id,
                          .name = "gnmt",
                          .run_id = "r1",
                          .host = "node7",
                          .command = "python3 train.py",
                          .state = 3,
                          .start_ns = 5,
                          .end_ns = 0});
    batch.processes.push_back({.process_id = process_id,
                               .job_id = job_id,
                               .rank = 1,
                               .incarnation = 2,
                               .pid = 4711,
                               .host = "node7",
                               .ring_id = std::string("\0\1ring-id-of-16-", 16),
                               .text = "job=gnmt\n",
                               .start_ns = 6,
                               .end_ns = 7,
                               .lost = true});
    batch.states.push_back(
        {.job_id = job_id, .part = "engine", .version = 3, .bytes = std::string("a\0b", 3)});
    batch.cursors.push_back({.ring_id = batch.processes[0].ring_id, .bytes = "cursor"});
    batch.names.push_back({.process_id = process_id,
                           .name_id = 9,
                           .name_hash = 0xFFFFFFFFFFFFFFF0ull,
                           .text = "gemm"});
    batch.iterations.push_back({.job_id = job_id,
                                .rank = 1,
                                .number = 12,
                                .incarnation = 2,
                                .length_count = 2,
                                .length = {37, -1},
                                .start_ns = 100,
                                .duration_ns = 50,
                                .rest_ns = 9,
                                .level = 3,
                                .flags = kIterationDistorted | kIterationFirst,
                                .config_id = 2,
                                .phase = 1});
    batch.configs.push_back({.job_id = job_id,
                             .config_id = 2,
                             .name = "dram",
                             .metrics = {"dram__bytes_read.sum", "dram__bytes_write.sum"}});
    batch.measurements.push_back({.job_id = job_id,
                                  .rank = 1,
                                  .number = 12,
                                  .incarnation = 2,
                                  .config_id = 2,
                                  .complete = true,
                                  .values = {1.5, -2e300}});
    batch.trace_segments.push_back({.job_id = job_id,
                                    .rank = 1,
                                    .number = 12,
                                    .process_id = process_id,
                                    .records = Records(100, 1)});
    batch.trace_segments.push_back(
        {.job_id = job_id, .rank = 1, .number = 12, .process_id = process_id, .records = ""});
    ASSERT_TRUE(store->Write(batch).ok());
  }
  std::unique_ptr<Store> store = OpenStore();
  std::vector<JobRow> jobs = *store->ListJobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].job_id, job_id);
  EXPECT_EQ(jobs[0].name, "gnmt");
  EXPECT_EQ(jobs[0].run_id, "r1");
  EXPECT_EQ(jobs[0].command, "python3 train.py");
  EXPECT_EQ(jobs[0].state, 3);
  std::vector<ProcessRow> processes = *store->ListProcesses(job_id);
  ASSERT_EQ(processes.size(), 1u);
  EXPECT_EQ(processes[0].ring_id, batch.processes[0].ring_id);
  EXPECT_EQ(processes[0].pid, 4711);
  EXPECT_TRUE(processes[0].lost);
  std::optional<ProcessRow> found = *store->FindProcess(batch.processes[0].ring_id);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->process_id, process_id);
  EXPECT_EQ(*store->FindProcess(RingId('x')), std::nullopt);
  std::vector<StateRow> states = *store->LoadStates(job_id);
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].part, "engine");
  EXPECT_EQ(states[0].version, 3);
  EXPECT_EQ(states[0].bytes, std::string("a\0b", 3));
  EXPECT_EQ(*store->LoadCursor(batch.processes[0].ring_id), "cursor");
  std::vector<NameRow> names = *store->ReadNames(process_id);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(names[0].name_hash, 0xFFFFFFFFFFFFFFF0ull);
  EXPECT_EQ(names[0].text, "gemm");
  std::vector<IterationRow> iterations = *store->ReadIterations(job_id, 1, 0, 10);
  ASSERT_EQ(iterations.size(), 1u);
  EXPECT_EQ(iterations[0].number, 12);
  EXPECT_EQ(iterations[0].incarnation, 2);
  EXPECT_EQ(iterations[0].length_count, 2);
  EXPECT_EQ(iterations[0].length[0], 37);
  EXPECT_EQ(iterations[0].length[1], -1);
  EXPECT_EQ(iterations[0].duration_ns, 50);
  EXPECT_EQ(iterations[0].rest_ns, 9);
  EXPECT_EQ(iterations[0].flags, kIterationDistorted | kIterationFirst);
  EXPECT_EQ(iterations[0].config_id, 2u);
  EXPECT_EQ(iterations[0].phase, 1);
  std::vector<ConfigRow> configs = *store->ReadConfigs(job_id);
  ASSERT_EQ(configs.size(), 1u);
  EXPECT_THAT(configs[0].metrics, ElementsAre("dram__bytes_read.sum", "dram__bytes_write.sum"));
  std::vector<MeasurementRow> measurements = *store->ReadMeasurements(job_id);
  ASSERT_EQ(measurements.size(), 1u);
  EXPECT_THAT(measurements[0].values, ElementsAre(1.5, -2e300));
  EXPECT_TRUE(measurements[0].complete);
  EXPECT_THAT(*store->ListTraces(job_id), ElementsAre(std::pair<int32_t, int64_t>(1, 12)));
  std::vector<TraceSegmentRow> trace = *store->ReadTrace(job_id, 1, 12);
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].records, Records(100, 1));
  EXPECT_EQ(trace[0].process_id, process_id);
  EXPECT_EQ(trace[1].records, "");
}

TEST_P(StoreConformanceTest, ARowWithTheSameKeyReplaces) {
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch batch;
  batch.jobs = {Job(*store, "a", 1, 0)};
  int64_t job_id = batch.jobs[0].job_id;
  batch.iterations = {{.job_id = job_id, .number = 0}, {.job_id = job_id, .number = 1}};
  batch.cursors = {{.ring_id = RingId('r'), .bytes = "1"}};
  ASSERT_TRUE(store->Write(batch).ok());
  batch.jobs[0].end_ns = 9;
  batch.iterations = {{.job_id = job_id, .number = 0, .duration_ns = 70},
                      {.job_id = job_id, .number = 0, .incarnation = 1, .duration_ns = 71}};
  batch.cursors = {{.ring_id = RingId('r'), .bytes = ""}};
  ASSERT_TRUE(store->Write(batch).ok());

  std::vector<JobRow> jobs = *store->ListJobs();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].end_ns, 9);
  EXPECT_EQ(*store->LoadCursor(RingId('r')), std::nullopt);
  // Pages never cut between the incarnations of a number.
  std::vector<IterationRow> page = *store->ReadIterations(job_id, 0, 0, 1);
  ASSERT_EQ(page.size(), 2u);
  EXPECT_EQ(page[0].duration_ns, 70);
  EXPECT_EQ(page[1].duration_ns, 71);
  page = *store->ReadIterations(job_id, 0, 1, 1);
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].number, 1);
  EXPECT_THAT(*store->ReadIterations(job_id, 0, 2, 1), IsEmpty());
}

TEST_P(StoreConformanceTest, JobsExchangeTheirNames) {
  std::unique_ptr<Store> store = OpenStore();
  JobRow first = Job(*store, "a", 1, 0), second = Job(*store, "b", 2, 0);
  ASSERT_TRUE(store->Write({.jobs = {first, second}}).ok());
  std::swap(first.name, second.name);
  const absl::Status status = store->Write({.jobs = {first, second}});
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<JobRow> jobs = *store->ListJobs();
  for (const JobRow& row : jobs) {
    EXPECT_EQ(row.name, row.job_id == first.job_id ? "b" : "a");
  }
}

TEST_P(StoreConformanceTest, RefusesWhatItCannotStoreWhole) {
  std::unique_ptr<Store> store = OpenStore();
  JobRow job = Job(*store, "a", 1, 0);
  ASSERT_TRUE(store->Write({.jobs = {job}}).ok());
  JobRow twin = Job(*store, "a", 2, 0);  // same name and run id
  absl::Status status =
      store->Write({.jobs = {twin}, .states = {{.job_id = job.job_id, .part = "p"}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(*store->LoadStates(job.job_id), IsEmpty());  // nothing of the batch
  EXPECT_TRUE(
      absl::IsInvalidArgument(store->Write({.cursors = {{.ring_id = "short", .bytes = "x"}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      store->Write({.trace_segments = {{.job_id = job.job_id, .records = "not 64 bytes"}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(
      store->Write({.configs = {{.job_id = job.job_id, .metrics = {"a\nb"}}}})));
}

TEST_P(StoreConformanceTest, IdsAreNeverGivenTwice) {
  int64_t last = 0;
  {
    std::unique_ptr<Store> store = OpenStore();
    ASSERT_TRUE(store->Write(FullJob(*store, "a", 10, 'a', 1, 0)).ok());
    JobRow job = Job(*store, "b", 1, 2);
    last = job.job_id;
    ASSERT_TRUE(store->Write({.jobs = {job}}).ok());
    while (store->Prune({.ended_before_ns = 100})->more) {
    }
    EXPECT_THAT(*store->ListJobs(), IsEmpty());
  }
  EXPECT_GT(OpenStore()->NewJobId(), last);
}

TEST_P(StoreConformanceTest, KilledAtAnyMomentKeepsWholeBatchesOnly) {
  // The child writes batches 0, 1, 2, ...: ten iterations, a state and a cursor in each, and
  // reports each commit. Whatever the moment of its death: the three agree, and nothing that was
  // reported is missing.
  constexpr int kPerBatch = 10;
  const StoreOptions options = {.holder = "a daemon that starts again"};
  std::mt19937 random(7);
  int64_t reported = -1;
  for (int round = 0; round < 15; ++round) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      std::unique_ptr<Store> store = *Store::Open(address(), options);
      std::optional<std::string> cursor = *store->LoadCursor(RingId('r'));
      for (int64_t k = cursor.has_value() ? std::stoll(*cursor) + 1 : 0;; ++k) {
        WriteBatch batch;
        for (int i = 0; i < kPerBatch; ++i) {
          batch.iterations.push_back({.job_id = 1, .number = k * kPerBatch + i});
        }
        batch.states = {{.job_id = 1, .part = "engine", .bytes = std::to_string(k)}};
        batch.cursors = {{.ring_id = RingId('r'), .bytes = std::to_string(k)}};
        batch.trace_segments = {{.job_id = 1, .number = k, .records = Records(500, 1)}};
        if (!store->Write(batch).ok()) _exit(1);
        if (write(fds[1], &k, sizeof(k)) != sizeof(k)) _exit(1);
      }
    }
    close(fds[1]);
    int64_t k = 0;
    ASSERT_EQ(read(fds[0], &k, sizeof(k)), static_cast<ssize_t>(sizeof(k)));
    reported = k;
    usleep(random() % 40'000);
    kill(child, SIGKILL);
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(wait_status));
    while (read(fds[0], &k, sizeof(k)) == sizeof(k)) reported = k;
    close(fds[0]);

    std::unique_ptr<Store> store = OpenStore(options);
    std::string cursor = (*store->LoadCursor(RingId('r'))).value_or("none");
    EXPECT_EQ((*store->LoadStates(1))[0].bytes, cursor);
    EXPECT_GE(std::stoll(cursor), reported);
    std::vector<IterationRow> iterations = *store->ReadIterations(1, 0, 0, 1'000'000);
    ASSERT_EQ(static_cast<int64_t>(iterations.size()), (std::stoll(cursor) + 1) * kPerBatch);
    EXPECT_EQ(iterations.back().number, static_cast<int64_t>(iterations.size()) - 1);
    EXPECT_EQ(store->ListTraces(1)->size(), iterations.size() / kPerBatch);
  }
}

TEST_P(StoreConformanceTest, TheOutboxKeepsWhatIsNotAcknowledged) {
  const auto numbers = [](Store& store, int64_t after, int64_t through, int limit) {
    std::vector<int64_t> all;
    const auto rows = store.ReadOutbox(after, through, limit);
    for (const OutboxRow& row : *rows) all.push_back(row.sequence);
    return all;
  };
  {
    std::unique_ptr<Store> store = OpenStore();
    EXPECT_EQ(*store->LastOutboxSequence(), 0);
    for (int64_t i = 1; i <= 5; ++i) {
      ASSERT_TRUE(store->Write({.outbox = {{i, std::string("batch\0", 6)}}}).ok());
    }
    ASSERT_TRUE(store->Write({.outbox = {{5, "longer"}}, .acknowledged = 2}).ok());
    EXPECT_THAT(numbers(*store, 0, 5, 10), testing::ElementsAre(3, 4, 5));
    EXPECT_THAT(numbers(*store, 0, 4, 10), testing::ElementsAre(3, 4));
    EXPECT_THAT(numbers(*store, 3, 5, 1), testing::ElementsAre(4));
    EXPECT_EQ((*store->ReadOutbox(0, 5, 10))[0].bytes, std::string("batch\0", 6));
    EXPECT_EQ((*store->ReadOutbox(4, 5, 10))[0].bytes, "longer");
    ASSERT_TRUE(store->Write({.acknowledged = 5}).ok());
    EXPECT_EQ(store->NodeId()->size(), 16u);
    ASSERT_TRUE(store->Write({.node_id = "another node id."}).ok());
  }
  std::unique_ptr<Store> store = OpenStore();
  EXPECT_EQ(*store->NodeId(), "another node id.");
  EXPECT_THAT(numbers(*store, 0, 5, 10), testing::IsEmpty());
  EXPECT_EQ(*store->LastOutboxSequence(), 5);  // no number is given twice
}

TEST_P(StoreConformanceTest, PruneByAgeRemovesAllOfAJobAndNothingElse) {
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch old_job = FullJob(*store, "old", 100, 'o', 60'000, 1'000);
  WriteBatch new_job = FullJob(*store, "new", 300, 'n', 10, 10);
  WriteBatch live_job = FullJob(*store, "live", 0, 'l', 10, 10);
  for (const WriteBatch* batch : {&old_job, &new_job, &live_job}) {
    ASSERT_TRUE(store->Write(*batch).ok());
  }
  int64_t bytes_before = *store->Bytes();
  absl::StatusOr<PruneResult> first = store->Prune({.ended_before_ns = 200});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(first->removed_jobs, ElementsAre(old_job.jobs[0].job_id));
  EXPECT_TRUE(first->more);                  // 60,000 rows take several short calls
  EXPECT_EQ(store->ListJobs()->size(), 2u);  // but the job is gone at once
  EXPECT_EQ(*store->FindProcess(RingId('o')), std::nullopt);
  // Its name and run id are free again while its rows are still being removed.
  JobRow again = Job(*store, "old", 400, 0);
  EXPECT_TRUE(store->Write({.jobs = {again}}).ok());
  int calls = 1;
  while (store->Prune({.ended_before_ns = 200})->more) ASSERT_LT(++calls, 100);
  EXPECT_LT(*store->Bytes(), bytes_before / 2);
  EXPECT_EQ(store->ListJobs()->size(), 3u);
  int64_t old_id = old_job.jobs[0].job_id;
  EXPECT_THAT(*store->ReadIterations(old_id, 0, 0, 10), IsEmpty());
  EXPECT_THAT(*store->ListTraces(old_id), IsEmpty());
  EXPECT_THAT(*store->ReadNames(old_job.processes[0].process_id), IsEmpty());
  EXPECT_THAT(*store->ListProcesses(old_id), IsEmpty());
  EXPECT_EQ(*store->LoadCursor(RingId('o')), std::nullopt);
  for (const WriteBatch* kept : {&new_job, &live_job}) {
    EXPECT_EQ(store->ReadIterations(kept->jobs[0].job_id, 0, 0, 100)->size(), 10u);
    EXPECT_EQ(store->ReadTrace(kept->jobs[0].job_id, 0, 3)->size(), 1u);
    EXPECT_EQ(store->ReadNames(kept->processes[0].process_id)->size(), 1u);
  }
}

TEST_P(StoreConformanceTest, PruneBySizeTakesTracesFirstThenOldJobsNeverLiveOnes) {
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch old_job = FullJob(*store, "old", 100, 'o', 10'000, 20'000);
  WriteBatch new_job = FullJob(*store, "new", 300, 'n', 10'000, 20'000);
  WriteBatch live_job = FullJob(*store, "live", 0, 'l', 10'000, 20'000);
  for (const WriteBatch* batch : {&old_job, &new_job, &live_job}) {
    ASSERT_TRUE(store->Write(*batch).ok());
  }
  auto prune = [&](int64_t max_bytes) {
    PruneResult all;
    for (bool more = true; more;) {
      PruneResult result = *store->Prune({.max_bytes = max_bytes});
      for (int64_t id : result.removed_jobs) all.removed_jobs.push_back(id);
      for (int64_t id : result.removed_traces) all.removed_traces.push_back(id);
      all.over_limit = result.over_limit;
      more = result.more;
    }
    return all;
  };
  const int64_t old_id = old_job.jobs[0].job_id, new_id = new_job.jobs[0].job_id;
  int64_t bytes = *store->Bytes();
  EXPECT_THAT(prune(bytes).removed_traces, IsEmpty());
  PruneResult result = prune(bytes - 100'000);
  EXPECT_THAT(result.removed_traces, ElementsAre(old_id));
  EXPECT_THAT(result.removed_jobs, IsEmpty());
  EXPECT_FALSE(result.over_limit);
  result = prune(1);
  EXPECT_THAT(result.removed_traces, ElementsAre(new_id));
  EXPECT_THAT(result.removed_jobs, ElementsAre(old_id, new_id));
  EXPECT_TRUE(result.over_limit);
  EXPECT_EQ(store->ReadTrace(live_job.jobs[0].job_id, 0, 3)->size(), 1u);
}

TEST_P(StoreConformanceTest, PruneKeepsWhatItIsToldTo) {
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch reopened = FullJob(*store, "reopened", 100, 'r', 100, 100);
  WriteBatch other = FullJob(*store, "other", 200, 'o', 100, 100);
  ASSERT_TRUE(store->Write(reopened).ok());
  ASSERT_TRUE(store->Write(other).ok());
  const int64_t kept = reopened.jobs[0].job_id;
  const auto by_age = store->Prune({.ended_before_ns = 150, .keep = {kept}});
  ASSERT_TRUE(by_age.ok()) << by_age.status();
  EXPECT_THAT(by_age->removed_jobs, IsEmpty());
  const auto by_size = store->Prune({.max_bytes = 1, .keep = {kept, 4711}});
  ASSERT_TRUE(by_size.ok()) << by_size.status();
  EXPECT_THAT(by_size->removed_jobs, ElementsAre(other.jobs[0].job_id));
  EXPECT_TRUE(by_size->over_limit);
  EXPECT_EQ(store->ReadIterations(kept, 0, 0, 1'000)->size(), 100u);
  EXPECT_EQ(store->ReadTrace(kept, 0, 3)->size(), 1u);
  EXPECT_NE(*store->LoadCursor(RingId('r')), std::nullopt);
}

TEST_P(StoreConformanceTest, AJobWhoseRowsComeFirstIsThereOnceItIsWhole) {
  WriteBatch rows, job;
  int64_t whole = 0, half = 0;
  {
    auto store = OpenStore();
    for (int64_t* id : {&whole, &half}) {
      *id = store->NewJobId();
      ASSERT_TRUE(store->BeginJob(*id).ok());
      rows.iterations.assign(100, {.job_id = *id});
      for (size_t i = 0; i < rows.iterations.size(); ++i) {
        rows.iterations[i].number = static_cast<int64_t>(i);
      }
      ASSERT_TRUE(store->Write(rows).ok());
    }
    EXPECT_THAT(*store->ListJobs(), IsEmpty());
    ASSERT_TRUE(store->Prune({.keep = {whole, half}}).ok());
    job.jobs = {{.job_id = whole, .name = "whole", .run_id = "1", .end_ns = 5}};
    ASSERT_TRUE(store->Write(job).ok());
  }
  auto store = OpenStore();  // as after a kill
  EXPECT_GT(store->NewJobId(), half);
  ASSERT_EQ(store->ListJobs()->size(), 1u);
  EXPECT_FALSE(store->ReadIterations(half, 0, 0, 1'000)->empty());
  ASSERT_TRUE(store->Prune({}).ok());
  EXPECT_TRUE(store->ReadIterations(half, 0, 0, 1'000)->empty());
  EXPECT_EQ(store->ReadIterations(whole, 0, 0, 1'000)->size(), 100u);
}

TEST_P(StoreConformanceTest, APartOfAJobAndTheIterationsOfEachRank) {
  auto store = OpenStore();
  WriteBatch batch;
  for (const int64_t job : {1, 2}) {
    batch.jobs.push_back({.job_id = job, .name = "n", .run_id = std::to_string(job)});
    batch.states.push_back({.job_id = job, .part = "summary", .version = 4, .bytes = "short"});
    batch.states.push_back({.job_id = job, .part = "engine", .bytes = "long"});
  }
  for (const int32_t rank : {0, 0, 5}) {
    batch.iterations.push_back(
        {.job_id = 2, .rank = rank, .number = static_cast<int64_t>(batch.iterations.size())});
  }
  ASSERT_TRUE(store->Write(batch).ok());
  const auto row = store->LoadPart(2, "summary");
  ASSERT_TRUE(row.ok());
  ASSERT_TRUE(row->has_value());
  EXPECT_EQ((*row)->version, 4);
  EXPECT_EQ((*row)->bytes, "short");
  EXPECT_FALSE(store->LoadPart(2, "summaries")->has_value());
  EXPECT_THAT(*store->CountIterations(2), ElementsAre(std::pair(0, 2), std::pair(5, 1)));
  EXPECT_THAT(*store->CountIterations(1), IsEmpty());
}

TEST_P(StoreConformanceTest, ASecondDaemonIsKeptOut) {
  std::unique_ptr<Store> store = OpenStore();
  EXPECT_TRUE(store->TakeLease()->ours);
  EXPECT_EQ(store->LostLease(), "");
  EXPECT_TRUE(absl::IsAlreadyExists(Store::Open(address(), {}).status()));
  store.reset();
  EXPECT_NE(OpenStore(), nullptr);
}

TEST_P(StoreConformanceTest, IterationsOfManyPagesAreReadOnceInOrder) {
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch batch;
  for (int64_t number = -1'500; number < 3'500; number += 7) {
    batch.iterations.push_back({.job_id = 1, .rank = 2, .number = number, .duration_ns = number});
    if (number % 11 == 0) {
      batch.iterations.push_back({.job_id = 1,
                                  .rank = 2,
                                  .number = number,
                                  .incarnation = 1,
                                  .config_id = 5,
                                  .boundary_ns = INT64_MIN});
    }
  }
  ASSERT_TRUE(store->Write(batch).ok());
  std::vector<IterationRow> read;
  for (int64_t next = -2'000;;) {
    const auto page = store->ReadIterations(1, 2, next, 90);
    ASSERT_TRUE(page.ok()) << page.status();
    if (page->empty()) break;
    read.insert(read.end(), page->begin(), page->end());
    next = page->back().number + 1;
  }
  ASSERT_EQ(read.size(), batch.iterations.size());
  int measured = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].number, batch.iterations[i].number);
    EXPECT_EQ(read[i].incarnation, batch.iterations[i].incarnation);
    EXPECT_EQ(read[i].duration_ns, batch.iterations[i].duration_ns);
    EXPECT_EQ(read[i].boundary_ns, batch.iterations[i].boundary_ns);
    measured += read[i].config_id == 5 ? 1 : 0;
  }
  EXPECT_EQ(store->ReadIterations(1, 2, -2'000, 10'000, true)->size(),
            static_cast<size_t>(measured));
}

TEST_P(StoreConformanceTest, ADamagedTraceOfAJobStopsNothingElse) {
  int64_t damaged = 0, other = 0;
  {
    const std::unique_ptr<Store> store = OpenStore();
    const WriteBatch first = FullJob(*store, "a", 10, 'a', 20, 20);
    const WriteBatch second = FullJob(*store, "b", 10, 'b', 20, 20);
    ASSERT_TRUE(store->Write(first).ok());
    ASSERT_TRUE(store->Write(second).ok());
    damaged = first.jobs[0].job_id;
    other = second.jobs[0].job_id;
  }
  RunSql("UPDATE trace_segment SET zstd_bytes = 'x' WHERE job_id = " + std::to_string(damaged));
  const std::unique_ptr<Store> store = OpenStore();
  const absl::Status read = store->ReadTrace(damaged, 0, 3).status();
  EXPECT_TRUE(absl::IsDataLoss(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("iteration 3 of rank 0"));
  EXPECT_EQ(store->ReadIterations(damaged, 0, 0, 100)->size(), 20u);
  EXPECT_EQ((*store->ReadTrace(other, 0, 3))[0].records, Records(20, 'b'));
  WriteBatch more;
  for (const int64_t job_id : {damaged, other}) {
    more.iterations.push_back({.job_id = job_id, .number = 3, .duration_ns = 9});
    more.trace_segments.push_back({.job_id = job_id, .number = 4, .records = Records(2, 1)});
  }
  const absl::Status written = store->Write(more);
  EXPECT_TRUE(written.ok()) << written;
  for (const int64_t job_id : {damaged, other}) {
    EXPECT_EQ((*store->ReadIterations(job_id, 0, 3, 1))[0].duration_ns, 9);
    EXPECT_EQ(store->ReadTrace(job_id, 0, 4)->size(), 1u);
    EXPECT_EQ(*store->DescribeDamage(job_id), "") << "all iterations are there";
  }
  EXPECT_THAT(store->TakeDamagedJobs(), IsEmpty());
}

class PostgresStoreTest : public StoreConformanceTest {};
INSTANTIATE_TEST_SUITE_P(Faults, PostgresStoreTest, ::testing::Values("PostgreSQL"),
                         [](const auto& info) { return info.param; });

TEST_P(PostgresStoreTest, TablesOfOlderVersionsAreBroughtForwardAndKeepTheirRows) {
  for (size_t version = 1; version < std::size(kPostgresMigrations); ++version) {
    SCOPED_TRACE(version);
    database_ = "version" + std::to_string(version);
    ASSERT_TRUE(postgres_->CreateDatabase(database_)) << postgres_->Log();
    {
      pqxx::connection connection(address());
      pqxx::work transaction(connection);
      transaction.exec("CREATE SCHEMA seqpoint");
      transaction.exec("CREATE TABLE seqpoint.schema_version (version integer)");
      for (size_t from = 0; from < version; ++from) transaction.exec(kPostgresMigrations[from]);
      transaction.exec0("INSERT INTO seqpoint.schema_version VALUES (" + std::to_string(version) +
                        ")");
      transaction.exec0(std::string("INSERT INTO seqpoint.node VALUES (1, 'sixteen bytes id', 7") +
                        (version == 1 ? ", 'owner')" : ")"));
      transaction.exec0(
          "INSERT INTO seqpoint.job VALUES "
          "(nextval('seqpoint.job_ids'), 'a', '1', 'host', 'command', 5, 1, 2)");
      transaction.commit();
    }
    const std::unique_ptr<Store> store = OpenStore();
    ASSERT_NE(store, nullptr);
    const auto jobs = store->ListJobs();
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    ASSERT_EQ(jobs->size(), 1u);
    EXPECT_EQ((*jobs)[0].command, "command");
    EXPECT_EQ(*store->LastOutboxSequence(), 7);
    const absl::Status written = store->Write(FullJob(*store, "b", 10, 'b', 20, 20));
    EXPECT_TRUE(written.ok()) << written;
    EXPECT_EQ(store->ListJobs()->size(), 2u);
    EXPECT_EQ(*store->DescribeDamage((*jobs)[0].job_id), "");
  }
}

TEST_P(PostgresStoreTest, ADamagedBlockIsSetAsideAndAllElseIsWritten) {
  std::unique_ptr<Store> store = OpenStore();
  const WriteBatch first = FullJob(*store, "a", 10, 'a', 1'500, 0);
  const WriteBatch second = FullJob(*store, "b", 10, 'b', 1'500, 0);
  ASSERT_TRUE(store->Write(first).ok());
  ASSERT_TRUE(store->Write(second).ok());
  const int64_t damaged = first.jobs[0].job_id, other = second.jobs[0].job_id;
  ASSERT_TRUE(store->Write({.iterations = {{.job_id = damaged, .rank = 1, .number = 0}}}).ok());
  const auto damage = [&] {
    RunSql("UPDATE iteration_block SET bytes = 'x' WHERE rank = 0 AND block = 0 AND job_id = " +
           std::to_string(damaged));
  };
  damage();
  EXPECT_THAT(store->TakeDamagedJobs(), IsEmpty());
  WriteBatch more;
  for (const int64_t job_id : {damaged, other}) {
    for (const int64_t number : {5, 1'500}) {
      more.iterations.push_back({.job_id = job_id, .number = number, .duration_ns = 9});
    }
  }
  more.cursors = {{.ring_id = RingId('r'), .bytes = "later"}};
  const absl::Status written = store->Write(more);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(*store->LoadCursor(RingId('r')), "later");
  EXPECT_THAT(store->TakeDamagedJobs(), ElementsAre(damaged));
  EXPECT_THAT(store->TakeDamagedJobs(), IsEmpty());

  const auto expect_damage = [&](const std::string& blocks) {
    const std::string said = *store->DescribeDamage(damaged);
    EXPECT_THAT(said, HasSubstr("1000 stored iterations of rank 0 from number 0 to 999" + blocks));
    EXPECT_EQ(*store->DescribeDamage(other), "");
    // What is missing is not taken for what was not there.
    const absl::Status read = store->ReadIterations(damaged, 0, 0, 10).status();
    EXPECT_TRUE(absl::IsDataLoss(read)) << read;
    EXPECT_THAT(std::string(read.message()), HasSubstr("rank 0 of job " + std::to_string(damaged)));
    EXPECT_EQ(store->ReadIterations(damaged, 0, 1'000, 1'000)->size(), 501u);
    EXPECT_EQ(store->ReadIterations(damaged, 1, 0, 10)->size(), 1u);
    EXPECT_EQ(store->ReadIterations(other, 0, 0, 10'000)->size(), 1'501u);
    EXPECT_GE((*store->CountIterations(damaged))[0], 1'501);
  };
  expect_damage(" are damaged");
  store.reset();
  store = OpenStore();
  expect_damage(" are damaged");

  // What took its place is damaged, too.
  damage();
  ASSERT_TRUE(store->Write(more).ok());
  EXPECT_THAT(store->TakeDamagedJobs(), ElementsAre(damaged));
  expect_damage(", and 1 more such blocks, are damaged");

  PruneResult pruned = *store->Prune({.ended_before_ns = 11});
  while (pruned.more) pruned = *store->Prune({.ended_before_ns = 11});
  EXPECT_EQ(*store->DescribeDamage(damaged), "");
}

TEST_P(PostgresStoreTest, AStandbyReadsAndWritesNothingUntilTheLeaseIsGivenUp) {
  std::unique_ptr<Store> first = OpenStore({.holder = "first"});
  std::unique_ptr<Store> second = OpenStore({.holder = "second", .standby = true});
  const auto lease = second->TakeLease();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_FALSE(lease->ours);
  EXPECT_EQ(lease->holder, "first");
  const absl::Status status = second->Write({.jobs = {Job(*second, "a", 1, 0)}});
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(*first->ListJobs(), IsEmpty());
  ASSERT_TRUE(first->Write({.jobs = {Job(*first, "a", 1, 0)}}).ok());
  EXPECT_EQ(second->ListJobs()->size(), 1u);

  first.reset();
  second = OpenStore({.holder = "second", .standby = true});
  EXPECT_TRUE(second->TakeLease()->ours);
  EXPECT_TRUE(second->Write({.jobs = {Job(*second, "b", 1, 0)}}).ok());
}

// The holder is stopped at any moment, within a transaction or between two, for longer than its
// lease, and goes on after another has written.
TEST_P(PostgresStoreTest, AHolderThatWasPausedWritesNothingAfterItsSuccessor) {
  constexpr int kRounds = 6, kWroteNothing = 7, kWentOn = 8;
  constexpr int64_t kMostWrites = 1'000;  // far more than come before the pause
  StoreOptions options = {.standby = true, .lease = absl::Milliseconds(300)};
  std::mt19937 random(11);
  int64_t written = 0;
  ASSERT_NE(OpenStore(options), nullptr);  // the tables are made
  for (int round = 0; round < kRounds; ++round) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      options.holder = "paused";
      std::unique_ptr<Store> store = *Store::Open(address(), options);
      while (!store->TakeLease()->ours) usleep(10'000);
      for (int64_t k = written; k < written + kMostWrites; ++k) {
        WriteBatch batch;
        batch.iterations.push_back({.job_id = 1, .number = k, .duration_ns = 1});
        batch.cursors = {{.ring_id = RingId('r'), .bytes = std::to_string(k)}};
        batch.trace_segments = {{.job_id = 1, .number = k, .records = Records(5'000, 1)}};
        const absl::Status status = store->Write(batch);
        if (!status.ok()) {
          const bool says_who = store->LostLease().find("successor") != std::string::npos;
          const bool refused = absl::IsAlreadyExists(status) && says_who &&
                               absl::IsAlreadyExists(store->Write(batch)) &&
                               absl::IsAlreadyExists(store->TakeLease().status());
          _exit(refused ? kWroteNothing : 1);
        }
        if (write(fds[1], &k, sizeof(k)) != sizeof(k)) _exit(2);
      }
      _exit(kWentOn);
    }
    close(fds[1]);
    int64_t reported = 0;
    ASSERT_EQ(read(fds[0], &reported, sizeof(reported)), static_cast<ssize_t>(sizeof(reported)));
    usleep(random() % 50'000);
    kill(child, SIGSTOP);

    options.holder = "successor";
    std::unique_ptr<Store> store = OpenStore(options);
    while (!store->TakeLease()->ours) usleep(10'000);
    const int64_t last = std::stoll(**store->LoadCursor(RingId('r')));
    WriteBatch batch;
    for (int64_t k = last + 1; k <= last + 3; ++k) {
      batch.iterations.push_back({.job_id = 1, .number = k, .duration_ns = 2});
    }
    written = last + 4;
    batch.cursors = {{.ring_id = RingId('r'), .bytes = std::to_string(last + 3)}};
    ASSERT_TRUE(store->Write(batch).ok());
    kill(child, SIGCONT);
    int wait_status = 0;
    ASSERT_EQ(waitpid(child, &wait_status, 0), child);
    EXPECT_TRUE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kWroteNothing) << wait_status;
    int64_t k = 0;
    while (read(fds[0], &k, sizeof(k)) == sizeof(k)) reported = k;
    close(fds[0]);
    EXPECT_LE(reported, last) << "what a holder was told to be written is there";
    const auto rows = *store->ReadIterations(1, 0, 0, 1'000'000);
    ASSERT_EQ(static_cast<int64_t>(rows.size()), written);
    for (const IterationRow& row : rows) {
      EXPECT_TRUE(row.number <= last || row.duration_ns == 2) << row.number;
    }
  }
}

// A committer writes again and again what it could not write, with more added to it. The server is
// killed at any moment and started again.
TEST_P(PostgresStoreTest, AServerThatIsKilledUnderLoadLosesNothingAndHasNothingTwice) {
  constexpr int kPerBatch = 10, kKills = 4;
  std::unique_ptr<Store> store = OpenStore();
  std::atomic<bool> stop = false;
  int64_t number = 0, batches = 0, failures = 0;
  std::thread committer([&] {
    WriteBatch batch;
    while (!stop || !batch.Empty()) {
      if (!stop && batch.iterations.size() < 1'000) {
        for (int i = 0; i < kPerBatch; ++i, ++number) {
          batch.iterations.push_back(
              {.job_id = 1, .number = number, .duration_ns = 1'000 + number});
        }
        batch.trace_segments.push_back(
            {.job_id = 1, .number = batches, .records = Records(5, static_cast<int>(batches))});
        batch.cursors = {{.ring_id = RingId('r'), .bytes = std::to_string(batches++)}};
      }
      const absl::Status status = store->Write(batch);
      if (status.ok()) {
        batch = {};
        continue;
      }
      ++failures;
      EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAlreadyExists(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(address()));
      usleep(20'000);
    }
  });
  std::mt19937 random(3);
  for (int kill = 0; kill < kKills; ++kill) {
    usleep(100'000 + random() % 200'000);
    postgres_->Kill();
    EXPECT_TRUE(postgres_->Start()) << postgres_->Log();
  }
  usleep(100'000);
  stop = true;
  committer.join();
  EXPECT_GT(failures, 0);
  store.reset();
  store = OpenStore();
  EXPECT_EQ(*store->LoadCursor(RingId('r')), std::to_string(batches - 1));
  const std::vector<IterationRow> rows = *store->ReadIterations(1, 0, 0, 10'000'000);
  ASSERT_EQ(static_cast<int64_t>(rows.size()), number);
  for (int64_t i = 0; i < number; ++i) {
    ASSERT_EQ(rows[i].number, i);
    ASSERT_EQ(rows[i].duration_ns, 1'000 + i);
  }
  for (int64_t i = 0; i < batches; ++i) {
    const auto trace = store->ReadTrace(1, 0, i);
    ASSERT_EQ(trace->size(), 1u) << i;
    ASSERT_EQ((*trace)[0].records, Records(5, static_cast<int>(i)));
  }
}

// Its kernel takes connections and data: only the answers do not come.
TEST_P(PostgresStoreTest, AServerThatHangsHoldsUpNobodyAndLosesNothing) {
  const StoreOptions options = {.lease = absl::Milliseconds(500)};
  const auto hub = Store::Open(address() + "&connect_timeout=2", options);
  ASSERT_TRUE(hub.ok()) << hub.status();
  const std::unique_ptr<Store>& store = *hub;
  WriteBatch batch;
  batch.iterations.push_back({.job_id = 1, .number = 0, .duration_ns = 1});
  ASSERT_TRUE(store->Write(batch).ok());

  postgres_->Pause();
  batch.iterations.push_back({.job_id = 1, .number = 1, .duration_ns = 2});
  const absl::Status written = store->Write(batch);
  const auto read = store->CountIterations(1);
  postgres_->Resume();
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  EXPECT_TRUE(absl::IsUnavailable(read.status())) << read.status();

  // After an attempt to connect that failed others fail at once for a moment.
  const auto when_back = [](const auto& call) {
    auto status = call();
    for (int i = 0; i < 200 && absl::IsUnavailable(status); ++i) {
      usleep(100'000);
      status = call();
    }
    return status;
  };
  const absl::Status again = when_back([&] { return store->Write(batch); });
  EXPECT_TRUE(again.ok()) << again;
  std::map<int32_t, int64_t> counts;
  const absl::Status counted = when_back([&] {
    auto found = store->CountIterations(1);
    if (found.ok()) counts = *std::move(found);
    return found.status();
  });
  EXPECT_TRUE(counted.ok()) << counted;
  EXPECT_EQ(counts[0], 2);
}

// An old primary that wakes up takes connections and has what was true before.
TEST_P(PostgresStoreTest, AServerWithAnOlderLeaseIsNotReadFrom) {
  const std::unique_ptr<Store> store = OpenStore();
  WriteBatch batch;
  batch.iterations.push_back({.job_id = 1, .number = 0, .duration_ns = 1});
  ASSERT_TRUE(store->Write(batch).ok());
  RunSql("UPDATE lease SET fence = fence - 1");
  const absl::Status read = store->CountIterations(1).status();
  EXPECT_TRUE(absl::IsUnavailable(read)) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("was replaced as the primary"));
  RunSql("UPDATE lease SET fence = fence + 1");
  auto counts = store->CountIterations(1);
  for (int i = 0; i < 200 && absl::IsUnavailable(counts.status()); ++i) {
    usleep(50'000);
    counts = store->CountIterations(1);
  }
  ASSERT_TRUE(counts.ok()) << counts.status();
  EXPECT_EQ((*counts)[0], 1);
}

TEST_P(PostgresStoreTest, ABatchThatIsWrittenAgainIsThereOnce) {
  std::unique_ptr<Store> store = OpenStore();
  const WriteBatch batch = FullJob(*store, "a", 10, 'a', 1'500, 20);
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(store->Write(batch).ok());
  const int64_t job_id = batch.jobs[0].job_id;
  EXPECT_EQ(store->ReadTrace(job_id, 0, 3)->size(), 1u);
  EXPECT_EQ((*store->CountIterations(job_id))[0], 1'500);
}

TEST_P(PostgresStoreTest, APasswordInTheAddressIsRefusedAndNotRepeated) {
  for (const char* wrong :
       {"postgresql://me:hunter2@localhost/db", "postgresql://localhost/db?password=hunter2",
        "postgresql://me:hunter2@[::1/db"}) {
    const absl::Status status = Store::Open(wrong, {}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(std::string(status.message()).find("hunter2"), std::string::npos) << status;
  }
}

TEST_P(PostgresStoreTest, NoServerIsUnavailableWithTheAddress) {
  postgres_->Kill();
  const absl::Status status = Store::Open(address(), {}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address()));
}

}  // namespace
}  // namespace seqpoint
