// Exit codes of `seqpoint` and of the planning programs; documented in --help.
// Threading: constants.
#ifndef CLIENT_EXIT_CODE_H_
#define CLIENT_EXIT_CODE_H_

namespace seqpoint::client {

enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitNoDaemon = 3,
  kExitNoSuchJob = 4,
  kExitNotEnoughData = 5,
};

}  // namespace seqpoint::client

#endif  // CLIENT_EXIT_CODE_H_
