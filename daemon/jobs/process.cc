#include "daemon/jobs/process.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/base/saturate.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

constexpr int kLevels = 4;  // abi::Level, as far as something is watched

// The micro-batches of an iteration, where their lengths are known.
std::vector<MicroBatch> MicroBatchesOf(const FinishedIteration& iteration, const abi::Rule& rule) {
  constexpr auto kGraph = static_cast<uint8_t>(abi::Op::kGraphLaunch);
  const bool graphs =
      rule.boundary.op == kGraph || rule.confirm.op == kGraph || rule.step.op == kGraph;
  std::vector<MicroBatch> parts;
  for (const LengthPair& lengths : iteration.micro_lengths()) {
    parts.push_back({{lengths.first(), rule.length_count > 1 ? lengths.second() : 0}});
  }
  if (graphs && !parts.empty()) {
    parts.front().kind = MicroBatch::Kind::kFirst;
    parts.back().kind = MicroBatch::Kind::kLast;
  }
  return parts;
}

iterations::RuleMonitor MonitorOf(const abi::Rule& rule) {
  return {rule.micro_batches, rule.length_count,
          rule.step.op == static_cast<uint8_t>(abi::Op::kStep)};
}

}  // namespace

std::string_view FeatureName(uint16_t feature) {
  // By abi::Feature.
  constexpr std::string_view kNames[] = {
      "",        "cupti",      "callbacks", "activity", "counters",   "nvtx",
      "ring",    "matcher",    "fork",      "exit",     "framework",  "roofline",
      "batches", "evaluation", "operators", "nccl",     "collectives"};
  static_assert(std::size(kNames) == static_cast<size_t>(abi::Feature::kCount));
  return feature < std::size(kNames) ? kNames[feature] : "";
}

void AddSampled(const SampledState& from, SampledState* to) {
  if (from.iterations() == 0) return;
  const double least = to->iterations() == 0 ? 1 : to->least_covered_share();
  to->set_iterations(to->iterations() + from.iterations());
  to->set_duration_ns(to->duration_ns() + from.duration_ns());
  to->set_covered_ns(to->covered_ns() + from.covered_ns());
  to->set_edge_ns(to->edge_ns() + from.edge_ns());
  to->set_least_covered_share(std::min(least, from.least_covered_share()));
}

Process::Process(ProcessRow row) : row(std::move(row)) {
  state.set_level(static_cast<int32_t>(abi::Level::kLearn));
  state.mutable_watched_calls()->Resize(kLevels, 0);
  state.mutable_watching_ns()->Resize(kLevels, 0);
}

void Process::Save(ProcessState* to) const {
  *to = state;
  for (const auto& [number, feature] : features) (*to->mutable_features())[number] = feature;
  if (learning) *to->mutable_learning() = learning->state();
  *to->mutable_builder() = builder.Save();
  traces.Save(to->mutable_traces());
  *to->mutable_collectives() = collectives.Save();
  to->mutable_buffered()->Add(alignment.buffered().begin(), alignment.buffered().end());
}

void Process::Load(const ProcessState& saved, const LearnedRule* rule) {
  state = saved;
  for (const auto& [number, feature] : saved.features()) {
    features[static_cast<uint16_t>(number)] = feature;
  }
  builder.Load(saved.builder());
  traces.SetTracing(saved.level() == static_cast<int32_t>(abi::Level::kTrace));
  traces.Load(saved.traces());
  collectives.Load(saved.collectives());
  alignment.Load({saved.buffered().begin(), saved.buffered().end()});
  state.mutable_watched_calls()->Resize(kLevels, 0);
  state.mutable_watching_ns()->Resize(kLevels, 0);
  // The parts have them.
  state.clear_features();
  state.clear_learning();
  state.clear_builder();
  state.clear_traces();
  state.clear_collectives();
  state.clear_buffered();
  learning.reset();
  if (saved.has_learning()) {
    StartLearning(saved.learning().first_number(), rule);
    learning->Load(saved.learning());
  } else if (rule != nullptr && !state.reported()) {
    monitor.emplace(MonitorOf(rule->rule));
  }
}

void Process::StartLearning(int64_t first_number, const LearnedRule* rule) {
  learning = std::make_unique<Learning>();
  learning->SetFirstNumber(first_number);
  for (const uint32_t id : names.Ids()) {
    if (const auto* const name = names.Find(id)) learning->OnName(id, name->text);
  }
  if (rule != nullptr) learning->SetRule(rule->rule);
}

void Process::LearnAgain() {
  const int64_t next_number = builder.next_number();
  builder.Reset();
  monitor.reset();
  state.set_number_offset(0);
  state.set_learn_round(state.learn_round() + 1);
  learn_log.clear();  // of the round before
  StartLearning(next_number, nullptr);
}

bool Process::StartMarking(const LearnedRule& rule) {
  const std::optional<int64_t> offset = learning->Agree(builder);
  if (!offset) return false;
  state.set_number_offset(*offset);
  state.set_marked_from(builder.next_number());
  NoteHole();
  learning.reset();
  monitor.emplace(MonitorOf(rule.rule));
  return true;
}

void Process::FinishLearning() {
  learning->Finish(builder);
  NoteHole();
}

void Process::NoteHole() {
  // The numbers of a rule that was learned again go on.
  const std::optional<int64_t> after_hole = learning->after_hole();
  if (!after_hole || state.learn_round() > 0) return;
  SetUnmatched(*after_hole);
}

void Process::SetUnmatched(int64_t after_hole) {
  state.set_unmatched(true);
  // The log of an earlier process may show what a resumed one repeats.
  if (state.aligning()) return;
  state.set_renumbered_from(after_hole);
  state.set_aligning(true);
}

bool Process::OnData(absl::Span<const abi::DataRecord> records) {
  bool host_times = false;
  const auto log = [&](const abi::DataRecord& record) {
    learn_log.append(reinterpret_cast<const char*>(&record), sizeof(record));
  };
  for (const abi::DataRecord& record : records) {
    switch (static_cast<abi::DataType>(record.type)) {
      case abi::DataType::kCall:
        host_times |= (record.call.flags & abi::kCallHostTime) != 0;
        last_call_ns = static_cast<int64_t>(record.call.api_ns);
        if (learning) {
          learning->OnCall(record.call);
          log(record);
        }
        break;
      case abi::DataType::kCopy:
      case abi::DataType::kMemset:
      case abi::DataType::kGraph: {
        const bool graph = record.type == static_cast<uint16_t>(abi::DataType::kGraph);
        const uint32_t correlation_id =
            graph ? record.graph.correlation_id : record.copy.correlation_id;
        const uint64_t start_ns = graph ? record.graph.start_ns : record.copy.start_ns;
        builder.OnGpuStart(correlation_id, start_ns);
        if (learning) {
          learning->OnGpuStart(correlation_id, start_ns);
          log(record);
        }
        [[fallthrough]];
      }
      case abi::DataType::kKernel:
      case abi::DataType::kApi:
      case abi::DataType::kSync:
        traces.Add(record);
        break;
      default:
        CountRejected();
    }
  }
  return host_times;
}

bool Process::OnLosses(const RingLosses& losses) {
  state.set_clock_kind(losses.clock_kind);
  const std::string before = state.losses().SerializeAsString();
  v1::Losses& to = *state.mutable_losses();
  to.set_ring_dropped(Saturate(losses.dropped));
  to.set_ring_lost(Saturate(losses.lost));
  to.set_rejected(SaturatedSum(Saturate(losses.rejected), std::max<int64_t>(state.rejected(), 0)));
  to.set_cupti_dropped(Saturate(losses.cupti_dropped));
  to.set_invalid_timestamps(Saturate(losses.invalid_timestamps));
  to.set_unstored_records(
      SaturatedSum(Saturate(losses.unstored_records), state.unstored_records()));
  // Where among the events of this reading they are missing is not known.
  if (losses.events_dropped > state.events_dropped()) state.set_missing_events(true);
  state.set_events_dropped(losses.events_dropped);
  return to.SerializeAsString() != before;
}

bool Process::OnCallsMissing(uint64_t count) {
  // Where the library marks boundaries, it counts the iterations.
  if (!learning || !learning->wants_calls()) return false;
  if (state.missing_calls() == 0) state.set_missing_since_ns(last_call_ns);
  state.set_missing_calls(state.missing_calls() + count);
  return true;
}

void Process::OnBoundary(const FinishedIteration& iteration) {
  if (state.first_boundary_ns() == 0) state.set_first_boundary_ns(iteration.boundary_ns());
  state.set_last_boundary_ns(iteration.boundary_ns());
  if (state.missing_calls() == 0 || iteration.boundary_ns() <= state.missing_since_ns()) {
    state.set_missing_in(static_cast<int64_t>(iteration.number()));
  }
}

NumberedIteration Process::Number(const FinishedIteration& iteration, const LearnedRule* rule,
                                  int64_t rank_next) {
  NumberedIteration numbered = {
      .number = JobNumber(iteration.number()),
      .dimensions = rule != nullptr ? static_cast<int>(rule->rule.length_count) : 0,
      .sums = rule != nullptr && abi::SumsLengths(rule->rule)};
  const uint32_t wanted = (1u << numbered.dimensions) - 1;
  numbered.known = (iteration.valid() & wanted) == wanted;
  numbered.redone = numbered.number < (state.repeats() ? rank_next : state.rank_next());
  state.set_iterations(state.iterations() + 1);
  // The event of a window comes within a few iterations, or is lost.
  if (iteration.number() > kResultPatience) {
    traces.ForgetBefore(iteration.number() - kResultPatience);
    ForgetStartedBefore(iteration.number() - kResultPatience, *state.mutable_measurements());
  }
  if (!numbered.known) return numbered;
  if (numbered.dimensions > 0) numbered.key.first = iteration.first_length();
  if (numbered.dimensions > 1) numbered.key.second = iteration.second_length();
  if (!numbered.sums) {
    numbered.cold = seen.Add({numbered.key}, numbered.dimensions);
  } else {
    // That a sum is new says nothing: kernels run on the lengths of micro-batches.
    numbered.micro_batches = MicroBatchesOf(iteration, rule->rule);
  }
  for (const MicroBatch& part : numbered.micro_batches)
    numbered.cold |= seen.Add(part, numbered.dimensions);
  const bool disturbed = iteration.distorted() || iteration.config_id() != abi::kConfigNone;
  if (monitor && iteration.gpu_time() && !disturbed) {
    const int64_t lengths[2] = {iteration.first_length(), iteration.second_length()};
    monitor->OnTime(lengths, static_cast<uint64_t>(iteration.duration_ns()));
  }
  return numbered;
}

bool Process::uncounted() const {
  // A thread that is killed may lose the call that it writes, without a drop.
  return state.unread() || (state.missing_calls() > 0 && state.losses().ring_dropped() > 0) ||
         (state.missing_events() && !alive());
}

int64_t Process::CountedTo() const {
  const int64_t next = state.missing_calls() > 0 ? state.missing_in() : builder.next_number();
  return JobNumber(static_cast<uint64_t>(std::max(state.first_number(), next)));
}

std::optional<std::pair<int64_t, int64_t>> Process::SameIteration(const Process& other) const {
  if (learning || other.learning) return std::nullopt;  // the libraries' numbers are not known
  const auto same = collectives.SameIteration(other.collectives);
  if (!same) return std::nullopt;
  return std::pair(static_cast<int64_t>(same->first) + state.number_offset(),
                   static_cast<int64_t>(same->second) + other.state.number_offset());
}

bool Process::HasCupti() const {
  const v1::Feature* const cupti = FindFeature(abi::Feature::kCupti);
  return cupti == nullptr || cupti->state() == v1::FEATURE_STATE_READY;
}

const v1::Feature* Process::FindFeature(abi::Feature feature) const {
  const auto it = features.find(static_cast<uint16_t>(feature));
  return it == features.end() ? nullptr : &it->second;
}

void Process::SetName(uint32_t id, const std::string& text) {
  names.Set(id, text);
  if (learning) learning->OnName(id, text);
}

void Process::SetLevel(uint8_t level) {
  state.set_level(level);
  traces.SetTracing(level == static_cast<uint8_t>(abi::Level::kTrace));
}

void Process::CountRejected() {
  state.set_rejected(SaturatedSum(state.rejected(), 1));
  state.mutable_losses()->set_rejected(SaturatedSum(state.losses().rejected(), 1));
}

void Process::CountUnstored(int64_t records) {
  state.set_unstored_records(SaturatedSum(state.unstored_records(), records));
  v1::Losses& losses = *state.mutable_losses();
  losses.set_unstored_records(SaturatedSum(losses.unstored_records(), records));
}

}  // namespace seqpoint::jobs
