// RankDiagnosis: finds out why a rank is slow and what it costs, from trace windows of all ranks at
// the same iterations. It asks for them when a rank was found slow, and for a few while none is,
// as a rank without peers is compared with its earlier self.
//
//   diagnosis.OnTime(monotonic_ns, newest, publish_s);          // every 0.2 s
//   if (diagnosis.Ask(newest, ranks, verdicts)) RewriteControls();  // ... and after changes
//   ... records go to diagnosis.windows() ...
//   if (diagnosis.Update(verdicts)) Tell();
//   diagnosis.SetReasons(verdicts, /*host_times=*/false, &reply);
//
// Threading: one thread at a time. Ownership: the windows.
#ifndef DAEMON_JOBS_RANK_DIAGNOSIS_H_
#define DAEMON_JOBS_RANK_DIAGNOSIS_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "daemon/jobs/coordinated_windows.h"
#include "daemon/jobs/slow_ranks.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/ranks/verdict.h"
#include "seqpoint/v1/ranks.pb.h"

namespace seqpoint::jobs {

class RankDiagnosis {
 public:
  // Windows of all ranks in a run. Each stops all ranks for some milliseconds.
  static constexpr int kMostWindows = 32;
  // One after the other in an episode, while its reason is not known: a later one needs some, too.
  static constexpr int kMostAtOnce = kMostWindows / 2;
  // Windows for a reason, as soon as possible: with three, one that something else disturbed is
  // outvoted.
  static constexpr int kReasonWindows = 3;
  // Windows of an episode, of which those beyond kReasonWindows are spread: for the size, and for
  // the cost where no earlier iteration tells it. A reason that is not known from as many gets
  // further ones.
  static constexpr int kSizeWindows = 8;
  // Earlier ones, for the transfers; and of a rank without peers, which is compared with them.
  static constexpr int kEarlyWindows = 2, kOwnWindows = 8;
  // Windows of an episode, with those in which the rank's lengths are new, which do not tell.
  // Earlier ones are kept beside them.
  static constexpr int kMostOfEpisode = CoordinatedWindows::kMostKept - kOwnWindows;

  // Every 0.2 s: how fast iterations pass. `newest`: the latest one that a rank's host has begun;
  // `publish_s`: seconds from there until a new control block is in the libraries.
  void OnTime(int64_t monotonic_ns, int64_t newest, double publish_s);
  // Starts a window when one is wanted. True when the wanted iteration is another one now.
  bool Ask(int64_t newest, const std::set<int32_t>& ranks, const ranks::Verdicts& verdicts);
  // Windows may have come, or verdicts have changed. True when what is known of reasons changed, or
  // the wanted iteration.
  bool Update(const ranks::Verdicts& verdicts);

  CoordinatedWindows& windows() { return windows_; }
  int64_t wanted() const { return windows_.wanted(); }
  // `host_times`: no GPU does the work.
  void SetReasons(const ranks::Verdicts& verdicts, bool host_times, v1::GetRanksReply* reply) const;

  // The episodes, with what they do to the times of kernels.
  std::vector<SlowSpan> Spans(const ranks::Verdicts& verdicts) const;

  RankDiagnosisState Save() const;
  void Load(const RankDiagnosisState& from);

 private:
  using EpisodeKey = std::pair<int32_t, int64_t>;  // rank, first iteration

  bool WantsWindow(int64_t newest, const ranks::Verdicts& verdicts) const;
  bool IsDue(int64_t newest, int64_t first) const;
  bool KnowsReason(int32_t rank, int64_t first) const;
  int64_t Lead() const;

  CoordinatedWindows windows_;
  std::map<EpisodeKey, SlowReasonState> reasons_;
  int taken_ = 0;
  std::vector<int64_t> asked_;  // iterations of windows, since the daemon was started
  int64_t checked_ns_ = 0, checked_newest_ = -1;
  double iterations_per_s_ = 0;
  double publish_s_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RANK_DIAGNOSIS_H_
