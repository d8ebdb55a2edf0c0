// The iterations that a resumed run may repeat: those of its earlier incarnations, from the store.
//
// Threading: the caller holds the registry's lock, as for every call of a job.
#ifndef DAEMON_SERVICE_RESUME_LOGS_H_
#define DAEMON_SERVICE_RESUME_LOGS_H_

#include "daemon/jobs/job.h"
#include "daemon/store/store.h"

namespace seqpoint::service {

// Gives the job the logs it waits for (Job::WantedLogs). After a commit.
void LoadResumeLogs(Store& store, jobs::Job& job);

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_RESUME_LOGS_H_
