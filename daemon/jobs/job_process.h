// Internal to Job: what it keeps of one process.
#ifndef DAEMON_JOBS_JOB_PROCESS_H_
#define DAEMON_JOBS_JOB_PROCESS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/iterations/rule_monitor.h"
#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/learning.h"
#include "daemon/jobs/resume_aligner.h"
#include "daemon/jobs/roofline.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/expected_end.h"
#include "daemon/store/store.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

// Adds what PM sampling saw of other iterations.
inline void AddSampled(const SampledState& from, SampledState* to) {
  if (from.iterations() == 0) return;
  const double least = to->iterations() == 0 ? 1 : to->least_covered_share();
  to->set_iterations(to->iterations() + from.iterations());
  to->set_duration_ns(to->duration_ns() + from.duration_ns());
  to->set_covered_ns(to->covered_ns() + from.covered_ns());
  to->set_edge_ns(to->edge_ns() + from.edge_ns());
  to->set_least_covered_share(std::min(least, from.least_covered_share()));
}

struct Job::Process {
  explicit Process(ProcessRow row) : row(std::move(row)) {}

  struct Name {
    uint64_t hash = 0;
    std::string text;
    int kernel = -1;  // index in the kernel statistics
  };
  struct Window {
    uint64_t number;
    int64_t begin_ns, end_ns;
    int64_t resolved_at;  // in `readings`
  };

  ProcessRow row;
  std::vector<Name> names;             // by name id
  size_t names_bytes = 0;              // of their texts
  std::unique_ptr<Learning> learning;  // null once marking
  IterationBuilder builder;
  int64_t number_offset = 0;  // our number - the library's number
  int64_t first_number = 0;   // ours, of its first iteration
  int64_t rank_next = 0;      // of its rank, when it came: what is before it was done before
  // Iterations that this incarnation did again: the job's number is ours less these.
  int64_t repeated = 0;
  // Earlier processes of its rank that still ran when it came.
  std::vector<int64_t> overlaps;
  int64_t first_boundary_ns = 0, last_boundary_ns = 0;  // of its finished iterations
  WallPace pace;            // of its iterations; a new daemon learns it again
  bool beside = false;      // trained beside another process of its rank: it never speaks
  bool ended_well = false;  // with goodbye and exit status 0
  // It ran when the last daemon ended, and its ring was not read since: what it did is not known.
  bool unread = false;
  // Calls that never came while its iterations were counted by them.
  uint64_t missing_calls = 0;
  int64_t last_call_ns = 0;      // API time of the last call that came
  int64_t missing_since_ns = 0;  // ... of the last one before the first that did not
  int64_t missing_in = 0;        // number of the iteration in which the first of them is missing
  // Events were dropped, and no boundary and no step came since then, whose number would tell.
  bool missing_events = false;
  uint64_t events_dropped = 0;  // as RingLosses has it
  bool open_end = false;        // it is over, and its last iteration was counted, which has no end
  // While it is not known what is repeated, iterations are held back.
  bool aligning = false;
  std::optional<ResumeAligner> aligner;  // once the log is there
  std::vector<FinishedIteration> held;
  std::vector<StretchIteration> untimed;  // its last iterations, as far as they may be one stretch
  absl::flat_hash_set<int64_t> seen[3][2];  // lengths, by Part::Kind and dimension
  int64_t marked_from = 0;                  // first iteration that did not run at level learn
  absl::flat_hash_map<uint64_t, std::vector<WaitingMeasurement>> waiting;  // by our number
  absl::flat_hash_map<uint64_t, Awaited> awaited;                          // by our number
  // Trace records whose window is not known yet; the first `filed` of them are in the store.
  std::vector<abi::DataRecord> work;
  size_t filed = 0;
  absl::btree_set<uint64_t> open_traces;  // iterations that are being traced
  bool was_tracing = false;               // since the last commit
  std::deque<Window> windows;
  int64_t readings = 0;  // of the ring, that left nothing behind
  v1::Losses losses;
  std::map<uint16_t, v1::Feature> features;
  int64_t stopped_ns = 0;
  int64_t given_up_windows = 0;
  int64_t stood_down_ns = 0;     // for which CUPTI was left to another profiler
  std::string stands_down_for;   // now; empty: CUPTI is ours
  uint64_t stood_down_from = 0;  // our number of the iteration in which that began
  // What watching took, estimated, by level; and of stopped_ns that for measuring.
  std::array<uint64_t, 4> watched_calls{};
  std::array<int64_t, 4> watching_ns{};
  int64_t counter_stops = 0, counter_stops_ns = 0;
  SampledState sampled;
  int64_t trace_stops = 0, trace_stops_ns = 0;
  ArrivingKernels kernels;
  std::string device, chip, compute_capability;  // of the last context
  uint8_t level = static_cast<uint8_t>(abi::Level::kLearn);
  uint64_t measurements_started = 0;
  int64_t stops = 0;  // measurements that are over
  uint64_t iterations = 0;
  uint32_t clock_kind = 0;
  std::string learn_log;                           // call records since the last commit
  int64_t learn_round = 0;                         // how often it was learned anew
  uint32_t library_rule = 0;                       // generation of the rule that its events are of
  std::optional<iterations::RuleMonitor> monitor;  // while marking

  int64_t LearnLogNumber() const { return -(row.process_id + (learn_round << 40)); }
  abi::Control control = {};
  int64_t control_made = 0;  // ChangeTracker::controls() then; 0: it must be made again

  bool alive() const { return row.end_ns == 0; }
  // It may have had more iterations than are known.
  bool uncounted() const {
    // A thread that is killed may lose the call that it writes, without a drop.
    return unread || (missing_calls > 0 && losses.ring_dropped() > 0) ||
           (missing_events && !alive());
  }
  // Then all iterations of its rank before this number are known.
  int64_t CountedTo() const {
    const int64_t next = missing_calls > 0 ? missing_in : builder.next_number();
    return std::max(first_number, next) - repeated;
  }
  // As far as is known; without CUPTI there is nothing to measure.
  bool HasCupti() const {
    const auto cupti = features.find(static_cast<uint16_t>(abi::Feature::kCupti));
    return cupti == features.end() || cupti->second.state() == v1::FEATURE_STATE_READY;
  }
  // Everything is traced, or was until a moment ago.
  bool tracing() const { return was_tracing || level == static_cast<uint8_t>(abi::Level::kTrace); }
};

// Of abi::Feature, as the API spells it; empty for an unknown one.
std::string_view FeatureName(uint16_t feature);

// The value of a "key=value" line of the process' Hello; empty when there is none.
std::string HelloField(const ProcessRow& row, std::string_view key);
int HelloNumber(const ProcessRow& row, std::string_view key, int fallback);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_JOB_PROCESS_H_
