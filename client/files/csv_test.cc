#include "client/files/csv.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class CsvTest : public ::testing::Test {
 protected:
  CsvTest() { path_ = directory_ / "log.csv"; }

  void Write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  void WriteGzip(const std::string& text) {
    gzFile file = gzopen(path_.c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  // All rows, and how reading ended.
  std::vector<std::vector<std::string>> Rows(absl::Status* status) {
    absl::StatusOr<CsvReader> csv = CsvReader::Open(path_);
    *status = csv.status();
    std::vector<std::vector<std::string>> rows;
    std::vector<std::string> fields;
    while (csv.ok() && csv->Next(&fields)) rows.push_back(fields);
    if (csv.ok()) *status = csv->status();
    return rows;
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  std::string path_;
};

// As a crash leaves them in a log that was being written.
TEST_F(CsvTest, NullBytesHideNoRow) {
  Write(std::string("len,time\n5,6\n\0\0\0\0007,8\n9,10\n", 26));
  absl::Status status;
  EXPECT_THAT(Rows(&status),
              ElementsAre(ElementsAre("5", "6"), ElementsAre(std::string("\0\0\0\0007", 5), "8"),
                          ElementsAre("9", "10")));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(CsvTest, QuotesSpacesBlankLinesAndBothLineEnds) {
  Write("\xEF\xBB\xBFlen, \"time, ms\"\r\n 5 ,\"1,5\"\r\n\r\n   \n\"say \"\"7\"\"\",2");
  absl::StatusOr<CsvReader> csv = CsvReader::Open(path_);
  ASSERT_TRUE(csv.ok()) << csv.status();
  EXPECT_THAT(csv->header(), ElementsAre("len", "time, ms"));
  std::vector<std::string> fields;
  ASSERT_TRUE(csv->Next(&fields));
  EXPECT_THAT(fields, ElementsAre("5", "1,5"));
  EXPECT_EQ(csv->number(), 2);
  ASSERT_TRUE(csv->Next(&fields));
  EXPECT_THAT(fields, ElementsAre("say \"7\"", "2"));
  EXPECT_EQ(csv->number(), 5);
  EXPECT_FALSE(csv->Next(&fields));
  EXPECT_TRUE(csv->status().ok());
  EXPECT_THAT(std::string(csv->Find({"len", "tokens"}).status().message()),
              AllOf(HasSubstr("no column \"tokens\""), HasSubstr("len, time, ms")));
}

TEST_F(CsvTest, GzipAndGzipThatIsCutShort) {
  std::string text = "len\n";
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919 % 100'003) + "\n";
  WriteGzip(text);
  absl::Status status;
  EXPECT_EQ(Rows(&status).size(), 100'000u);
  EXPECT_TRUE(status.ok()) << status;
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  EXPECT_LT(Rows(&status).size(), 100'000u);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path_ + " beyond line "), HasSubstr("truncated")));
}

TEST_F(CsvTest, NoFileNoTextNoHeader) {
  absl::Status status;
  Rows(&status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot read " + path_ + ": No such file"));
  Write("");
  Rows(&status);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it is empty"));
  Write("5,100\n6,120\n");
  Rows(&status);
  EXPECT_THAT(std::string(status.message()), HasSubstr(":1: \"5,100\" is not a header"));
}

TEST_F(CsvTest, TheFirstBadRowsAreShownTheOthersCounted) {
  BadRows bad;
  EXPECT_EQ(bad.text(), "");
  for (int i = 1; i <= 8; ++i) bad.Add("log.csv", i, "is bad");
  EXPECT_EQ(bad.count(), 8);
  EXPECT_THAT(bad.text(),
              AllOf(HasSubstr("log.csv:5: is bad\n... and 3 more"), Not(HasSubstr("log.csv:6"))));
}

}  // namespace
}  // namespace seqpoint::client
