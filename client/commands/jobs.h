// The options of `seqpoint jobs`, and the request that they make.
// Threading: values of one thread. Ownership: AddTo's option object must outlive the app.
#ifndef CLIENT_COMMANDS_JOBS_H_
#define CLIENT_COMMANDS_JOBS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::client {

// Which jobs are listed.
struct JobsOptions {
  std::string job;  // not empty: everything about this one
  bool live = false;
  bool all = false;
  std::vector<std::string> states;
  std::string since;
  std::vector<std::string> tags;
  int64_t limit = 0;  // 0: all

  void AddTo(CLI::App* command);
  absl::StatusOr<v1::ListJobsRequest> Request(absl::Time now) const;
  bool narrowed() const;  // to some of all jobs
};

// A time ("2026-11-20", "2026-11-20 14:30", in the local zone) or how long ago ("90m", "3d").
absl::StatusOr<absl::Time> ParseSince(const std::string& text, absl::Time now);

// The jobs that --limit leaves of a list, the latest first, and how many it leaves out.
int KeepLatest(const JobsOptions& options, v1::ListJobsReply* reply);

// The table of `jobs`, with how many a limit left out of it.
std::string JobListText(const v1::ListJobsReply& reply, int left_out, const JobsOptions& options);

}  // namespace seqpoint::client

#endif  // CLIENT_COMMANDS_JOBS_H_
