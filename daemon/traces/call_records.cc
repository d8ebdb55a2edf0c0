#include "daemon/traces/call_records.h"

#include <algorithm>
#include <iterator>

#include "absl/container/flat_hash_map.h"

namespace seqpoint::traces {
namespace {

using abi::Op;
using trace::CallKind;
using trace::WorkKind;

// By CallKind.
constexpr Op kOpOfCall[] = {Op::kNone,        Op::kLaunch,     Op::kGraphLaunch, Op::kCopyOther,
                            Op::kMemset,      Op::kStreamSync, Op::kEventSync,   Op::kContextSync,
                            Op::kEventRecord, Op::kStreamWait};
static_assert(std::size(kOpOfCall) == static_cast<size_t>(CallKind::kStreamWait) + 1);
// By WorkKind.
constexpr Op kOpOfWork[] = {Op::kLaunch,  Op::kLaunch,    Op::kCopyH2D, Op::kCopyD2H,
                            Op::kCopyD2D, Op::kCopyOther, Op::kMemset,  Op::kGraphLaunch};
static_assert(std::size(kOpOfWork) == static_cast<size_t>(WorkKind::kGraph) + 1);

void Describe(const trace::Work& work, abi::CallRecord* call) {
  call->op = static_cast<uint8_t>(OpOf(work.kind));
  if (work.kind == WorkKind::kKernel || work.kind == WorkKind::kCollective) {
    call->name_id = work.name;
  }
  const auto at_least_one = [](uint32_t n) {
    return static_cast<uint16_t>(std::clamp<uint32_t>(n, 1, UINT16_MAX));
  };
  call->grid_x = std::max(work.grid[0], 1u);
  call->grid_y = at_least_one(work.grid[1]);
  call->grid_z = at_least_one(work.grid[2]);
  call->block_x = at_least_one(work.block[0]);
  call->block_y = at_least_one(work.block[1]);
  call->block_z = at_least_one(work.block[2]);
  call->bytes = work.bytes;
}

}  // namespace

abi::Op OpOf(WorkKind kind) { return kOpOfWork[static_cast<size_t>(kind)]; }

CallRecords ToCallRecords(const trace::Trace& trace) {
  CallRecords result;
  const auto add = [&result](abi::CallRecord call) {
    call.type = static_cast<uint16_t>(abi::DataType::kCall);
    call.sequence = result.calls.size() + 1;
    result.calls.push_back(call);
  };
  absl::flat_hash_map<uint64_t, const trace::Work*> first_work;  // by correlation
  for (const trace::Work& work : trace.works) {
    if (work.correlation != 0) first_work.try_emplace(work.correlation, &work);
  }

  std::vector<const trace::Call*> calls;
  for (const trace::Call& call : trace.calls) {
    if (call.kind != CallKind::kOther) calls.push_back(&call);
  }
  std::stable_sort(calls.begin(), calls.end(), [](const trace::Call* a, const trace::Call* b) {
    return a->begin_ns < b->begin_ns;
  });
  for (const trace::Call* recorded : calls) {
    abi::CallRecord call{};
    call.op = static_cast<uint8_t>(kOpOfCall[static_cast<size_t>(recorded->kind)]);
    call.api_ns = static_cast<uint64_t>(recorded->begin_ns);
    call.thread_id = recorded->thread;
    call.correlation_id = static_cast<uint32_t>(recorded->correlation);
    const auto work = first_work.find(recorded->correlation);
    if (work != first_work.end()) {
      if (recorded->kind != CallKind::kGraphLaunch) Describe(*work->second, &call);
      call.stream = work->second->stream + 1;
      result.gpu_starts.push_back(
          {call.correlation_id, static_cast<uint64_t>(work->second->start_ns)});
    } else if (recorded->kind == CallKind::kLaunch || recorded->kind == CallKind::kGraphLaunch ||
               recorded->kind == CallKind::kCopy || recorded->kind == CallKind::kMemset) {
      continue;  // its work ran outside of the recorded window
    } else if (recorded->kind == CallKind::kStreamSync || recorded->kind == CallKind::kEventSync ||
               recorded->kind == CallKind::kContextSync) {
      call.bytes = static_cast<uint64_t>(recorded->end_ns - recorded->begin_ns);
    }
    add(call);
  }
  if (trace.calls.empty()) {
    for (const trace::Work& work : trace.works) {
      abi::CallRecord call{};
      Describe(work, &call);
      call.api_ns = static_cast<uint64_t>(work.start_ns);
      call.correlation_id = static_cast<uint32_t>(result.calls.size() + 1);
      call.stream = work.stream + 1;
      result.gpu_starts.push_back({call.correlation_id, call.api_ns});
      add(call);
    }
  }
  return result;
}

}  // namespace seqpoint::traces
