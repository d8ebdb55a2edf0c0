#include "tests/softgpu/nccl_group.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/softgpu/nccl_events.h"

namespace seqpoint::softgpu {
namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::unique_ptr<NcclPlan>> plans;  // one for each communicator
  std::vector<std::function<ncclResult_t()>> jobs;
};
thread_local Group t_group;

ncclResult_t RunJobs(const std::vector<std::function<ncclResult_t()>>& jobs) {
  if (jobs.size() == 1) return jobs.front()();
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back([&results, &jobs, i] { results[i] = jobs[i](); });
  }
  for (std::thread& thread : threads) thread.join();
  for (ncclResult_t result : results) {
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// A graph, or a copy of it, may launch the kernel until the process ends.
void KeepForGraphs(std::unique_ptr<NcclPlan> plan) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::unique_ptr<NcclPlan>>;
  std::lock_guard lock(mutex);
  kept->push_back(std::move(plan));
}

ncclResult_t LaunchAll(std::vector<std::unique_ptr<NcclPlan>>* plans) {
  ncclResult_t result = ncclSuccess;
  size_t ended = 0;
  for (size_t i = 0; i < plans->size() && result == ncclSuccess; ++i) {
    // A kernel's arrival at its stream depends on the end of the kernel before it there.
    const CUstream stream = (*plans)[i]->stream();
    const auto waits_for = [&](const std::unique_ptr<NcclPlan>& plan) {
      return plan->stream() == stream;
    };
    if (std::any_of(plans->begin() + static_cast<ptrdiff_t>(ended),
                    plans->begin() + static_cast<ptrdiff_t>(i), waits_for)) {
      for (; ended < i; ++ended) (*plans)[ended]->End();
    }
    result = (*plans)[i]->Launch();
  }
  for (; ended < plans->size(); ++ended) (*plans)[ended]->End();
  for (std::unique_ptr<NcclPlan>& plan : *plans) {
    if (plan->captured()) KeepForGraphs(std::move(plan));
  }
  return result;
}

ncclResult_t Finish() {
  Group group = std::exchange(t_group, {});
  if (group.error != ncclSuccess) return group.error;
  if (!group.jobs.empty()) {
    if (const ncclResult_t result = RunJobs(group.jobs); result != ncclSuccess) return result;
  }
  return LaunchAll(&group.plans);
}

}  // namespace

void NcclGroupStart() { ++t_group.depth; }

ncclResult_t NcclGroupEnd() {
  if (t_group.depth == 0) return NcclFail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  NoteGroupEnd();
  ncclResult_t result = ncclSuccess;
  if (--t_group.depth == 0) result = Finish();
  NoteGroupEnded();
  return result;
}

ncclResult_t NcclGroupRun(std::function<ncclResult_t()> job) {
  if (t_group.depth == 0) return job();
  t_group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t NcclGroupCall(const std::function<ncclResult_t()>& body) {
  NoteCall();
  NcclGroupStart();
  const ncclResult_t result = body();
  if (result != ncclSuccess) t_group.error = result;
  const ncclResult_t ended = NcclGroupEnd();
  return result != ncclSuccess ? result : ended;
}

ncclResult_t NcclGroupAdd(const std::shared_ptr<NcclCommunicator>& communicator,
                          const NcclTask& api, NcclTask task) {
  auto plan = std::find_if(t_group.plans.begin(), t_group.plans.end(),
                           [&](const auto& p) { return &p->communicator() == communicator.get(); });
  if (plan == t_group.plans.end()) {
    t_group.plans.push_back(std::make_unique<NcclPlan>(communicator));
    plan = t_group.plans.end() - 1;
  }
  if (task.is_transfer()) {
    const auto& others = (*plan)->transfers();
    const auto same = std::count_if(others.begin(), others.end(), [&](const NcclTask& other) {
      return other.root == task.root && other.function == task.function;
    });
    if (same >= NcclSegment::kMaxPending) {
      return NcclFail(ncclInvalidUsage, "the software NCCL takes " +
                                            std::to_string(NcclSegment::kMaxPending) +
                                            " transfers to or from one rank in a group");
    }
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  {
    ContextScope scope(communicator->context);
    cuStreamIsCapturing(task.stream, &status);
  }
  NoteTask(*communicator, api, status != CU_STREAM_CAPTURE_STATUS_NONE, t_group.depth, &task);
  (*plan)->Add(task);
  return ncclSuccess;
}

}  // namespace seqpoint::softgpu
