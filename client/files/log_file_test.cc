#include "client/files/log_file.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/commands/import.h"
#include "client/text/time_unit.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() { options_.path = directory_ / "log.csv"; }

  void Write(const std::string& text) { std::ofstream(options_.path) << text; }
  LogFile Read() {
    absl::StatusOr<LogFile> log = ReadLogFile(options_);
    EXPECT_TRUE(log.ok()) << log.status();
    return log.ok() ? *std::move(log) : LogFile();
  }
  std::string Error() {
    const absl::Status status = ReadLogFile(options_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  LogOptions options_;
};

TEST_F(LogFileTest, ColumnsUnitAndGroups) {
  Write("epoch,len_src,len_tgt,step_ms\n1,10,7,1.5\n1,20,9,2\n2,10,7,3e0\n");
  options_.time_column = "step_ms";
  options_.group_columns = {"epoch"};
  const LogFile log = Read();
  EXPECT_THAT(log.key_columns, ElementsAre("len_src", "len_tgt"));
  EXPECT_EQ(log.time_unit_ns, 1e6);
  EXPECT_EQ(log.lengths[1], (std::array<int64_t, 2>{20, 9}));
  EXPECT_THAT(log.times, ElementsAre(1.5, 2, 3));
  EXPECT_THAT(log.groups, ElementsAre(0, 0, 1));
  EXPECT_FALSE(log.groups_scattered);
  EXPECT_EQ(ReadingNotes("log.csv", log), "");
}

TEST_F(LogFileTest, RowsThatCannotBeUsedAreNamedAndLeftOut) {
  Write(
      "length,time_us\n5,1\nnan,1\n,1\n-3,1\n1e30,1\n5,0\n6,nan\n7,-2\n8,inf\n9,\n10\nx,1\n"
      "0,1\n1000000000,2\n5,3\n6,3\n7,3\n8,3\n9,3\n10,3\n11,3\n12,3\n");
  const LogFile log = Read();
  EXPECT_EQ(log.bad.count(), 9);
  EXPECT_EQ(log.untimed, 2);
  EXPECT_EQ(log.lengths.size(), 11u);
  EXPECT_EQ(log.lengths[1][0], 0);
  EXPECT_EQ(log.lengths[2][0], 1'000'000'000);
  const std::string notes = ReadingNotes(options_.path, log);
  for (const char* expected :
       {":3: \"nan\" in column length is not a number from 0", ":4: length is empty",
        ":5: \"-3\" in column length", ":6: \"1e30\" in column length is not a number from 0 up to",
        ":8: \"nan\" in column time_us is not a number from 0", "... and 4 more",
        "9 rows left out, 11 can be used", "2 rows without a time left out"}) {
    EXPECT_THAT(notes, HasSubstr(expected));
  }
}

TEST_F(LogFileTest, MoreBadRowsThanGoodIsTheWrongColumn) {
  Write("length,time_us\nx,1\ny,2\n5,3\n");
  EXPECT_THAT(Error(), AllOf(HasSubstr(":2: \"x\" in column length"),
                             HasSubstr("only 1 of 3 rows can be used; is length the length")));
  Write("length,time_us\nx,1\ny,2\n");
  EXPECT_THAT(Error(), HasSubstr("only 0 of 2 rows can be used"));
  Write("length,time_us\n");
  EXPECT_THAT(Error(), HasSubstr("there is a header, but no row below it"));
}

// As `export --csv` writes them: a column for a second length, whether the job has one or not, and
// a last iteration that nothing ends.
TEST_F(LogFileTest, OurOwnExportIsReadAsItIs) {
  const std::string header = "rank,iteration,length,length2,start_ns,duration_ns,config\n";
  for (const char* no_time : {"", "0"}) {
    Write(absl::StrCat(header, "0,0,10,7,1,100,mark\n0,1,20,9,101,150,mark\n0,2,10,9,251,", no_time,
                       ",mark\n"));
    LogFile log = Read();
    EXPECT_THAT(log.key_columns, ElementsAre("length", "length2"));
    EXPECT_EQ(log.lengths[1], (std::array<int64_t, 2>{20, 9}));
    EXPECT_THAT(log.times, ElementsAre(100, 150));
    EXPECT_EQ(ReadingNotes("log.csv", log), "");
  }
  Write(header + "0,0,10,,1,100,mark\n0,1,20,,101,150,mark\n0,2,10,,251,,mark\n");
  EXPECT_THAT(Read().key_columns, ElementsAre("length"));
  // Rows from before the rule was learned again lack the second length.
  Write(header + "0,0,10,,1,100,mark\n0,1,20,8,101,150,mark\n0,2,30,9,251,170,mark\n");
  const LogFile mixed = Read();
  EXPECT_THAT(mixed.times, ElementsAre(150, 170));
  EXPECT_EQ(mixed.lengths[0], (std::array<int64_t, 2>{20, 8}));
  EXPECT_EQ(mixed.groups.size(), 2u);
  EXPECT_THAT(ReadingNotes("log.csv", mixed), HasSubstr("log.csv:2: length2 is empty"));
  Write("length,time_us\n5,\n6,\n7,3\n");
  EXPECT_THAT(Error(), HasSubstr("only 1 of 3 rows can be used, 2 have no time"));
}

TEST_F(LogFileTest, RowsOfOurExportThatAreInNoFigureAreLeftOut) {
  const std::string header =
      "rank,iteration,incarnation,length,duration_ns,redone,concurrent\n0,0,0,10,100,0,0\n";
  Write(header +
        "0,1,0,20,150,0,0\n0,1,1,20,170,1,0\n0,2,0,30,,0,0\n0,2,1,30,,1,0\n"
        "0,3,2,40,500,0,1\n0,6,1,10,110,0,0\n0,7,1,20,160,0,0\n");
  LogFile log = Read();
  EXPECT_THAT(log.times, ElementsAre(100, 150, 110, 160));
  EXPECT_EQ(ReadingNotes("a.csv", log),
            "a.csv: 1 row without a time left out\n"
            "a.csv: 2 rows that were done again after a restart left out\n"
            "a.csv: 1 row of a process that ran at the same time as another one left out\n"
            "a.csv: 3 iterations between its rows are missing, as their records were lost: they "
            "are in no figure here\n");
  options_.keep_untimed = true;
  log = Read();
  EXPECT_THAT(log.times, ElementsAre(100, 150, 0, 110, 160));
  EXPECT_EQ(log.lengths[2][0], 30);
  EXPECT_THAT(ReadingNotes("a.csv", log), HasSubstr("taken for what their lengths take"));
  options_.keep_untimed = false;
  // Its time is not that of its length.
  const std::string distorted = "rank,iteration,incarnation,length,duration_ns,distorted,redone\n";
  Write(distorted + "0,0,0,10,100,0,0\n0,1,0,20,900,1,0\n");
  EXPECT_THAT(Read().times, ElementsAre(100));
  EXPECT_THAT(ReadingNotes("a.csv", Read()), HasSubstr("1 row whose time a measurement disturbed"));
  Write(distorted + "0,0,0,10,100,1,0\n0,1,0,20,900,1,0\n");
  EXPECT_THAT(Error(), HasSubstr("each of its 2 rows was disturbed by a measurement"));
  // The last iteration of each process has no end.
  Write(
      "rank,iteration,incarnation,length,duration_ns,rest_ns,redone\n0,0,0,10,100,0,0\n"
      "0,1,0,20,150,0,0\n0,2,0,20,90,70,0\n");
  EXPECT_THAT(Read().times, ElementsAre(100, 150));
  // The same words in another tool's log.
  Write("length,time_us,redone,iteration\n10,5,1,0\n20,7,0,9\n");
  EXPECT_EQ(ReadingNotes("a.csv", Read()), "");
}

TEST_F(LogFileTest, RanksRunAtTheSameTime) {
  Write("rank,length,duration_ns\n0,10,100\n0,20,150\n1,10,100\n");
  EXPECT_THAT(Error(), HasSubstr(":4: column rank has \"0\" and \"1\": ranks run at the same"));
  options_.group_columns = {"rank"};
  EXPECT_THAT(Read().groups, ElementsAre(0, 0, 1));
}

TEST_F(LogFileTest, AColumnThatIsNotThere) {
  Write("a,b\n1,2\n");
  EXPECT_THAT(Error(), HasSubstr("which column is the length? Name one or two of a, b with --key"));
  options_.key_columns = {"a"};
  EXPECT_THAT(Error(), HasSubstr("which column is the time"));
  options_.time_column = "c";
  EXPECT_THAT(Error(), HasSubstr("no column \"c\"; there are a, b"));
  options_.key_columns = {"a", "b", "a"};
  EXPECT_THAT(Error(), HasSubstr("3 length columns are named"));
}

TEST_F(LogFileTest, WhatHasNoColumnsIsNotAskedForThem) {
  const std::string no_csv = options_.path + " is not a CSV with a header of columns, parted by ";
  for (const char* text :
       {"hello world\n", "length|time_ms\n5|2\n", "Dear all, it\nis late, 5 pm\n"}) {
    Write(text);
    EXPECT_THAT(Error(), HasSubstr(no_csv));
  }
  EXPECT_THAT(Error(), HasSubstr("commas, semicolons or tabs; it begins with \"Dear all, it\""));
  options_.key_columns = {"a"};
  options_.time_column = "b";
  EXPECT_THAT(Error(), HasSubstr(no_csv));
  options_ = {.path = options_.path, .or_trace = true};
  EXPECT_THAT(Error(), HasSubstr("log.csv is neither a trace nor a CSV with a header of columns"));
  // Columns that nobody knows.
  options_.lengths_only = true;
  Write("tokens_seen\n5\n7\n");
  EXPECT_THAT(Error(), HasSubstr("which column is the length?"));
}

TEST_F(LogFileTest, FractionsAreRoundedOrCountedInSmallerSteps) {
  Write("length,time_us\n10.4,1\n99.6,1\n20,1\n");
  LogFile log = Read();
  EXPECT_TRUE(log.rounded);
  EXPECT_EQ(log.lengths[0][0], 10);
  EXPECT_EQ(log.lengths[1][0], 100);
  EXPECT_THAT(ReadingNotes("l", log), HasSubstr("fractions in length are rounded to whole"));
  Write("length,time_us\n0.25,1\n1.5,1\n2,1\n");  // 1.75 in tenths is 17.5 steps
  log = Read();
  EXPECT_EQ(log.length_step[0], 0.1);
  EXPECT_EQ(log.lengths[1][0], 15);
  EXPECT_THAT(ReadingNotes("l", log), HasSubstr("counted in steps of 0.1"));
}

TEST_F(LogFileTest, ScatteredGroupsAreSaid) {
  Write("rank,length,time_us\n0,1,1\n1,1,1\n0,2,1\n1,2,1\n");
  options_.group_columns = {"rank"};
  const LogFile log = Read();
  EXPECT_TRUE(log.groups_scattered);
  EXPECT_THAT(log.groups, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(ReadingNotes("l", log), HasSubstr("do not stand together"));
}

TEST_F(LogFileTest, ALogThatSeemsToHaveSeveralGroupsSaysSo) {
  const auto notes = [&] { return ReadingNotes("l", Read()); };
  Write("Epoch,run,iter,length,time_us\n1,1,0,5,1\n1,1,1,6,1\n2,1,0,7,1\n2,1,1,8,1\n");
  EXPECT_THAT(notes(),
              AllOf(HasSubstr("l: it seems to have several runs or epochs; --group Epoch "),
                    HasSubstr("may be start-up")));
  options_.group_columns = {"Epoch"};
  EXPECT_EQ(notes(), "");
  options_.group_columns.clear();
  Write("step,length,time_us\n1,5,1\n2,6,1\n3,5,1\n1,7,1\n2,8,1\n1,9,1\n2,9,1\n");
  EXPECT_THAT(notes(), AllOf(HasSubstr("column step starts again in line 5,"),
                             HasSubstr("named with --group")));
  // One run: its steps go up, or back a little (after a checkpoint).
  Write("epoch,step,length,time_us\n1,1,5,1\n1,2,6,1\n1,3,5,1\n1,2,7,1\n1,3,8,1\n1,4,9,1\n");
  EXPECT_EQ(notes(), "");
}

TEST_F(LogFileTest, LengthsAreCountedInTheStepsOfAnotherLog) {
  Write("length,time_us\n0.2,1\n1.5,1\n2,1\n");
  const LogFile log = Read();
  EXPECT_EQ(log.length_step[0], 0.1);
  Write("length,time_us\n0.2,1\n1.5,1\n200,1\n");
  EXPECT_EQ(Read().length_step[0], 1);
  options_.length_step = log.length_step;
  const LogFile other = Read();
  EXPECT_EQ(other.length_step, log.length_step);
  EXPECT_EQ(other.lengths[1], log.lengths[1]);
  EXPECT_EQ(other.lengths[2][0], 2'000);
}

TEST(TimeUnitTest, AsColumnsAndOptionsNameThem) {
  EXPECT_EQ(TimeUnitOfColumn("time_ns"), 1);
  EXPECT_EQ(TimeUnitOfColumn("dt_us"), 1e3);
  EXPECT_EQ(TimeUnitOfColumn("a_b_ms"), 1e6);
  EXPECT_EQ(TimeUnitOfColumn("t_s"), 1e9);
  EXPECT_EQ(TimeUnitOfColumn("t_sec"), 1e9);
  for (const char* name :
       {"", "time", "_", "ns", "times", "t_", "ns_x", "tsec", "tok_per_s", "kernels_per_ms"}) {
    EXPECT_EQ(TimeUnitOfColumn(name), 0) << name;
  }
  EXPECT_EQ(TimeUnitNs("ms"), 1e6);
  EXPECT_EQ(TimeUnitNs("sec"), 0);
}

TEST_F(LogFileTest, TimesBeyondWhatADaemonTakesAreBadRows) {
  Write("length,time_s\n5,2\n6,3\n7,1e12\n");
  const LogFile log = Read();
  EXPECT_EQ(log.times.size(), 2u);
  EXPECT_THAT(log.bad.text(),
              HasSubstr("\"1e12\" in column time_s is not a number from 0 up to 1e+09"));
}

TEST_F(LogFileTest, ToImportTheUnitMustBeKnown) {
  EXPECT_EQ(JobNameOfFile("/data/steps.csv.gz"), "steps");
  EXPECT_EQ(JobNameOfFile("/data/resnet.pt.trace.json.gz"), "resnet");
  EXPECT_EQ(JobNameOfFile("a@b.csv"), "a_b");
  EXPECT_EQ(JobNameOfFile("steps.log"), "steps.log");
  EXPECT_EQ(JobNameOfFile(".csv"), "log");
  EXPECT_EQ(JobNameOfFile("l\xE4nge.csv"), "l\\xe4nge");
  Write("length,time\n5,2\n");
  ImportOptions options;
  options.log = options_;
  std::string notes;
  EXPECT_THAT(std::string(ReadLogToImport(options, &notes).status().message()),
              AllOf(HasSubstr("column time does not end in a unit"), HasSubstr("--time-unit")));
  options.log.time_unit = "s";
  EXPECT_EQ(ReadLogToImport(options, &notes)->time_unit_ns, 1e9);
}

}  // namespace
}  // namespace seqpoint::client
