// The struct of each type of event in a ring (injection/abi/records.h), once for all who read them.
//
//   VisitEvent(type, [&]<typename Event>() { return payload.size() >= sizeof(Event); });
//
// Threading: pure functions.
#ifndef DAEMON_BASE_RING_EVENTS_H_
#define DAEMON_BASE_RING_EVENTS_H_

#include <tuple>
#include <type_traits>

#include "injection/abi/records.h"

namespace seqpoint {

template <abi::EventType kEventType, typename EventStruct>
struct RingEvent {
  static constexpr abi::EventType kType = kEventType;
  using Struct = EventStruct;
};

using RingEvents = std::tuple<RingEvent<abi::EventType::kName, abi::NameEvent>,
                              RingEvent<abi::EventType::kBoundary, abi::BoundaryEvent>,
                              RingEvent<abi::EventType::kDecision, abi::DecisionEvent>,
                              RingEvent<abi::EventType::kStep, abi::StepEvent>,
                              RingEvent<abi::EventType::kClock, abi::ClockEvent>,
                              RingEvent<abi::EventType::kCounters, abi::CountersEvent>,
                              RingEvent<abi::EventType::kFeature, abi::FeatureEvent>,
                              RingEvent<abi::EventType::kRule, abi::RuleEvent>,
                              RingEvent<abi::EventType::kWindow, abi::WindowEvent>,
                              RingEvent<abi::EventType::kClockStep, abi::ClockStepEvent>,
                              RingEvent<abi::EventType::kSync, abi::SyncEvent>,
                              RingEvent<abi::EventType::kConfig, abi::ConfigEvent>,
                              RingEvent<abi::EventType::kDevice, abi::DeviceEvent>,
                              RingEvent<abi::EventType::kMicroBatch, abi::MicroBatchEvent>,
                              RingEvent<abi::EventType::kStandDown, abi::StandDownEvent>,
                              RingEvent<abi::EventType::kCost, abi::CostEvent>,
                              RingEvent<abi::EventType::kKernelCounters, abi::KernelCountersEvent>,
                              RingEvent<abi::EventType::kSampled, abi::SampledEvent>,
                              RingEvent<abi::EventType::kRank, abi::RankEvent>,
                              RingEvent<abi::EventType::kCommunicator, abi::CommunicatorEvent>,
                              RingEvent<abi::EventType::kCollectiveKind, abi::CollectiveKindEvent>>;

// Returns visit<Event>() for the struct of this type; false for an unknown type.
template <typename Visit>
bool VisitEvent(abi::EventType type, const Visit& visit) {
  return [&]<typename... Known>(std::type_identity<std::tuple<Known...>>) {
    return ((type == Known::kType && visit.template operator()<typename Known::Struct>()) || ...);
  }(std::type_identity<RingEvents>());
}

}  // namespace seqpoint

#endif  // DAEMON_BASE_RING_EVENTS_H_
