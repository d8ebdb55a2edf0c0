// What RankMonitor says about the ranks of a job.
//
// Threading, ownership: values. Units: shares are relative to 1; intervals hold the truth with 95
// %.
#ifndef SEQPOINT_DAEMON_RANKS_VERDICT_H_
#define SEQPOINT_DAEMON_RANKS_VERDICT_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace seqpoint::ranks {

inline constexpr double kNormal95 = 1.96;  // standard errors

struct Range {
  double value = 0, low = 0, high = 0;
};

// Why something is not known.
enum class Doubt : uint8_t {
  kNone,
  kNoCollectives,   // no rank reported the GPU's times of a collective
  kOneRank,         // only one rank is seen
  kTooFew,          // too few iterations were observed
  kNoDurations,     // the time of iterations is not known
  kUnlike,          // no other rank does the same work, and there are too few earlier iterations
  kHidden,          // collectives overlap with work, which hides how much of it is slow
  kRecordsMissing,  // most collectives of the rank have no match on another rank
  kNoLengths,       // the ranks' lengths are not known
  kNoBaseline,      // no earlier iteration shows the difference
  kMostAreSlow,     // most stages of a pipeline became slower
};
// "too few iterations were observed": follows "not known, because".
std::string_view DoubtText(Doubt doubt);

enum class Course : uint8_t {
  kUnknown,   // RankVerdict::doubt says why
  kEven,      // not slower than its peers, or than it was
  kSlow,      // since an iteration, and still
  kWasSlow,   // for some iterations, and not now
  kRotating,  // it and others are slow in turn
};
std::string_view CourseText(Course course);

// Iterations in which one rank was slow.
struct Episode {
  int64_t first = 0;          // iteration
  int64_t last = -1;          // -1: it goes on
  bool maybe_before = false;  // nothing shows that it was ordinary before `first`
  int64_t named = 0;          // the iteration after which it was found
  // How much longer than expected the rank's own work takes, as a share of it. Where collectives
  // overlap with work, as a share of the iteration's time, which may be a little less. Where
  // `doubt` is kHidden, only a part of the work is seen.
  Range excess;
  // By how much the job's iterations are longer because of it, as a share of their time.
  Range cost;
  // The share of the iterations' time that is not that of first times of lengths, nor of stalls.
  double usual_share = 1;
  Doubt doubt = Doubt::kNone;
  Doubt cost_doubt = Doubt::kNone;
};

struct RankVerdict {
  int32_t rank = 0;
  Course course = Course::kUnknown;
  Doubt doubt = Doubt::kNone;
  bool own_baseline = false;      // compared with itself, because no other rank does the same work
  std::vector<Episode> episodes;  // by iteration; the newest kMostEpisodes
  int64_t episode_count = 0;      // all of them
  // Sums over observed iterations (JoinedIteration).
  int64_t iterations = 0;
  double duration_ns = 0, exclusive_ns = 0, wait_ns = 0;
  int64_t collectives = 0, last = 0;  // last: those in which it arrived last

  static constexpr int64_t kMostEpisodes = 8;
};

// Transfers of one communicator, or between two ranks, that have become slow.
struct LinkVerdict {
  uint64_t communicator = 0;
  std::vector<int32_t> ranks;  // of the communicator that are seen; of a pair: sender, receiver
  bool pair = false;           // only this pair's transfers are slow
  int64_t first = 0, last = -1, named = 0;  // as in Episode
  Range factor;                             // of the transfers' time; 2: twice as long
};

// Ranks wait because their lengths differ.
struct Imbalance {
  Doubt doubt = Doubt::kTooFew;  // not kNone: the figures are not known
  bool found = false;            // the loss is above 1 % for certain
  // Share of the run's time that would be saved if, in each iteration, all ranks had equal lengths
  // (batches bucketed by length over ranks) and the run had the same batches.
  Range loss;
  int64_t iterations = 0;  // that it was computed from
};

struct Verdicts {
  std::vector<RankVerdict> ranks;  // by rank
  std::vector<LinkVerdict> links;  // the newest kMostLinks
  Imbalance imbalance;
  bool rotating = false;          // ranks are slow in turn: no single one is to be replaced
  int64_t observed = 0;           // iterations that were joined with collectives
  int64_t first = -1, last = -1;  // of them

  static constexpr int64_t kMostLinks = 16;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_VERDICT_H_
