#include "client/files/lengths.h"

#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LengthsTest : public ::testing::Test {
 protected:
  LengthsTest() { options_.path = directory_ / "train.csv"; }

  void Write(const std::string& text) { std::ofstream(options_.path) << text; }

  v1::Horizon Read() {
    absl::StatusOr<v1::Horizon> horizon = ReadLengths(options_);
    EXPECT_TRUE(horizon.ok()) << horizon.status();
    return horizon.ok() ? *horizon : v1::Horizon();
  }
  std::string Error() {
    absl::Status status = ReadLengths(options_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  static std::map<std::vector<int64_t>, int64_t> Counts(const v1::Horizon& horizon) {
    std::map<std::vector<int64_t>, int64_t> counts;
    for (const v1::LengthCount& entry : horizon.histogram()) {
      counts[{entry.lengths().begin(), entry.lengths().end()}] = entry.count();
    }
    return counts;
  }
  using Histogram = std::map<std::vector<int64_t>, int64_t>;

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  LengthsOptions options_;
};

TEST_F(LengthsTest, FractionsAreRoundedWhereWholeNumbersTellLengthsApart) {
  Write("length\n5.2\n40.7\n5\n");
  const v1::Horizon horizon = Read();
  EXPECT_EQ(Counts(horizon), (Histogram{{{5}, 2}, {{41}, 1}}));
  EXPECT_THAT(horizon.source(), HasSubstr("rounded"));
  Write("length\n0.5\n1.5\n");
  EXPECT_THAT(Error(), HasSubstr("column length has fractions, and between 0.5 and 1.5"));
}

TEST_F(LengthsTest, ARowIsAnIteration) {
  Write("length\n5\n7\n5\n");
  options_.epochs = 3;
  v1::Horizon horizon = Read();
  EXPECT_EQ(horizon.kind(), v1::Horizon::KIND_HISTOGRAM);
  EXPECT_EQ(horizon.epochs(), 3);
  EXPECT_EQ(horizon.iterations(), 9);
  EXPECT_EQ(Counts(horizon), (Histogram{{{5}, 2}, {{7}, 1}}));
  EXPECT_THAT(horizon.source(), HasSubstr("train.csv (length), 3 epochs"));
}

TEST_F(LengthsTest, ColumnsAreFoundOrNamed) {
  Write("id,len_en,name,len_de\n1,5,\"a, b\"\"c\",6\n2,7,x,8\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5, 6}, 1}, {{7, 8}, 1}}));
  options_.columns = {"len_de"};
  EXPECT_EQ(Counts(Read()), (Histogram{{{6}, 1}, {{8}, 1}}));
  options_.columns = {"len_fr"};
  EXPECT_THAT(Error(), HasSubstr("no column \"len_fr\"; there are id, len_en, name, len_de"));
  options_.columns.clear();
  Write("len_prompt,len_output,len_total\n1,2,3\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{3}, 1}}));
  Write("source,target\n1,2\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{1, 2}, 1}}));
  Write("a,b,c\n1,2,3\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr("no length column"), HasSubstr("among a, b, c;"),
                             HasSubstr("--length-column")));
  options_.columns = {"c", "a"};
  EXPECT_EQ(Counts(Read()), (Histogram{{{3, 1}, 1}}));
}

TEST_F(LengthsTest, WindowsFilesAndMissingLastNewlineAreFine) {
  Write("\xEF\xBB\xBFlength\r\n5\r\n\r\n7");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5}, 1}, {{7}, 1}}));
}

TEST_F(LengthsTest, SemicolonsAndTabsPartColumns) {
  Write("id;len, in tokens;text\n1;5;a, b\n2;7;\"c;d\"\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5}, 1}, {{7}, 1}}));
  Write("len_en\tlen_de\ttext\n5\t6\ta;b,c;d,e\n7\t8\t\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5, 6}, 1}, {{7, 8}, 1}}));
  Write("len_en|len_de\n5|6\n");
  EXPECT_THAT(Error(), HasSubstr("train.csv:2: \"5|6\" in column len_en|len_de is not a number"));
}

TEST_F(LengthsTest, ADecimalCommaIsReadOrNamed) {
  Write("length;text\n5,2;a\n40,75;b\n1234,5;c\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5}, 1}, {{41}, 1}, {{1235}, 1}}));
  Write("length,text\n\"5,2\",a\n40,b\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5}, 1}, {{40}, 1}}));
  // It may as well part thousands.
  Write("length\ttext\n1,234\ta\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr("train.csv:2: \"1,234\""),
                             HasSubstr("a decimal one or part thousands")));
  Write("length\n5,2\n40\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr("train.csv:2: \"5,2\" has 2 columns, the header has 1"),
                             HasSubstr("decimal point"), HasSubstr("semicolons")));
  Write("time,length\n1,5,20,0\n");
  EXPECT_THAT(Error(), HasSubstr("has 4 columns, the header has 2"));
  // A text with commas behind the lengths is no number.
  Write("length,text\n5,hello, world\n");
  EXPECT_EQ(Counts(Read()), (Histogram{{{5}, 1}}));
}

TEST_F(LengthsTest, OfVeryManyExamplesAnEvenSampleMakesTheBatches) {
  {
    std::ofstream file(options_.path);
    file << "length\n";
    std::string block;
    for (int i = 0; i < 1'000; ++i) block += std::to_string(1 + i % 100) + "\n";
    for (int i = 0; i < 5'000; ++i) file << block;
  }
  options_.batch = 50;
  options_.order = ExampleOrder::kSorted;
  v1::Horizon horizon = Read();
  EXPECT_EQ(horizon.kind(), v1::Horizon::KIND_DISTRIBUTION);
  EXPECT_EQ(horizon.iterations(), 100'000);
  EXPECT_THAT(horizon.source(), HasSubstr("from 4,194,304 of 5,000,000 examples"));
  for (const v1::LengthCount& entry : horizon.histogram()) {
    EXPECT_NEAR(static_cast<double>(entry.count()), 1'000, 2) << entry.lengths(0);
  }
  // As they come they need no sample.
  options_.order = ExampleOrder::kFile;
  horizon = Read();
  EXPECT_EQ(horizon.kind(), v1::Horizon::KIND_HISTOGRAM);
  EXPECT_EQ(Counts(horizon), (Histogram{{{50}, 50'000}, {{100}, 50'000}}));
}

TEST_F(LengthsTest, AColumnOfNumbersThatAreNoLengthsIsGivenUpEarly) {
  {
    std::ofstream file(options_.path);
    file << "len_id\n";
    for (int i = 0; i < 300'000; ++i) file << i << "\n";
  }
  EXPECT_THAT(Error(), AllOf(HasSubstr("iterations of more than 262144 different lengths"),
                             HasSubstr("--pad-to N")));
  options_.pad_to = 64;
  EXPECT_EQ(Read().iterations(), 300'000);
}

TEST_F(LengthsTest, BadRowsAreNamedWithLineAndValue) {
  Write("length\n5\nabc\n-3\n1e13\n99999999999999999999\n\n7\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr("train.csv:3: \"abc\""), HasSubstr("train.csv:4: \"-3\""),
                             HasSubstr("train.csv:5: \"1e13\""),
                             HasSubstr("train.csv:6: \"99999999999999999999\"")));
  std::string many = "length\n";
  for (int i = 0; i < 100; ++i) many += "x\n";
  Write(many);
  EXPECT_THAT(Error(), AllOf(HasSubstr("train.csv:6"), Not(HasSubstr("train.csv:7")),
                             HasSubstr("and 95 more")));
}

TEST_F(LengthsTest, TruncatedFilesAreNoticed) {
  Write("len_en,len_de\n5,6\n7");
  EXPECT_THAT(Error(), HasSubstr("train.csv:3: \"7\" has 1 of 2 columns"));
  Write("length\n");
  EXPECT_THAT(Error(), HasSubstr("no row below"));
  Write("");
  EXPECT_THAT(Error(), HasSubstr("empty"));
  Write("5\n6\n");
  EXPECT_THAT(Error(), HasSubstr("not a header"));
  options_.path = directory_ / "missing.csv";
  EXPECT_THAT(Error(), HasSubstr("missing.csv: No such file"));
}

TEST_F(LengthsTest, GzipIsReadAndACutOneIsNoticed) {
  options_.path = directory_ / "train.csv.gz";
  gzFile file = gzopen(options_.path.c_str(), "wb");
  std::string text = "length\n";
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * 7919 % 1000) + "\n";
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  EXPECT_EQ(Read().iterations(), 20'000);
  std::filesystem::resize_file(options_.path, std::filesystem::file_size(options_.path) / 2);
  EXPECT_THAT(Error(), HasSubstr("truncated"));
}

TEST_F(LengthsTest, ExamplesInFileAndSortedOrderMakeExactIterations) {
  Write("length\n9\n1\n5\n3\n7\n");
  options_.batch = 2;
  options_.order = ExampleOrder::kFile;
  v1::Horizon horizon = Read();
  EXPECT_EQ(horizon.kind(), v1::Horizon::KIND_HISTOGRAM);
  EXPECT_EQ(Counts(horizon), (Histogram{{{9}, 1}, {{5}, 1}, {{7}, 1}}));
  options_.order = ExampleOrder::kSorted;
  EXPECT_EQ(Counts(Read()), (Histogram{{{3}, 1}, {{7}, 1}, {{9}, 1}}));
  options_.drop_last = true;
  EXPECT_EQ(Counts(Read()), (Histogram{{{3}, 1}, {{7}, 1}}));
  options_.pad_to = 8;
  EXPECT_EQ(Counts(Read()), (Histogram{{{8}, 2}}));
  options_.batch = 10;
  EXPECT_THAT(Error(), HasSubstr("5 examples make no batch of 10"));
}

TEST_F(LengthsTest, ShuffledExamplesMakeAnExpectedDistribution) {
  // One long example in 100: of 50 batches of 2, one holds it, whatever the order.
  std::string text = "length\n1000\n";
  for (int i = 0; i < 99; ++i) text += "10\n";
  Write(text);
  options_.batch = 2;
  options_.epochs = 1'000;
  v1::Horizon horizon = Read();
  EXPECT_EQ(horizon.kind(), v1::Horizon::KIND_DISTRIBUTION);
  EXPECT_EQ(horizon.iterations(), 50'000);
  EXPECT_EQ(horizon.epochs(), 1'000);
  EXPECT_EQ(Counts(horizon), (Histogram{{{10}, 49'000}, {{1000}, 1'000}}));
}

TEST_F(LengthsTest, BucketsPutSimilarLengthsTogether) {
  std::string text = "length\n";
  for (int i = 0; i < 4'000; ++i) text += std::to_string(1 + i % 100) + "\n";
  Write(text);
  options_.batch = 20;
  auto mean = [&] {
    double sum = 0;
    v1::Horizon horizon = Read();
    for (const v1::LengthCount& entry : horizon.histogram()) {
      sum += static_cast<double>(entry.lengths(0) * entry.count());
    }
    return sum / static_cast<double>(horizon.iterations());
  };
  options_.order = ExampleOrder::kShuffle;
  double shuffled = mean();
  options_.order = ExampleOrder::kBucket;
  double bucketed = mean();
  options_.order = ExampleOrder::kSorted;
  double sorted = mean();
  EXPECT_GT(shuffled, 90);  // the longest of 20
  EXPECT_LT(bucketed, 60);  // hardly any padding
  EXPECT_LE(sorted, bucketed);
}

TEST_F(LengthsTest, TooManyIterationsAreRefused) {
  Write("length\n5\n6\n");
  options_.epochs = INT64_MAX;
  EXPECT_THAT(Error(), HasSubstr("more than"));
}

}  // namespace
}  // namespace seqpoint::client
