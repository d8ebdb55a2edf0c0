// A text that is one JSON object, and where it is none a sentence that says why and in which line:
// simdjson says neither.
//
// Threading: free functions. Ownership: the parser owns what the object refers to.
#ifndef SEQPOINT_DAEMON_PLACEMENT_JSON_OBJECT_H_
#define SEQPOINT_DAEMON_PLACEMENT_JSON_OBJECT_H_

#include <simdjson.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace seqpoint::placement {

// `file` is the name for messages. A byte order mark of UTF-8 is skipped, though JSON has none
// (RFC 8259, section 8.1: a parser may). InvalidArgument: "FILE: is no JSON: line 3 has ...".
absl::StatusOr<simdjson::dom::object> ParseObject(std::string_view text, const std::string& file,
                                                  simdjson::dom::parser* parser);

// A key that the object has twice, of which readers take one or the other (RFC 8259, section 4);
// empty where there is none.
std::string RepeatedKey(simdjson::dom::object object);

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_JSON_OBJECT_H_
