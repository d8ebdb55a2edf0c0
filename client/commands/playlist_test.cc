#include "client/commands/playlist.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class PlaylistTest : public ::testing::Test {
 protected:
  PlaylistTest() {}

  std::string File(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    return directory_ / name;
  }

  static v1::GetPlaylistReply Sample(int dimensions) {
    v1::GetPlaylistReply reply;
    for (int i = 0; i < 3; ++i) {
      v1::PlaylistPoint& point = *reply.add_points();
      for (int d = 0; d < dimensions; ++d) point.add_lengths(10 + 5 * i + 7 * d * (2 - i));
      point.set_iteration(i == 1 ? -1 : 100 - i);
      point.set_weight(1000.0 / 3);
      point.set_measurements(i + 1);
      point.set_expected_duration_ns(1e6 * (i + 1) + 1 / 7.0);
      point.set_noise_duration_ns(i * 1e4 / 3);
      if (dimensions == 0) break;
    }
    reply.set_iterations(1'000);
    return reply;
  }

  std::string Playlist(int dimensions = 1) {
    return File("playlist.csv", PlaylistCsv(Sample(dimensions)));
  }

  absl::StatusOr<v1::ProjectPlaylistRequest> Measured(const std::string& text,
                                                      MeasuredOptions options = {},
                                                      int dimensions = 1) {
    auto request = ReadPlaylist(Playlist(dimensions));
    if (!request.ok()) return request.status();
    options.path = File("times.csv", text);
    const auto notes = ReadMeasured(options, &*request);
    if (!notes.ok()) return notes.status();
    notes_ = *notes;
    return request;
  }
  static std::vector<double> Durations(const absl::StatusOr<v1::ProjectPlaylistRequest>& request) {
    EXPECT_TRUE(request.ok()) << request.status();
    if (!request.ok()) return {};
    return {request->durations_ns().begin(), request->durations_ns().end()};
  }

  const TempFolder folder_;
  const std::filesystem::path& directory_ = folder_.path();
  std::string notes_;
};

TEST_F(PlaylistTest, WhatIsWrittenIsReadAgainBitForBit) {
  for (const int dimensions : {0, 1, 2}) {
    const v1::GetPlaylistReply reply = Sample(dimensions);
    const auto request = ReadPlaylist(Playlist(dimensions));
    ASSERT_TRUE(request.ok()) << request.status();
    ASSERT_EQ(request->points_size(), reply.points_size());
    for (int i = 0; i < reply.points_size(); ++i) {
      EXPECT_EQ(request->points(i).SerializeAsString(), reply.points(i).SerializeAsString());
    }
  }
  EXPECT_THAT(
      PlaylistCsv(Sample(2)),
      testing::StartsWith(
          "iteration,length,length_2,weight,measurements,expected_ns,noise_ns\n100,10,24,"));
}

TEST_F(PlaylistTest, ColumnsAreFoundByTheirNamesAndOthersMayStandBesideThem) {
  const auto request = ReadPlaylist(File(
      "p.csv", "note,noise_ns,expected_ns,measurements,weight,length\n\"a, b\",0,5,1,2.5,7\n"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->points(0).lengths(), ElementsAre(7));
  EXPECT_EQ(request->points(0).iteration(), -1);
  EXPECT_EQ(request->points(0).weight(), 2.5);
}

TEST_F(PlaylistTest, ABadPlaylistIsNamedWithLineAndValue) {
  const std::string header = "iteration,length,weight,measurements,expected_ns,noise_ns\n";
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", "it is empty"},
           {header, "there is a header, but no row below it"},
           {"iteration,length,weight\n1,2,3\n", "no column \"measurements\"; there are iteration"},
           {"weight,measurements,expected_ns,noise_ns\n1,1,1,1\n", "no column \"length\""},
           {"iteration,length_2,weight,measurements,expected_ns,noise_ns\n1,1,1,1,1,1\n",
            "no column \"length\""},
           {header + "1,2,abc,1,5,1\n", ":2: \"abc\" in column weight is not a positive number"},
           {header + "1,2,nan,1,5,1\n", ":2: \"nan\" in column weight"},
           {header + "1,2,inf,1,5,1\n", ":2: \"inf\" in column weight"},
           {header + "1,2,0,1,5,1\n", ":2: \"0\" in column weight"},
           {header + "1,2,1,0,5,1\n", ":2: \"0\" in column measurements is not a positive whole"},
           {header + "1,2,1,1.5,5,1\n", ":2: \"1.5\" in column measurements"},
           {header + "1,2,1,1,-5,1\n", ":2: \"-5\" in column expected_ns"},
           {header + "1,2,1,1,5,-1\n", ":2: \"-1\" in column noise_ns is not a number from 0"},
           {header + "1,2.5,1,1,5,1\n", ":2: \"2.5\" in column length is not a whole number"},
           {header + "1,,1,1,5,1\n", ":2: \"\" in column length"},
           {header + "-1,2,1,1,5,1\n", ":2: \"-1\" in column iteration"},
           {header + "1,2,1,1\n", ":2: \"1,2,1,1\" has 4 of 6 columns"},
           {header + "1,2,1,1,5,1\n\n7,2,1,1,5,1\n", ":4: length 2 is in line 2 already"}}) {
    const auto request = ReadPlaylist(File("bad.csv", text));
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(expected)) << text;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr("bad.csv")) << text;
  }
}

TEST_F(PlaylistTest, TheMeanOfSeveralRowsIsTakenWhateverTheirOrder) {
  const auto request = Measured("time_ms,length\n4,20\n1.5,10\n2,15\n4.5,20\n5,20\n");
  EXPECT_THAT(Durations(request), ElementsAre(1.5e6, 2e6, 4.5e6));
  EXPECT_THAT(request->measured(), ElementsAre(1, 1, 3));
  EXPECT_EQ(notes_, "");
}

TEST_F(PlaylistTest, RowsAreMatchedByTwoLengthsOrByTheIteration) {
  EXPECT_THAT(
      Durations(Measured("length_2,length,duration_us\n24,10,7\n22,15,8\n20,20.0,9\n", {}, 2)),
      ElementsAre(7e3, 8e3, 9e3));
  // One of two lengths does not do.
  const auto by_iteration = Measured("length,iteration,t_s\n10,100,1\n99,98,2\n", {}, 2);
  EXPECT_THAT(Durations(by_iteration), ElementsAre(1e9, 0, 2e9));
  EXPECT_THAT(by_iteration->measured(), ElementsAre(1, 0, 1));
  EXPECT_THAT(Durations(Measured("iteration,time_ns\n100,12\n", {}, 0)), ElementsAre(12));
}

TEST_F(PlaylistTest, TheTimesColumnAndUnitAreNamedOrFound) {
  // Times added to the playlist itself.
  const std::string playlist = PlaylistCsv(Sample(1));
  std::string text;
  int row = 0;
  for (const char c : playlist) {
    if (c == '\n') text += row++ == 0 ? ",time_ms" : absl::StrCat(",", row);
    text += c;
  }
  EXPECT_THAT(Durations(Measured(text)), ElementsAre(2e6, 3e6, 4e6));
  EXPECT_THAT(Durations(Measured("length,a_s,b_ms\n10,1,2\n", {.time_column = "b_ms"})),
              ElementsAre(2e6, 0, 0));
  EXPECT_THAT(Durations(Measured("length,t\n10,3\n", {.time_column = "t", .time_unit = "us"})),
              ElementsAre(3e3, 0, 0));
  // What is said outweighs the name.
  EXPECT_THAT(Durations(Measured("length,t_ns\n10,3\n", {.time_unit = "ms"})),
              ElementsAre(3e6, 0, 0));
}

TEST_F(PlaylistTest, RowsOfNoPointAreNamedAndLeftOut) {
  const auto request = Measured("length,time_ns\n10,1\n11,1\n15,2\n20,3\n12,1\n");
  EXPECT_THAT(Durations(request), ElementsAre(1, 2, 3));
  EXPECT_THAT(notes_, AllOf(HasSubstr("times.csv:3: length 11 is not in the playlist; left out"),
                            HasSubstr("times.csv:6: length 12")));
}

TEST_F(PlaylistTest, BadTimesAreNamedWithLineAndValue) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"length,time_ns\n", "there is a header, but no row below it"},
           {"size,time_ns\n10,1\n", "no column says which point a row belongs to"},
           {"length,time\n10,1\n", "no column's name ends in _ns, _us, _ms or _s; name the times"},
           {"length,a_ms,b_ms\n10,1,1\n", "several columns' names end in a unit"},
           {"length,time_ns\n10,1\n15,abc\n", "times.csv:3: \"abc\" in column time_ns"},
           {"length,time_ns\n10,nan\n", "times.csv:2: \"nan\" in column time_ns"},
           {"length,time_ns\n10,0\n", "times.csv:2: \"0\" in column time_ns"},
           {"length,time_ns\n10,-3\n", "times.csv:2: \"-3\" in column time_ns"},
           {"length,time_ns\n10,\n", "times.csv:2: \"\" in column time_ns"},
           {"length,time_ns\n10\n", "times.csv:2: \"10\" has 1 of 2 columns"},
           {"length,time_ns\nten,1\n", "times.csv:2: \"ten\" in column length"},
           {"length,time_ns\n77,1\n78,1\n", "no row belongs to a point of the playlist"}}) {
    const auto request = Measured(text);
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(expected)) << text;
  }
  EXPECT_THAT(std::string(Measured("length,t\n10,1\n", {.time_column = "t"}).status().message()),
              HasSubstr("\"t\" does not say its unit; give --time-unit"));
  EXPECT_THAT(std::string(Measured("length,t\n10,1\n", {.time_column = "x"}).status().message()),
              HasSubstr("no column \"x\"; there are length, t"));
}

TEST_F(PlaylistTest, TheProjectionHasTheSpeedupWhereThereIsOne) {
  v1::ProjectPlaylistReply reply;
  v1::Projection& projection = *reply.mutable_projection();
  projection.set_metric("time");
  projection.set_unit("ns");
  projection.set_confidence(0.95);
  projection.set_iterations_total(1'000);
  projection.mutable_total()->set_value(20e9);
  projection.mutable_total()->set_low(19.9e9);
  projection.mutable_total()->set_high(20.1e9);
  projection.set_basis("3 points");
  EXPECT_THAT(PlaylistProjectionText(reply),
              AllOf(HasSubstr("95 % INTERVAL"), HasSubstr("whole run there (1,000 iterations)"),
                    HasSubstr("19.90 to 20.10 s"), HasSubstr("basis: 3 points\n"),
                    Not(HasSubstr("speedup"))));
  reply.mutable_speedup()->set_value(1.5);
  reply.mutable_speedup()->set_low(1.4925);
  reply.mutable_speedup()->set_high(1.5075);
  EXPECT_THAT(PlaylistProjectionText(reply),
              AllOf(HasSubstr("1.4925 to 1.5075 x"), Not(HasSubstr("no width"))));
}

TEST_F(PlaylistTest, TimesInOneProportionPromiseNothing) {
  v1::ProjectPlaylistReply reply;
  v1::Projection& projection = *reply.mutable_projection();
  for (v1::Estimate* e : {projection.mutable_total(), projection.mutable_per_1000_iterations(),
                          reply.mutable_speedup()}) {
    e->set_value(2);
    e->set_low(2 * (1 - 1e-14));  // rounding
    e->set_high(2 * (1 + 1e-14));
  }
  EXPECT_THAT(
      PlaylistProjectionText(reply),
      AllOf(HasSubstr("no width"), Not(HasSubstr("exact")),
            HasSubstr("all measured times are in one proportion"), HasSubstr("no promise")));
}

}  // namespace
}  // namespace seqpoint::client
