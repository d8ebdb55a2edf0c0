// LengthMatching: matches the user's lengths to the learned feature, and makes the horizon of the
// engines from them.
//
// The match is sought again as the run goes on: a factor that fits the first lengths may not fit
// the later ones. Until there is a match, only the number of iterations is used.
//
// Threading: one thread at a time. Ownership: the horizon and the match.
#ifndef DAEMON_JOBS_LENGTH_MATCHING_H_
#define DAEMON_JOBS_LENGTH_MATCHING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/jobs/length_doubt.h"
#include "daemon/jobs/length_units.h"
#include "daemon/jobs/observed_lengths.h"
#include "daemon/jobs/run_schedule.h"
#include "daemon/jobs/state.pb.h"
#include "daemon/seqpoint/engine.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// The horizon of the two engines.
struct EngineHorizons {
  Horizon steps;
  Horizon work;  // of the ranks that are here
};

// Which of the user's lengths belongs to which feature, and the value of one step of length.
struct LengthMap {
  int64_t factor[2] = {0, 0};  // 0: no match
  bool swapped = false;        // the user's first length is the feature's second
};

class LengthMatching {
 public:
  const v1::Horizon& horizon() const { return horizon_; }
  void SetHorizon(const v1::Horizon& horizon);

  // The match is sought at once; `forget`: the one before does not hold for this feature.
  void Restart(bool forget = false);

  struct Run {
    int64_t iterations = 0;  // so far
    bool over = false;
    bool same_lengths = false;  // StepBuilder
  };
  struct Outcome {
    std::optional<EngineHorizons> horizons;  // new ones
    bool looked = false;                     // the message may be another
  };
  Outcome Match(const RunShape& shape, const ObservedLengths& observed, const Run& run);

  // About the match, for the user; empty: nothing stands out.
  const std::string& message() const { return state_.message(); }
  void SetMessage(std::string message) { state_.set_message(std::move(message)); }

  // The engines' horizon for another run. InvalidArgument; FailedPrecondition when its lengths
  // cannot be mapped onto the feature.
  absl::StatusOr<EngineHorizons> OtherRun(const v1::Horizon& horizon, const RunShape& shape,
                                          const ObservedLengths& observed) const;

  // The factors from feature values to the user's lengths.
  LengthUnits Units(const RunShape& shape, const ObservedLengths& observed) const;

  MatchingState& state() { return state_; }
  const MatchingState& state() const { return state_; }

 private:
  void SetMap(const LengthMap& map);
  LengthMap map() const;
  Outcome Apply(EngineHorizons horizons, const RunShape& shape);
  std::string MessageOf(const absl::StatusOr<EngineHorizons>& horizons, const RunShape& shape,
                        const ObservedLengths& observed, const Run& run) const;
  LengthDoubt WhyLengthsDiffer(const RunShape& shape, const ObservedLengths& observed) const;

  v1::Horizon horizon_;
  MatchingState state_;
  // Ranks with iterations, world size and batches of an iteration when the horizon was applied.
  std::tuple<int64_t, int64_t, uint32_t> applied_to_ = {0, 0, 0};
  int64_t next_match_ = 0;  // iterations at which the match is sought next
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LENGTH_MATCHING_H_
