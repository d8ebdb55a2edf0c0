// Playlists and the times that were measured for them, as CSV files. docs/formats/playlist.md
//
//   absl::Status written = WriteWhole("gnmt.csv", PlaylistCsv(reply));
//   absl::StatusOr<v1::ProjectPlaylistRequest> request = ReadPlaylist("gnmt.csv");
//   absl::StatusOr<std::string> notes = ReadMeasured({.path = "times.csv"}, &*request);
//
// Threading: pure but for the files. Errors of reading are InvalidArgument and name file, line,
// value and the way out.
#ifndef CLIENT_COMMANDS_PLAYLIST_H_
#define CLIENT_COMMANDS_PLAYLIST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

std::string PlaylistCsv(const v1::GetPlaylistReply& reply);
// Notes on the playlist that are not in the file, in lines.
std::string PlaylistNotes(const v1::GetPlaylistReply& reply);

// The points of a request, without durations.
absl::StatusOr<v1::ProjectPlaylistRequest> ReadPlaylist(const std::string& path);

struct MeasuredOptions {
  std::string path;
  std::string time_column;  // empty: the only one whose name ends in a unit
  std::string time_unit;    // "ns", "us", "ms", "s"; empty: as the column's name ends
};
// Adds to the request how often each point was measured, 0 too, and the means. Returns notes
// on the rows that belong to no point, which are left out; every other flaw is an error.
absl::StatusOr<std::string> ReadMeasured(const MeasuredOptions& options,
                                         v1::ProjectPlaylistRequest* request);

std::string PlaylistProjectionText(const v1::ProjectPlaylistReply& reply);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_PLAYLIST_H_
