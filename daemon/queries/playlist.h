// Playlists: the iterations that another machine or a simulator is to run, and what their times
// there say of the whole run. docs/formats/playlist.md
//
// Threading: thread-safe, as snapshots are; the store may be used by others meanwhile.
#ifndef DAEMON_QUERIES_PLAYLIST_H_
#define DAEMON_QUERIES_PLAYLIST_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/jobs/snapshot.h"
#include "daemon/queries/log_playlist.h"
#include "daemon/seqpoint/key.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// A playlist without the numbers of its iterations, which are in the store.
struct Playlist {
  v1::GetPlaylistReply reply;
  absl::flat_hash_map<Key, int> point_of;  // feature values, as rows have them -> reply.points()
  int64_t job_id = 0;
  std::vector<int32_t> ranks;  // whose rows are the steps'
  int64_t first_number = 0;    // those before it are of another rule, which has other features
};

// The lengths to run, and how often each counts. FailedPrecondition: too few iterations.
absl::StatusOr<Playlist> MakePlaylist(const jobs::Snapshot& snapshot,
                                      const PlaylistOptions& options);

// Each point with an iteration of its lengths: an ordinary one where there is one (not measured,
// not distorted, not the first of its length, about as long as expected). Reads rows page by page,
// and no more of them once every point has such a one.
absl::StatusOr<v1::GetPlaylistReply> WithIterations(const Playlist& playlist, Store& store);

// For a job that was made of a log: the same as an analysis of the log gives. Both read all rows, a
// second or two for a million. FailedPrecondition where the log is too short (a playlist), or
// lengths explain nothing (SeqPoints).
absl::StatusOr<v1::GetPlaylistReply> PlaylistOfImport(const jobs::SnapshotData& job,
                                                      const PlaylistOptions& options, Store& store);
absl::StatusOr<v1::GetSeqPointsReply> SeqPointsOfImport(const jobs::SnapshotData& job,
                                                        Store& store);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_PLAYLIST_H_
