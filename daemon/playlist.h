// Playlists: the iterations that another machine or a simulator is to run, and what their times
// there say of the whole run. docs/formats/playlist.md
//
// Threading: free functions; the store may be used by others meanwhile.
#ifndef DAEMON_PLAYLIST_H_
#define DAEMON_PLAYLIST_H_

#include "absl/status/statusor.h"
#include "daemon/jobs/answers.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint {

// Each point with an iteration of its lengths: an ordinary one where there is one (not measured,
// not distorted, not the first of its length, about as long as expected). Reads rows page by page,
// and no more of them once every point has such a one.
absl::StatusOr<v1::GetPlaylistReply> WithIterations(const jobs::Playlist& playlist, Store& store);

// Of a job that was made of a log: what an analysis of the log gives, too. They read and choose
// anew from all rows, a second or two for a million. FailedPrecondition where the log is too short
// (a playlist), or lengths explain nothing (SeqPoints).
absl::StatusOr<v1::GetPlaylistReply> PlaylistOfImport(const jobs::Answers::Facts& job,
                                                      const jobs::PlaylistOptions& options,
                                                      Store& store);
absl::StatusOr<v1::GetSeqPointsReply> SeqPointsOfImport(const jobs::Answers::Facts& job,
                                                        Store& store);

// Pure. InvalidArgument names the field, the index and the value; also where points without a
// measurement stand for 1 % of the iterations or more. Fewer than that count as the point nearest
// in expected time does.
absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(const v1::ProjectPlaylistRequest& request);

}  // namespace seqpoint

#endif  // DAEMON_PLAYLIST_H_
