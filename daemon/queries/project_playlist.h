// Projects the times of a playlist's iterations on another machine onto the whole run there.
// docs/formats/playlist.md
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_PROJECT_PLAYLIST_H_
#define DAEMON_QUERIES_PROJECT_PLAYLIST_H_

#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::queries {

// InvalidArgument names the field, the index and the value; also where points without a
// measurement stand for 1 % of the iterations or more. Fewer than that count as the point nearest
// in expected time does.
absl::StatusOr<v1::ProjectPlaylistReply> ProjectPlaylist(const v1::ProjectPlaylistRequest& request);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_PROJECT_PLAYLIST_H_
