#include "client/whole_file.h"

#include <fcntl.h>
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
  // A full disk.
  std::filesystem::create_symlink("/dev/full", directory_ / "full.part");
  EXPECT_THAT(std::string(WriteWhole(directory_ / "full", "text").message()),
              HasSubstr("No space left"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "full"));
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
