// The playlist of a log that another tool wrote, and the list of its SeqPoints: the same for an
// analysis and for the job that an import makes of the log. docs/formats/playlist.md
//
//   const CleanLog clean = CleanUp(ReadLog(log));
//   v1::GetPlaylistReply playlist = PlaylistOfLog(clean, FitOf(clean), {.points = 16});
//
// Threading: free functions without state; an OrdinaryIterations belongs to one thread.
#ifndef DAEMON_QUERIES_LOG_PLAYLIST_H_
#define DAEMON_QUERIES_LOG_PLAYLIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "daemon/seqpoint/analysis.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// Times that never varied where the points were chosen may vary elsewhere.
inline constexpr double kLeastNoise = 1e-6;

// How many measurements: as Select() takes them.
struct PlaylistOptions {
  int points = 0;
  double target_error = 0;
  double confidence = 0.95;
};

// Gives each point of a playlist an iteration that had its lengths: of those that are seen an
// ordinary one, where there is one. The reply and the map belong to the caller and stay.
class OrdinaryIterations {
 public:
  // Why an iteration is not like others; the sum of what applies, the least is taken.
  static constexpr int kDisturbed = 4, kFirst = 2, kUntimed = 1;

  OrdinaryIterations(const absl::flat_hash_map<Key, int>& point_of, v1::GetPlaylistReply* reply);

  void See(const Key& key, int64_t number, double duration_ns, int reasons);
  // Every point has an iteration that is about as long as its length takes, and has no reasons.
  bool settled() const { return unsettled_ == 0; }

 private:
  struct Strangeness {
    int reasons = 8;
    double deviation = 0;  // in standard deviations
    auto operator<=>(const Strangeness&) const = default;
    bool settled() const;
  };

  const absl::flat_hash_map<Key, int>& point_of_;
  v1::GetPlaylistReply* reply_;
  std::vector<Strangeness> best_;  // of each point
  size_t unsettled_;
};

// A message where `reach` is not within the target; else empty.
std::string Unreached(double target_error, double reach);
// Sets the error that measuring the points leaves. Returns a message where a target error was given
// and cannot be reached; else an empty one.
std::string SetReach(const Selection& selection, const PlaylistOptions& options,
                     v1::GetPlaylistReply* reply);

// A point without its iteration. `weight`: in iterations of the run.
void AddPoint(const std::vector<int64_t>& lengths, const SeqPoint& point, double weight,
              v1::GetPlaylistReply* reply);

// Messages about a playlist; empty where there is nothing to say.
std::string NotExplained(const KeyFit& fit);
// Empty where that share of the run's time is next to nothing.
std::string LeftOut(double share);

// FailedPrecondition, of `what`, where too few iterations have a time to know what a length costs.
absl::Status CheckEnough(const std::string& what, int64_t iterations, KeyVerdict verdict);

// Times are in ns. Its iterations are numbered as in the log, start-up too.
v1::GetPlaylistReply PlaylistOfLog(const CleanLog& clean, const KeyFit& fit, int dimensions,
                                   const PlaylistOptions& options);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_LOG_PLAYLIST_H_
