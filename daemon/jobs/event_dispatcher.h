// EventDispatcher: the events of a process' ring, checked and applied to what the job keeps of the
// process. What concerns the whole job is handed on (JobEvents).
//
//   EventDispatcher(process, job, changes).Dispatch(type, payload)   false: rejected
//
// Payloads come from another program: any type, any length, any bytes.
//
// Threading: one thread at a time. Ownership: none.
#ifndef DAEMON_JOBS_EVENT_DISPATCHER_H_
#define DAEMON_JOBS_EVENT_DISPATCHER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/jobs/change_tracker.h"
#include "daemon/jobs/process.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// What of an event concerns the process' job. Numbers of iterations are the process' own.
class JobEvents {
 public:
  // Generation of the rule that is verified or marked with; 0: there is none.
  virtual uint32_t RuleGeneration() const = 0;
  virtual void OnName(Process& process, const abi::NameEvent& event, std::string text) = 0;
  // A configuration was measured in iteration `number`; `complete`: all values are numbers.
  virtual void OnCounters(Process& process, const abi::CountersEvent& event, uint64_t number,
                          bool complete, std::vector<double> values) = 0;
  virtual void OnFeature(Process& process, abi::Feature feature) = 0;
  virtual void OnRank(Process& process, const abi::RankEvent& event) = 0;
  virtual void OnChip(Process& process) = 0;  // its GPU's chip became known
  // CUPTI is ours again. `from`: the iteration in which it was left to the holder.
  virtual void OnStoodDown(const abi::StandDownEvent& event, const std::string& holder,
                           uint64_t from, uint64_t number) = 0;
  // `why` it cannot be collected. False: too many cannot.
  virtual bool OnConfig(uint32_t config_id, bool collected, const std::string& why) = 0;

 protected:
  ~JobEvents() = default;
};

class EventDispatcher {
 public:
  EventDispatcher(Process& process, JobEvents& job, ChangeTracker& changes)
      : process_(process), job_(job), changes_(changes) {}

  bool Dispatch(abi::EventType type, absl::Span<const uint8_t> payload);

 private:
  using Payload = absl::Span<const uint8_t>;

  template <typename Event>
  bool Decode(Payload payload);
  bool OnIterationEvent(abi::EventType type, Payload payload);
  bool On(const abi::NameEvent& event, Payload payload);
  bool On(const abi::ClockStepEvent& event, Payload payload);
  bool On(const abi::CountersEvent& event, Payload payload);
  bool On(const abi::KernelCountersEvent& event, Payload payload);
  bool On(const abi::FeatureEvent& event, Payload payload);
  bool On(const abi::RuleEvent& event, Payload payload);
  bool On(const abi::WindowEvent& event, Payload payload);
  bool On(const abi::RankEvent& event, Payload payload);
  bool On(const abi::SampledEvent& event, Payload payload);
  bool On(const abi::CostEvent& event, Payload payload);
  bool On(const abi::StandDownEvent& event, Payload payload);
  bool On(const abi::DeviceEvent& event, Payload payload);
  bool On(const abi::ConfigEvent& event, Payload payload);
  uint64_t NumberOf(uint64_t library_number) const {
    return library_number + process_.state.number_offset();
  }

  Process& process_;
  JobEvents& job_;
  ChangeTracker& changes_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_EVENT_DISPATCHER_H_
