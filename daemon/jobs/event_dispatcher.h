// Checks the events of a process' ring and applies them to what the job keeps of the process. What
// concerns the whole job is handed on (JobEvents).
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

// Events that concern the whole job. Numbers of iterations are the process' own.
class JobEvents {
 public:
  // Generation of the rule that is verified or marked with; 0: there is none.
  virtual uint32_t RuleGeneration() const = 0;
  // Do all ranks trace this iteration? Then it is none of the plan's.
  virtual bool IsShared(const Process& process, uint64_t number) const = 0;
  virtual void OnName(Process& process, const abi::NameEvent& event, std::string text) = 0;
  // A configuration was measured in iteration `number`; `complete`: all values are numbers.
  virtual void OnCounters(Process& process, const abi::CountersEvent& event, uint64_t number,
                          bool complete, std::vector<double> values) = 0;
  virtual void OnCommunicator(Process& process, const abi::CommunicatorEvent& event) = 0;
  // The number in the job of operations with the same text and size; 0: there is no room.
  virtual uint32_t KindId(const std::string& text, uint64_t elements) = 0;
  virtual void OnRank(Process& process, const abi::RankEvent& event) = 0;
  virtual void OnChip(Process& process) = 0;  // its GPU's chip became known
  // The library has CUPTI again. `from`: the iteration in which it left CUPTI to the holder.
  virtual void OnStoodDown(const abi::StandDownEvent& event, const std::string& holder,
                           uint64_t from, uint64_t number) = 0;
  // `why`: it cannot be collected. False: too many cannot be collected.
  virtual bool OnConfig(uint32_t config_id, bool collected, const std::string& why) = 0;

 protected:
  ~JobEvents() = default;
};

// False: the event is rejected.
bool DispatchEvent(abi::EventType type, absl::Span<const uint8_t> payload, Process& process,
                   JobEvents& job, ChangeTracker& changes);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_EVENT_DISPATCHER_H_
