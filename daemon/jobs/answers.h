// Answers: what a job says of its run, asked of a copy of what it knows. Answers may take long
// (half a second with 100,000 lengths); the job goes on meanwhile.
//
//   std::shared_ptr<const Answers> answers = *job.Ask();                   // under the daemon's
//   lock absl::StatusOr<v1::ProjectReply> reply = answers->Project(request);    // without
//
// Threading: thread-safe; those who ask at the same time wait for each other, as they share what
// was computed. Ownership: everything is its own.
#ifndef DAEMON_JOBS_ANSWERS_H_
#define DAEMON_JOBS_ANSWERS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "daemon/jobs/changed_run.h"
#include "daemon/jobs/log_playlist.h"
#include "daemon/jobs/metric_choice.h"
#include "daemon/jobs/run_engine.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// Feature units -> the user's lengths.
struct LengthUnits {
  int64_t unit[2] = {1, 1};
  bool swapped = false;  // the user's first length is the feature's second
  bool given = false;    // units are those of lengths that the user gave; else those seen
  std::vector<int64_t> Of(const int64_t length[2], int count) const;
};

// A playlist without the numbers of its iterations, which are in the store.
struct Playlist {
  v1::GetPlaylistReply reply;
  absl::flat_hash_map<Key, int> point_of;  // feature values, as rows have them -> reply.points()
  int64_t job_id = 0;
  std::vector<int32_t> ranks;  // whose rows are the steps'
  int64_t first_number = 0;    // those before it are of another rule, which has other features
};

// How well the lengths explain time, as the API says it.
void SetFit(const KeyFit& fit, v1::Rule* rule);

class Answers {
 public:
  struct Facts {
    int64_t job_id = 0;
    std::string name;
    std::string run_id;
    int64_t batch = 0;  // examples in a forward pass, where it was said
    int64_t generation = 0;
    v1::Horizon::Kind horizon_kind = v1::Horizon::KIND_UNKNOWN;
    bool another = false;          // the question is about another run
    int64_t epoch_iterations = 0;  // of the run, where the horizon says it; 0: not known
    bool live = false;
    bool imported = false;  // from a log: nothing is measured; or from traces
    bool traced() const { return imported && !measurements.empty(); }
    bool measurable = true;
    bool host_times = false;  // no GPU did the work
    // Most iterations have no time, and those that have one are those that the host waited for.
    bool mostly_untimed = false;
    std::string ended_without;  // why the job that is over had no iteration
    std::string uncounted;      // which process had more iterations than are known; empty: none
    std::string overcounted;    // which may have had fewer; empty: none
    // With one of these: from which number on others may be missing, or be none.
    int64_t counted_to = std::numeric_limits<int64_t>::max();
    bool begun = false;  // it is over, and what began last has no end and is not counted
    v1::ClockKind clock_kind = v1::CLOCK_KIND_UNSPECIFIED;
    v1::Losses losses;
    std::optional<v1::Rule> rule;  // without its fit
    int dimensions = 0;
    std::vector<int32_t> ranks;  // that had iterations
    int64_t late = 0;            // of their iterations, for their steps
    LengthUnits units;
    MetricChoice metrics;
    std::map<uint32_t, std::string> refused_configs;  // and why
    SampledState sampled;                             // of all ranks
    PlanOptions plan;
    absl::flat_hash_map<uint32_t, int32_t> measurements;  // usable ones, by statistic set
    std::vector<std::string> kernels;                     // as Job keeps them
    RunEngine engine;                                     // of the job's steps
    std::optional<RunEngine> work;  // of the ranks' iterations, when there are several
  };
  explicit Answers(Facts facts) : facts_(std::move(facts)) {}

  // Which job it is, for those who ask its log. Not its engine, which is for the answers here.
  const Facts& facts() const { return facts_; }

  absl::StatusOr<v1::ProjectReply> Project(const v1::ProjectRequest& request) const;
  absl::StatusOr<v1::GetSeqPointsReply> GetSeqPoints() const;
  // docs/formats/playlist.md
  absl::StatusOr<Playlist> MakePlaylist(const PlaylistOptions& options) const;
  absl::StatusOr<v1::GetCountersReply> GetCounters(const v1::GetCountersRequest& request) const;
  // Adds the iterations that were measured with counters, and what it did to their time.
  // `complete`: rank and number of those whose values count.
  void AddMeasured(const std::vector<IterationRow>& rows,
                   const std::set<std::pair<int32_t, int64_t>>& complete,
                   v1::GetCountersReply* reply) const;
  absl::StatusOr<v1::GetKernelsReply> GetKernels(const v1::GetKernelsRequest& request) const;

  // What a change does to the run, from the iterations that were replayed with it. `replay_error`:
  // by how much, relative, the replay of what was not changed is off.
  absl::StatusOr<ChangedRun> ProjectChange(const std::vector<ReplayedStep>& steps,
                                           double confidence, double replay_error) const;
  // What is measured, as if these iterations (feature values) were the run. FailedPrecondition for
  // a job of several ranks, whose keys are a rank's own.
  absl::StatusOr<RunEngine> WorkAt(std::vector<KeyCount> iterations) const;
  // What a normal iteration with this key takes, ns; 0: not known.
  double UsualTime(const Key& key) const;

  // What a description of the job has of this: computed once, however many ask.
  struct Summary {
    v1::Projection time;
    v1::SeqPointsSummary seqpoints;
    KeyFit fit;
    int64_t generation = 0;   // of the job, then
    uint64_t iterations = 0;  // then
  };
  Summary Summarise() const;

 private:
  v1::Projection ToProto(const Projection& known, std::string_view metric,
                         std::string_view unit) const;
  // The estimate without what is doubtful: the run may have had more iterations, or fewer. Every
  // answer goes through this.
  Projection Doubted(Projection projection) const;
  // Where that leaves nothing.
  absl::Status OvercountedError() const;
  Projection Time(double confidence) const;
  int32_t MeasurementsOf(uint32_t set) const;
  // Of what is measured.
  const RunEngine& Work() const { return facts_.work ? *facts_.work : facts_.engine; }
  // With the number of ranks; nothing when there is one.
  std::string RanksInWords(absl::string_view before) const;
  std::string StepsInWords() const;
  absl::Status CheckMeasurable() const;
  absl::Status NoIteration() const;

  mutable absl::Mutex mutex_;  // the engine's answers fill its caches
  const Facts facts_;
  mutable std::optional<Summary> summary_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ANSWERS_H_
