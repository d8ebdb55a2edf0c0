#include "client/place/recordings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::HasSubstr;

class RecordingsTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }

  // A model of one operator that takes `us`.
  TraceArgument Recorded(int64_t length, int us) {
    return {.graph = Write(absl::StrCat("et", length),
                           R"({"nodes": [{"name": "aten::relu", "id": 3, "parent": 2,
                               "op_schema": "aten::relu(Tensor self) -> Tensor",
                               "inputs": [], "outputs": [[5,6,0,8,4,"cpu"]]}]})"),
            .times = Write(absl::StrCat("times", length),
                           absl::StrCat(R"([{"name": "aten::relu", "ph": "X", "ts": 1, "dur": )",
                                        us, R"(, "tid": 1, "pid": "CPU functions"}])")),
            .length = length};
  }

  std::string ErrorOf(const RecordingsAsked& asked) {
    return std::string(ReadRecordings(asked).status().message());
  }

  TempFolder folder_;
};

TEST_F(RecordingsTest, AnArgumentHasTwoFilesAndMayHaveALength) {
  const auto trace = ParseTraceArgument("a@b/et.json,times.json@25");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->graph, "a@b/et.json");
  EXPECT_EQ(trace->times, "times.json");
  EXPECT_EQ(trace->length, 25);
  EXPECT_FALSE(ParseTraceArgument("et,times@home")->length.has_value());
  for (const char* wrong : {"", "et.json", "et.json,", ",t", "a,b,c", "a,@5"}) {
    EXPECT_THAT(std::string(ParseTraceArgument(wrong).status().message()),
                HasSubstr("ET,TIMES or ET,TIMES@LENGTH"))
        << wrong;
  }
}

TEST_F(RecordingsTest, IterationsCountForTheNearestRecordedLength) {
  RecordingsAsked asked = {.traces = {Recorded(10, 100), Recorded(40, 500)}};
  asked.lengths = Write("run.csv", "step,seq_len\n1,9\n2,24\n3,26\n4,900\n5,11\n");
  const auto run = ReadRecordings(asked);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->problems.size(), 2U);
  EXPECT_EQ(run->problems[0].weight, 3);
  EXPECT_EQ(run->problems[1].weight, 2);
  // 3 of 5 iterations take 0.1 ms, 2 of them 0.5 ms.
  EXPECT_DOUBLE_EQ(PipelineTime(*run, {0}, Pipeline::kDecoupled), 0.26);
  EXPECT_THAT(RecordingsText(*run, {0}), HasSubstr("60.0 %"));
  EXPECT_THAT(RecordingsJson(*run, {0}), HasSubstr("\"trace_ids\": [3]"));
}

TEST_F(RecordingsTest, WithoutLengthsAllRecordingsCountTheSame) {
  const auto run = ReadRecordings({.traces = {Recorded(10, 100), Recorded(40, 500)}});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_DOUBLE_EQ(PipelineTime(*run, {0}, Pipeline::kLockStep), 0.3);
}

TEST_F(RecordingsTest, WhatIsWrongIsSaidWithTheFileAndTheLine) {
  RecordingsAsked asked = {.traces = {Recorded(10, 100), Recorded(40, 500)}};
  asked.lengths = Write("run.csv", "len\n9\nten\n");
  EXPECT_THAT(ErrorOf(asked), HasSubstr("run.csv:3: \"ten\" is no length above 0"));
  asked.lengths = Write("run.csv", "step,time\n1,9\n");
  EXPECT_THAT(ErrorOf(asked), HasSubstr("no column has \"len\" in its name: step, time"));
  asked.lengths = Write("run.csv", "len\n9\n8\n");
  EXPECT_THAT(ErrorOf(asked), HasSubstr("no length of the run is near 40; leave out"));
  asked.lengths.clear();
  asked.traces[1].length.reset();
  EXPECT_THAT(ErrorOf(asked), HasSubstr("add @LENGTH"));
  asked.traces = {Recorded(10, 100)};
  asked.traces[0].graph = (folder_.path() / "nowhere").string();
  EXPECT_THAT(ErrorOf(asked), HasSubstr("nowhere: No such file"));
  asked.traces[0].graph = asked.traces[0].times;
  EXPECT_THAT(ErrorOf(asked), HasSubstr("is no JSON object"));
  asked.traces[0] = Recorded(10, 100);
  asked.traces[0].times = asked.traces[0].graph;
  EXPECT_THAT(ErrorOf(asked), HasSubstr("is JSON without \"traceEvents\""));
}

}  // namespace
}  // namespace seqpoint::client
