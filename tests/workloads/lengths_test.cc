#include "tests/workloads/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/workloads/histograms.h"

namespace seqpoint::workload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LengthsTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = testing::TempDir() + "/lengths_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
    std::ofstream(path) << text;
    return path;
  }
  // The message that reading `text` fails with.
  std::string Error(const std::string& text) {
    path_ = Write(text);
    const auto table = ReadLengths(path_);
    EXPECT_FALSE(table.ok());
    return std::string(table.status().message());
  }
  std::string path_;
};

TEST_F(LengthsTest, ReadsOneAndTwoColumns) {
  const auto one = ReadLengths(Write("frames\n7\n1200\n"));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(*one, ElementsAre(ElementsAre(7), ElementsAre(1200)));
  const auto two = ReadLengths(Write("source,target\r\n3, 4\r\n\r\n\"5\",6\r\n"));
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(*two, ElementsAre(ElementsAre(3, 4), ElementsAre(5, 6)));
}

TEST_F(LengthsTest, LengthColumnsAreFoundByTheirPrefix) {
  const auto table = ReadLengths(Write("speaker,len_en,note,len_de,len_fr\nx,3,y,4,5\n"));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(*table, ElementsAre(ElementsAre(3, 4)));
}

TEST_F(LengthsTest, BadRowsAreNamedByFileLineAndValue) {
  for (const char* value : {"abc", "", "-3", "0", "1e3", "2.5", "100001", "99999999999999999999"}) {
    const std::string error = Error(std::string("length\n12\n") + value + ",\n13\n");
    EXPECT_THAT(error, HasSubstr(path_ + ":3: \"" + value + "\" is not an integer between 1 and"));
  }
  EXPECT_THAT(Error("source,target\n3,4\n5\n"), HasSubstr(path_ + ":3: \"5\" has 1 of 2 fields"));
}

TEST_F(LengthsTest, FilesWithoutHeaderOrExamplesAreRefused) {
  EXPECT_THAT(Error(""), HasSubstr("no header"));
  EXPECT_THAT(Error("12\n13\n"), HasSubstr("\"12\" is not a header"));
  EXPECT_THAT(Error("length\n\n"), HasSubstr("no example"));
  const auto missing = ReadLengths("/nonexistent/lengths.csv");
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("cannot open lengths file /nonexistent/lengths.csv: No such file"));
}

TEST_F(LengthsTest, RowsAreFittedToTheModel) {
  LengthTable table = {{3, 4}, {5, 6}};
  SetLengthCount(1, &table);
  EXPECT_THAT(table, ElementsAre(ElementsAre(3), ElementsAre(5)));
  SetLengthCount(2, &table);
  EXPECT_THAT(table, ElementsAre(ElementsAre(3, 3), ElementsAre(5, 5)));
}

TEST(HistogramsTest, DrawsLookLikeTheCorpus) {
  Random random(1);
  struct {
    const char* name;
    int low, median, high;  // the corpus' own
  } const corpora[] = {{"multi30k", 4, 12, 44},
                       {"newstest", 1, 20, 100},
                       {"librispeech", 141, 1400, 2500},
                       {"alpaca", 4, 69, 512}};
  for (const auto& corpus : corpora) {
    const auto table = DrawLengths(corpus.name, 20000, &random);
    ASSERT_TRUE(table.ok()) << table.status();
    std::vector<int> first;
    for (const auto& row : *table) {
      EXPECT_GE(row[0], 1);
      EXPECT_LE(row[0], corpus.high);
      first.push_back(row[0]);
    }
    std::sort(first.begin(), first.end());
    EXPECT_NEAR(first[first.size() / 2], corpus.median, 0.1 * corpus.median + 1) << corpus.name;
  }
}

TEST(HistogramsTest, SourceAndTargetLengthsBelongTogether) {
  Random random(1);
  const auto table = DrawLengths("multi30k", 20000, &random);
  ASSERT_TRUE(table.ok());
  double sx = 0, sy = 0, sxx = 0, syy = 0, sxy = 0;
  for (const auto& row : *table) {
    const double x = row[0], y = row[1];
    sx += x, sy += y, sxx += x * x, syy += y * y, sxy += x * y;
  }
  const double n = static_cast<double>(table->size());
  const double correlation =
      (n * sxy - sx * sy) / std::sqrt((n * sxx - sx * sx) * (n * syy - sy * sy));
  EXPECT_GT(correlation, 0.7);
}

TEST(HistogramsTest, UnknownNamesListTheKnownOnes) {
  Random random(1);
  EXPECT_THAT(std::string(DrawLengths("imagenet", 1, &random).status().message()),
              HasSubstr("no built-in histogram \"imagenet\"; there are multi30k, newstest"));
}

}  // namespace
}  // namespace seqpoint::workload
