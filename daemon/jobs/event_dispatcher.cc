#include "daemon/jobs/event_dispatcher.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/ring_events.h"
#include "daemon/base/saturate.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/jobs/payload.h"

namespace seqpoint::jobs {
namespace {

// Text from a ring may hold any bytes, and answers are UTF-8. Names are mangled symbols and
// messages are the library's own, so other bytes than printable ASCII become '?'.
std::string CleanText(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

template <typename Event>
std::string CleanTextAfter(const Event& event, absl::Span<const uint8_t> payload) {
  return CleanText(TextAfter<Event>(payload, event.length));
}

// The numbers behind an event that counts them; nothing when the payload is too short.
template <typename Event>
std::optional<std::vector<double>> ValuesAfter(const Event& event,
                                               absl::Span<const uint8_t> payload) {
  if (payload.size() < sizeof(event) + event.count * sizeof(double)) return std::nullopt;
  std::vector<double> values(event.count);
  std::memcpy(values.data(), payload.data() + sizeof(event), event.count * sizeof(double));
  return values;
}

bool AllFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

class EventDispatcher {
 public:
  using Payload = absl::Span<const uint8_t>;

  EventDispatcher(Process& process, JobEvents& job, ChangeTracker& changes)
      : process_(process), job_(job), changes_(changes) {}

  bool Dispatch(abi::EventType type, Payload payload) {
    return VisitEvent(type, [&]<typename Event>() {
      const std::optional<Event> event = Fixed<Event>(payload);
      if (!event) return false;
      if constexpr (requires { On(*event, payload); }) {
        return On(*event, payload);
      } else {
        return OnIterationEvent(type, payload);
      }
    });
  }

 private:
  void OnStarted(const abi::DecisionEvent& event) {
    const uint64_t number = NumberOf(event.iteration);
    StartedMeasurementState started;
    started.set_set(event.config_id);
    started.set_shared(event.config_id == abi::kConfigTrace && job_.IsShared(process_, number));
    if (started.shared()) process_.state.set_shared_windows(process_.state.shared_windows() + 1);
    if ((event.valid & 1) != 0) started.set_first(event.length[0]);
    if ((event.valid & 2) != 0) started.set_second(event.length[1]);
    jobs::OnStarted(number, started, *process_.state.mutable_measurements());
  }

  bool OnIterationEvent(abi::EventType type, Payload payload) {
    ProcessState& state = process_.state;
    if (type == abi::EventType::kBoundary || type == abi::EventType::kStep) {
      state.set_missing_events(false);  // its number covers what came before
    }
    if (type == abi::EventType::kDecision) {
      if (const auto event = Fixed<abi::DecisionEvent>(payload); event && event->config_id != 0) {
        state.set_measurements_started(state.measurements_started() + 1);
        OnStarted(*event);
        if (event->config_id == abi::kConfigTrace) process_.traces.Open(NumberOf(event->iteration));
      }
    }
    if (state.reported()) return true;  // its iterations come as a whole
    if (process_.learning) {
      // Events of an earlier rule say nothing about this one.
      const uint32_t generation = job_.RuleGeneration();
      if (generation != 0 && state.library_rule() == generation) {
        process_.learning->OnLibraryEvent(type, payload);
      }
      return true;
    }
    if (!FeedBuilder(type, payload, state.number_offset(), process_.builder)) return false;
    if (process_.monitor && type == abi::EventType::kStep) {
      process_.monitor->OnStep(*Fixed<abi::StepEvent>(payload));
    } else if (process_.monitor && type == abi::EventType::kBoundary) {
      process_.monitor->OnCandidate(Fixed<abi::BoundaryEvent>(payload)->api_ns);
    }
    return true;
  }

  bool On(const abi::ClockStepEvent& event, Payload) {
    process_.builder.OnClockStep(event);
    process_.pace = {};  // measured by the clock
    v1::Losses& losses = *process_.state.mutable_losses();
    losses.set_clock_steps(losses.clock_steps() + 1);
    return true;
  }

  bool On(const abi::NameEvent& event, Payload payload) {
    if (!ProcessNames::IsId(event.name_id) || !process_.names.Fits(event.length)) return false;
    std::string text = CleanTextAfter(event, payload);
    process_.SetName(event.name_id, text);
    job_.OnName(process_, event, std::move(text));
    return true;
  }

  bool On(const abi::CountersEvent& event, Payload payload) {
    std::optional<std::vector<double>> values = ValuesAfter(event, payload);
    if (!values) return false;
    ProcessState& state = process_.state;
    state.set_stops(state.stops() + 1);  // its WindowEvent has the time
    state.set_counter_stops(state.counter_stops() + 1);
    state.set_counter_stops_ns(SaturatedSum(state.counter_stops_ns(), Saturate(event.stopped_ns)));
    const bool complete = event.status == abi::kCountersOk && AllFinite(*values);
    job_.OnCounters(process_, event, NumberOf(event.iteration), complete, *std::move(values));
    return true;
  }

  bool On(const abi::KernelCountersEvent& event, Payload payload) {
    const std::optional<std::vector<double>> values = ValuesAfter(event, payload);
    // Without one of its kernels an iteration is not used (ArrivingKernels).
    if (!values || !MetricChoice::OfKernels(event.config_id) || !AllFinite(*values)) return false;
    const ProcessNames::Name* const name = process_.names.Find(event.name_id);
    process_.kernels.Add(event, name == nullptr ? "" : name->text, *values);
    return true;
  }

  bool On(const abi::FeatureEvent& event, Payload payload) {
    const std::string_view name = FeatureName(event.feature);
    if (name.empty()) return false;
    v1::Feature& feature = process_.features[event.feature];
    feature.set_name(std::string(name));
    feature.set_state(static_cast<v1::FeatureState>(event.state + 1));
    feature.set_code(static_cast<int32_t>(event.code));
    feature.set_message(CleanTextAfter(event, payload));
    changes_.Mark(Change::kDescription);
    return true;
  }

  bool On(const abi::RuleEvent& event, Payload) {
    process_.SetLevel(event.level);
    process_.state.set_library_rule(event.rule_generation);
    changes_.Mark(Change::kDescription);
    return true;
  }

  bool On(const abi::WindowEvent& event, Payload) {
    ProcessState& state = process_.state;
    const int64_t stopped_ns = Saturate(event.stopped_ns);
    const bool traced = event.level == static_cast<uint8_t>(abi::Level::kTrace);
    const uint64_t number = NumberOf(event.iteration);
    state.set_stopped_duration_ns(SaturatedSum(state.stopped_duration_ns(), stopped_ns));
    if (traced) {
      state.set_trace_stops(state.trace_stops() + 1);
      state.set_trace_stops_ns(SaturatedSum(state.trace_stops_ns(), stopped_ns));
    }
    if (process_.traces.IsOpen(number)) state.set_stops(state.stops() + 1);
    if ((event.flags & abi::kWindowGivenUp) != 0) {
      state.set_given_up_windows(state.given_up_windows() + 1);
      process_.traces.GiveUp(number);
      OnFailed(number, *state.mutable_measurements());
    } else if (traced) {
      process_.traces.Close(number, static_cast<int64_t>(event.begin_ns),
                            static_cast<int64_t>(event.end_ns));
    }
    return true;
  }

  bool On(const abi::CommunicatorEvent& event, Payload payload) {
    if (!process_.collectives.OnCommunicator(event, CleanTextAfter(event, payload))) return false;
    job_.OnCommunicator(process_, event);
    return true;
  }

  bool On(const abi::CollectiveKindEvent& event, Payload payload) {
    const std::string text(TextAfter<abi::CollectiveKindEvent>(payload, event.length));
    const std::vector<std::string> words = absl::StrSplit(text, '\n');
    if (words.size() < 2) return false;
    const std::string function = CleanText(words[0]), datatype = CleanText(words[1]);
    // A receive is the peer's send: both have one number.
    const std::string both = event.peer < 0 ? absl::StrCat(function, " ", datatype) : datatype;
    return process_.collectives.OnKind(event, job_.KindId(both, event.elements), function,
                                       datatype);
  }

  bool On(const abi::RankEvent& event, Payload) {
    constexpr int32_t kMostRanks = 1'000'000;
    if (event.rank < 0 || event.rank >= event.world_size || event.world_size > kMostRanks) {
      return false;
    }
    job_.OnRank(process_, event);
    return true;
  }

  bool On(const abi::SampledEvent& event, Payload) {
    if (event.duration_ns == 0 || event.covered_ns > event.duration_ns) return false;
    const auto duration_ns = static_cast<double>(event.duration_ns);
    const auto covered_ns = static_cast<double>(event.covered_ns);
    SampledState sampled;
    sampled.set_iterations(1);
    sampled.set_duration_ns(duration_ns);
    sampled.set_covered_ns(covered_ns);
    sampled.set_edge_ns(static_cast<double>(event.edge_ns));
    sampled.set_least_covered_share(covered_ns / duration_ns);
    AddSampled(sampled, process_.state.mutable_sampled());
    return true;
  }

  bool On(const abi::CostEvent& event, Payload) {
    for (int level = 0; level < process_.state.watching_ns_size(); ++level) {
      process_.state.set_watched_calls(level, event.calls[level]);
      process_.state.set_watching_ns(level, Saturate(event.spent_ns[level]));
    }
    return true;
  }

  bool On(const abi::StandDownEvent& event, Payload payload) {
    changes_.Mark(Change::kDescription);
    std::string holder = CleanTextAfter(event, payload);
    ProcessState& state = process_.state;
    const uint64_t number = NumberOf(event.iteration);
    if (event.end_ns == 0) {
      state.set_stands_down_for(holder.empty() ? "another profiler" : std::move(holder));
      state.set_stood_down_from(number);
      return true;
    }
    if (event.end_ns < event.begin_ns) return true;
    state.set_stood_down_duration_ns(
        SaturatedSum(state.stood_down_duration_ns(), Saturate(event.end_ns - event.begin_ns)));
    state.clear_stands_down_for();
    job_.OnStoodDown(event, holder, state.stood_down_from(), number);
    return true;
  }

  bool On(const abi::DeviceEvent& event, Payload payload) {
    ProcessState& state = process_.state;
    state.set_device(CleanTextAfter(event, payload));
    state.set_chip(CleanText({event.chip, strnlen(event.chip, sizeof(event.chip))}));
    state.set_compute_capability(absl::StrCat(event.compute_major, ".", event.compute_minor));
    if (!state.chip().empty()) job_.OnChip(process_);
    changes_.Mark(Change::kDescription);
    return true;
  }

  bool On(const abi::ConfigEvent& event, Payload payload) {
    const bool collected = event.status == 0 && event.passes == 1;
    return job_.OnConfig(event.config_id, collected,
                         collected ? "" : CleanTextAfter(event, payload));
  }

  uint64_t NumberOf(uint64_t library_number) const {
    return library_number + process_.state.number_offset();
  }

  Process& process_;
  JobEvents& job_;
  ChangeTracker& changes_;
};

}  // namespace

bool DispatchEvent(abi::EventType type, absl::Span<const uint8_t> payload, Process& process,
                   JobEvents& job, ChangeTracker& changes) {
  return EventDispatcher(process, job, changes).Dispatch(type, payload);
}

}  // namespace seqpoint::jobs
