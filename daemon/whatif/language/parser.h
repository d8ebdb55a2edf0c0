// Reads a what-if from text, the same in a file, on a command line and in the gRPC request
// (docs/formats/whatif-steps.md has the grammar).
//
//   scale kernels where name ~ "gemm|conv" by 1/3
//   remove gaps where in ~ "DataLoader"
//
// Threading: a free function. Ownership: values.
#ifndef DAEMON_WHATIF_LANGUAGE_PARSER_H_
#define DAEMON_WHATIF_LANGUAGE_PARSER_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/whatif/language/request.h"

namespace seqpoint::whatif {

// One step a line, or separated by ';'. "# ..." is a comment. InvalidArgument names the line, the
// text that was read there, and the text that was expected.
absl::StatusOr<Request> ParseRequest(std::string_view text);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_LANGUAGE_PARSER_H_
