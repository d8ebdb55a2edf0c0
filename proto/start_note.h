// The file that a daemon which somebody configured leaves beside its sockets. It tells clients who
// belongs there while nobody answers, so that no private daemon takes the place of a hub that is
// down. Two lines: "hub", "node's daemon" or "daemon", and the command that starts it. It has no
// secrets, as command lines have none.
#ifndef PROTO_START_NOTE_H_
#define PROTO_START_NOTE_H_

namespace seqpoint {

inline constexpr char kStartNote[] = "seqpointd.start";

}  // namespace seqpoint

#endif  // PROTO_START_NOTE_H_
