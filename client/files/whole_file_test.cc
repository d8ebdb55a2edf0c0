#include "client/files/whole_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::HasSubstr;

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {}

  static std::string Text(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int Files() {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
};

TEST_F(WholeFileTest, AppearsWhenItIsWhole) {
  const std::filesystem::path path = directory_ / "a";
  ASSERT_TRUE(WriteWhole(path, "old").ok());
  {
    absl::StatusOr<WholeFile> file = WholeFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->Write("new ").ok());
    EXPECT_TRUE(file->Write("text").ok());
    EXPECT_EQ(Text(path), "old");
    EXPECT_TRUE(file->Close().ok());
    EXPECT_EQ(Text(path), "new text");
  }
  EXPECT_EQ(Text(path), "new text");
  EXPECT_EQ(Files(), 1);
}

TEST_F(WholeFileTest, WhatIsNotClosedLeavesNothing) {
  const std::filesystem::path path = directory_ / "a";
  ASSERT_TRUE(WriteWhole(path, "old").ok());
  {
    absl::StatusOr<WholeFile> file = WholeFile::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->Write("half").ok());
  }
  EXPECT_EQ(Text(path), "old");
  EXPECT_EQ(Files(), 1);
}

TEST_F(WholeFileTest, WhatCannotBeWrittenIsNamedAndLeavesNothing) {
  EXPECT_THAT(std::string(WriteWhole("/nonexistent/a", "text").message()),
              HasSubstr("cannot write /nonexistent/a: No such file"));
  std::filesystem::create_directory(directory_ / "folder");
  EXPECT_THAT(std::string(WriteWhole(directory_ / "folder", "text").message()),
              HasSubstr("Is a directory"));
  EXPECT_EQ(Files(), 1);
  // Before any work was done for it.
  EXPECT_FALSE(WholeFile::Open(directory_ / "folder").ok());
  EXPECT_EQ(Files(), 1);
  // No room for it.
  signal(SIGXFSZ, SIG_IGN);
  const rlimit none = {.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  EXPECT_THAT(std::string(WriteWhole(directory_ / "full", "text").message()),
              HasSubstr("File too large"));
  EXPECT_EQ(Files(), 1);
}

TEST_F(WholeFileTest, TwoWritersOfOneFileDoNotMix) {
  const std::filesystem::path path = directory_ / "a";
  absl::StatusOr<WholeFile> first = WholeFile::Open(path), second = WholeFile::Open(path);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->Write("the first one").ok());
  EXPECT_TRUE(second->Write("second").ok());
  EXPECT_TRUE(first->Close().ok());
  EXPECT_EQ(Text(path), "the first one");
  EXPECT_TRUE(second->Close().ok());
  EXPECT_EQ(Text(path), "second");
  EXPECT_EQ(Files(), 1);
}

// Also one that leads to a link, over folders, and to a file that is not there yet.
TEST_F(WholeFileTest, ALinkStaysOneAndItsFileIsWritten) {
  std::filesystem::create_directory(directory_ / "folder");
  std::filesystem::create_symlink("folder/inner", directory_ / "outer");
  std::filesystem::create_symlink("../target", directory_ / "folder" / "inner");
  for (const char* text : {"new", "newer"}) {
    EXPECT_TRUE(WriteWhole(directory_ / "outer", text).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(directory_ / "outer"));
    EXPECT_FALSE(std::filesystem::is_symlink(directory_ / "target"));
    EXPECT_EQ(Text(directory_ / "target"), text);
  }
  std::filesystem::create_symlink("loop", directory_ / "loop");
  EXPECT_FALSE(WriteWhole(directory_ / "loop", "text").ok());
  EXPECT_EQ(Files(), 4);
}

TEST_F(WholeFileTest, AFileThatIsStandardOutputIsNotReplaced) {
  const std::filesystem::path path = directory_ / "out";
  const int kept = dup(STDOUT_FILENO);
  const int out = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  dup2(out, STDOUT_FILENO);
  printf("before ");
  // As /dev/stdout is.
  std::filesystem::create_symlink("/proc/self/fd/1", directory_ / "stdout");
  const absl::Status status = WriteWhole(directory_ / "stdout", "text");
  printf(" after");
  fflush(stdout);
  dup2(kept, STDOUT_FILENO);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(Text(path), "before text after");
}

TEST_F(WholeFileTest, APipeOrADeviceStaysOne) {
  const std::filesystem::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_TRUE(WriteWhole(pipe, "text").ok());
  char text[8] = {};
  EXPECT_EQ(read(reader, text, sizeof(text)), 4);
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_EQ(Files(), 1);
}

}  // namespace
}  // namespace seqpoint::client
