#include "daemon/store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>

#include "absl/time/clock.h"
#include "daemon/store/stored_rows_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/small_disk.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The default VFS with a disk that can be full. Tests run one per process, so globals do.
bool g_disk_full = false;
int (*g_real_write)(sqlite3_file*, const void*, int, sqlite3_int64) = nullptr;

int WriteUnlessFull(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  return g_disk_full ? SQLITE_FULL : g_real_write(file, data, size, offset);
}

int OpenWithFullDisk(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* out) {
  auto* real = static_cast<sqlite3_vfs*>(vfs->pAppData);
  int code = real->xOpen(real, name, file, flags, out);
  if (code != SQLITE_OK || file->pMethods == nullptr) return code;
  static std::map<const sqlite3_io_methods*, sqlite3_io_methods> patched;
  auto [it, is_new] = patched.try_emplace(file->pMethods, *file->pMethods);
  if (is_new) {
    g_real_write = it->second.xWrite;
    it->second.xWrite = WriteUnlessFull;
  }
  file->pMethods = &it->second;
  return code;
}

void RegisterFullDiskVfs() {
  static sqlite3_vfs vfs = *sqlite3_vfs_find(nullptr);
  vfs.pAppData = sqlite3_vfs_find(nullptr);
  vfs.zName = "full-disk";
  vfs.pNext = nullptr;
  vfs.xOpen = OpenWithFullDisk;
  ASSERT_EQ(sqlite3_vfs_register(&vfs, 0), SQLITE_OK);
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  SqliteStoreTest() { path_ = directory_ / "sub" / "seqpoint.db"; }

  std::unique_ptr<Store> OpenStore(const StoreOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path_, options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::string OpenError(absl::StatusCode code, const StoreOptions& options = {}) {
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path_, options);
    EXPECT_EQ(store.status().code(), code) << store.status();
    return std::string(store.status().message());
  }

  void Sql(const std::string& sql) {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &connection), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(connection);
    sqlite3_close(connection);
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  std::filesystem::path path_;
};

TEST_F(SqliteStoreTest, AFullDiskLosesNothingAndCanBeTriedAgain) {
  RegisterFullDiskVfs();
  std::unique_ptr<Store> store = OpenStore({.vfs = "full-disk"});
  ASSERT_TRUE(store->Write(FullJob(*store, "before", 5, 'b', 3, 10)).ok());
  WriteBatch batch = FullJob(*store, "during", 6, 'd', 50'000, 10'000);
  int64_t job_id = batch.jobs[0].job_id;
  g_disk_full = true;
  for (int attempt = 0; attempt < 3; ++attempt) {
    absl::Status status = store->Write(batch);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_.string()));
    EXPECT_THAT(std::string(status.message()), HasSubstr("free space"));
    EXPECT_EQ(store->ListJobs()->size(), 1u);  // reading goes on
    EXPECT_THAT(*store->ReadIterations(job_id, 0, 0, 10), IsEmpty());
  }
  g_disk_full = false;
  ASSERT_TRUE(store->Write(batch).ok());
  EXPECT_EQ(store->ReadIterations(job_id, 0, 0, 100'000)->size(), 50'000u);
  EXPECT_EQ((*store->ReadTrace(job_id, 0, 3))[0].records, Records(10'000, 'd'));
}

TEST_F(SqliteStoreTest, AFileSizeLimitIsAFullDisk) {
  signal(SIGXFSZ, SIG_IGN);  // as the daemon does
  std::unique_ptr<Store> store = OpenStore();
  WriteBatch batch = FullJob(*store, "large", 6, 'd', 50'000, 10'000);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {.rlim_cur = 500'000, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  absl::Status status = store->Write(batch);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("ulimit -f"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ASSERT_TRUE(store->Write(batch).ok());
  EXPECT_EQ(store->ReadIterations(batch.jobs[0].job_id, 0, 0, 100'000)->size(), 50'000u);
}

TEST(FullDiskTest, TracesAreNotTakenAndIterationsAreUntilTheReserveIsUsedUp) {
  const TempFolder folder;
  const SmallDisk disk(folder.path(), /*mib=*/128);
  if (!disk.error().empty()) {
    std::cout << "skipped: " << disk.error() << "\n";
    GTEST_SKIP() << disk.error();
  }
  std::unique_ptr<Store> store = *Store::Open((folder.path() / "store.db").string(), {});
  const WriteBatch traces = FullJob(*store, "job", 6, 'd', 1000, 10);
  ASSERT_TRUE(store->Write(traces).ok());
  disk.Fill();
  ASSERT_EQ(disk.available(), 0u);

  // Traces stop early.
  absl::Status status;
  const WriteBatch more_traces = FullJob(*store, "more", 6, 'e', 1000, 100'000);
  int taken = 0;
  while (taken < 1000 && (status = store->Write(more_traces)).ok()) ++taken;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  // Then 100,000 iterations find room, a commit each hundred.
  WriteBatch iterations;
  int64_t number = 0;
  const auto write_iterations = [&](int count) {
    iterations.iterations.clear();
    for (int i = 0; i < count; ++i) {
      iterations.iterations.push_back({.job_id = traces.jobs[0].job_id, .number = 10'000 + number});
      ++number;
    }
    return store->Write(iterations);
  };
  for (int commit = 0; commit < 1000; ++commit) {
    status = write_iterations(100);
    ASSERT_TRUE(status.ok()) << status << " after " << commit;
  }
  status = store->Write(more_traces);
  EXPECT_THAT(std::string(status.message()), HasSubstr("takes no traces"));
  // It ends, too.
  while (number < 10'000'000 && (status = write_iterations(2'000)).ok()) continue;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;

  disk.Free();
  EXPECT_TRUE(store->Write(iterations).ok());
  for (int i = 0; i < 100 && !(status = store->Write(more_traces)).ok(); ++i) {
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SqliteStoreTest, DamageIsNamedAndMovedAsideOnlyWhenAsked) {
  ASSERT_TRUE(OpenStore()->Write({.states = {{.job_id = 1, .part = "p", .bytes = "old"}}}).ok());
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << std::string(8192, 'x');
  }
  std::string message = OpenError(absl::StatusCode::kDataLoss);
  EXPECT_THAT(message, HasSubstr(path_.string()));
  EXPECT_THAT(message, HasSubstr("--move-corrupt-store-aside"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".corrupt-1"));
  std::unique_ptr<Store> store = OpenStore({.move_corrupt_aside = true});
  EXPECT_THAT(*store->LoadStates(1), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(path_.string() + ".corrupt-1"));
  EXPECT_TRUE(store->Write({.states = {{.job_id = 1, .part = "p", .bytes = "new"}}}).ok());
}

TEST_F(SqliteStoreTest, NotADatabaseIsDamage) {
  std::filesystem::create_directories(path_.parent_path());
  std::ofstream(path_) << "These are notes of a person, and no database at all. "
                       << std::string(4096, '.');
  EXPECT_THAT(OpenError(absl::StatusCode::kDataLoss), HasSubstr("not a database"));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsLeftAlone) {
  std::filesystem::create_directories(path_.parent_path());
  Sql("CREATE TABLE photos (id INTEGER)");
  std::string message =
      OpenError(absl::StatusCode::kFailedPrecondition, {.move_corrupt_aside = true});
  EXPECT_THAT(message, HasSubstr("another program"));
}

TEST_F(SqliteStoreTest, ANewerSchemaIsRefusedWithBothVersions) {
  OpenStore();
  Sql("PRAGMA user_version=99");
  std::string message =
      OpenError(absl::StatusCode::kFailedPrecondition, {.move_corrupt_aside = true});
  EXPECT_THAT(message, HasSubstr("version 99"));
  EXPECT_THAT(message, HasSubstr("knows 2"));
}

TEST_F(SqliteStoreTest, AFileOfVersion1IsBroughtForwardAndKeepsItsRows) {
  ASSERT_TRUE(OpenStore()->Write({.jobs = {{.job_id = 1, .name = "old", .run_id = "1"}}}).ok());
  // As the first version made it.
  Sql("DROP TABLE node; DROP TABLE outbox; PRAGMA user_version=1");
  std::string node_id;
  for (int start = 0; start < 2; ++start) {
    std::unique_ptr<Store> store = OpenStore();
    ASSERT_EQ(store->ListJobs()->size(), 1u);
    EXPECT_EQ((*store->ListJobs())[0].name, "old");
    if (start == 0) node_id = *store->NodeId();
    EXPECT_EQ(node_id.size(), 16u);
    EXPECT_EQ(*store->NodeId(), node_id);
  }
}

TEST_F(SqliteStoreTest, ASecondDaemonIsKeptOut) {
  std::unique_ptr<Store> store = OpenStore();
  std::string message = OpenError(absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(message, HasSubstr("in use by process " + std::to_string(getpid())));
  // Where it answers.
  const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  const std::string socket_path = directory_ / "api.sock";
  socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(OpenError(absl::StatusCode::kAlreadyExists),
              HasSubstr("set SEQPOINT_DIR=" + directory_.string() + ","));
  close(listening);
  store.reset();
  OpenStore();
}

TEST_F(SqliteStoreTest, ASecondDaemonIsKeptOutByAnyNameOfTheFile) {
  const std::filesystem::path real = path_;
  const std::filesystem::path elsewhere = directory_ / "elsewhere";
  std::filesystem::create_directory(elsewhere);
  std::unique_ptr<Store> store = OpenStore();
  std::filesystem::create_symlink(real, elsewhere / "symbolic.db");
  std::filesystem::create_hard_link(real, elsewhere / "hard.db");
  for (const char* name : {"symbolic.db", "hard.db"}) {
    path_ = elsewhere / name;
    std::string message = OpenError(absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(message, HasSubstr("in use by process " + std::to_string(getpid()))) << name;
  }
  store.reset();

  // The one that opens it by the link works on the same file, and keeps the others out, too.
  path_ = elsewhere / "symbolic.db";
  store = OpenStore();
  ASSERT_TRUE(store->Write({.states = {{.job_id = 1, .part = "p", .bytes = "x"}}}).ok());
  EXPECT_FALSE(std::filesystem::exists(path_.string() + "-wal"));
  path_ = real;
  OpenError(absl::StatusCode::kAlreadyExists);
  store.reset();
  EXPECT_EQ(OpenStore()->LoadStates(1)->size(), 1u);
}

TEST_F(SqliteStoreTest, ADamagedFileThatWasMovedAsideIsLockedNoMoreButTheNewOneIs) {
  std::filesystem::create_directories(path_.parent_path());
  std::ofstream(path_) << std::string(8192, '.');
  std::unique_ptr<Store> store = OpenStore({.move_corrupt_aside = true});
  OpenError(absl::StatusCode::kAlreadyExists, {.move_corrupt_aside = true});
  EXPECT_FALSE(std::filesystem::exists(path_.string() + ".corrupt-2"));
  path_ += ".corrupt-1";
  OpenError(absl::StatusCode::kDataLoss);
}

TEST_F(SqliteStoreTest, WhatIsNoRegularFileIsRefusedAndLeftAlone) {
  const std::filesystem::path folder = directory_ / "folder", fifo = directory_ / "fifo";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {folder, fifo, std::filesystem::path("/dev/null")}) {
    path_ = path;
    EXPECT_THAT(OpenError(absl::StatusCode::kFailedPrecondition, {.move_corrupt_aside = true}),
                HasSubstr(path.string() + " is not a regular file"));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
}

TEST_F(SqliteStoreTest, OnlyItsOwnerCanReadTheFile) {
  std::unique_ptr<Store> store = OpenStore();
  ASSERT_TRUE(store->Write({.states = {{.job_id = 1, .part = "p"}}}).ok());
  for (const auto& entry : std::filesystem::directory_iterator(path_.parent_path())) {
    EXPECT_EQ(entry.status().permissions() & std::filesystem::perms(077),
              std::filesystem::perms::none)
        << entry.path();
  }
  EXPECT_EQ(std::filesystem::status(path_.parent_path()).permissions(),
            std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace seqpoint
