// `seqpoint compare JOB JOB`: why one job took longer than another. docs/using/compare.md
// Threading: pure functions.
#ifndef CLIENT_COMMANDS_COMPARE_H_
#define CLIENT_COMMANDS_COMPARE_H_

#include <CLI/CLI.hpp>
#include <string>

#include "client/commands/part.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

struct CompareOptions {
  std::string base, other;
  double confidence = 0;
  int limit = 10;
  bool all = false;
  PartOptions part;

  void AddTo(CLI::App* command);
  v1::CompareRequest Request() const;
};

// `width`: of the terminal; 0: unlimited.
std::string CompareText(v1::CompareReply reply, int width);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_COMPARE_H_
