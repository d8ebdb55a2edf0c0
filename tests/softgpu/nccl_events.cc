#include "tests/softgpu/nccl_events.h"

namespace seqpoint::softgpu {
namespace {

// Bits that make NCCL create an event: its own, and those of everything below it.
constexpr int kBelowOperation =
    nccl::kProxyOp | nccl::kProxyStep | nccl::kKernelChannel | nccl::kNetPlugin;
constexpr int kCollectiveBits = nccl::kCollective | kBelowOperation;
constexpr int kTransferBits = nccl::kPointToPoint | kBelowOperation;
constexpr int kGroupBits = nccl::kGroup | kCollectiveBits | kTransferBits;
constexpr int kCopyBits = nccl::kCopyCollective | nccl::kCopySync | nccl::kCopyBatch;
constexpr int kGroupApiBits = nccl::kGroupApi | nccl::kPointToPointApi | nccl::kCollectiveApi |
                              nccl::kKernelLaunch | kGroupBits | kCopyBits;
constexpr int kCollectiveApiBits = nccl::kCollectiveApi | kCollectiveBits | kCopyBits;
constexpr int kTransferApiBits = nccl::kPointToPointApi | kTransferBits;
// The first releases look at one set of bits for the group and another for all operations.
constexpr int kFirstGroupBits =
    nccl::kCollective | nccl::kPointToPoint | nccl::kProxyOp | nccl::kProxyStep;
constexpr int kFirstOperationBits = nccl::kCollective | nccl::kProxyOp | nccl::kProxyStep;

// NCCL's state per thread of its API events.
struct ApiState {
  int depth = 0;  // of the group, counted from the call that started the event
  int mask = 0;
  bool start_is_over = false;
  bool end_has_begun = false;
  void* group = nullptr;
  void* collective = nullptr;
  void* transfer = nullptr;
};
thread_local ApiState t_api;

bool HasApiEvents() { return ProcessProfiler().release() >= 5; }

void StartGroupApi(NcclCommunicator& communicator, bool captured, int group_depth) {
  NcclProfiler& profiler = ProcessProfiler();
  t_api.mask = profiler.mask();
  if (!profiler.loaded() || (t_api.mask & kGroupApiBits) == 0 || t_api.depth != 0) return;
  NcclEvent event;
  event.type = nccl::kGroupApi;
  event.group_api = {captured, group_depth};
  profiler.Start(communicator.profiler_context, &t_api.group, &event);
  t_api.depth = group_depth;
  t_api.start_is_over = false;
  t_api.end_has_begun = false;
}

void StartCollectiveApi(NcclCommunicator& communicator, const NcclTask& api, bool captured) {
  NcclProfiler& profiler = ProcessProfiler();
  if (!profiler.loaded() || (t_api.mask & kCollectiveApiBits) == 0) return;
  NcclEvent event;
  event.type = nccl::kCollectiveApi;
  event.parent = t_api.group;
  event.collective_api = {Name(api.function), api.count,  Name(api.type),
                          api.root,           api.stream, captured};
  profiler.Start(communicator.profiler_context, &t_api.collective, &event);
}

void StartTransferApi(NcclCommunicator& communicator, const NcclTask& api, bool captured) {
  NcclProfiler& profiler = ProcessProfiler();
  if (!profiler.loaded() || (t_api.mask & kTransferApiBits) == 0) return;
  NcclEvent event;
  event.type = nccl::kPointToPointApi;
  event.parent = t_api.group;
  event.point_to_point_api = {Name(api.function), api.count, Name(api.type), api.stream, captured};
  profiler.Start(communicator.profiler_context, &t_api.transfer, &event);
}

void DescribeCommunicator(NcclCommunicator& communicator, NcclEvent* event) {
  event->rank = communicator.rank;
  event->communicator_name = communicator.name();
  event->communicator_hash = communicator.hash;
}

void StartCollective(NcclPlan* plan, NcclTask* task) {
  NcclCommunicator& communicator = plan->communicator();
  NcclEvent event;
  event.type = nccl::kCollective;
  event.parent = task->api_event;
  DescribeCommunicator(communicator, &event);
  event.function = task->function;
  event.datatype = task->type;
  event.operation = static_cast<uint32_t>(task->op);
  event.traffic_bytes = task->traffic_bytes;
  event.algorithm = task->choice.algorithm;
  event.protocol = task->choice.protocol;
  constexpr uint8_t kWarps = 16;
  event.collective = {communicator.told_sequence[static_cast<int>(task->function)],
                      Name(task->function),
                      task->send,
                      task->receive,
                      task->count,
                      task->root,
                      Name(task->type),
                      task->choice.channels,
                      kWarps,
                      Name(task->choice.algorithm),
                      Name(task->choice.protocol),
                      plan->group_event};
  ProcessProfiler().Start(communicator.profiler_context, &task->event, &event);
}

void StartTransfer(NcclPlan* plan, NcclTask* task) {
  NcclCommunicator& communicator = plan->communicator();
  NcclEvent event;
  event.type = nccl::kPointToPoint;
  event.parent = task->api_event;
  DescribeCommunicator(communicator, &event);
  event.function = task->function;
  event.datatype = task->type;
  void* buffer =
      task->function == NcclFunction::kSend ? const_cast<void*>(task->send) : task->receive;
  event.point_to_point = {Name(task->function), buffer,     Name(task->type),
                          task->count,          task->root, task->choice.channels,
                          plan->group_event};
  ProcessProfiler().Start(communicator.profiler_context, &task->event, &event);
}

// The mask of the first operation that has one.
int MaskOf(NcclPlan* plan, void** group_api_event) {
  for (auto* tasks : {&plan->collectives(), &plan->transfers()}) {
    for (const NcclTask& task : *tasks) {
      if (task.mask == 0) continue;
      *group_api_event = task.group_api_event;
      return task.mask;
    }
  }
  return 0;
}

void StartGroup(NcclPlan* plan) {
  NcclProfiler& profiler = ProcessProfiler();
  void* unused = nullptr;
  const bool first = profiler.release() <= 2;
  plan->group_mask = first ? profiler.mask() : MaskOf(plan, &unused);
  if (!profiler.loaded()) return;
  if ((plan->group_mask & (first ? kFirstGroupBits : kGroupBits)) == 0) return;
  NcclEvent event;
  event.type = nccl::kGroup;
  profiler.Start(plan->communicator().profiler_context, &plan->group_event, &event);
}

// Whether the operation has an event of its own.
bool Wanted(const NcclPlan& plan, int mask, int bits) {
  NcclProfiler& profiler = ProcessProfiler();
  if (!profiler.loaded()) return false;
  if (profiler.release() <= 2) {
    return plan.group_event != nullptr && (plan.group_mask & kFirstOperationBits) != 0;
  }
  if (profiler.release() <= 4 && plan.group_event == nullptr) return false;
  return (mask & bits) != 0;
}

}  // namespace

void NoteCall() {
  if (HasApiEvents() && t_api.depth > 0) ++t_api.depth;
}

void NoteTask(NcclCommunicator& communicator, const NcclTask& api, bool captured, int group_depth,
              NcclTask* task) {
  NcclProfiler& profiler = ProcessProfiler();
  if (!HasApiEvents()) {
    task->mask = profiler.mask();
    return;
  }
  StartGroupApi(communicator, captured, group_depth);
  if (t_api.group != nullptr && t_api.depth > 0 && !t_api.start_is_over) {
    t_api.start_is_over = true;
    profiler.Record(t_api.group, nccl::kGroupApiStartStop, nullptr);
  }
  if (task->is_transfer()) {
    StartTransferApi(communicator, api, captured);
    task->api_event = t_api.transfer;
    if (t_api.transfer != nullptr) profiler.Stop(t_api.transfer);
    t_api.transfer = nullptr;
  } else {
    StartCollectiveApi(communicator, api, captured);
    task->api_event = t_api.collective;
    // NCCL keeps this handle. When the plugin clears its mask, the next call stops the event again.
    if (t_api.collective != nullptr) profiler.Stop(t_api.collective);
  }
  task->mask = t_api.mask;
  task->group_api_event = t_api.group;
}

void NoteGroupEnd() {
  if (!HasApiEvents()) return;
  if (t_api.depth > 0) --t_api.depth;
  if (t_api.depth != 0 || t_api.group == nullptr || !t_api.start_is_over || t_api.end_has_begun) {
    return;
  }
  t_api.end_has_begun = true;
  ProcessProfiler().Record(t_api.group, nccl::kGroupApiEndStart, nullptr);
}

void NoteGroupEnded() {
  if (!HasApiEvents() || t_api.group == nullptr || t_api.depth != 0) return;
  ProcessProfiler().Stop(t_api.group);
  t_api.group = nullptr;
}

void NoteLaunch(NcclPlan* plan) {
  NcclProfiler& profiler = ProcessProfiler();
  void* group_api_event = nullptr;
  const int mask = MaskOf(plan, &group_api_event);
  if (!HasApiEvents() || !profiler.loaded() || (mask & nccl::kKernelLaunch) == 0) return;
  NcclEvent event;
  event.type = nccl::kKernelLaunch;
  event.parent = group_api_event;
  event.kernel_launch.stream = plan->stream();
  profiler.Start(plan->communicator().profiler_context, &plan->kernel_launch_event, &event);
}

void NoteLaunched(NcclPlan* plan) {
  if (plan->kernel_launch_event != nullptr) ProcessProfiler().Stop(plan->kernel_launch_event);
}

void NoteEnqueued(NcclPlan* plan) {
  NcclProfiler& profiler = ProcessProfiler();
  StartGroup(plan);
  for (NcclTask& task : plan->collectives()) {
    const bool wanted = Wanted(*plan, task.mask, kCollectiveBits);
    if (wanted) StartCollective(plan, &task);
    // The first releases count what they tell. The later ones do not count what a graph captures.
    if (profiler.release() <= 2 ? wanted : !plan->captured()) {
      ++plan->communicator().told_sequence[static_cast<int>(task.function)];
    }
  }
  for (NcclTask& task : plan->transfers()) {
    if (Wanted(*plan, task.mask, kTransferBits)) StartTransfer(plan, &task);
  }
  for (auto* tasks : {&plan->collectives(), &plan->transfers()}) {
    for (NcclTask& task : *tasks) {
      if (task.event != nullptr) profiler.Stop(task.event);
    }
  }
  if (plan->group_event != nullptr) profiler.Stop(plan->group_event);
}

}  // namespace seqpoint::softgpu
