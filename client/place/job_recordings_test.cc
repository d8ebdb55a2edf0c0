#include "client/place/job_recordings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class JobRecordingsTest : public testing::Test {
 protected:
  JobRecordingsTest() {
    job_.set_name("train");
    job_.set_run_id("7");
    job_.set_host("node1");
    job_.set_end_ns(1);
    job_.set_operators_folder(folder_.path());
  }
  void Write(const std::string& name) { std::ofstream(folder_.path() / name) << "{}"; }
  void WritePair(const std::string& lengths) {
    Write(lengths + ".graph.json");
    Write(lengths + ".times.json");
  }
  void AddPoint(const std::vector<int64_t>& lengths, double weight) {
    v1::SeqPoint& point = *points_.add_seqpoints();
    for (const int64_t length : lengths) {
      point.add_lengths(length / 8);  // as the user counts them
      point.add_read_lengths(length);
    }
    point.set_weight(weight);
  }
  std::string Error() { return std::string(WeighJobRecordings(job_, points_).status().message()); }

  const TempFolder folder_;
  v1::Job job_;
  v1::GetSeqPointsReply points_;
};

TEST_F(JobRecordingsTest, EachSeqPointCountsForTheNearestRecording) {
  for (const char* lengths : {"40", "80", "400"}) WritePair(lengths);
  Write("96.graph.json");  // without times
  Write("notes.txt");
  AddPoint({40}, 10);
  AddPoint({72}, 20);
  AddPoint({80}, 40);
  AddPoint({88}, 30);
  const auto found = WeighJobRecordings(job_, points_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->job, "train@7");
  ASSERT_EQ(found->traces.size(), 2u);  // nothing of the run is near 400
  EXPECT_EQ(found->traces[0].name, "length 40");
  EXPECT_EQ(found->traces[0].weight, 10);
  EXPECT_EQ(found->traces[0].graph, folder_.path() / "40.graph.json");
  EXPECT_EQ(found->traces[0].times, folder_.path() / "40.times.json");
  EXPECT_EQ(found->traces[1].name, "length 80");
  EXPECT_EQ(found->traces[1].weight, 90);
  EXPECT_THAT(found->note, HasSubstr("SeqPoints of 50.0 % of the run were not recorded"));
}

TEST_F(JobRecordingsTest, TwoLengthsAndNone) {
  WritePair("5x30");
  WritePair("7x2");
  AddPoint({5, 28}, 1);
  AddPoint({7, 2}, 3);
  auto found = WeighJobRecordings(job_, points_);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->traces.size(), 2u);
  EXPECT_EQ(found->traces[0].name, "lengths 5, 30");
  EXPECT_EQ(found->traces[1].weight, 3);

  const TempFolder other;
  job_.set_operators_folder(other.path());
  for (const char* kind : {"graph", "times"}) {
    std::ofstream(other.path() / (std::string("iteration.") + kind + ".json")) << "{}";
  }
  points_.Clear();
  AddPoint({}, 60);
  found = WeighJobRecordings(job_, points_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->traces.at(0).name, "all lengths");
  EXPECT_EQ(found->note, "");
}

TEST_F(JobRecordingsTest, WhereThereIsNothingTheCauseIsSaid) {
  AddPoint({40}, 1);
  EXPECT_THAT(Error(), AllOf(HasSubstr(folder_.path().string() + " of node1"),
                             HasSubstr("or they are there and not here"), HasSubstr("--trace")));
  job_.set_end_ns(0);
  EXPECT_THAT(Error(), HasSubstr(" yet"));
  v1::Feature& feature = *job_.add_processes()->add_features();
  feature.set_name("operators");
  feature.set_message("no more are recorded: the program uses torch.compile");
  EXPECT_THAT(Error(), HasSubstr("uses torch.compile"));
  job_.clear_operators_folder();
  EXPECT_THAT(Error(), HasSubstr("run it with `seqpoint run --operators`"));
  job_.set_operators_folder(folder_.path());
  WritePair("40");
  points_.Clear();
  EXPECT_THAT(Error(), HasSubstr("no SeqPoints yet"));
}

}  // namespace
}  // namespace seqpoint::client
