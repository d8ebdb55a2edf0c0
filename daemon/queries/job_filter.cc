#include "daemon/queries/job_filter.h"

#include <algorithm>
#include <string>

namespace seqpoint::queries {

bool IsWanted(const v1::Job& job, const v1::ListJobsRequest& request) {
  const auto has = [](const auto& list, const auto& wanted) {
    return std::find(list.begin(), list.end(), wanted) != list.end();
  };
  if (request.states_size() > 0 && !has(request.states(), static_cast<int>(job.state()))) {
    return false;
  }
  return job.start_ns() >= request.since_ns() &&
         std::all_of(request.tags().begin(), request.tags().end(),
                     [&](const std::string& tag) { return has(job.tags(), tag); });
}

}  // namespace seqpoint::queries
