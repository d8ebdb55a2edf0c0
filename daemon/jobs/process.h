// Process: what a job keeps of one process. It numbers the iterations of the process and applies
// the records of its ring; what follows for the job is the job's to decide.
//
// The row, the message `state` and the parts with a message of their own are stored: Save() joins
// them. A field that is added to the message is stored without further code. The other members are
// learned again after a restart.
//
// Threading: one thread at a time. Ownership: everything is its own.
#ifndef DAEMON_JOBS_PROCESS_H_
#define DAEMON_JOBS_PROCESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "daemon/iterations/rule_monitor.h"
#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/learning.h"
#include "daemon/jobs/measurement_tracker.h"
#include "daemon/jobs/process_collectives.h"
#include "daemon/jobs/process_names.h"
#include "daemon/jobs/resume_alignment.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/seen_lengths.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/jobs/trace_windows.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/expected_end.h"
#include "daemon/store/store.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// The counters of the ring's reader so far.
struct RingLosses {
  uint64_t dropped = 0;
  uint64_t events_dropped = 0;  // of these, boundaries, steps and other events
  uint64_t lost = 0;
  uint64_t rejected = 0;
  uint64_t cupti_dropped = 0;
  uint64_t invalid_timestamps = 0;
  uint64_t unstored_records = 0;  // of a node
  uint32_t clock_kind = 0;
};

// Between which times of the monotonic clock a process went: its end is looked for every few
// milliseconds, and its ring is drained later. 0: nobody watched.
struct EndSeen {
  int64_t after_ns = 0;
  int64_t before_ns = 0;
};

// A finished iteration in the terms of the job.
struct NumberedIteration {
  int64_t number = 0;
  int dimensions = 0;  // of a length
  bool known = false;  // its lengths
  Key key;             // 0 where no length is known
  bool redone = false;
  bool cold = false;                        // it has a length that is new to the process
  bool sums = false;                        // lengths are sums over micro-batches
  std::vector<MicroBatch> micro_batches{};  // of sums, where their lengths are known
};

struct Process {
  explicit Process(ProcessRow row);

  ProcessState state;
  ProcessRow row;
  std::map<uint16_t, v1::Feature> features;  // by abi::Feature
  std::unique_ptr<Learning> learning;        // null once marking
  IterationBuilder builder;
  TraceWindows traces;
  ProcessCollectives collectives;
  ResumeAlignment alignment;

  // Not stored.
  ProcessNames names;  // they have rows of their own
  SeenLengths seen;
  std::vector<StretchIteration> untimed;  // its last iterations, as far as they may be one stretch
  std::optional<iterations::RuleMonitor> monitor;  // while marking
  ArrivingKernels kernels;
  WallPace pace;             // of its iterations
  int64_t last_call_ns = 0;  // API time of the last call
  std::string learn_log;     // call records since the last commit
  abi::Control control = {};
  std::optional<abi::Control> hub_plan;  // of a node's: what its hub wants
  int64_t control_made = 0;              // ChangeTracker::controls() then; 0: it must be made again

  void Save(ProcessState* to) const;
  // `rule` of the job; null: none.
  void Load(const ProcessState& saved, const LearnedRule* rule);

  // Learns a rule from here on, or verifies `rule`. Iterations are numbered from `first_number` on.
  void StartLearning(int64_t first_number, const LearnedRule* rule);
  // The rule does not fit any more.
  void LearnAgain();
  // True when the library and our own matcher agree: from here on the library marks alone.
  bool StartMarking(const LearnedRule& rule);

  // It ends, or learns again, before that: hands over what it learned from.
  void FinishLearning();

  // True when the host does the work itself.
  bool OnData(absl::Span<const abi::DataRecord> records);
  // True when a figure changed.
  bool OnLosses(const RingLosses& losses);
  // `count` calls will not come. True when iterations are counted by them.
  bool OnCallsMissing(uint64_t count);
  void OnBoundary(const FinishedIteration& iteration);
  // The next iteration of the process, whose rank has had those before `rank_next`; `rule`: null
  // when there is none.
  NumberedIteration Number(const FinishedIteration& iteration, const LearnedRule* rule,
                           int64_t rank_next);

  bool alive() const { return row.end_ns == 0; }
  // Its library knows where iterations begin.
  bool marks() const {
    return monitor || (state.reported() && state.level() >= static_cast<int>(abi::Level::kMark));
  }
  // It trained, and its iterations are in the job's figures.
  bool counts() const { return state.iterations() > 0 && !state.concurrent(); }
  // It may have had more iterations than are known.
  bool uncounted() const;
  // Then all iterations of its rank before this number are known.
  int64_t CountedTo() const;
  // True while nothing else is known; without CUPTI nothing can be measured.
  bool HasCupti() const;
  // Null when the library did not send it.
  const v1::Feature* FindFeature(abi::Feature feature) const;
  // The number under which its trace segments hold the calls that it is learned from.
  int64_t LearnLogNumber() const { return -(row.process_id + (state.learn_round() << 40)); }
  // The job's number of an iteration of this process.
  int64_t JobNumber(uint64_t number) const {
    const auto own = static_cast<int64_t>(number);
    return own < state.renumbered_from() ? own : own - state.repeated();
  }
  // Its own number, from 0, of an iteration of the job, and back.
  int64_t OwnNumber(int64_t job_number) const {
    const bool renumbered = job_number >= state.renumbered_from() - state.repeated();
    return job_number + (renumbered ? state.repeated() : 0) - state.first_number();
  }
  int64_t JobNumberOfOwn(int64_t own) const {
    return JobNumber(static_cast<uint64_t>(own + state.first_number()));
  }
  // The library's number of an iteration of the job, once it marks.
  int64_t LibraryNumber(int64_t number) const {
    return number + state.repeated() - state.number_offset();
  }
  // An iteration of this process and the same one of `other`, both by the numbers of JobNumber().
  // Nothing: no collective shows one.
  std::optional<std::pair<int64_t, int64_t>> SameIteration(const Process& other) const;
  // From iteration `after_hole` on other ranks may show its numbers.
  void SetUnmatched(int64_t after_hole);
  void SetName(uint32_t id, const std::string& text);
  void SetLevel(uint8_t level);
  void CountRejected();
  void CountUnstored(int64_t records);  // of its traces

 private:
  // Where calls were missing while it was learned from, other ranks may show the numbers.
  void NoteHole();
};

// The name of an abi::Feature in the API; empty for an unknown one.
std::string_view FeatureName(uint16_t feature);

// Adds what PM sampling saw of other iterations.
void AddSampled(const SampledState& from, SampledState* to);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_H_
