// The text of a small file, such as a certificate.
//
// Threading: free functions.
#ifndef DAEMON_RPC_TEXT_FILE_H_
#define DAEMON_RPC_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace seqpoint::rpc {

// InvalidArgument, which names `what` it is: the file cannot be read, or is empty.
absl::StatusOr<std::string> ReadTextFile(const char* what, const std::string& path);

}  // namespace seqpoint::rpc

#endif  // DAEMON_RPC_TEXT_FILE_H_
