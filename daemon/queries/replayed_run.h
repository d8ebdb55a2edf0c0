// Replays of a recorded run: their times, how far these are off, and where the time goes.
//
// Threading: pure functions. Ownership: values; Spent keeps pointers into the outcomes.
#ifndef DAEMON_QUERIES_REPLAYED_RUN_H_
#define DAEMON_QUERIES_REPLAYED_RUN_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/queries/recorded_run.h"
#include "daemon/whatif/recording.h"
#include "daemon/whatif/replay.h"
#include "daemon/whatif/report.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// One outcome a stretch, of what was recorded. Cancelled when `cancelled` says so.
absl::StatusOr<std::vector<whatif::Outcome>> ReplayAll(const RecordedRun& run, Cancelled cancelled);

struct ReplayErrors {
  double mean = 0;      // of the sums
  double worst = 0;     // of an iteration
  double absolute = 0;  // of all iterations, whatever their signs
};
ReplayErrors ErrorsOf(const RecordedRun& run, const std::vector<whatif::Outcome>& outcomes);
// FailedPrecondition where the replay of what was not changed is too far off.
absl::Status CheckReplay(const RecordedRun& run, const ReplayErrors& errors,
                         const std::string& job);

// The shares of a mean iteration, longest first: `shares_ns` of `iterations`, whose time is
// `time_ns`. `calls_ns`: of calls that launch nothing, by name.
inline constexpr size_t kShares = static_cast<size_t>(whatif::Share::kCount);
void SetShares(const double* shares_ns, double iterations, double time_ns,
               const absl::flat_hash_map<std::string, double>& calls_ns,
               google::protobuf::RepeatedPtrField<v1::TimeShare>* to);

// The times of the steps of all stretches, one after the other.
struct Spent {
  std::vector<double> times_ns;
  std::vector<const whatif::Shares*> paths, idle;
  std::vector<const absl::flat_hash_map<std::string, double>*> kernels_ns;

  void Add(const Stretch& stretch, const whatif::Outcome& outcome);
};

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_REPLAYED_RUN_H_
