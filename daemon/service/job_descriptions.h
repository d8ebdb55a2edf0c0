// JobDescriptions: what the daemon says of its jobs, one by one and as a list.
//
// Threading: thread-safe; takes the registry's lock. The expensive part of a description is
// computed without it.
// Ownership: keeps pointers to the store, the registry, the committer and the clock.
#ifndef DAEMON_SERVICE_JOB_DESCRIPTIONS_H_
#define DAEMON_SERVICE_JOB_DESCRIPTIONS_H_

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "daemon/base/clock.h"
#include "daemon/service/committer.h"
#include "daemon/service/job_registry.h"
#include "daemon/store/store.h"
#include "seqpoint/v1/profiler.pb.h"

namespace seqpoint::service {

class JobDescriptions {
 public:
  enum class Detail { kList, kProcesses, kHistogram };  // each with those before it

  JobDescriptions(Store* store, JobRegistry* registry, const Committer* committer,
                  const Clock* clock)
      : store_(*store), registry_(*registry), committer_(*committer), clock_(*clock) {}

  // With a summary that is not too old. NotFound when the job was removed meanwhile. `also` is
  // called with the job, under the lock under which it is described.
  absl::StatusOr<v1::Job> Describe(int64_t id, Detail detail,
                                   const std::function<void(jobs::Job&)>& also = {})
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

  // A page of the jobs that the request wants, the latest first.
  absl::StatusOr<v1::ListJobsReply> List(const v1::ListJobsRequest& request)
      ABSL_LOCKS_EXCLUDED(registry_.mutex());

 private:
  v1::Job DescribeNow(jobs::Job& job, Detail detail)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry_.mutex());
  // A job that is not in memory is described from the store.
  absl::StatusOr<v1::Job> DescribeForList(int64_t id) ABSL_LOCKS_EXCLUDED(registry_.mutex());

  Store& store_;
  JobRegistry& registry_;
  const Committer& committer_;
  const Clock& clock_;
};

}  // namespace seqpoint::service

#endif  // DAEMON_SERVICE_JOB_DESCRIPTIONS_H_
