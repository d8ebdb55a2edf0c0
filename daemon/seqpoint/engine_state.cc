// OnlineEngine: the state as bytes. Format: docs/internals/seqpoint-engine.md.
#include "daemon/seqpoint/engine_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace seqpoint {
namespace {

constexpr uint64_t kMagic = 0x37304e4745515053;  // "SPQEGN07", the last two the version

bool IsTime(double ns) { return ns >= 1 && ns <= static_cast<double>(kMaxTimeNs); }

// One description for both directions: Field(x) writes x, or reads and checks it.
class Writer {
 public:
  static constexpr bool kReads = false;

  void Field(uint64_t value) {
    static_assert(std::endian::native == std::endian::little);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Field(int64_t value) { Field(static_cast<uint64_t>(value)); }
  void Field(int value) { Field(static_cast<uint64_t>(value)); }
  void Field(uint32_t value) { Field(static_cast<uint64_t>(value)); }
  void Field(bool value) { Field(static_cast<uint64_t>(value)); }
  void Field(double value) { Field(std::bit_cast<uint64_t>(value)); }

  bool ok() const { return true; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  void Field(uint64_t& value) {
    value = 0;
    if (bytes_.size() < sizeof(value)) {
      ok_ = false;
      return;
    }
    memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
  }
  // Counts, keys, times: never negative, and far from overflow.
  void Field(int64_t& value) {
    uint64_t raw;
    Field(raw);
    if (raw > static_cast<uint64_t>(INT64_MAX)) ok_ = false;
    value = ok_ ? static_cast<int64_t>(raw) : 0;
  }
  void Field(int& value) { value = static_cast<int>(Bounded(INT32_MAX)); }
  void Field(uint32_t& value) { value = static_cast<uint32_t>(Bounded(UINT32_MAX)); }
  void Field(bool& value) { value = Bounded(1) != 0; }
  void Field(double& value) {
    uint64_t raw;
    Field(raw);
    value = std::bit_cast<double>(raw);
    if (!(std::abs(value) <= kMaxMagnitude)) {
      ok_ = false;
      value = 0;
    }
  }

  uint64_t Bounded(uint64_t limit) {
    uint64_t raw;
    Field(raw);
    if (raw > limit) {
      ok_ = false;
      return 0;
    }
    return raw;
  }
  // The size of a list whose elements take at least `element_bytes`: never more than there are.
  size_t Size(size_t limit, size_t element_bytes) {
    return Bounded(std::min<uint64_t>(limit, bytes_.size() / element_bytes));
  }

  void Refuse() { ok_ = false; }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

template <typename Stream, typename T>
requires std::is_arithmetic_v<std::remove_cvref_t<T>>
void Visit(Stream& s, T& value) { s.Field(value); }

template <typename Stream>
void Visit(Stream& s, Key& key) {
  s.Field(key.first);
  s.Field(key.second);
}

template <typename Stream, typename T, size_t kSize>
void Visit(Stream& s, std::array<T, kSize>& values) {
  for (T& v : values) s.Field(v);
}

template <typename Stream>
void Visit(Stream& s, KeyTime& time) {
  Visit(s, time.key);
  s.Field(time.time_ns);
}
template <typename Stream>
void Visit(Stream& s, SampledTime& time) {
  Visit(s, time.key);
  s.Field(time.time_ns);
  s.Field(time.first);
}
template <typename Stream>
void Visit(Stream& s, KeyCount& count) {
  Visit(s, count.key);
  s.Field(count.count);
}
template <typename Stream>
void Visit(Stream& s, BlockTrace::Block& block) {
  s.Field(block.count);
  s.Field(block.time_ns);
  s.Field(block.last);
  Visit(s, block.terms);
}

// `element_bytes`: the least an element takes.
template <typename Stream, typename T>
void VisitList(Stream& s, std::vector<T>& list, size_t limit, size_t element_bytes) {
  if constexpr (Stream::kReads) {
    list.clear();
    list.resize(s.Size(limit, element_bytes));
  } else {
    s.Field(static_cast<uint64_t>(list.size()));
  }
  for (T& element : list) Visit(s, element);
}

template <typename Stream>
void Visit(Stream& s, Measurement& m) {
  s.Field(m.iteration);
  Visit(s, m.key);
  VisitList(s, m.values, kMaxValues, 8);
}

template <typename Stream>
void Visit(Stream& s, Quadratic& q) {
  Visit(s, q.scale.centre);
  Visit(s, q.scale.unit);
  s.Field(q.scale.two_dimensional);
  Visit(s, q.coefficients);
  s.Field(q.floor);
  if constexpr (Stream::kReads) {
    // As KeyScale::Of and Quadratic::Fit leave them.
    const bool sane = q.scale.unit[0] >= 1e-3 && q.scale.unit[1] >= 1e-3 && q.floor >= 0.5;
    if (!sane) s.Refuse();
  }
}

template <typename Stream>
void Visit(Stream& s, PlanSlot& slot) {
  Visit(s, slot.key);
  s.Field(slot.weight);
  s.Field(slot.stratum);
  s.Field(slot.begin);
  s.Field(slot.end);
  s.Field(slot.measurable);
  s.Field(slot.awaited);
  Visit(s, slot.low);
  Visit(s, slot.high);
}

template <typename Stream>
void Visit(Stream& s, Horizon& horizon) {
  int kind = static_cast<int>(horizon.kind);
  s.Field(kind);
  if constexpr (Stream::kReads) {
    if (kind < 0 || kind > static_cast<int>(Horizon::Kind::kDistribution)) s.Refuse();
    horizon.kind = static_cast<Horizon::Kind>(kind);
  }
  s.Field(horizon.iterations);
  VisitList(s, horizon.histogram, kMaxKeys, 24);
  VisitList(s, horizon.parts, kMaxKeys, 24);
  s.Field(horizon.parts_certain);
  if constexpr (Stream::kReads) {
    if (horizon.iterations > kMaxIterations) s.Refuse();
    for (const auto* list : {&horizon.histogram, &horizon.parts}) {
      for (const KeyCount& k : *list) {
        if (k.count > kMaxIterations) s.Refuse();
      }
    }
  }
}

template <typename Stream>
void Visit(Stream& s, PlanBasis& plan) {
  bool has_plan = plan.iterations >= 0;
  s.Field(has_plan);
  if (has_plan) {
    s.Field(plan.iterations);
    s.Field(plan.horizon_version);
    s.Field(plan.points);
    s.Field(plan.sets);
    s.Field(plan.target_error);
    s.Field(plan.confidence);
    s.Field(plan.two_dimensional);
    Visit(s, plan.curve);
    VisitList(s, plan.slots, 1 << 16, 96);
    VisitList(s, plan.benefit, 1 << 16, 8);
  }
  if constexpr (Stream::kReads) {
    for (const PlanSlot& slot : plan.slots) {
      if (slot.stratum >= plan.benefit.size()) s.Refuse();
    }
  }
}

template <typename Stream>
void Visit(Stream& s, EngineTotals& t) {
  for (uint64_t* field :
       {&t.iterations, &t.redone, &t.untimed, &t.distorted, &t.measured, &t.first_occurrences,
        &t.outliers, &t.rejected, &t.other_iterations, &t.unique_keys, &t.measurements_used,
        &t.measurements_refused, &t.together, &t.stretches}) {
    s.Field(*field);
    if constexpr (Stream::kReads) {
      if (*field > static_cast<uint64_t>(kMaxIterations)) s.Refuse();
    }
  }
  s.Field(t.other_time_ns);
  s.Field(t.observed_time_ns);
}

template <typename Stream>
void Visit(Stream& s, BlockTrace& trace) {
  Key origin = trace.origin();
  double block_size = trace.block_size();
  BlockTrace::Block open = trace.open();
  std::vector<BlockTrace::Block> blocks(trace.blocks().begin(), trace.blocks().end());
  Visit(s, origin);
  s.Field(block_size);
  Visit(s, open);
  VisitList(s, blocks, BlockTrace::kMaxBlocks - 1, 72);
  if constexpr (Stream::kReads) {
    const bool sane = block_size >= 1 && std::all_of(blocks.begin(), blocks.end(), [](auto& b) {
                        return b.count >= 1 && b.time_ns >= 0;
                      });
    if (!sane) s.Refuse();
    trace.Restore(origin, block_size, open, std::move(blocks));
  }
}

// A hash map as a list in key order: the same state gives the same bytes.
template <typename K, typename V>
std::vector<std::pair<K, V>> Sorted(const absl::flat_hash_map<K, V>& map) {
  std::vector<std::pair<K, V>> list(map.begin(), map.end());
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return list;
}

template <typename Stream>
void Visit(Stream& s, std::pair<Key, KeyRecord>& entry) {
  Visit(s, entry.first);
  KeyRecord& r = entry.second;
  s.Field(r.iterations);
  s.Field(r.untimed);
  s.Field(r.timed);
  s.Field(r.mean_ns);
  s.Field(r.m2);
  s.Field(r.level);
  s.Field(r.again);
  if constexpr (Stream::kReads) {
    const bool sane = r.iterations <= kMaxIterations && r.untimed <= r.iterations && r.timed >= 0 &&
                      r.again >= 0 && r.m2 >= 0 && (r.timed == 0 || (r.mean_ns > 0 && r.level > 0));
    if (!sane) s.Refuse();
  }
}

template <typename Stream>
void Visit(Stream& s, std::pair<Key, CutTimes>& entry) {
  Visit(s, entry.first);
  CutTimes& t = entry.second;
  for (double* field :
       {&t.count, &t.mean_ns, &t.m2, &t.level, &t.against, &t.accepted, &t.accepted_ns,
        &t.excess_ns, &t.excess_square, &t.timed_before, &t.cut_before}) {
    s.Field(*field);
  }
  if constexpr (Stream::kReads) {
    const bool sane = t.count >= 1 && t.mean_ns > 0 && t.m2 >= 0 && t.level > 0 &&
                      t.accepted >= 0 && t.accepted <= t.count;
    if (!sane) s.Refuse();
  }
}

template <typename Stream>
void Visit(Stream& s, std::pair<int64_t, uint64_t>& entry) {
  s.Field(entry.first);
  s.Field(entry.second);
}

template <typename Stream>
void Visit(Stream& s, std::pair<uint64_t, FirstRecord>& entry) {
  s.Field(entry.first);
  Visit(s, entry.second.key);
  s.Field(entry.second.time_ns);
  s.Field(entry.second.together);
  if constexpr (Stream::kReads) {
    if (entry.second.time_ns != 0 && !IsTime(entry.second.time_ns)) s.Refuse();
  }
}

template <typename Stream, typename K, typename V>
void VisitMap(Stream& s, absl::flat_hash_map<K, V>& map, size_t element_bytes,
              size_t limit = kMaxKeys) {
  std::vector<std::pair<K, V>> list;
  if constexpr (!Stream::kReads) list = Sorted(map);
  VisitList(s, list, limit, element_bytes);
  if constexpr (Stream::kReads) {
    map.clear();
    map.reserve(list.size());
    map.insert(list.begin(), list.end());
  }
}

}  // namespace

// Not in the anonymous namespace: State is private to OnlineEngine.
template <typename Stream, typename State>
void VisitState(Stream& s, State& state) {
  Visit(s, state.totals);
  s.Field(state.newest);
  s.Field(state.two_dimensional);
  VisitMap(s, state.keys, 72);
  s.Field(state.sums);
  for (auto& seen : state.first_seen) VisitMap(s, seen, 16);
  VisitMap(s, state.firsts, 40, kLengthLists * kMaxKeys);
  s.Field(state.again_ns);
  s.Field(state.again_timed);
  s.Field(state.again_untimed);
  for (auto& counts : state.part_counts) VisitMap(s, counts, 16);
  s.Field(state.exact_time_ns);
  s.Field(state.rest_ns);
  s.Field(state.overflow_untimed);
  VisitList(s, state.pending, 1024, 24);
  s.Field(state.timed);
  s.Field(state.next_curve_at);
  bool has_curve = state.gate_curve.has_value();
  s.Field(has_curve);
  if (has_curve) {
    if constexpr (Stream::kReads) state.gate_curve.emplace();
    Visit(s, *state.gate_curve);
  }
  s.Field(state.gate);
  s.Field(state.core);
  s.Field(state.cut);
  VisitMap(s, state.cut_times, 104);
  // Few keys have a level of their own.
  std::vector<Key> own = state.OwnKeys();
  VisitList(s, own, kMaxKeys, 16);
  if constexpr (Stream::kReads) {
    for (const Key& key : own) {
      const auto record = state.keys.find(key);
      if (record == state.keys.end() || record->second.timed == 0) {
        s.Refuse();
      } else {
        record->second.own = true;
      }
    }
  }
  VisitList(s, state.recent_outliers, 1024, 24);
  s.Field(state.outlier_rate);
  s.Field(state.slow_excess_ns);
  s.Field(state.slow_excess_square);
  s.Field(state.regime_changes);
  s.Field(state.level);
  s.Field(state.level_sum);
  s.Field(state.gate_level);
  s.Field(state.accepted);
  s.Field(state.previous_residual);
  s.Field(state.residual_square);
  s.Field(state.residual_product);

  Visit(s, state.trace);
  Visit(s, state.plain);
  Visit(s, state.stretches);
  s.Field(state.plain_count);
  s.Field(state.plain_sum);
  s.Field(state.plain_square);

  VisitList(s, state.sample, 1 << 16, 32);
  s.Field(state.sampled_from);
  s.Field(state.random_state);

  Visit(s, state.horizon);
  s.Field(state.horizon_version);

  std::vector<uint32_t> ids;
  for (const auto& [id, unused] : state.sets) ids.push_back(id);
  VisitList(s, ids, kMaxSets, 8);
  for (uint32_t id : ids) VisitList(s, state.sets[id], kMaxMeasurementsPerSet, 32);

  std::vector<uint64_t> spent(state.spent.begin(), state.spent.end());
  std::sort(spent.begin(), spent.end());
  VisitList(s, spent, kMaxSpent, 8);
  if constexpr (Stream::kReads) state.spent.insert(spent.begin(), spent.end());
  std::vector<uint64_t> again(state.again_measured.begin(), state.again_measured.end());
  std::sort(again.begin(), again.end());
  VisitList(s, again, kMaxSpent, 8);
  if constexpr (Stream::kReads) state.again_measured.insert(again.begin(), again.end());

  Visit(s, state.plan);
  if constexpr (Stream::kReads) {
    const auto are_times = [](const auto& times) {
      return std::all_of(times.begin(), times.end(), [](auto& t) { return IsTime(t.time_ns); });
    };
    if (!are_times(state.pending) || !are_times(state.sample) ||
        !are_times(state.recent_outliers)) {
      s.Refuse();
    }
    uint64_t iterations = 0;
    for (const auto& [key, record] : state.keys) {
      iterations += static_cast<uint64_t>(record.iterations);
    }
    const bool sane = iterations <= state.totals.iterations &&
                      state.overflow_untimed <= kMaxIterations && state.exact_time_ns >= 0 &&
                      state.rest_ns >= 0 && state.slow_excess_square >= 0 && state.again_ns >= 0 &&
                      state.again_timed >= 0 && state.again_untimed >= 0 && state.level > 0 &&
                      state.gate_level > 0 && state.totals.unique_keys == state.keys.size();
    if (!sane) s.Refuse();
  }
}

std::string OnlineEngine::Serialize() const {
  Writer writer;
  writer.Field(kMagic);
  VisitState(writer, *state_);
  return writer.Take();
}

absl::StatusOr<OnlineEngine> OnlineEngine::Parse(std::string_view bytes) {
  Reader reader(bytes);
  uint64_t magic = 0;
  reader.Field(magic);
  if (!reader.ok() || magic != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the engine state (", bytes.size(), " bytes) is not of this version; learn the job anew"));
  }
  OnlineEngine engine;
  VisitState(reader, *engine.state_);
  if (!reader.ok() || !reader.at_end()) {
    return absl::DataLossError(
        absl::StrCat("the engine state (", bytes.size(), " bytes) is damaged; learn the job anew"));
  }
  return engine;
}

namespace {

// An entry of the log is a word with its kind in the lowest byte, then what the call was given, as
// it was: also what the call refuses.
enum class LogEntry : uint8_t {
  kIteration = 1,
  kMeasurement = 2,
  kHorizon = 3,
  kPlan = 4,
  kStretch = 5
};

uint64_t Head(LogEntry entry, uint64_t rest = 0) {
  return static_cast<uint64_t>(entry) | rest << 8;
}

void WriteKey(Writer& writer, const Key& key) {
  writer.Field(static_cast<uint64_t>(key.first));
  writer.Field(static_cast<uint64_t>(key.second));
}

int64_t ReadAny(Reader& reader) {
  uint64_t raw;
  reader.Field(raw);
  return static_cast<int64_t>(raw);
}

Key ReadKey(Reader& reader) {
  Key key;
  key.first = ReadAny(reader);
  key.second = ReadAny(reader);
  return key;
}

std::string PlanBytes(PlanBasis plan) {
  Writer writer;
  Visit(writer, plan);
  return writer.Take();
}

}  // namespace

void OnlineEngine::Log::Add(const IterationSample& sample) {
  const uint64_t flags = uint64_t{sample.distorted} | uint64_t{sample.measured} << 1 |
                         uint64_t{sample.redone} << 2 | uint64_t{sample.combined} << 3 |
                         static_cast<uint64_t>(sample.phase) << 4 |
                         uint64_t{!sample.parts.empty()} << 5 | uint64_t{sample.first} << 6 |
                         uint64_t{sample.rest_ns > 0} << 7;
  Writer writer;
  writer.Field(Head(LogEntry::kIteration, flags));
  writer.Field(sample.iteration);
  WriteKey(writer, sample.key);
  writer.Field(static_cast<uint64_t>(sample.time_ns));
  if (sample.rest_ns > 0) writer.Field(static_cast<uint64_t>(sample.rest_ns));
  if (!sample.parts.empty()) {
    writer.Field(static_cast<uint64_t>(sample.parts.size()));
    for (const Part& part : sample.parts) {
      WriteKey(writer, part.key);
      writer.Field(static_cast<uint64_t>(part.kind));
    }
  }
  bytes += writer.Take();
}

void OnlineEngine::Log::Add(absl::Span<const StretchIteration> iterations, int64_t time_ns) {
  // One more than is taken is refused as more are.
  iterations = iterations.subspan(0, kMaxStretch + 1);
  Writer writer;
  writer.Field(Head(LogEntry::kStretch));
  writer.Field(static_cast<uint64_t>(time_ns));
  writer.Field(static_cast<uint64_t>(iterations.size()));
  for (const StretchIteration& i : iterations) {
    writer.Field(i.iteration);
    WriteKey(writer, i.key);
    writer.Field(i.first);
  }
  bytes += writer.Take();
}

void OnlineEngine::Log::Add(uint32_t set, uint64_t iteration, const Key& key,
                            absl::Span<const double> values) {
  // One more than is taken is refused as more are.
  values = values.subspan(0, kMaxValues + 1);
  Writer writer;
  writer.Field(Head(LogEntry::kMeasurement, set));
  writer.Field(iteration);
  WriteKey(writer, key);
  writer.Field(static_cast<uint64_t>(values.size()));
  for (const double value : values) writer.Field(value);
  bytes += writer.Take();
}

void OnlineEngine::Log::Add(const Horizon& horizon) {
  Writer writer;
  writer.Field(Head(LogEntry::kHorizon));
  Horizon copy = horizon;
  Visit(writer, copy);
  bytes += writer.Take();
}

void OnlineEngine::KeepLog() {
  log_ = std::make_unique<Log>();
  log_->plan = PlanBytes(state_->plan);
}

std::string OnlineEngine::TakeLog() {
  if (!log_) return "";
  // Plans are made when somebody asks; what they rest on is kept, so that the same is measured on.
  if (std::string plan = PlanBytes(state_->plan); plan != log_->plan) {
    Writer writer;
    writer.Field(Head(LogEntry::kPlan));
    log_->bytes += writer.Take() + plan;
    log_->plan = std::move(plan);
  }
  return std::exchange(log_->bytes, {});
}

absl::Status OnlineEngine::Replay(std::string_view log) {
  Reader reader(log);
  while (reader.ok() && !reader.at_end()) {
    uint64_t head;
    reader.Field(head);
    const uint64_t rest = head >> 8;
    switch (static_cast<LogEntry>(head & 0xff)) {
      case LogEntry::kIteration: {
        IterationSample sample{.distorted = (rest & 1) != 0,
                               .measured = (rest & 2) != 0,
                               .redone = (rest & 4) != 0,
                               .first = (rest & 64) != 0,
                               .combined = (rest & 8) != 0,
                               .phase = (rest & 16) != 0 ? Phase::kOther : Phase::kTrain};
        reader.Field(sample.iteration);
        sample.key = ReadKey(reader);
        sample.time_ns = ReadAny(reader);
        if ((rest & 128) != 0) sample.rest_ns = ReadAny(reader);
        if ((rest & 32) != 0) {
          sample.parts.resize(reader.Size(kMaxKeys, 24));
          for (Part& part : sample.parts) {
            part.key = ReadKey(reader);
            part.kind = static_cast<Part::Kind>(reader.Bounded(kPartKinds - 1));
          }
        }
        if (reader.ok()) AddIteration(sample);
        break;
      }
      case LogEntry::kMeasurement: {
        uint64_t iteration;
        reader.Field(iteration);
        const Key key = ReadKey(reader);
        std::vector<double> values(reader.Size(kMaxValues + 1, 8));
        for (double& value : values) {
          value = std::bit_cast<double>(static_cast<uint64_t>(ReadAny(reader)));
        }
        // One that was refused is refused again, and counted.
        if (reader.ok()) {
          AddMeasurement(static_cast<uint32_t>(rest), iteration, key, values).IgnoreError();
        }
        break;
      }
      case LogEntry::kStretch: {
        const int64_t time_ns = ReadAny(reader);
        std::vector<StretchIteration> iterations(reader.Size(kMaxStretch + 1, 32));
        for (StretchIteration& one : iterations) {
          reader.Field(one.iteration);
          one.key = ReadKey(reader);
          reader.Field(one.first);
        }
        // As above.
        if (reader.ok()) AddStretch(iterations, time_ns).IgnoreError();
        break;
      }
      case LogEntry::kHorizon: {
        Horizon horizon;
        Visit(reader, horizon);
        if (reader.ok() && !SetHorizon(std::move(horizon)).ok()) reader.Refuse();
        break;
      }
      case LogEntry::kPlan: {
        PlanBasis plan;
        Visit(reader, plan);
        if (reader.ok()) state_->plan = std::move(plan);
        break;
      }
      default:
        reader.Refuse();
    }
  }
  if (!reader.ok()) {
    return absl::DataLossError(absl::StrCat("the log of the engine's state (", log.size(),
                                            " bytes) is damaged; learn the job anew"));
  }
  return absl::OkStatus();
}

}  // namespace seqpoint
