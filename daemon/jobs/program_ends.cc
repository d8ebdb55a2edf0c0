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
constexpr int kMostEnds = 1'024;

// A person or a scheduler stops a healthy program by these.
bool IsStop(int32_t signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

bool ProgramEnds::Add(const ProgramEndState& end) {
  if (Find(end.launch()) != nullptr) return false;
  if (ends_.size() == kMostEnds) ends_.DeleteSubrange(0, 1);
  *ends_.Add() = end;
  return true;
}

const ProgramEndState* ProgramEnds::Find(const std::string& launch) const {
  const auto it = std::find_if(ends_.begin(), ends_.end(),
                               [&](const ProgramEndState& end) { return end.launch() == launch; });
  return it == ends_.end() ? nullptr : &*it;
}

JobEnd ProgramEnds::EndOf(const ProcessTable& processes) const {
  JobEnd job;
  bool lost = false, failed = false;
  const auto see = [&](const std::string& launch, bool process_lost, bool process_failed) {
    if (const ProgramEndState* end = Find(launch); end == nullptr) {
      lost |= process_lost;
      failed |= process_failed;
    } else if (!job.program || (!Failed(*job.program) && Failed(*end))) {
      job.program = *end;
    }
  };
  // Earlier incarnations were resumed.
  const auto last = processes.LastOfRanks([](const Process& process) { return process.counts(); });
  for (const auto& [rank, process] : last) {
    const ProcessRow& row = process->row;
    see(HelloField(row.text, "launch"), row.lost,
        row.end_ns != 0 && !row.lost && !process->state.ended_well());
  }
  const std::string latest = ends_.empty() ? "" : ends_.rbegin()->launch();
  const bool latest_came = std::any_of(processes.begin(), processes.end(), [&](const auto& entry) {
    return HelloField(entry.second->row.text, "launch") == latest;
  });
  // A program of which no process trained ends the job, too.
  if (!latest_came) see(latest, false, false);
  if (job.program && Failed(*job.program)) {
    job.state = IsStop(job.program->signal()) ? v1::JOB_STATE_LOST : v1::JOB_STATE_FAILED;
  } else if (lost || failed) {
    job.state = failed ? v1::JOB_STATE_FAILED : v1::JOB_STATE_LOST;
  }
  return job;
}

bool Failed(const ProgramEndState& end) { return end.exit_status() != 0 || end.signal() != 0; }

std::string EndText(const ProgramEndState& end) {
  if (end.signal() == 0) return absl::StrCat("exit status ", end.exit_status());
  return absl::StrCat("signal ", end.signal(), " (", strsignal(end.signal()), ")");
}

}  // namespace seqpoint::jobs
