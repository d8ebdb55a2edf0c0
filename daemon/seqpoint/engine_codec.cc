#include "daemon/seqpoint/engine_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/engine_state.pb.h"
#include "google/protobuf/arena.h"

namespace seqpoint {
namespace {

using google::protobuf::RepeatedField;
using google::protobuf::RepeatedPtrField;

bool IsTime(double ns) { return ns >= 1 && ns <= static_cast<double>(kMaxTimeNs); }

// Visit(io, value, message) describes both directions once: a Writer copies the value into the
// message, a Reader copies the message into the value and notes whether an engine can have it.
class Writer {
 public:
  static constexpr bool kReads = false;

  template <typename T, typename Set>
  void Number(const T& value, T, Set set) {
    set(value);
  }
  template <typename T, typename Message>
  void Part(T& value, Message* message) {
    Visit(*this, value, message);
  }
  template <typename List, typename Number>
  void Part(List& list, RepeatedField<Number>* field) {
    field->Add(list.begin(), list.end());
    if constexpr (std::is_integral_v<Number>) std::sort(field->begin(), field->end());
  }
  template <typename T, typename Message>
  void Part(std::vector<T>& list, RepeatedPtrField<Message>* field) {
    field->Reserve(static_cast<int>(list.size()));
    for (T& element : list) Visit(*this, element, field->Add());
  }
  // In the order of keys: hash maps have one of their own.
  template <typename K, typename V, typename Message>
  void Part(absl::flat_hash_map<K, V>& map, RepeatedPtrField<Message>* field) {
    std::vector<std::pair<K, V>> list = InOrder(map);
    Part(list, field);
  }
  template <typename V>
  void Counts(const absl::flat_hash_map<int64_t, V>& map, RepeatedField<int64_t>* keys,
              RepeatedField<V>* values) {
    for (const auto& [key, value] : InOrder(map)) {
      keys->Add(key);
      values->Add(value);
    }
  }
  void Require(bool) {}

 private:
  template <typename K, typename V>
  static std::vector<std::pair<K, V>> InOrder(const absl::flat_hash_map<K, V>& map) {
    std::vector<std::pair<K, V>> list(map.begin(), map.end());
    std::sort(list.begin(), list.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return list;
  }
};

class Reader {
 public:
  static constexpr bool kReads = true;

  // `any`: numbers are as they were stored, not only those that an engine can have.
  explicit Reader(bool any = false) : any_(any) {}

  template <typename T, typename Set>
  void Number(T& value, T stored, Set) {
    // Far from overflow, and lengths, counts and times are not negative.
    if constexpr (std::is_same_v<T, double>) Require(any_ || std::abs(stored) <= kMaxMagnitude);
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) Require(any_ || stored >= 0);
    value = stored;
  }
  template <typename T, typename Message>
  void Part(T& value, Message* message) {
    Visit(*this, value, message);
  }
  void Part(std::vector<double>& list, RepeatedField<double>* field) {
    list.assign(field->begin(), field->end());
    RequireNumbers(list);
  }
  template <size_t kSize>
  void Part(std::array<double, kSize>& list, RepeatedField<double>* field) {
    Require(field->size() == static_cast<int>(kSize));
    if (ok_) std::copy(field->begin(), field->end(), list.begin());
    RequireNumbers(list);
  }
  void Part(absl::flat_hash_set<uint64_t>& set, RepeatedField<uint64_t>* field) {
    set.insert(field->begin(), field->end());
  }
  template <typename T, typename Message>
  void Part(std::vector<T>& list, RepeatedPtrField<Message>* field) {
    list.resize(field->size());
    for (size_t i = 0; ok_ && i < list.size(); ++i) {
      Visit(*this, list[i], field->Mutable(static_cast<int>(i)));
    }
  }
  template <typename K, typename V, typename Message>
  void Part(absl::flat_hash_map<K, V>& map, RepeatedPtrField<Message>* field) {
    std::vector<std::pair<K, V>> list;
    Part(list, field);
    map.reserve(list.size());
    map.insert(list.begin(), list.end());
    Require(map.size() == list.size());
  }
  template <typename V>
  void Counts(absl::flat_hash_map<int64_t, V>& map, const RepeatedField<int64_t>* keys,
              const RepeatedField<V>* values) {
    Require(keys->size() == values->size() && static_cast<size_t>(keys->size()) <= kMaxKeys);
    for (int i = 0; ok_ && i < keys->size(); ++i) {
      Require(keys->Get(i) >= 0);
      map[keys->Get(i)] = values->Get(i);
    }
  }
  void Require(bool holds) { ok_ = ok_ && holds; }
  bool ok() const { return ok_; }

 private:
  template <typename List>
  void RequireNumbers(const List& list) {
    for (const double number : list) Require(any_ || std::abs(number) <= kMaxMagnitude);
  }

  const bool any_;
  bool ok_ = true;
};

// MACRO(name) for each of up to 27 names: every scan of the preprocessor expands one more.
#define SEQPOINT_EACH(MACRO, ...) __VA_OPT__(SEQPOINT_SCAN(SEQPOINT_NEXT(MACRO, __VA_ARGS__)))
#define SEQPOINT_NEXT(MACRO, name, ...) \
  MACRO(name);                          \
  __VA_OPT__(SEQPOINT_AGAIN SEQPOINT_PARENTHESES(MACRO, __VA_ARGS__))
#define SEQPOINT_AGAIN() SEQPOINT_NEXT
#define SEQPOINT_PARENTHESES ()
#define SEQPOINT_SCAN(...) SEQPOINT_SCAN_3(SEQPOINT_SCAN_3(SEQPOINT_SCAN_3(__VA_ARGS__)))
#define SEQPOINT_SCAN_3(...) SEQPOINT_SCAN_2(SEQPOINT_SCAN_2(SEQPOINT_SCAN_2(__VA_ARGS__)))
#define SEQPOINT_SCAN_2(...) SEQPOINT_SCAN_1(SEQPOINT_SCAN_1(SEQPOINT_SCAN_1(__VA_ARGS__)))
#define SEQPOINT_SCAN_1(...) __VA_ARGS__

// A field of a message that is named as the member: a number, or a part with a description.
#define SEQPOINT_FIELD(name)                                                         \
  if constexpr (requires { message->set_##name(value.name); }) {                     \
    io.Number(value.name, message->name(), [&](auto v) { message->set_##name(v); }); \
  } else {                                                                           \
    io.Part(value.name, message->mutable_##name());                                  \
  }
#define SEQPOINT_FIELDS(...) SEQPOINT_EACH(SEQPOINT_FIELD, __VA_ARGS__)
// Counts of iterations.
#define SEQPOINT_COUNT(name) \
  SEQPOINT_FIELD(name)       \
  io.Require(static_cast<uint64_t>(value.name) <= static_cast<uint64_t>(kMaxIterations))
#define SEQPOINT_COUNTS(...) SEQPOINT_EACH(SEQPOINT_COUNT, __VA_ARGS__)

template <typename Io, typename Message>
void Visit(Io& io, Key& value, Message* message) {
  SEQPOINT_FIELDS(first, second);
}

template <typename Io, typename Message>
void Visit(Io& io, KeyTime& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(time_ns);
  io.Require(IsTime(value.time_ns));
}

template <typename Io, typename Message>
void Visit(Io& io, KeyCount& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_COUNTS(count);
}

template <typename Io, typename Message>
void Visit(Io& io, OrdinaryTimes& value, Message* message) {
  SEQPOINT_FIELDS(count, mean_ns, m2, level, own_baseline);
  io.Require(value.count >= 0 && value.m2 >= 0);
  io.Require(value.count > 0 ? value.mean_ns > 0 && value.level > 0 : !value.own_baseline);
}

template <typename Io, typename Message>
void Visit(Io& io, KeyRecord& value, Message* message) {
  SEQPOINT_COUNTS(iterations, untimed);
  SEQPOINT_FIELDS(recurrences);
  io.Require(value.untimed <= value.iterations && value.recurrences >= 0);
  Visit(io, value.ordinary, message);
}

template <typename Io, typename Message>
void Visit(Io& io, ColdIteration& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(time_ns, in_stretch);
  io.Require(value.time_ns == 0 || IsTime(value.time_ns));
}

template <typename Io, typename Message>
void Visit(Io& io, ClippedTimes& value, Message* message) {
  SEQPOINT_FIELDS(count, mean_ns, m2, level, against, accepted, accepted_ns, excess_ns,
                  excess_square, timed_before, clipped_before);
  io.Require(value.count >= 1 && value.mean_ns > 0 && value.m2 >= 0 && value.level > 0);
  io.Require(value.accepted >= 0 && value.accepted <= value.count);
}

// Entries of maps, in one message with their keys.
template <typename Io, typename V, typename Message>
void Visit(Io& io, std::pair<Key, V>& entry, Message* message) {
  Visit(io, entry.first, message);
  Visit(io, entry.second, message);
}
template <typename Io>
void Visit(Io& io, std::pair<uint64_t, ColdIteration>& entry, engine::ColdIterationState* message) {
  io.Number(entry.first, message->iteration(), [&](auto v) { message->set_iteration(v); });
  Visit(io, entry.second, message);
}

template <typename Io, typename Message>
void Visit(Io& io, IterationLog& value, Message* message) {
  SEQPOINT_COUNTS(iterations, redone, untimed, distorted, measured, rejected, other_iterations,
                  overflow_untimed);
  SEQPOINT_FIELDS(other_time_ns, observed_time_ns, newest, two_dimensional, exact_time_ns, rest_ns);
  io.Part(value.keys.records(), message->mutable_keys());
  io.Require(value.exact_time_ns >= 0 && value.rest_ns >= 0 && value.keys.size() <= kMaxKeys);
  if constexpr (Io::kReads) {
    uint64_t iterations = 0;
    for (const auto& [key, record] : value.keys.records()) {
      iterations += static_cast<uint64_t>(record.iterations);
    }
    io.Require(iterations <= value.iterations);
  }
}

template <typename Io, typename Message>
void Visit(Io& io, ColdIterations& value, Message* message) {
  SEQPOINT_COUNTS(count);
  while (!Io::kReads && message->lists_size() < kLengthLists) message->add_lists();
  io.Require(message->lists_size() == kLengthLists);
  for (int list = 0; list < std::min(kLengthLists, message->lists_size()); ++list) {
    engine::LengthListState* lengths = message->mutable_lists(list);
    io.Counts(value.first_seen[list], lengths->mutable_seen(), lengths->mutable_seen_in());
    io.Counts(value.micro_batches[list], lengths->mutable_micro_batch(),
              lengths->mutable_micro_batches());
  }
  io.Part(value.by_iteration, message->mutable_cold());
  SEQPOINT_FIELDS(recurrence_ns, recurrences_timed, recurrences_untimed, measured_recurrences,
                  sums);
  io.Require(value.recurrence_ns >= 0 && value.recurrences_timed >= 0 &&
             value.recurrences_untimed >= 0);
  io.Require(value.by_iteration.size() <= kLengthLists * kMaxKeys &&
             value.measured_recurrences.size() <= kMaxNumbers);
}

template <typename Io, typename Message>
void Visit(Io& io, KeyScale& value, Message* message) {
  SEQPOINT_FIELDS(centre, unit, two_dimensional);
}

template <typename Io, typename Message>
void Visit(Io& io, Quadratic& value, Message* message) {
  Visit(io, value.scale, message);
  SEQPOINT_FIELDS(coefficients, floor);
  // As KeyScale::Of and Quadratic::Fit leave them.
  io.Require(value.scale.unit[0] >= 1e-3 && value.scale.unit[1] >= 1e-3 && value.floor >= 0.5);
}

template <typename Io, typename Message>
void Visit(Io& io, BlockTrace::Block& value, Message* message) {
  SEQPOINT_FIELDS(count, time_ns, last, terms);
}

template <typename Io, typename Message>
void Visit(Io& io, BlockTrace& value, Message* message) {
  SEQPOINT_FIELDS(origin, block_size, open, blocks);
  io.Require(value.block_size >= 1 && value.blocks.size() < BlockTrace::kMaxBlocks);
  for (const BlockTrace::Block& block : value.blocks) {
    io.Require(block.count >= 1 && block.time_ns >= 0);
  }
}

template <typename Io, typename Message>
void Visit(Io& io, OutlierFilter& value, Message* message) {
  if (Io::kReads ? message->has_curve() : value.curve.has_value()) {
    if constexpr (Io::kReads) value.curve.emplace();
    Visit(io, *value.curve, message->mutable_curve());
  }
  SEQPOINT_COUNTS(stalls);
  SEQPOINT_FIELDS(pending, timed, next_curve_at, outlier_threshold, clipping_threshold, clipped,
                  clipped_times, recent_stalls, stall_rate, slow_excess_ns, slow_excess_square,
                  regime_changes, level, level_sum, curve_level, accepted, previous_residual,
                  residual_square, residual_product, trace);
  io.Require(value.slow_excess_square >= 0 && value.level > 0 && value.curve_level > 0);
  io.Require(value.pending.size() <= 1024 && value.recent_stalls.size() <= 1024 &&
             value.clipped_times.size() <= kMaxKeys);
}

template <typename Io, typename Message>
void Visit(Io& io, SampledTime& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(time_ns, cold);
  io.Require(IsTime(value.time_ns));
}

template <typename Io, typename Message>
void Visit(Io& io, TimeSample& value, Message* message) {
  SEQPOINT_FIELDS(times, seen, random_state);
  io.Require(value.times.size() <= TimeSample::kSize);
}

template <typename Io, typename Message>
void Visit(Io& io, PlainTimes& value, Message* message) {
  SEQPOINT_FIELDS(trace, count, sum_ns, square);
}

template <typename Io, typename Message>
void Visit(Io& io, Stretches& value, Message* message) {
  SEQPOINT_COUNTS(count, iterations);
  SEQPOINT_FIELDS(trace);
}

template <typename Io, typename Value, typename Message>
void VisitKind(Io& io, Value& value, Value last, Message* message) {
  int kind = static_cast<int>(value);
  io.Number(kind, static_cast<int>(message->kind()), [&](int v) { message->set_kind(v); });
  const bool known = kind >= 0 && kind <= static_cast<int>(last);
  io.Require(known);
  value = static_cast<Value>(known ? kind : 0);
}

template <typename Io, typename Message>
void Visit(Io& io, Horizon& value, Message* message) {
  VisitKind(io, value.kind, Horizon::Kind::kDistribution, message);
  SEQPOINT_COUNTS(iterations);
  SEQPOINT_FIELDS(histogram, parts, parts_certain);
  io.Require(value.histogram.size() <= kMaxKeys && value.parts.size() <= kMaxKeys);
}

template <typename Io, typename Message>
void Visit(Io& io, Measurement& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(iteration, values);
  io.Require(value.values.size() <= kMaxValues);
}

template <typename Io>
void Visit(Io& io, std::pair<uint32_t, std::vector<Measurement>>& entry,
           engine::SetState* message) {
  io.Number(entry.first, message->set(), [&](auto v) { message->set_set(v); });
  io.Part(entry.second, message->mutable_measurements());
  io.Require(!entry.second.empty() && entry.second.size() <= kMaxMeasurementsPerSet);
}

template <typename Io, typename Message>
void Visit(Io& io, Measurements& value, Message* message) {
  std::vector<std::pair<uint32_t, std::vector<Measurement>>> sets(value.sets.begin(),
                                                                  value.sets.end());
  io.Part(sets, message->mutable_sets());
  if constexpr (Io::kReads) value.sets.insert(sets.begin(), sets.end());
  SEQPOINT_FIELDS(spent);
  SEQPOINT_COUNTS(used, refused);
  io.Require(sets.size() <= kMaxSets && value.spent.size() <= kMaxSpent);
}

template <typename Io, typename Message>
void Visit(Io& io, PlannedSample& value, Message* message) {
  SEQPOINT_FIELDS(key, weight, stratum, begin, end, measurable, awaited, low, high);
}

template <typename Io, typename Message>
void Visit(Io& io, PlanBasis& value, Message* message) {
  constexpr size_t kMost = 1 << 16;  // samples; a budget has fewer
  SEQPOINT_COUNTS(iterations);
  SEQPOINT_FIELDS(horizon_version, points, sets, target_error, confidence, two_dimensional, curve,
                  samples, benefit);
  io.Require(value.samples.size() <= kMost && value.benefit.size() <= kMost);
  for (const PlannedSample& sample : value.samples) {
    io.Require(sample.stratum < value.benefit.size());
  }
}

template <typename Io, typename Message>
void Visit(Io& io, EngineState& value, Message* message) {
  if constexpr (!Io::kReads) message->set_complete(true);
  io.Require(message->complete());
  SEQPOINT_FIELDS(log, cold, filter, sample, plain, stretches, horizon, horizon_version,
                  measurements);
  if (Io::kReads ? message->has_plan() : value.plan.iterations >= 0) {
    SEQPOINT_FIELDS(plan);
  }
}

template <typename Io, typename Message>
void Visit(Io& io, MicroBatch& value, Message* message) {
  Visit(io, value.key, message);
  VisitKind(io, value.kind, MicroBatch::Kind::kLast, message);
}

template <typename Io, typename Message>
void Visit(Io& io, IterationSample& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(iteration, time_ns, rest_ns, distorted, measured, redone, cold, combined,
                  micro_batches);
  VisitKind(io, value.phase, Phase::kOther, message);
}

template <typename Io, typename Message>
void Visit(Io& io, StretchIteration& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(iteration, cold);
}

template <typename Io, typename Message>
void Visit(Io& io, StretchCall& value, Message* message) {
  SEQPOINT_FIELDS(iterations, time_ns);
}

template <typename Io, typename Message>
void Visit(Io& io, MeasurementCall& value, Message* message) {
  Visit(io, value.key, message);
  SEQPOINT_FIELDS(set, iteration, values);
}

// The message of a call of this kind.
auto* MessageOf(const IterationSample&, engine::Call* call) { return call->mutable_iteration(); }
auto* MessageOf(const StretchCall&, engine::Call* call) { return call->mutable_stretch(); }
auto* MessageOf(const MeasurementCall&, engine::Call* call) { return call->mutable_measurement(); }
auto* MessageOf(const Horizon&, engine::Call* call) { return call->mutable_horizon(); }
auto* MessageOf(const PlanBasis&, engine::Call* call) { return call->mutable_plan(); }

EngineCall DecodeCall(engine::Call& from, Reader& reader) {
  const auto decoded = [&](auto value, Reader& io) -> EngineCall {
    Visit(io, value, MessageOf(value, &from));
    reader.Require(io.ok());
    return value;
  };
  // These are stored as they were, what the engine refuses included.
  Reader as_it_was(/*any=*/true);
  switch (from.kind_case()) {
    case engine::Call::kIteration:
      return decoded(IterationSample(), as_it_was);
    case engine::Call::kStretch:
      return decoded(StretchCall(), as_it_was);
    case engine::Call::kMeasurement:
      return decoded(MeasurementCall(), as_it_was);
    case engine::Call::kHorizon:
      return decoded(Horizon(), reader);
    case engine::Call::kPlan:
      return decoded(PlanBasis(), reader);
    case engine::Call::KIND_NOT_SET:
      break;
  }
  reader.Require(false);
  return IterationSample();
}

}  // namespace

std::string SerializeEngine(const OnlineEngine& engine) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<engine::EngineState>(&arena);
  Writer writer;
  // A Writer changes nothing.
  Visit(writer, const_cast<EngineState&>(engine.state()), message);
  return message->SerializeAsString();
}

absl::StatusOr<OnlineEngine> ParseEngine(std::string_view bytes) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<engine::EngineState>(&arena);
  Reader reader;
  EngineState state;
  reader.Require(message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  if (reader.ok()) Visit(reader, state, message);
  if (reader.ok()) return OnlineEngine(std::move(state));
  return absl::DataLossError(
      absl::StrCat("the engine state (", bytes.size(), " bytes) is damaged; learn the job again"));
}

std::string SerializeCalls(absl::Span<const EngineCall> calls) {
  google::protobuf::Arena arena;
  auto* log = google::protobuf::Arena::CreateMessage<engine::CallLog>(&arena);
  Writer writer;
  for (const EngineCall& call : calls) {
    std::visit(
        [&](const auto& value) {
          Visit(writer, const_cast<std::decay_t<decltype(value)>&>(value),
                MessageOf(value, log->add_calls()));
        },
        call);
  }
  return log->SerializeAsString();
}

absl::Status ReplayCalls(std::string_view log, OnlineEngine& engine) {
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<engine::CallLog>(&arena);
  Reader reader;
  reader.Require(message->ParseFromArray(log.data(), static_cast<int>(log.size())));
  std::vector<EngineCall> calls;
  for (int i = 0; reader.ok() && i < message->calls_size(); ++i) {
    calls.push_back(DecodeCall(*message->mutable_calls(i), reader));
  }
  if (reader.ok() && engine.Replay(std::move(calls)).ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the log of the engine's state (", log.size(),
                                          " bytes) is damaged; learn the job again"));
}

}  // namespace seqpoint
