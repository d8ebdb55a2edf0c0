// The judge judges rightly what is known beforehand.
#include <fstream>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "simdjson.h"
#include "tests/accuracy/data_set.h"
#include "tests/accuracy/picture.h"
#include "tests/accuracy/protocols.h"
#include "tests/support/temp_folder.h"

namespace seqpoint::accuracy {
namespace {

using ::testing::HasSubstr;

constexpr double kNoise = 0.02;

// Times follow lengths, or do not.
DataSet MakeLog(bool explained) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int64_t> length(10, 49);
  std::normal_distribution<double> normal;
  RunLog run;
  for (int i = 0; i < 4000; ++i) {
    const int64_t l = length(random);
    const double cost = explained ? 50 + 3.0 * static_cast<double>(l) : 140;
    run.keys.push_back({l});
    run.times.push_back(cost * std::exp((explained ? kNoise : 0.2) * normal(random)));
    run.groups.push_back(i / 500);
  }
  return MakeDataSet("log", run);
}

const Result& Find(const std::vector<Result>& results, const std::string& method, int m) {
  static const Result none;
  for (const Result& r : results) {
    if (r.method == method && (m == 0 || r.m == m)) return r;
  }
  ADD_FAILURE() << method << " " << m;
  return none;
}

TEST(JudgeTest, AnUnbiasedEstimatorIsAtTheFloor) {
  const DataSet data = MakeLog(true);
  EXPECT_NEAR(data.noise, kNoise, 0.1 * kNoise);
  const std::vector<Result> results = JudgeSampled(data, {50});
  for (int m : {16, 64}) {
    const Result& ours = Find(results, "ours", m);
    // 0.8 for equal allocation; the noise is in proportion to time, so a little less is possible.
    EXPECT_GT(ours.mean_error / ours.noise_floor, 0.65) << m;
    EXPECT_LT(ours.mean_error / ours.noise_floor, 0.9) << m;
    EXPECT_NEAR(ours.coverage, 0.95, 0.04) << m;
    // One standard deviation of times is 0.25 of their mean: 12 times the noise.
    EXPECT_GT(Find(results, "random", m).mean_error, 5 * ours.mean_error) << m;
    // The longest length stands for all: its time over the mean.
    EXPECT_NEAR(Find(results, "worst", m).mean_error, (50 + 3.0 * 49) / (50 + 3 * 29.5) - 1, 0.02);
  }
}

TEST(JudgeTest, TheSpeedupOfAMachineTwiceAsFastIsTwo) {
  const DataSet base = MakeLog(true);
  RunLog fast = base.run;
  for (double& t : fast.times) t /= 2;
  const std::vector<Result> results = JudgeSpeedup(base, MakeDataSet("fast", fast), {20});
  EXPECT_LT(Find(results, "ours", 64).mean_error, 0.005);
  EXPECT_EQ(Find(results, "ours", 64).file, "log -> fast");
}

TEST(JudgeTest, LogsWithFractionalLengthsAreComparedAtEqualLengths) {
  const TempFolder folder;
  const auto write = [&](const char* name, double factor, bool with_a_long_one) {
    std::ofstream file(folder.path() / name);
    file << "length,time_ms\n";
    for (int i = 0; i < 2'000; ++i) {
      const double length = 1 + 0.1 * (i % 10);
      file << length << "," << factor * (10 + 20 * length) * (1 + 0.001 * (i % 7)) << "\n";
    }
    // Whole numbers are enough for it, for itself.
    if (with_a_long_one) file << "40.5," << factor * 820 << "\n";
  };
  write("base.csv", 1, false);
  write("target.csv", 0.5, true);
  const auto base = ReadDataSet({.path = folder.path() / "base.csv"});
  ASSERT_TRUE(base.ok()) << base.status();
  const auto alone = ReadDataSet({.path = folder.path() / "target.csv"});
  EXPECT_EQ(alone->length_step[0], 1);
  const auto target = ReadDataSet({.path = folder.path() / "target.csv"}, &*base);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->length_step, base->length_step);
  EXPECT_LT(target->log.size(), 2 * base->log.size());
  const std::vector<Result> results = JudgeSpeedup(*base, *target, {20});
  EXPECT_LT(Find(results, "ours", 64).mean_error, 0.01);
}

TEST(JudgeTest, TheLengthColumnOfExamplesIsTheOneThatIsNamed) {
  const TempFolder folder;
  const std::string path = folder.path() / "train.csv";
  std::ofstream file(path);
  file << "len_a,len_b\n";
  for (int i = 0; i < 640; ++i) file << 10 + i % 50 << "," << 200 << "\n";
  file.close();
  const auto made =
      MadeFromLengths({.path = path, .key_columns = {"len_b"}}, workload::Order::kShuffle);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->log.size(), 1u);
  EXPECT_EQ(made->log[0].key, (Key{200, 0}));
}

TEST(JudgeTest, RefusesWhatLengthsDoNotExplain) {
  for (const Result& r : JudgeExplained(MakeLog(false), {20})) {
    EXPECT_EQ(r.refused, 1) << r.m;
    EXPECT_LT(r.explained, 0.1) << r.m;
  }
  for (const Result& r : JudgeExplained(MakeLog(true), {20})) EXPECT_EQ(r.refused, 0) << r.m;
}

TEST(JudgeTest, MeasurementsAreThoseOfTheLengthAndNoneComesTwiceBeforeAllCame) {
  const DataSet data = MakeLog(true);
  Draws draws(data, 7);
  const int entry = 3;
  std::multiset<double> drawn, logged;
  for (int i : data.of_key[entry]) logged.insert(data.run.times[i]);
  for (size_t i = 0; i < logged.size(); ++i) drawn.insert(draws.Mean(entry, 1));
  EXPECT_EQ(drawn, logged);
}

TEST(JudgeTest, JsonHasAllFieldsAndNoNumberThatIsNone) {
  const DataSet data = MakeLog(true);
  std::vector<Result> results = JudgeSampled(data, {5});
  for (const auto& more : {JudgePaper(data, {5}), JudgeOnline(data, {5}, "shuffled"),
                           JudgeOnline(data, {5}, "real"), JudgeExplained(data, {5})}) {
    results.insert(results.end(), more.begin(), more.end());
  }
  results[0].note = "a \"quoted\" \\ note\n";
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  ASSERT_EQ(parser.parse(ToJson(results)).get(list), simdjson::SUCCESS);
  EXPECT_EQ(list.size(), results.size());
  for (simdjson::dom::element line : list) {
    for (const char* field : {"file", "protocol", "method", "m", "fraction", "order", "lengths",
                              "mean_error", "p95_error", "noise_floor", "coverage", "width_ratio",
                              "unique_keys", "iterations", "explained", "verdict"}) {
      simdjson::dom::element value;
      EXPECT_EQ(line[field].get(value), simdjson::SUCCESS) << field;
    }
  }
  EXPECT_THAT(ToTables(results), HasSubstr("| log, 16 |"));
  EXPECT_THAT(ErrorPicture(results), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace seqpoint::accuracy
