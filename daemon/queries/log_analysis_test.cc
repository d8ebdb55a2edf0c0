#include "daemon/queries/log_analysis.h"

#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace seqpoint::queries {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Shape {
  int iterations = 800;
  int lengths = 60;
  double noise = 0.02;
  double base = 100, slope = 3;
  bool two_dimensional = false;
};

v1::IterationLog MakeLog(int seed, const Shape& shape = {}) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int64_t> length(5, 4 + shape.lengths);
  std::normal_distribution<double> normal;
  v1::IterationLog log;
  for (int i = 0; i < shape.iterations; ++i) {
    log.add_lengths(length(random));
    double time = shape.base + shape.slope * static_cast<double>(log.lengths(i));
    if (shape.two_dimensional) {
      log.add_second_lengths(length(random));
      time += 2 * shape.slope * static_cast<double>(log.second_lengths(i));
    }
    log.add_durations(time * std::exp(shape.noise * normal(random)));
  }
  return log;
}

v1::AnalyzeRequest Request(v1::IterationLog log) {
  v1::AnalyzeRequest request;
  request.set_confidence(0.95);
  *request.mutable_log() = std::move(log);
  return request;
}

// Every number in a message, however deep.
void ExpectFinite(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->type() == FieldDescriptor::TYPE_DOUBLE) {
      EXPECT_TRUE(std::isfinite(r.GetDouble(message, field))) << field->full_name();
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      if (!field->is_repeated()) {
        ExpectFinite(r.GetMessage(message, field));
        continue;
      }
      for (int i = 0; i < r.FieldSize(message, field); ++i) {
        ExpectFinite(r.GetRepeatedMessage(message, field, i));
      }
    }
  }
}

v1::AnalyzeReply Answer(const v1::AnalyzeRequest& request) {
  absl::StatusOr<v1::AnalyzeReply> reply = AnalyzeLogs(request);
  EXPECT_TRUE(reply.ok()) << reply.status();
  if (!reply.ok()) return {};
  ExpectFinite(*reply);
  for (const std::string& message : reply->messages()) {
    EXPECT_THAT(message, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
  return *std::move(reply);
}

std::string Messages(const v1::AnalyzeReply& reply) {
  return absl::StrJoin(reply.messages(), "\n");
}

TEST(AnalyzeLogsTest, AGoodLogNeedsNoMessage) {
  v1::AnalyzeRequest request = Request(MakeLog(1));
  request.set_points(12);
  const v1::AnalyzeReply reply = Answer(request);
  EXPECT_THAT(reply.messages(), IsEmpty());
  EXPECT_EQ(reply.verdict(), v1::VERDICT_EXPLAINED);
  EXPECT_GT(reply.explained_share(), 0.95);
  EXPECT_EQ(reply.iterations(), 800);
  EXPECT_EQ(reply.unique_lengths(), 60);
  EXPECT_EQ(reply.confidence(), 0.95);
  double total = 0, weights = 0;
  int measurements = 0;
  for (const double d : request.log().durations()) total += d;
  for (const v1::AnalyzedPoint& p : reply.points()) {
    EXPECT_EQ(p.lengths_size(), 1);
    EXPECT_NEAR(p.expected() / (100 + 3 * static_cast<double>(p.lengths(0))), 1, 0.03);
    EXPECT_NEAR(p.noise() / p.expected(), 0.02, 0.01);
    weights += p.weight();
    measurements += p.measurements();
  }
  EXPECT_EQ(measurements, 12);
  EXPECT_NEAR(weights, 800, 1e-6);
  EXPECT_NEAR(reply.total() / total, 1, 1e-12);
  EXPECT_LT(reply.projection().low(), total);
  EXPECT_GT(reply.projection().high(), total);
  EXPECT_EQ(reply.random_measurements(), 12);
  EXPECT_GT(reply.random().high() - reply.random().low(),
            3 * (reply.projection().high() - reply.projection().low()));
  EXPECT_GT(reply.paper_points_size(), 0);
  EXPECT_FALSE(reply.has_horizon_projection());
  EXPECT_FALSE(reply.has_speedup_all());
}

TEST(AnalyzeLogsTest, TooFew) {
  const v1::AnalyzeReply reply = Answer(Request(MakeLog(2, {.iterations = 63})));
  EXPECT_EQ(reply.verdict(), v1::VERDICT_TOO_FEW);
  EXPECT_THAT(Messages(reply), HasSubstr("63 iterations are too few"));
  EXPECT_GT(reply.points_size(), 0);
  EXPECT_THAT(Messages(Answer(Request(MakeLog(2, {.iterations = 1})))),
              AllOf(HasSubstr("1 iteration is too few"), HasSubstr("one length")));
}

TEST(AnalyzeLogsTest, NotExplainedIsSaidWithTheShare) {
  v1::AnalyzeRequest request = Request(MakeLog(3, {.noise = 0.3, .slope = 0}));
  request.set_target_error(0.02);
  const v1::AnalyzeReply reply = Answer(request);
  EXPECT_EQ(reply.verdict(), v1::VERDICT_NOT_EXPLAINED);
  EXPECT_LT(reply.explained_share(), 0.5);
  EXPECT_THAT(reply.points(), IsEmpty());
  EXPECT_FALSE(reply.has_projection());
  EXPECT_THAT(reply.messages(),
              ElementsAre(AllOf(
                  HasSubstr(absl::StrCat("(", std::round(1000 * reply.explained_share()) / 10)),
                  HasSubstr(absl::StrCat(reply.random_measurements(),
                                         " iterations drawn at "
                                         "random give the total to "
                                         "+-2.0 %")))));
}

TEST(AnalyzeLogsTest, TimeThatHardlyVaries) {
  const v1::AnalyzeReply reply = Answer(Request(MakeLog(4, {.noise = 0.01, .slope = 0})));
  EXPECT_EQ(reply.verdict(), v1::VERDICT_TIME_HARDLY_VARIES);
  EXPECT_THAT(Messages(reply), HasSubstr("time hardly varies (0.9 %)"));
  EXPECT_GT(reply.points_size(), 0);
}

TEST(AnalyzeLogsTest, Drift) {
  for (const auto& [rise, message] :
       {std::pair(0.05, "drifts by 1.4 %"), {0.5, "not stationary: consecutive parts"}}) {
    v1::IterationLog log = MakeLog(5, {.iterations = 4'000});
    for (int i = 0; i < 4'000; ++i) {
      log.set_durations(i, log.durations(i) * (1 + rise * i / 4'000));
    }
    const v1::AnalyzeReply reply = Answer(Request(log));
    EXPECT_THAT(Messages(reply), AllOf(HasSubstr(message), HasSubstr("at equal length")));
    EXPECT_GT(reply.drift_share(), 0.01);
  }
  // Lengths that say nothing, and a level that moves.
  v1::IterationLog log = MakeLog(6, {.iterations = 4'000, .noise = 0.3, .slope = 0});
  for (int i = 2'000; i < 4'000; ++i) log.set_durations(i, log.durations(i) * 1.3);
  EXPECT_THAT(Messages(Answer(Request(log))),
              AllOf(HasSubstr("not stationary: consecutive parts of the log differ by 1"),
                    Not(HasSubstr("at equal length"))));
}

TEST(AnalyzeLogsTest, SortedLengths) {
  v1::IterationLog log;
  const v1::IterationLog shuffled = MakeLog(7, {.iterations = 2'000});
  for (int64_t length = 5; length < 65; ++length) {
    for (int i = 0; i < shuffled.lengths_size(); ++i) {
      if (shuffled.lengths(i) != length) continue;
      log.add_lengths(length);
      log.add_durations(shuffled.durations(i));
    }
  }
  EXPECT_THAT(Messages(Answer(Request(log))), HasSubstr("lengths come in an order"));
}

TEST(AnalyzeLogsTest, StartUpAndStallsAreCounted) {
  v1::IterationLog log = MakeLog(8);
  for (int i = 0; i < 800; ++i) log.add_groups(i / 400);
  log.set_durations(0, 9'000);
  log.set_durations(400, 8'000);
  log.set_durations(600, 7'000);
  const v1::AnalyzeReply reply = Answer(Request(log));
  EXPECT_EQ(reply.start_up_iterations(), 2);
  EXPECT_EQ(reply.start_up_duration(), 17'000);
  EXPECT_EQ(reply.iterations(), 798);
  EXPECT_EQ(reply.slow_iterations(), 1);
  EXPECT_THAT(Messages(reply),
              HasSubstr("1 iteration took far more or less than its length does; it is in"));
}

TEST(AnalyzeLogsTest, OneLength) {
  const v1::AnalyzeReply reply = Answer(Request(MakeLog(9, {.lengths = 1, .noise = 0.01})));
  EXPECT_THAT(Messages(reply), HasSubstr("all iterations have one length"));
  EXPECT_EQ(reply.points_size(), 1);
  // All times equal.
  const v1::AnalyzeReply exact = Answer(Request(MakeLog(9, {.lengths = 1, .noise = 0})));
  EXPECT_EQ(exact.projection().low(), exact.projection().high());
}

TEST(AnalyzeLogsTest, ATargetErrorThatIsOutOfReachIsSaid) {
  v1::AnalyzeRequest request = Request(MakeLog(10, {.iterations = 70, .noise = 0.1}));
  request.set_target_error(1e-9);
  EXPECT_THAT(Messages(Answer(request)), HasSubstr("+-1e-07 % are out of reach"));
  request.set_target_error(0.06);
  const v1::AnalyzeReply reply = Answer(request);
  EXPECT_THAT(Messages(reply), Not(HasSubstr("out of reach")));
  EXPECT_LE(reply.projection().high() / reply.projection().value() - 1, 0.06);
}

// What was far below its length takes something off the total, not off what is in reach.
TEST(AnalyzeLogsTest, FastIterationsDoNotPutATargetOutOfReach) {
  for (const int seed : {1, 19}) {
    v1::IterationLog log = MakeLog(seed);
    for (int i = 50; i < 800; i += 25) log.set_durations(i, log.durations(i) / 10);
    v1::AnalyzeRequest request = Request(log);
    request.set_target_error(0.003);
    const v1::AnalyzeReply reply = Answer(request);
    ASSERT_EQ(reply.slow_iterations(), 30);
    EXPECT_THAT(Messages(reply), Not(HasSubstr("out of reach"))) << seed;
  }
}

TEST(AnalyzeLogsTest, AnotherLogGivesTheSpeedup) {
  v1::AnalyzeRequest request = Request(MakeLog(11));
  *request.mutable_against() = MakeLog(12, {.iterations = 500, .base = 50, .slope = 1.5});
  v1::AnalyzeReply reply = Answer(request);
  EXPECT_NEAR(reply.speedup().value(), 2, 0.03);
  EXPECT_NEAR(reply.speedup_all().value(), 2, 0.01);
  EXPECT_NEAR(reply.speedup_means(), 2, 0.2);
  EXPECT_EQ(reply.against_iterations(), 500);
  EXPECT_LT(reply.speedup().low(), reply.speedup().value());
  // Without SeqPoints there is still the speedup from all.
  *request.mutable_log() = MakeLog(13, {.noise = 0.3, .slope = 0});
  reply = Answer(request);
  EXPECT_FALSE(reply.has_speedup());
  EXPECT_TRUE(reply.has_speedup_all());
  for (int64_t& length : *request.mutable_against()->mutable_lengths()) length += 1'000;
  reply = Answer(request);
  EXPECT_FALSE(reply.has_speedup_all());
  EXPECT_THAT(Messages(reply), HasSubstr("no length in common"));
}

TEST(AnalyzeLogsTest, PointsThatScatterTooMuchElsewhereTellNoSpeedup) {
  v1::AnalyzeRequest request = Request(MakeLog(31));
  *request.mutable_against() = MakeLog(32, {.noise = 1.5});
  request.set_points(4);
  request.set_confidence(1 - 1e-9);
  const v1::AnalyzeReply reply = Answer(request);
  EXPECT_FALSE(reply.has_speedup());
  EXPECT_TRUE(reply.has_speedup_all());
  EXPECT_THAT(Messages(reply), HasSubstr("scatter too much to tell a speedup"));
}

TEST(AnalyzeLogsTest, BothLogsHaveAsManyDimensions) {
  v1::AnalyzeRequest request = Request(MakeLog(14));
  *request.mutable_against() = MakeLog(14, {.two_dimensional = true});
  const absl::Status status = AnalyzeLogs(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("name the columns of both with --key"));
  *request.mutable_log() = request.against();
  const v1::AnalyzeReply reply = Answer(request);
  EXPECT_NEAR(reply.speedup().value(), 1, 0.03);
  EXPECT_EQ(reply.points(0).lengths_size(), 2);
}

TEST(AnalyzeLogsTest, AHorizonIsOfTheSameDimension) {
  v1::AnalyzeRequest request = Request(MakeLog(15));
  v1::Horizon& horizon = *request.mutable_horizon();
  horizon.set_kind(v1::Horizon::KIND_HISTOGRAM);
  horizon.set_epochs(3);
  v1::LengthCount& entry = *horizon.add_histogram();
  entry.set_count(100);
  entry.add_lengths(20);
  v1::AnalyzeReply reply = Answer(request);
  EXPECT_EQ(reply.horizon_iterations(), 300);
  EXPECT_NEAR(reply.horizon_projection().value() / (300 * 160), 1, 0.01);
  entry.add_lengths(20);
  const absl::Status status = AnalyzeLogs(request).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("the lengths of the other run have 2 dimensions, those of the log have 1"),
            HasSubstr("with --length-column (the other run) as with --key (the log)")));
  // Checkpoints, whose length is told as 0.
  for (int i = 0; i < 50; ++i) request.mutable_log()->set_lengths(10 * i, 0);
  entry.clear_lengths();
  entry.add_lengths(0);
  EXPECT_THAT(std::string(AnalyzeLogs(request).status().message()),
              HasSubstr("300 of the given lengths are 0"));
  *request.mutable_log() = MakeLog(15);
  horizon.clear_histogram();
  horizon.set_kind(v1::Horizon::KIND_ITERATIONS);
  horizon.set_iterations(4'000);
  reply = Answer(request);
  EXPECT_EQ(reply.horizon_iterations(), 4'000);
  EXPECT_NEAR(reply.horizon_projection().value() / (5 * reply.total()), 1, 0.01);
}

// Answer() looks at every figure.
TEST(AnalyzeLogsTest, NoFigureIsEverNotANumber) {
  std::vector<v1::IterationLog> logs = {
      MakeLog(20, {.iterations = 1}),
      MakeLog(21, {.iterations = 2}),
      MakeLog(22, {.iterations = 7, .noise = 0}),
      MakeLog(23, {.iterations = 8, .lengths = 1, .noise = 0}),
      MakeLog(24, {.lengths = 1'000'000'000}),
      MakeLog(25, {.noise = 0}),
      MakeLog(26, {.noise = 3}),
      MakeLog(27, {.iterations = 100, .two_dimensional = true}),
  };
  for (const double unit : {1e-18, 1e15}) {
    logs.push_back(MakeLog(28));
    for (double& d : *logs.back().mutable_durations()) d *= unit;
  }
  logs.push_back(MakeLog(29));
  for (int64_t& length : *logs.back().mutable_lengths()) length = int64_t{1} << 53;
  logs.push_back(MakeLog(29));
  for (int i = 0; i < 800; ++i) logs.back().set_lengths(i, (int64_t{1} << 53) - i * i);
  logs.push_back(MakeLog(30));
  for (int64_t& length : *logs.back().mutable_lengths()) length = 0;
  for (const v1::IterationLog& log : logs) {
    for (const int points : {0, 1, 3, 1'000'000}) {
      for (const double confidence : {1e-6, 0.95, 1 - 1e-12}) {
        v1::AnalyzeRequest request = Request(log);
        *request.mutable_against() = log;
        request.set_points(points);
        request.set_confidence(confidence);
        request.mutable_horizon()->set_kind(v1::Horizon::KIND_ITERATIONS);
        request.mutable_horizon()->set_iterations(1'000);
        const v1::AnalyzeReply reply = Answer(request);
        EXPECT_NEAR(reply.speedup_all().value(), 1, 1e-6);
        EXPECT_GE(reply.projection().low(), 0);
        EXPECT_GE(reply.random().low(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace seqpoint::queries
