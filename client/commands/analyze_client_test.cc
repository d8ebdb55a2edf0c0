#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/client_fixture.h"

namespace seqpoint::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ClientTest, APlaylistAndItsTimesElsewhereGiveTheRunThere) {
  StartServer();
  const std::string playlist = directory_ / "gnmt.csv", times = directory_ / "times.csv";
  Result result = Client({"playlist", "gnmt", "--points", "5"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, StartsWith("iteration,length,weight,measurements,expected_ns,noise_ns\n"
                                     "100,10,200,1,8000000,400000\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("5 measurements of 5 lengths for 1,000 iterations"),
                                HasSubstr("note: what first iterations took on top")));
  result = Client({"playlist", "gnmt", "--output", playlist});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Parts(), 0);
  EXPECT_THAT(Client({"playlist", "gnmt", "--json"}).out,
              AllOf(StartsWith("{"), HasSubstr("\"expected_duration_ns\": 1")));

  std::ofstream(times) << "length,time_ms\n10,5\n15,10\n20,16\n20,14\n25,20\n11,1\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("whole run there (1,000 iterations)  12.500 s  12.450 to 12.550 s"),
                    HasSubstr("speedup"), HasSubstr("2.0000 x"), HasSubstr("95 % INTERVAL")));
  EXPECT_THAT(result.err, HasSubstr("times.csv:7: length 11 is not in the playlist; left out"));
  EXPECT_THAT(Client({"project", "--playlist", playlist, "--measured", times, "--time", "time_ms",
                      "--time-unit", "s", "--confidence", "99%", "--json"})
                  .out,
              AllOf(HasSubstr("\"value\": 12500000000000"), HasSubstr("\"confidence\": 0.99")));
  std::ofstream(times) << "length,time_ms\n10,5\n15,nan\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("times.csv:3: \"nan\" in column time_ms"));
  std::ofstream(times) << "length,time_ms\n10,5\n";
  result = Client({"project", "--playlist", playlist, "--measured", times});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("nobody measured length 15"));
  EXPECT_EQ(Client({"playlist", "nope"}).code, 4);

  // As many measurements as a target error needs.
  result = Client({"playlist", "gnmt", "--target-error", "0.5%", "--confidence", "90%"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("8 measurements of 8 lengths for 1,000 iterations; on a run "
                        "like this one they give the total to +-0.5 % (90 % interval)"));
  EXPECT_EQ(Client({"playlist", "gnmt", "--target-error", "1%", "--points", "3"}).code, 2);
}

TEST_F(ClientTest, AnAnalysisWritesItsPointsAsAPlaylist) {
  StartServer();
  const std::string path = directory_ / "steps.csv", playlist = directory_ / "points.csv";
  std::ofstream(path) << "length,took\n5,20\n7,30\n5,20\n";
  const std::string expected =
      "iteration,length,weight,measurements,expected_ns,noise_ns\n"
      "0,5,2,1,20000000,400000\n1,7,1,1,30000000,600000\n";
  Result result =
      Client({"analyze", path, "--time", "took", "--time-unit", "ms", "--playlist", playlist});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(ReadFile(playlist), expected);
  EXPECT_THAT(result.out, HasSubstr("2 SeqPoints, 2 measurements"));
  EXPECT_THAT(result.err, HasSubstr("points.csv: 2 measurements of 2 lengths for 3 iterations; on "
                                    "a run like this one they give the total to +-1 %"));
  result = Client({"analyze", path, "--time", "took", "--time-unit", "ms", "--playlist", "-"});
  EXPECT_EQ(result.out, expected);
  result = Client({"analyze", path, "--time", "took", "--time-unit", "ms"});
  EXPECT_THAT(result.out, HasSubstr("(length), 70 ms in all"));
  EXPECT_FALSE(backend_.last_analysis().playlist());
  EXPECT_THAT(Client({"analyze", path, "--time", "took", "--json"}).out,
              Not(HasSubstr("\"playlist\"")));

  // Nothing is written where it would have no unit, nor asked where it cannot be written.
  std::filesystem::remove(playlist);
  result = Client({"analyze", path, "--time", "took", "--playlist", playlist});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("column took does not end in a unit"), HasSubstr("--time-unit")));
  EXPECT_FALSE(std::filesystem::exists(playlist));
  result = Client({"analyze", directory_ / "nope.csv", "--playlist", "/nonexistent/points.csv"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write /nonexistent/points.csv"));
}

TEST_F(ClientTest, ALogIsAnalyzed) {
  StartServer();
  const std::string path = directory_ / "steps.csv", other = directory_ / "new.csv";
  std::ofstream(path) << "epoch,length,time_ms\n1,5,20\n1,7,30\n1,x,3\n2,5,20\n2,7,30\n";
  std::ofstream(other) << "epoch,length,time_ms\n1,7,15\n1,5,10\n1,5,10\n";
  Result result = Client({"analyze", path, "--group", "epoch", "--points", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("steps.csv:4: \"x\" in column length is not a number"),
                                HasSubstr("1 row left out, 4 can be used")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("steps.csv: 4 iterations of 2 lengths (length), 100 ms"),
                                HasSubstr("2 SeqPoints, 2 measurements: the total to +-1 %"),
                                HasSubstr("     5       1x         2.0  50.0 %  20 ms  2.00 %")));
  const v1::AnalyzeRequest request = backend_.last_analysis();
  EXPECT_EQ(request.points(), 2);
  EXPECT_FALSE(request.has_against());
  EXPECT_THAT(request.log().lengths(), ::testing::ElementsAre(5, 7, 5, 7));
  EXPECT_THAT(request.log().durations(), ::testing::ElementsAre(20e6, 30e6, 20e6, 30e6));
  EXPECT_THAT(request.log().groups(), ::testing::ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(request.log().second_lengths_size(), 0);

  result = Client(
      {"analyze", path, "--against", other, "--target-error", "0.5%", "--confidence", "99%"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(99 % interval, asked for +-0.5 %)"),
                                HasSubstr("new.csv: 3 iterations"),
                                HasSubstr("speedup:    2.000 x (1.980 to 2.020)")));
  EXPECT_EQ(backend_.last_analysis().target_error(), 0.005);
  EXPECT_THAT(backend_.last_analysis().against().lengths(), ::testing::ElementsAre(7, 5, 5));

  // Fractions of both logs are in the steps of the first, though the other could do with whole
  // ones.
  std::ofstream(path) << "length,time_ms\n0.5,20\n1.7,30\n";
  std::ofstream(other) << "length,time_ms\n1.7,15\n0.5,10\n90.2,15\n";
  EXPECT_EQ(Client({"analyze", path, "--against", other}).code, 0);
  EXPECT_THAT(backend_.last_analysis().log().lengths(), ::testing::ElementsAre(50, 170));
  EXPECT_THAT(backend_.last_analysis().against().lengths(), ::testing::ElementsAre(170, 50, 9'020));
  std::ofstream(path) << "epoch,length,time_ms\n1,5,20\n1,7,30\n1,x,3\n2,5,20\n2,7,30\n";

  const std::string lengths = directory_ / "lengths.csv";
  std::ofstream(lengths) << "length\n5\n5\n7\n";
  result = Client({"analyze", path, "--lengths", lengths, "--epochs", "2"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(": 6 iterations, 150"));
}

TEST_F(ClientTest, AnAnalysisAsJsonIsTheReply) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "src,dst,took\n5,1,20\n7,2,30\n";
  const Result result = Client({"analyze", path, "--key", "src,dst", "--time", "took", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("{"), HasSubstr("\"verdict\": \"VERDICT_EXPLAINED\""),
                                HasSubstr("\"total\": 50"), HasSubstr("\"explained_share\": 0.987"),
                                HasSubstr("\"slow_iterations\": \"0\"")));
  EXPECT_THAT(backend_.last_analysis().log().second_lengths(), ::testing::ElementsAre(1, 2));
}

TEST_F(ClientTest, AnAnalyzedLogMayBeLongerThanTheOther) {
  StartServer();
  const std::string path = directory_ / "long.csv", other = directory_ / "short.csv";
  for (const auto& [name, rows] : {std::pair(path, 100'000), {other, 40'000}}) {
    std::ofstream file(name);
    file << "length,time_us\n";
    for (int i = 0; i < rows; ++i) file << i % 50 << "," << 1 + i << "\n";
  }
  for (const auto& [log, against] : {std::pair(path, other), {other, path}}) {
    const Result result = Client({"analyze", log, "--against", against});
    EXPECT_EQ(result.code, 0) << result.err;
    const v1::AnalyzeRequest request = backend_.last_analysis();
    for (const v1::IterationLog* sent : {&request.log(), &request.against()}) {
      EXPECT_EQ(sent->lengths_size(), (sent == &request.log()) == (log == path) ? 100'000 : 40'000);
      int wrong = 0;
      for (int i = 0; i < sent->lengths_size(); ++i) {
        wrong += sent->lengths(i) != i % 50 || sent->durations(i) != 1e3 * (1 + i);
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST_F(ClientTest, AnalyzeNamesAMistake) {
  StartServer();
  const std::string path = directory_ / "steps.csv";
  std::ofstream(path) << "length,time_ms\n5,20\n7,30\n";
  EXPECT_EQ(Client({"analyze", directory_ / "nope.csv"}).code, 2);
  EXPECT_EQ(Client({"analyze", path, "--points", "0"}).code, 2);
  EXPECT_EQ(Client({"analyze", path, "--points", "3", "--target-error", "1%"}).code, 2);
  Result result = Client({"analyze", path, "--key", "size"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("size"));
  const std::string other = directory_ / "other.csv";
  std::ofstream(other) << "len,time_ms\n5,20\n";
  result = Client({"analyze", path, "--against", other});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("other.csv"), HasSubstr("length")));
  backend_.SetError(absl::InvalidArgumentError("log: the backend's message"));
  result = Client({"analyze", path});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("log: the backend's message"));
  // No name can move the cursor.
  backend_.SetError(absl::OkStatus());
  std::ofstream(path) << "len\x1b[2J,time_ms\n5,20\n7,30\n";
  result = Client({"analyze", path, "--key", "len\x1b[2J"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("(len\\x1b[2J)"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace seqpoint::client
