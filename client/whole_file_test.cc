#include "client/whole_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::client {
namespace {

using ::testing::HasSubstr;

class WholeFileTest : public ::testing::Test {
 protected:
  WholeFileTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "whole_file_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~WholeFileTest() override { std::filesystem::remove_all(directory_); }

  static std::string Text(const std::filesystem::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  int Files() {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }

  std::filesystem::path directory_;
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
  // A full disk.
  std::filesystem::create_symlink("/dev/full", directory_ / "full.part");
  EXPECT_THAT(std::string(WriteWhole(directory_ / "full", "text").message()),
              HasSubstr("No space left"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "full"));
}

}  // namespace
}  // namespace seqpoint::client
