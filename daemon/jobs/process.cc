#include "daemon/jobs/process.h"

#include <algorithm>
#include <utility>

#include "daemon/jobs/state_codec.h"

namespace seqpoint::jobs {
namespace {

constexpr int kLevels = 4;  // abi::Level, as far as something is watched

}  // namespace

std::string_view FeatureName(uint16_t feature) {
  switch (static_cast<abi::Feature>(feature)) {
    case abi::Feature::kCupti:
      return "cupti";
    case abi::Feature::kCallbacks:
      return "callbacks";
    case abi::Feature::kActivity:
      return "activity";
    case abi::Feature::kCounters:
      return "counters";
    case abi::Feature::kNvtx:
      return "nvtx";
    case abi::Feature::kRing:
      return "ring";
    case abi::Feature::kMatcher:
      return "matcher";
    case abi::Feature::kFork:
      return "fork";
    case abi::Feature::kExit:
      return "exit";
    case abi::Feature::kFramework:
      return "framework";
    case abi::Feature::kRoofline:
      return "roofline";
    case abi::Feature::kBatches:
      return "batches";
    case abi::Feature::kEvaluation:
      return "evaluation";
    case abi::Feature::kOperators:
      return "operators";
    default:
      return "";
  }
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
  state.set_process_id(this->row.process_id);
  state.set_level(static_cast<int32_t>(abi::Level::kLearn));
  state.mutable_watched_calls()->Resize(kLevels, 0);
  state.mutable_watching_ns()->Resize(kLevels, 0);
}

ProcessState Process::Save() const {
  ProcessState to = state;
  for (const auto& [number, feature] : features) (*to.mutable_features())[number] = feature;
  if (learning) {
    to.mutable_learning()->set_first_number(learning->first_number());
    learning->SaveQueue(to.mutable_learning()->mutable_library_events());
  }
  EncodeBuilder(builder.SaveState(), to.mutable_builder());
  traces.Save(to.mutable_traces());
  measurements.Save(to.mutable_measurements());
  alignment.Save(to.mutable_buffered());
  return to;
}

void Process::Load(const ProcessState& saved) {
  state = saved;
  for (const auto& [number, feature] : saved.features()) {
    features[static_cast<uint16_t>(number)] = feature;
  }
  if (!saved.has_learning()) learning.reset();
  builder.LoadState(DecodeBuilder(saved.builder()));
  traces.SetTracing(saved.level() == static_cast<int32_t>(abi::Level::kTrace));
  traces.Load(saved.traces());
  measurements.Load(saved.measurements());
  alignment.Load(saved.buffered());
  state.mutable_watched_calls()->Resize(kLevels, 0);
  state.mutable_watching_ns()->Resize(kLevels, 0);
  // The parts have them.
  state.clear_features();
  state.clear_learning();
  state.clear_builder();
  state.clear_traces();
  state.clear_measurements();
  state.clear_buffered();
}

bool Process::uncounted() const {
  // A thread that is killed may lose the call that it writes, without a drop.
  return state.unread() || (state.missing_calls() > 0 && state.losses().ring_dropped() > 0) ||
         (state.missing_events() && !alive());
}

int64_t Process::CountedTo() const {
  const int64_t next = state.missing_calls() > 0 ? state.missing_in() : builder.next_number();
  return std::max(state.first_number(), next) - state.repeated();
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
  state.mutable_losses()->set_rejected(state.losses().rejected() + 1);
}

}  // namespace seqpoint::jobs
