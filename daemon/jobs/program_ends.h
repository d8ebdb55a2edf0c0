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

struct JobEnd {
  v1::JobState state = v1::JOB_STATE_ENDED;
  std::optional<ProgramEndState> program;  // one that failed, if any did; nothing: no end is known
};

class ProgramEnds {
 public:
  using List = google::protobuf::RepeatedPtrField<ProgramEndState>;

  // False: its end is known already.
  bool Add(const ProgramEndState& end);
  // Null: it runs, or its end is not known.
  const ProgramEndState* Find(const std::string& launch) const;

  // How a job with these processes ended, once none of them runs. The end of a program counts more
  // than the ends of its processes. A program that was stopped by a signal such as Ctrl-C's was
  // interrupted; any other that did not end with status 0 failed.
  JobEnd EndOf(const ProcessTable& processes) const;

  // In the order in which they became known.
  const List& list() const { return ends_; }
  void Load(const List& list) { ends_ = list; }

 private:
  List ends_;
};

bool Failed(const ProgramEndState& end);
// "exit status 3", "signal 11 (Segmentation fault)".
std::string EndText(const ProgramEndState& end);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROGRAM_ENDS_H_
