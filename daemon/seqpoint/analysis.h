// Analyses the log of a whole run: how well lengths explain its times, which lengths stand for it,
// what measuring those alone would tell, here, on another machine and of another run.
//
//   LogAnalysis analysis = AnalyzeLog(log, {.points = 16});
//   for (const SeqPoint& p : analysis.selection.points) Measure(p.key, p.measurements);
//
// Threading: free functions without state. Times may be in any unit.
#ifndef DAEMON_SEQPOINT_ANALYSIS_H_
#define DAEMON_SEQPOINT_ANALYSIS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/estimate.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

// Iterations in the order in which they ran. `groups` (runs, epochs) is empty or as long.
struct RunLog {
  std::vector<Key> keys;
  std::vector<double> times;  // positive and finite
  std::vector<int> groups;

  size_t size() const { return keys.size(); }
};

// Whether a length, a new value of either dimension, occurs for the first time, by iteration.
std::vector<bool> FirstsOf(absl::Span<const Key> keys);

// A log that is fit to choose from, without start-up (FindStartUp).
struct CleanLog {
  RunLog log;
  std::vector<int64_t> rows;  // of each iteration, which one it was before start-up was left out
  int64_t start_up = 0;
  double start_up_time = 0;
  // Whether an iteration is apart: in the total and in nothing else. Stalls (FindOutliers)
  // are, unless there are so many that they are this log's noise; and the first iterations with a
  // length (a new value of either), where these take more than others.
  std::vector<bool> apart;
  int64_t slow_count = 0;
  int64_t first_count = 0;
  double first_share = 0;        // what a first one takes beyond others, relative, mean
  double excess = 0;             // what all these took beyond what iterations of their lengths take
  std::vector<KeyTimes> by_key;  // of the others; those apart count with their length's mean
  double total = 0;              // of `log`
};
CleanLog CleanUp(const RunLog& log);
// Where start-up is known already: of each iteration, whether it is.
CleanLog CleanUp(const RunLog& log, const std::vector<bool>& start_up);
// How well the key explains time; of a long log evenly spaced iterations are looked at.
KeyFit FitOf(const CleanLog& clean);

// Selections for more measurements than this repeat its points.
inline constexpr int kMostPoints = 128;

// SelectStratified for any number of measurements. Fewer come back where more would tell nothing;
// `error` is that of at most kMostPoints.
Selection SelectPoints(absl::Span<const KeyTimes> log, int measurements);
// Half-width of the interval of the total, relative, when each point is measured as often as it
// says.
double ReachOf(const Selection& selection, double confidence);
// The fewest measurements whose interval of `confidence` is within `target_error` (relative) to
// both sides of the total; at most the number of iterations.
Selection SelectForError(absl::Span<const KeyTimes> log, double target_error, double confidence);

// How many measurements there are where nobody says.
inline constexpr int kDefaultPoints = 16;
// `points` measurements; where that is 0, as many as `target_error` needs; where that is 0, too,
// kDefaultPoints. At most the number of iterations.
Selection Select(absl::Span<const KeyTimes> log, int points, double target_error,
                 double confidence);

// How times at equal length, and lengths, change in the course of a log.
struct Stationarity {
  // Standard deviation of the level of consecutive parts, beyond noise; 0 where it may be chance.
  double drift = 0;
  bool moving = false;  // lengths come in an order that has to do with their cost
};
// `explained`: whether lengths explain times; otherwise they are not looked at.
Stationarity CheckStationarity(const RunLog& log, absl::Span<const KeyTimes> by_key,
                               bool explained);

struct Speedup {
  int64_t iterations = 0;  // of the other log, start-up left out
  double total = 0;
  int64_t unknown_keys = 0;  // keys of the log that the other one lacks
  // How many times faster the same iterations are there.
  // The base known, the points measured there, evenly over its iterations. None where these scatter
  // so much that the interval of their total reaches zero.
  std::optional<Estimate> from_points;
  Estimate all;      // from every iteration of both, at equal lengths
  double means = 0;  // quotient of the mean times, whatever the lengths
};

struct AnalysisOptions {
  int points = 0;           // measurements; 0: what target_error needs, else 16
  double target_error = 0;  // relative; 0: none
  double confidence = 0.95;
  Horizon horizon = Horizon::Unknown();  // of another run
};

struct LogAnalysis {
  CleanLog clean;
  KeyFit fit;
  Stationarity stationarity;
  Selection selection;          // empty where the key does not explain time
  Estimate projection;          // of the total, from the points each measured once
  int random_measurements = 0;  // as many iterations drawn at random ...
  Estimate random;              // ... give this
  Selection paper;
  std::optional<Projection> other_run;  // with a horizon
  absl::Status no_other_run;            // why there is none
  std::optional<Speedup> speedup;
};

// `against` may be null.
LogAnalysis AnalyzeLog(const RunLog& log, const RunLog* against, const AnalysisOptions& options);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_ANALYSIS_H_
