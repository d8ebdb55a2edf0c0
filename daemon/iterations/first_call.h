// Where a process' first iteration begins in its calls.
//
// A rule says how one iteration begins after another. Before the first one the program sets itself
// up, and the same calls may belong to that: where the upload of the parameters is followed by
// nothing but copies, "the first of a group of copies" is the first parameter. And a clock that
// comes before the boundary, as the batch's copy before a framework's forward pass, means nothing
// before the first boundary. Both are told by the later iterations, which have as many such calls:
//
//   parameters and first batch     c c c c c c | launches     from the 2nd last copy on
//   later iterations               c c         | launches
//
// Threading: a free function over constant input.
#ifndef DAEMON_ITERATIONS_FIRST_CALL_H_
#define DAEMON_ITERATIONS_FIRST_CALL_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "daemon/iterations/launch_log.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

// Index of the first iteration's first call: a matcher that is given the calls from there on, and
// Matcher::ExpectBegin, begins the first iteration as it does the others. Nothing where the rule
// tells it, where fewer than two iterations are complete, where most of the later ones do not
// agree, where what would be the first call came earlier than a whole iteration takes, and for
// rules that count calls. `calls`: of a process, from its start.
std::optional<size_t> FirstCall(absl::Span<const abi::CallRecord> calls, const NameTable& names,
                                const abi::Rule& rule);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_FIRST_CALL_H_
