#include "daemon/store/log_damage.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/store/store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using ::testing::HasSubstr;

constexpr int kTransactions = 40;

class LogDamageTest : public ::testing::Test {
 protected:
  // What a daemon leaves that is killed after so many transactions of one iteration each.
  void SetUp() override {
    const pid_t writer = fork();
    if (writer == 0) {
      auto store = *Store::Open(path_, {});
      WriteBatch batch;
      batch.jobs = {{.job_id = store->NewJobId(), .name = "j", .run_id = "1"}};
      for (int i = 0; i < kTransactions; ++i) {
        batch.iterations = {{.job_id = batch.jobs[0].job_id, .number = i}};
        if (!store->Write(batch).ok()) _exit(1);
      }
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    waitpid(writer, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    log_bytes_ = std::filesystem::file_size(log_);
  }

  void Flip(uint64_t offset) {
    std::fstream file(log_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 4);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  int64_t IterationsLeft(Store& store) { return (*store.CountIterations(1))[0]; }

  const TempFolder folder_;
  const std::string path_ = folder_.path() / "store.db";
  const std::string log_ = path_ + "-wal";
  uint64_t log_bytes_ = 0;
};

TEST_F(LogDamageTest, AWholeLogIsReadToItsEnd) {
  EXPECT_FALSE(FindLogDamage(path_).has_value());
  auto store = *Store::Open(path_, {});
  EXPECT_EQ(store->damage(), "");
  EXPECT_EQ(IterationsLeft(*store), kTransactions);
}

TEST_F(LogDamageTest, WhereverABitFlippedWhatIsCutIsSaid) {
  const std::string before = folder_.path() / "before";
  std::filesystem::copy(log_, before);
  std::filesystem::copy(path_, before + ".db");
  constexpr uint64_t kFrameBytes = 24 + 4096;
  const uint64_t frame = 32 + (log_bytes_ - 32) / kFrameBytes * 3 / 4 * kFrameBytes;
  // Of the header: magic, page size, salt, checksum. Of a frame: page, commit, salt, checksum,
  // data.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{9}, uint64_t{17}, uint64_t{25}, frame + 2,
                                frame + 6, frame + 9, frame + 17, frame + 3000}) {
    std::filesystem::copy(before, log_, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy(before + ".db", path_, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove(path_ + "-shm");  // as after a power failure
    Flip(offset);
    const auto store = Store::Open(path_, {});
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_THAT((*store)->damage(), HasSubstr("what they held is lost")) << offset;
    const auto jobs = (*store)->ListJobs();
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    EXPECT_LT(IterationsLeft(**store), kTransactions);
  }
}

TEST_F(LogDamageTest, TheLastTransactionIsMissedWhereTheIndexHasIt) {
  std::filesystem::resize_file(log_, log_bytes_ - 1000);
  EXPECT_TRUE(FindLogDamage(path_).has_value());
  // A power failure leaves no index, and may have cut the transaction while it was written.
  std::filesystem::remove(path_ + "-shm");
  auto store = *Store::Open(path_, {});
  EXPECT_EQ(store->damage(), "");
  EXPECT_EQ(IterationsLeft(*store), kTransactions - 1);
}

TEST_F(LogDamageTest, ABitOfTheLastTransactionIsNoticedToo) {
  Flip(log_bytes_ - 2000);
  EXPECT_TRUE(FindLogDamage(path_).has_value());
}

}  // namespace
}  // namespace seqpoint
