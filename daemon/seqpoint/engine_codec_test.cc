#include "daemon/seqpoint/engine_codec.h"

#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/engine_state.pb.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "tests/support/engine_runs.h"
#include "tests/support/estimates.h"

namespace seqpoint {
namespace {

OnlineEngine BusyEngine(int iterations, bool two_dimensional) {
  Epoch run = MakeEpoch(50, iterations, two_dimensional);
  for (size_t i = 100; i < run.times_ns.size(); i += 97) run.times_ns[i] *= 9;
  for (size_t i = 0; i < run.times_ns.size(); ++i) {
    if (run.keys[i].first == 30) run.times_ns[i] *= 2;  // lengths that the curve misses
  }
  OnlineEngine engine;
  EXPECT_TRUE(engine.SetHorizon(Horizon::Histogram(run.Histogram(), 2)).ok());
  Feed(engine, run, 0, run.keys.size());
  for (const IterationSample& sample : SumsRun(1, true).iterations) {
    if (sample.iteration % 100 != 99) continue;
    IterationSample more = sample;
    more.iteration += 50'000;
    engine.AddIteration(more);
  }
  const double values[] = {1e9, 3};
  for (size_t i = run.keys.size() / 2; i < run.keys.size(); i += 50) {
    engine.AddMeasurement(i % 2, i, run.keys[i], values).IgnoreError();
  }
  return engine;
}

class StateRunTest : public ::testing::TestWithParam<int> {};

TEST_P(StateRunTest, AParsedEngineGivesTheSameAnswers) {
  OnlineEngine engine = BusyEngine(GetParam(), GetParam() % 2 == 0);
  const PlanOptions options{.sets = {0, 1}};
  engine.MakePlan(options);
  auto parsed = ParseEngine(SerializeEngine(engine));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SerializeEngine(*parsed), SerializeEngine(engine));

  // And goes on alike.
  const Epoch more = MakeEpoch(51, 700, GetParam() % 2 == 0);
  for (OnlineEngine* e : {&engine, &*parsed}) {
    for (size_t i = 0; i < more.keys.size(); ++i) {
      e->AddIteration({.iteration = 100'000 + i, .key = more.keys[i], .time_ns = more.times_ns[i]});
    }
  }
  const Projection a = engine.ProjectTime(0.95), b = parsed->ProjectTime(0.95);
  EXPECT_TRUE(Equal(*a.so_far, *b.so_far));
  EXPECT_TRUE(Equal(a.remaining, b.remaining));
  EXPECT_EQ(a.basis, b.basis);
  const Plan plan_a = engine.MakePlan(options), plan_b = parsed->MakePlan(options);
  ASSERT_EQ(plan_a.entries.size(), plan_b.entries.size());
  for (size_t i = 0; i < plan_a.entries.size(); ++i) {
    EXPECT_EQ(plan_a.entries[i].id, plan_b.entries[i].id);
  }
  if (engine.Totals().measurements_used > 0) {
    const auto x = engine.ProjectStatistic(0, 1, 0.9), y = parsed->ProjectStatistic(0, 1, 0.9);
    ASSERT_EQ(x.ok(), y.ok());
    EXPECT_TRUE(x.ok() && Equal(*x->total, *y->total));
  }
  EXPECT_EQ(SerializeEngine(*parsed), SerializeEngine(engine));
}

INSTANTIATE_TEST_SUITE_P(Iterations, StateRunTest, ::testing::Values(0, 1, 20, 101, 1000, 5001));

TEST(StateTest, TruncatedAndExtended) {
  const std::string bytes = SerializeEngine(BusyEngine(300, true));
  for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 500) {
    EXPECT_FALSE(ParseEngine(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(ParseEngine(bytes + "x").ok());
  EXPECT_FALSE(ParseEngine("nonsense").ok());
}

// ---- every field of the messages

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Sets every field, lists included, to values that an engine can have: decreasing ones, so that a
// part of a whole (which comes later) is never larger than the whole.
class Filler {
 public:
  void Fill(Message* message) {
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message->GetDescriptor()->field(i);
      for (int n = SizeOf(*field); n > 0; --n) FillOne(message, field);
    }
  }

 private:
  static int SizeOf(const FieldDescriptor& field) {
    const std::string& name = field.name();
    if (name == "lists") return kLengthLists;
    if (name == "terms" || name == "coefficients") return kTerms;
    if (name == "centre" || name == "unit" || name == "benefit") return 2;
    return 1;
  }
  void FillOne(Message* message, const FieldDescriptor* field) {
    const Reflection* r = message->GetReflection();
    const bool list = field->is_repeated();
    const bool small = field->name() == "kind" || field->name() == "stratum";
    const int number = small ? 1 : 1'000'000 - ++filled_;
    const double real = 2 - 1e-4 * ++filled_;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(list ? r->AddMessage(message, field) : r->MutableMessage(message, field));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return list ? r->AddDouble(message, field, real) : r->SetDouble(message, field, real);
      case FieldDescriptor::CPPTYPE_UINT64:
        return list ? r->AddUInt64(message, field, number) : r->SetUInt64(message, field, number);
      case FieldDescriptor::CPPTYPE_INT64:
        return list ? r->AddInt64(message, field, number) : r->SetInt64(message, field, number);
      case FieldDescriptor::CPPTYPE_UINT32:
        return r->SetUInt32(message, field, number);
      case FieldDescriptor::CPPTYPE_INT32:
        return r->SetInt32(message, field, number);
      case FieldDescriptor::CPPTYPE_BOOL:
        return r->SetBool(message, field, true);
      default:
        FAIL() << field->full_name();
    }
  }

  int filled_ = 0;
};

TEST(EngineCodecTest, EveryFieldOfTheStateIsStored) {
  engine::EngineState message;
  Filler().Fill(&message);
  const absl::StatusOr<OnlineEngine> parsed = ParseEngine(message.SerializeAsString());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  engine::EngineState stored;
  ASSERT_TRUE(stored.ParseFromString(SerializeEngine(*parsed)));
  EXPECT_EQ(stored.DebugString(), message.DebugString());
}

TEST(EngineCodecTest, EveryFieldOfACallIsStored) {
  engine::CallLog log;
  Filler filler;
  filler.Fill(log.add_calls()->mutable_iteration());
  filler.Fill(log.add_calls()->mutable_stretch());
  filler.Fill(log.add_calls()->mutable_measurement());
  filler.Fill(log.add_calls()->mutable_horizon());
  filler.Fill(log.add_calls()->mutable_plan());
  OnlineEngine engine;
  engine.KeepCalls();
  ASSERT_TRUE(ReplayCalls(log.SerializeAsString(), engine).ok());
  engine::CallLog noted;
  ASSERT_TRUE(noted.ParseFromString(SerializeCalls(engine.TakeCalls())));
  EXPECT_EQ(noted.DebugString(), log.DebugString());
}

// Sets one number somewhere to anything.
void Spoil(Message* message, std::mt19937_64& random) {
  const Reflection* r = message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r->ListFields(*message, &fields);
  if (fields.empty()) return;
  const FieldDescriptor* field = fields[random() % fields.size()];
  const bool list = field->is_repeated();
  const int at = list ? static_cast<int>(random() % r->FieldSize(*message, field)) : 0;
  const double reals[] = {NAN, INFINITY, -1, 0, 1e-300, 1e99, 1e101};
  const double real = reals[random() % std::size(reals)];
  const uint64_t word =
      random() % 4 == 0 ? uint64_t{1} << random() % 64 : random() >> random() % 64;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Spoil(
          list ? r->MutableRepeatedMessage(message, field, at) : r->MutableMessage(message, field),
          random);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r->SetRepeatedDouble(message, field, at, real)
                  : r->SetDouble(message, field, real);
    case FieldDescriptor::CPPTYPE_UINT64:
      return list ? r->SetRepeatedUInt64(message, field, at, word)
                  : r->SetUInt64(message, field, word);
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? r->SetRepeatedInt64(message, field, at, static_cast<int64_t>(word))
                  : r->SetInt64(message, field, static_cast<int64_t>(word));
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->SetUInt32(message, field, static_cast<uint32_t>(word));
    case FieldDescriptor::CPPTYPE_INT32:
      return r->SetInt32(message, field, static_cast<int32_t>(word));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->SetBool(message, field, word % 2 == 0);
    default:
      FAIL() << field->full_name();
  }
}

// Whatever the numbers and the bytes are: refused, or an engine that answers.
TEST(StateTest, HostileBytes) {
  OnlineEngine busy = BusyEngine(400, true);
  busy.MakePlan({.sets = {0, 1}});
  const std::string bytes = SerializeEngine(busy);
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::string damaged = bytes;
    if (trial % 3 == 0) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    } else {
      engine::EngineState message;
      ASSERT_TRUE(message.ParseFromString(bytes));
      for (uint64_t spoilt = 1 + random() % 3; spoilt > 0; --spoilt) Spoil(&message, random);
      damaged = message.SerializeAsString();
    }
    auto engine = ParseEngine(damaged);
    if (!engine.ok()) continue;
    ++accepted;
    engine->AddIteration({.iteration = 1, .key = {12, 13}, .time_ns = 1000});
    if (trial % 5 != 0) continue;
    engine->ProjectTime(0.95);
    engine->ProjectStatistic(0, 0, 0.95).IgnoreError();
    engine->MakePlan({.sets = {0, 1}});
    engine->SeqPoints({.sets = {0, 1}});
  }
  EXPECT_GT(accepted, 33);
  EXPECT_LT(accepted, 467);
}

// A run with everything that changes an engine, some of it refused.
class LoggedRun {
 public:
  void Step(OnlineEngine& engine) {
    const int64_t length = 1 + static_cast<int64_t>(random_() % 50);
    const Key key = {length, random_() % 8 == 0 ? 3 : 0};
    const bool slow = random_() % 100 == 0;
    IterationSample sample{.iteration = iteration_,
                           .key = key,
                           .time_ns = static_cast<int64_t>(
                               (1e6 + 1e5 * static_cast<double>(length)) * (slow           ? 9
                                                                            : length == 20 ? 2
                                                                                           : 1) +
                               static_cast<double>(random_() % 20'000)),
                           .distorted = random_() % 40 == 0,
                           .measured = random_() % 30 == 0,
                           .redone = random_() % 60 == 0,
                           .cold = random_() % 50 == 0,
                           .combined = random_() % 70 == 0};
    for (uint64_t i = random_() % 5; sample.combined && i > 0; --i) {
      sample.micro_batches.push_back({{length - static_cast<int64_t>(random_() % 9), 3},
                                      static_cast<MicroBatch::Kind>(random_() % 3)});
    }
    if (random_() % 90 == 0) sample.phase = Phase::kOther;
    if (random_() % 80 == 0) sample.time_ns = -5;
    if (random_() % 80 == 0) sample.key.first = -length;
    engine.AddIteration(sample);
    if (sample.measured) {
      std::vector<double> values(1 + random_() % 4, 1e3 * static_cast<double>(length));
      if (random_() % 5 == 0) values[0] = NAN;
      if (random_() % 9 == 0) values.resize(kMaxValues + 7);
      engine.AddMeasurement(1 + random_() % 2, iteration_, sample.key, values).IgnoreError();
    }
    if (random_() % 100 == 0) {
      std::vector<KeyCount> histogram;
      for (int64_t k = 50; k >= 1; --k) histogram.push_back({{k}, 1 + k % 7});
      engine.SetHorizon(Horizon::Distribution(histogram, 20)).IgnoreError();
      engine.SetHorizon(Horizon::Iterations(-1)).IgnoreError();
    }
    if (random_() % 10 == 0) engine.MakePlan({.budget = 16, .sets = {1, 2}});
    ++iteration_;
  }

 private:
  std::mt19937 random_{5};
  uint64_t iteration_ = 0;
};

TEST(CallLogTest, ItsStateAndTheLogSinceAreTheSameEngine) {
  OnlineEngine engine;
  engine.KeepCalls();
  LoggedRun run;
  std::string base = SerializeEngine(engine), log;
  for (int i = 0; i < 3000; ++i) {
    run.Step(engine);
    if (i % 7 == 0) log += SerializeCalls(engine.TakeCalls());
    if (i % 500 == 250) {
      SerializeCalls(engine.TakeCalls());  // is in the base
      base = SerializeEngine(engine);
      log.clear();
    }
    if (i % 100 != 99) continue;
    log += SerializeCalls(engine.TakeCalls());
    absl::StatusOr<OnlineEngine> copy = ParseEngine(base);
    ASSERT_TRUE(copy.ok());
    ASSERT_TRUE(ReplayCalls(log, *copy).ok());
    ASSERT_EQ(SerializeEngine(*copy), SerializeEngine(engine)) << i;
    if (i % 200 == 99) {  // a restart
      engine = *std::move(copy);
      engine.KeepCalls();
    }
  }
  EXPECT_EQ(SerializeCalls(engine.TakeCalls()), "");
  // The time of all that, with a length that the curve misses.
  EXPECT_NEAR(OrdinaryTime(engine, {20}), 6e6, 1e5);
}

TEST(CallLogTest, IsAsThePageSays) {
  OnlineEngine engine;
  engine.KeepCalls();
  engine.AddIteration({.iteration = 7, .key = {37}, .time_ns = 41'000'000});
  EXPECT_EQ(SerializeCalls(engine.TakeCalls()),
            "\x0a\x0b\x0a\x09\x08\x07\x10\x25\x20\xc0\xb8\xc6\x13");
}

TEST(CallLogTest, ADamagedLogIsRefused) {
  OnlineEngine engine;
  engine.KeepCalls();
  LoggedRun run;
  for (int i = 0; i < 300; ++i) run.Step(engine);
  const std::string log = SerializeCalls(engine.TakeCalls());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = log.substr(0, random() % log.size());
    for (int k = 0; k < 3 && !damaged.empty(); ++k) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    OnlineEngine other;
    refused += !ReplayCalls(damaged, other).ok();
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace seqpoint
