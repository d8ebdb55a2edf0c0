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
  template <typename List>
  void Doubles(const List& list, size_t, RepeatedField<double>* field) {
    field->Add(list.begin(), list.end());
  }
  template <typename Set, typename Number>
  void Numbers(const Set& set, size_t, RepeatedField<Number>* field) {
    field->Add(set.begin(), set.end());
    std::sort(field->begin(), field->end());
  }
  template <typename T, typename Message>
  void List(std::vector<T>& list, size_t, RepeatedPtrField<Message>* field) {
    field->Reserve(static_cast<int>(list.size()));
    for (T& element : list) Visit(*this, element, field->Add());
  }
  // In the order of keys: hash maps have one of their own.
  template <typename K, typename V, typename Message>
  void Map(const absl::flat_hash_map<K, V>& map, size_t limit, RepeatedPtrField<Message>* field) {
    std::vector<std::pair<K, V>> list = InOrder(map);
    List(list, limit, field);
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
  bool ok() const { return true; }

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

  template <typename T, typename Set>
  void Number(T& value, T stored, Set) {
    // Far from overflow, and lengths, counts and times are not negative.
    if constexpr (std::is_same_v<T, double>) Require(std::abs(stored) <= kMaxMagnitude);
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) Require(stored >= 0);
    value = stored;
  }
  void Doubles(std::vector<double>& list, size_t limit, const RepeatedField<double>* field) {
    Require(static_cast<size_t>(field->size()) <= limit);
    if (ok_) list.resize(field->size());
    CopyDoubles(list, *field);
  }
  template <size_t kSize>
  void Doubles(std::array<double, kSize>& list, size_t, const RepeatedField<double>* field) {
    Require(field->size() == static_cast<int>(kSize));
    CopyDoubles(list, *field);
  }
  template <typename Set, typename Number>
  void Numbers(Set& set, size_t limit, const RepeatedField<Number>* field) {
    Require(static_cast<size_t>(field->size()) <= limit);
    if (ok_) set.insert(field->begin(), field->end());
  }
  template <typename T, typename Message>
  void List(std::vector<T>& list, size_t limit, RepeatedPtrField<Message>* field) {
    Require(static_cast<size_t>(field->size()) <= limit);
    if (ok_) list.resize(field->size());
    for (size_t i = 0; ok_ && i < list.size(); ++i) {
      Visit(*this, list[i], field->Mutable(static_cast<int>(i)));
    }
  }
  template <typename K, typename V, typename Message>
  void Map(absl::flat_hash_map<K, V>& map, size_t limit, RepeatedPtrField<Message>* field) {
    std::vector<std::pair<K, V>> list;
    List(list, limit, field);
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
  void CopyDoubles(List& list, const RepeatedField<double>& field) {
    for (size_t i = 0; ok_ && i < list.size(); ++i) {
      list[i] = field[static_cast<int>(i)];
      Require(std::abs(list[i]) <= kMaxMagnitude);
    }
  }

  bool ok_ = true;
};

// A field of a message that is named as the member.
#define SEQPOINT_FIELD(name) \
  io.Number(value.name, message->name(), [&](auto v) { message->set_##name(v); })
// A count of iterations.
#define SEQPOINT_COUNT(name) \
  SEQPOINT_FIELD(name);      \
  io.Require(static_cast<uint64_t>(value.name) <= static_cast<uint64_t>(kMaxIterations))

template <typename Io, typename Message>
void VisitKey(Io& io, Key& value, Message* message) {
  SEQPOINT_FIELD(first);
  SEQPOINT_FIELD(second);
}

template <typename Io>
void Visit(Io& io, KeyTime& value, engine::KeyTimeState* message) {
  VisitKey(io, value.key, message);
  SEQPOINT_FIELD(time_ns);
  io.Require(IsTime(value.time_ns));
}

template <typename Io>
void Visit(Io& io, KeyCount& value, engine::KeyCountState* message) {
  VisitKey(io, value.key, message);
  SEQPOINT_COUNT(count);
}

template <typename Io>
void Visit(Io& io, std::pair<Key, KeyRecord>& entry, engine::KeyRecordState* message) {
  VisitKey(io, entry.first, message);
  const auto record = [&](KeyRecord& value) {
    SEQPOINT_COUNT(iterations);
    SEQPOINT_COUNT(untimed);
    SEQPOINT_FIELD(recurrences);
    io.Require(value.untimed <= value.iterations && value.recurrences >= 0);
  };
  const auto ordinary = [&](OrdinaryTimes& value) {
    SEQPOINT_FIELD(count);
    SEQPOINT_FIELD(mean_ns);
    SEQPOINT_FIELD(m2);
    SEQPOINT_FIELD(level);
    SEQPOINT_FIELD(own_baseline);
    io.Require(value.count >= 0 && value.m2 >= 0);
    io.Require(value.count > 0 ? value.mean_ns > 0 && value.level > 0 : !value.own_baseline);
  };
  record(entry.second);
  ordinary(entry.second.ordinary);
}

template <typename Io>
void Visit(Io& io, IterationLog& value, engine::IterationLogState* message) {
  SEQPOINT_COUNT(iterations);
  SEQPOINT_COUNT(redone);
  SEQPOINT_COUNT(untimed);
  SEQPOINT_COUNT(distorted);
  SEQPOINT_COUNT(measured);
  SEQPOINT_COUNT(rejected);
  SEQPOINT_COUNT(other_iterations);
  SEQPOINT_FIELD(other_time_ns);
  SEQPOINT_FIELD(observed_time_ns);
  SEQPOINT_FIELD(newest);
  SEQPOINT_FIELD(two_dimensional);
  SEQPOINT_FIELD(exact_time_ns);
  SEQPOINT_FIELD(rest_ns);
  SEQPOINT_COUNT(overflow_untimed);
  io.Map(value.keys.records(), kMaxKeys, message->mutable_keys());
  io.Require(value.exact_time_ns >= 0 && value.rest_ns >= 0);
  if constexpr (Io::kReads) {
    uint64_t iterations = 0;
    for (const auto& [key, record] : value.keys.records()) {
      iterations += static_cast<uint64_t>(record.iterations);
    }
    io.Require(iterations <= value.iterations);
  }
}

template <typename Io>
void Visit(Io& io, std::pair<uint64_t, ColdIteration>& entry, engine::ColdIterationState* message) {
  io.Number(entry.first, message->iteration(), [&](auto v) { message->set_iteration(v); });
  ColdIteration& value = entry.second;
  VisitKey(io, value.key, message);
  SEQPOINT_FIELD(time_ns);
  SEQPOINT_FIELD(in_stretch);
  io.Require(value.time_ns == 0 || IsTime(value.time_ns));
}

template <typename Io>
void Visit(Io& io, ColdIterations& value, engine::ColdIterationsState* message) {
  SEQPOINT_COUNT(count);
  for (int list = 0; list < kLengthLists; ++list) {
    if constexpr (!Io::kReads) message->add_lists();
    io.Require(message->lists_size() == kLengthLists);
    if (!io.ok()) return;
    engine::LengthListState* lengths = message->mutable_lists(list);
    io.Counts(value.first_seen[list], lengths->mutable_seen(), lengths->mutable_seen_in());
    io.Counts(value.micro_batches[list], lengths->mutable_micro_batch(),
              lengths->mutable_micro_batches());
  }
  io.Map(value.by_iteration, kLengthLists * kMaxKeys, message->mutable_cold());
  SEQPOINT_FIELD(recurrence_ns);
  SEQPOINT_FIELD(recurrences_timed);
  SEQPOINT_FIELD(recurrences_untimed);
  io.Numbers(value.measured_recurrences, kMaxNumbers, message->mutable_measured_recurrences());
  SEQPOINT_FIELD(sums);
  io.Require(value.recurrence_ns >= 0 && value.recurrences_timed >= 0 &&
             value.recurrences_untimed >= 0);
}

template <typename Io>
void Visit(Io& io, Quadratic& value, engine::QuadraticState* message) {
  io.Doubles(value.scale.centre, 2, message->mutable_centre());
  io.Doubles(value.scale.unit, 2, message->mutable_unit());
  io.Number(value.scale.two_dimensional, message->two_dimensional(),
            [&](auto v) { message->set_two_dimensional(v); });
  io.Doubles(value.coefficients, kTerms, message->mutable_coefficients());
  SEQPOINT_FIELD(floor);
  // As KeyScale::Of and Quadratic::Fit leave them.
  io.Require(value.scale.unit[0] >= 1e-3 && value.scale.unit[1] >= 1e-3 && value.floor >= 0.5);
}

template <typename Io>
void Visit(Io& io, BlockTrace::Block& value, engine::BlockState* message) {
  SEQPOINT_FIELD(count);
  SEQPOINT_FIELD(time_ns);
  SEQPOINT_FIELD(last);
  io.Doubles(value.terms, kTerms, message->mutable_terms());
}

template <typename Io>
void Visit(Io& io, BlockTrace& trace, engine::BlockTraceState* message) {
  struct {
    double block_size;
  } value = {trace.block_size()};
  Key origin = trace.origin();
  BlockTrace::Block open = trace.open();
  std::vector<BlockTrace::Block> blocks(trace.blocks().begin(), trace.blocks().end());
  VisitKey(io, origin, message->mutable_origin());
  SEQPOINT_FIELD(block_size);
  Visit(io, open, message->mutable_open());
  io.List(blocks, BlockTrace::kMaxBlocks - 1, message->mutable_blocks());
  io.Require(value.block_size >= 1);
  for (const BlockTrace::Block& block : blocks) {
    io.Require(block.count >= 1 && block.time_ns >= 0);
  }
  if constexpr (Io::kReads) trace.Restore(origin, value.block_size, open, std::move(blocks));
}

template <typename Io>
void Visit(Io& io, std::pair<Key, ClippedTimes>& entry, engine::ClippedTimesState* message) {
  VisitKey(io, entry.first, message);
  ClippedTimes& value = entry.second;
  SEQPOINT_FIELD(count);
  SEQPOINT_FIELD(mean_ns);
  SEQPOINT_FIELD(m2);
  SEQPOINT_FIELD(level);
  SEQPOINT_FIELD(against);
  SEQPOINT_FIELD(accepted);
  SEQPOINT_FIELD(accepted_ns);
  SEQPOINT_FIELD(excess_ns);
  SEQPOINT_FIELD(excess_square);
  SEQPOINT_FIELD(timed_before);
  SEQPOINT_FIELD(clipped_before);
  io.Require(value.count >= 1 && value.mean_ns > 0 && value.m2 >= 0 && value.level > 0);
  io.Require(value.accepted >= 0 && value.accepted <= value.count);
}

template <typename Io>
void Visit(Io& io, OutlierFilter& value, engine::OutlierFilterState* message) {
  io.List(value.pending, 1024, message->mutable_pending());
  SEQPOINT_FIELD(timed);
  SEQPOINT_FIELD(next_curve_at);
  if (Io::kReads ? message->has_curve() : value.curve.has_value()) {
    if constexpr (Io::kReads) value.curve.emplace();
    Visit(io, *value.curve, message->mutable_curve());
  }
  SEQPOINT_FIELD(outlier_threshold);
  SEQPOINT_FIELD(clipping_threshold);
  SEQPOINT_FIELD(clipped);
  io.Map(value.clipped_times, kMaxKeys, message->mutable_clipped_times());
  SEQPOINT_COUNT(stalls);
  io.List(value.recent_stalls, 1024, message->mutable_recent_stalls());
  SEQPOINT_FIELD(stall_rate);
  SEQPOINT_FIELD(slow_excess_ns);
  SEQPOINT_FIELD(slow_excess_square);
  SEQPOINT_FIELD(regime_changes);
  SEQPOINT_FIELD(level);
  SEQPOINT_FIELD(level_sum);
  SEQPOINT_FIELD(curve_level);
  SEQPOINT_FIELD(accepted);
  SEQPOINT_FIELD(previous_residual);
  SEQPOINT_FIELD(residual_square);
  SEQPOINT_FIELD(residual_product);
  Visit(io, value.trace, message->mutable_trace());
  io.Require(value.slow_excess_square >= 0 && value.level > 0 && value.curve_level > 0);
}

template <typename Io>
void Visit(Io& io, SampledTime& value, engine::SampledTimeState* message) {
  VisitKey(io, value.key, message);
  SEQPOINT_FIELD(time_ns);
  SEQPOINT_FIELD(cold);
  io.Require(IsTime(value.time_ns));
}

template <typename Io>
void Visit(Io& io, TimeSample& value, engine::TimeSampleState* message) {
  io.List(value.times, TimeSample::kSize, message->mutable_times());
  SEQPOINT_FIELD(seen);
  SEQPOINT_FIELD(random_state);
}

template <typename Io>
void Visit(Io& io, PlainTimes& value, engine::PlainTimesState* message) {
  Visit(io, value.trace, message->mutable_trace());
  SEQPOINT_FIELD(count);
  SEQPOINT_FIELD(sum_ns);
  SEQPOINT_FIELD(square);
}

template <typename Io>
void Visit(Io& io, Stretches& value, engine::StretchesState* message) {
  SEQPOINT_COUNT(count);
  SEQPOINT_COUNT(iterations);
  Visit(io, value.trace, message->mutable_trace());
}

template <typename Io, typename Value, typename Message>
void VisitKind(Io& io, Value& value, int last, Message* message) {
  int kind = static_cast<int>(value);
  io.Number(kind, static_cast<int>(message->kind()), [&](int v) { message->set_kind(v); });
  io.Require(kind <= last);
  if constexpr (Io::kReads) value = static_cast<Value>(io.ok() ? kind : 0);
}

template <typename Io>
void Visit(Io& io, Horizon& value, engine::HorizonState* message) {
  VisitKind(io, value.kind, static_cast<int>(Horizon::Kind::kDistribution), message);
  SEQPOINT_COUNT(iterations);
  io.List(value.histogram, kMaxKeys, message->mutable_histogram());
  io.List(value.parts, kMaxKeys, message->mutable_parts());
  SEQPOINT_FIELD(parts_certain);
}

template <typename Io>
void Visit(Io& io, Measurement& value, engine::MeasurementState* message) {
  SEQPOINT_FIELD(iteration);
  VisitKey(io, value.key, message);
  io.Doubles(value.values, kMaxValues, message->mutable_values());
}

template <typename Io>
void Visit(Io& io, std::pair<uint32_t, std::vector<Measurement>>& entry,
           engine::SetState* message) {
  io.Number(entry.first, message->set(), [&](auto v) { message->set_set(v); });
  io.List(entry.second, kMaxMeasurementsPerSet, message->mutable_measurements());
  io.Require(!entry.second.empty());
}

template <typename Io>
void Visit(Io& io, Measurements& value, engine::MeasurementsState* message) {
  std::vector<std::pair<uint32_t, std::vector<Measurement>>> sets(value.sets.begin(),
                                                                  value.sets.end());
  io.List(sets, kMaxSets, message->mutable_sets());
  if constexpr (Io::kReads) value.sets.insert(sets.begin(), sets.end());
  io.Numbers(value.spent, kMaxSpent, message->mutable_spent());
  SEQPOINT_COUNT(used);
  SEQPOINT_COUNT(refused);
}

template <typename Io>
void Visit(Io& io, PlannedSample& value, engine::PlannedSampleState* message) {
  VisitKey(io, value.key, message->mutable_key());
  SEQPOINT_FIELD(weight);
  SEQPOINT_FIELD(stratum);
  SEQPOINT_FIELD(begin);
  SEQPOINT_FIELD(end);
  SEQPOINT_FIELD(measurable);
  SEQPOINT_FIELD(awaited);
  VisitKey(io, value.low, message->mutable_low());
  VisitKey(io, value.high, message->mutable_high());
}

template <typename Io>
void Visit(Io& io, PlanBasis& value, engine::PlanState* message) {
  constexpr size_t kMost = 1 << 16;  // samples; a budget has fewer
  SEQPOINT_COUNT(iterations);
  SEQPOINT_FIELD(horizon_version);
  SEQPOINT_FIELD(points);
  SEQPOINT_FIELD(sets);
  SEQPOINT_FIELD(target_error);
  SEQPOINT_FIELD(confidence);
  SEQPOINT_FIELD(two_dimensional);
  Visit(io, value.curve, message->mutable_curve());
  io.List(value.samples, kMost, message->mutable_samples());
  io.Doubles(value.benefit, kMost, message->mutable_benefit());
  for (const PlannedSample& sample : value.samples) {
    io.Require(sample.stratum < value.benefit.size());
  }
}

template <typename Io>
void Visit(Io& io, EngineState& value, engine::EngineState* message) {
  if constexpr (!Io::kReads) message->set_complete(true);
  io.Require(message->complete());
  Visit(io, value.log, message->mutable_log());
  Visit(io, value.cold, message->mutable_cold());
  Visit(io, value.filter, message->mutable_filter());
  Visit(io, value.sample, message->mutable_sample());
  Visit(io, value.plain, message->mutable_plain());
  Visit(io, value.stretches, message->mutable_stretches());
  Visit(io, value.horizon, message->mutable_horizon());
  SEQPOINT_FIELD(horizon_version);
  Visit(io, value.measurements, message->mutable_measurements());
  if (Io::kReads ? message->has_plan() : value.plan.iterations >= 0) {
    Visit(io, value.plan, message->mutable_plan());
  }
}

// Calls are stored as they were, what the engine refuses included.
class CallReader : public Reader {
 public:
  template <typename T, typename Set>
  void Number(T& value, T stored, Set) {
    value = stored;
  }
  template <typename T, typename Message>
  void List(std::vector<T>& list, size_t, RepeatedPtrField<Message>* field) {
    list.resize(field->size());
    for (size_t i = 0; i < list.size(); ++i) {
      Visit(*this, list[i], field->Mutable(static_cast<int>(i)));
    }
  }
};

template <typename Io>
void Visit(Io& io, MicroBatch& value, engine::MicroBatchState* message) {
  VisitKey(io, value.key, message);
  VisitKind(io, value.kind, kMicroBatchKinds - 1, message);
}

template <typename Io>
void Visit(Io& io, IterationSample& value, engine::IterationCall* message) {
  SEQPOINT_FIELD(iteration);
  VisitKey(io, value.key, message);
  SEQPOINT_FIELD(time_ns);
  SEQPOINT_FIELD(rest_ns);
  SEQPOINT_FIELD(distorted);
  SEQPOINT_FIELD(measured);
  SEQPOINT_FIELD(redone);
  SEQPOINT_FIELD(cold);
  SEQPOINT_FIELD(combined);
  io.List(value.micro_batches, kMaxKeys, message->mutable_micro_batches());
  VisitKind(io, value.phase, static_cast<int>(Phase::kOther), message);
}

template <typename Io>
void Visit(Io& io, StretchIteration& value, engine::StretchIterationState* message) {
  SEQPOINT_FIELD(iteration);
  VisitKey(io, value.key, message);
  SEQPOINT_FIELD(cold);
}

template <typename Io>
void Visit(Io& io, StretchCall& value, engine::StretchCall* message) {
  io.List(value.iterations, kMaxStretch + 1, message->mutable_iterations());
  SEQPOINT_FIELD(time_ns);
}

template <typename Io>
void Visit(Io& io, MeasurementCall& value, engine::MeasurementCall* message) {
  SEQPOINT_FIELD(set);
  SEQPOINT_FIELD(iteration);
  VisitKey(io, value.key, message);
  if constexpr (Io::kReads) {
    value.values.assign(message->values().begin(), message->values().end());
  } else {
    message->mutable_values()->Add(value.values.begin(), value.values.end());
  }
}

EngineCall DecodeCall(engine::Call& from, Reader& reader) {
  CallReader as_it_was;
  const auto decoded = [&](auto value, auto* message, auto& io) -> EngineCall {
    Visit(io, value, message);
    reader.Require(io.ok());
    return value;
  };
  switch (from.kind_case()) {
    case engine::Call::kIteration:
      return decoded(IterationSample(), from.mutable_iteration(), as_it_was);
    case engine::Call::kStretch:
      return decoded(StretchCall(), from.mutable_stretch(), as_it_was);
    case engine::Call::kMeasurement:
      return decoded(MeasurementCall(), from.mutable_measurement(), as_it_was);
    case engine::Call::kHorizon:
      return decoded(Horizon(), from.mutable_horizon(), reader);
    case engine::Call::kPlan:
      return decoded(PlanBasis(), from.mutable_plan(), reader);
    case engine::Call::KIND_NOT_SET:
      break;
  }
  reader.Require(false);
  return IterationSample();
}

engine::IterationCall* MessageOf(const IterationSample&, engine::Call* call) {
  return call->mutable_iteration();
}
engine::StretchCall* MessageOf(const StretchCall&, engine::Call* call) {
  return call->mutable_stretch();
}
engine::MeasurementCall* MessageOf(const MeasurementCall&, engine::Call* call) {
  return call->mutable_measurement();
}
engine::HorizonState* MessageOf(const Horizon&, engine::Call* call) {
  return call->mutable_horizon();
}
engine::PlanState* MessageOf(const PlanBasis&, engine::Call* call) { return call->mutable_plan(); }

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
