// Process: what a job keeps of one process. It decides nothing.
//
// What lasts is the row, the message `state`, and the parts that have a message of their own;
// Save() joins them. A field that is added to the message is saved without further ado, and what is
// not in it is learned again after a restart.
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

#include "daemon/iterations/rule_monitor.h"
#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/learning.h"
#include "daemon/jobs/measurement_tracker.h"
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

struct Process {
  explicit Process(ProcessRow row);

  ProcessState state;
  ProcessRow row;
  std::map<uint16_t, v1::Feature> features;  // by abi::Feature
  std::unique_ptr<Learning> learning;        // null once marking
  IterationBuilder builder;
  TraceWindows traces;
  MeasurementTracker measurements;
  ResumeAlignment alignment;

  // Not saved.
  ProcessNames names;  // they have rows of their own
  SeenLengths seen;
  std::vector<StretchIteration> untimed;  // its last iterations, as far as they may be one stretch
  std::optional<iterations::RuleMonitor> monitor;  // while marking
  ArrivingKernels kernels;
  WallPace pace;             // of its iterations
  int64_t last_call_ns = 0;  // API time of the last call that came
  std::string learn_log;     // call records since the last commit
  abi::Control control = {};
  int64_t control_made = 0;  // ChangeTracker::controls() then; 0: it must be made again

  ProcessState Save() const;
  // Without its learning, which needs the job's rule.
  void Load(const ProcessState& saved);

  bool alive() const { return row.end_ns == 0; }
  // It trained, and its iterations are in the job's figures.
  bool counts() const { return state.iterations() > 0 && !state.concurrent(); }
  // It may have had more iterations than are known.
  bool uncounted() const;
  // Then all iterations of its rank before this number are known.
  int64_t CountedTo() const;
  // As far as is known; without CUPTI there is nothing to measure.
  bool HasCupti() const;
  // Null when it was not told.
  const v1::Feature* FindFeature(abi::Feature feature) const;
  // The number under which its trace segments hold the calls it is being learned from.
  int64_t LearnLogNumber() const { return -(row.process_id + (state.learn_round() << 40)); }
  void SetName(uint32_t id, const std::string& text);
  void SetLevel(uint8_t level);
  void CountRejected();
};

// Of abi::Feature, as the API spells it; empty for an unknown one.
std::string_view FeatureName(uint16_t feature);

// Adds what PM sampling saw of other iterations.
void AddSampled(const SampledState& from, SampledState* to);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_H_
