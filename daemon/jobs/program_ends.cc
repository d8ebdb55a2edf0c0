#include "daemon/jobs/program_ends.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/process_table.h"

namespace seqpoint::jobs {
namespace {

// More than a run is resumed; of a sweep under one run id the first programs are forgotten.
constexpr size_t kMostEnds = 1'024;

// A person or a scheduler stops a healthy program by these.
bool IsStop(int32_t signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

bool ProgramEnds::Add(ProgramEnd end) {
  if (Find(end.launch) != nullptr) return false;
  if (ends_.size() == kMostEnds) ends_.erase(ends_.begin());
  ends_.push_back(std::move(end));
  return true;
}

const ProgramEnd* ProgramEnds::Find(const std::string& launch) const {
  const auto it = std::find_if(ends_.begin(), ends_.end(),
                               [&](const ProgramEnd& end) { return end.launch == launch; });
  return it == ends_.end() ? nullptr : &*it;
}

JobEnd ProgramEnds::EndOf(const ProcessTable& processes) const {
  std::vector<LastProcess> ends;
  // Earlier incarnations were resumed.
  const auto last = processes.LastOfRanks([](const Process& process) { return process.counts(); });
  for (const auto& [rank, process] : last) {
    const bool gone = process->row.end_ns != 0;
    ends.push_back({.launch = HelloField(process->row.text, "launch"),
                    .lost = process->row.lost,
                    .failed = gone && !process->row.lost && !process->state.ended_well()});
  }
  const ProgramEnd* const latest = ends_.empty() ? nullptr : &ends_.back();
  const bool latest_came =
      latest == nullptr || std::any_of(processes.begin(), processes.end(), [&](const auto& entry) {
        return HelloField(entry.second->row.text, "launch") == latest->launch;
      });
  // A program of which no process trained ends the job, too.
  if (!latest_came) ends.push_back({.launch = latest->launch});
  return Judge(ends);
}

JobEnd ProgramEnds::Judge(const std::vector<LastProcess>& last) const {
  JobEnd job;
  bool lost = false, failed = false;
  for (const LastProcess& process : last) {
    if (const ProgramEnd* end = Find(process.launch); end == nullptr) {
      lost |= process.lost;
      failed |= process.failed;
    } else if (!job.program || (!job.program->failed() && end->failed())) {
      job.program = *end;
    }
  }
  if (job.program && job.program->failed()) {
    job.state = IsStop(job.program->signal) ? v1::JOB_STATE_LOST : v1::JOB_STATE_FAILED;
  } else if (lost || failed) {
    job.state = failed ? v1::JOB_STATE_FAILED : v1::JOB_STATE_LOST;
  }
  return job;
}

void ProgramEnds::Save(JobState* state) const {
  for (const ProgramEnd& end : ends_) {
    ProgramEndState& to = *state->add_program_ends();
    to.set_launch(end.launch);
    to.set_exit_status(end.exit_status);
    to.set_signal(end.signal);
  }
}

void ProgramEnds::Restore(const JobState& state) {
  ends_.clear();
  for (const ProgramEndState& end : state.program_ends()) {
    ends_.push_back({end.launch(), end.exit_status(), end.signal()});
  }
}

std::string EndText(const ProgramEnd& end) {
  if (end.signal == 0) return absl::StrCat("exit status ", end.exit_status);
  return absl::StrCat("signal ", end.signal, " (", strsignal(end.signal), ")");
}

}  // namespace seqpoint::jobs
