// Descriptions of a job's processes, as values and messages of the API.
//
// Threading: pure functions.
#ifndef DAEMON_JOBS_PROCESS_DESCRIPTIONS_H_
#define DAEMON_JOBS_PROCESS_DESCRIPTIONS_H_

#include <string>

#include "daemon/jobs/metric_choice.h"
#include "daemon/jobs/process_table.h"
#include "daemon/jobs/rank_table.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::jobs {

// Which process had more iterations than are counted; empty: none.
std::string UncountedInWords(const ProcessTable& processes, const RankTable& ranks);
// Which processes lost reports on their way to this hub; empty: none.
// Without a rule nothing that came after it is counted.
std::string LostBatchesInWords(const ProcessTable& processes, bool has_rule);
// Which may have had fewer; empty: none.
std::string OvercountedInWords(const ProcessTable& processes);
// The ranks whose iterations cannot be set beside those of other ranks, and why; empty: there is
// none, or the job has one rank.
std::string UnmatchedInWords(const ProcessTable& processes);
// Which rank of a job that is over ended first of those that did not end well, how, and how long
// before the next one, or why that is not known. Empty: all ended well.
std::string FirstEndInWords(const ProcessTable& processes);
// Why only time is known; empty: a process has CUPTI.
std::string WhyTimeOnly(const ProcessTable& processes);
// Why no kernel was measured by itself, where a process or the choice of metrics is the reason.
std::string WhyNoRoofline(const ProcessTable& processes, const MetricChoice& metrics);

bool AnyHasCupti(const ProcessTable& processes);  // as far as is known
v1::ClockKind ClockKindOf(const ProcessTable& processes);

// By rank.
void DescribeProcesses(const ProcessTable& processes,
                       google::protobuf::RepeatedPtrField<v1::Process>* list);
// The time that the tool took, level by level.
void SetSpent(const ProcessTable& processes, v1::Overhead* overhead);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_PROCESS_DESCRIPTIONS_H_
