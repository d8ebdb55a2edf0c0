// ProgramEnds: how the programs ended that `seqpoint run` started for a job, and how the job ended.
//
// Threading: one thread at a time. Ownership: values only.
#ifndef DAEMON_JOBS_PROGRAM_ENDS_H_
#define DAEMON_JOBS_PROGRAM_ENDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/jobs/state.pb.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

class ProcessTable;

struct ProgramEnd {
  std::string launch;  // SEQPOINT_LAUNCH of all its processes
  int32_t exit_status = 0;
  int32_t signal = 0;  // 0: it ended by itself

  bool failed() const { return exit_status != 0 || signal != 0; }
};

// The last process of a rank.
struct LastProcess {
  std::string launch;   // empty: `seqpoint run` did not start it
  bool lost = false;    // it vanished without goodbye
  bool failed = false;  // its goodbye said another exit status than 0
};

struct JobEnd {
  v1::JobState state = v1::JOB_STATE_ENDED;
  std::optional<ProgramEnd> program;  // one that failed, if any did; nothing: no end is known
};

class ProgramEnds {
 public:
  // False: its end is known already.
  bool Add(ProgramEnd end);
  // Null: it runs, or its end is not known.
  const ProgramEnd* Find(const std::string& launch) const;
  const ProgramEnd* latest() const { return ends_.empty() ? nullptr : &ends_.back(); }

  // How a job with these processes ended, once none of them runs.
  JobEnd EndOf(const ProcessTable& processes) const;
  // The end of a program counts more than the ends of its processes. A program that was stopped by
  // a signal such as Ctrl-C's was interrupted; any other that did not end with status 0 failed.
  JobEnd Judge(const std::vector<LastProcess>& last) const;

  void Save(JobState* state) const;
  void Restore(const JobState& state);

 private:
  std::vector<ProgramEnd> ends_;  // in the order in which they became known
};

// "exit status 3", "signal 11 (Segmentation fault)".
std::string EndText(const ProgramEnd& end);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROGRAM_ENDS_H_
