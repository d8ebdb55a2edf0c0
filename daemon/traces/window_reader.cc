#include "daemon/traces/window_reader.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/traces/call_records.h"

namespace seqpoint::traces {
namespace {

using abi::Op;
using trace::CallKind;
using trace::WorkKind;

constexpr uint16_t kStreamSynchronize = 3;  // CUpti_ActivitySynchronizationType

// The driver's call that an operation stands for.
std::string CallName(Op op, bool blocks) {
  static constexpr std::pair<Op, const char*> kNames[] = {
      {Op::kLaunch, "cuLaunchKernel"},
      {Op::kGraphLaunch, "cuGraphLaunch"},
      {Op::kCopyH2D, "cuMemcpy"},
      {Op::kCopyD2H, "cuMemcpy"},
      {Op::kCopyD2D, "cuMemcpy"},
      {Op::kCopyOther, "cuMemcpy"},
      {Op::kMemset, "cuMemset"},
      {Op::kStreamSync, "cuStreamSynchronize"},
      {Op::kEventSync, "cuEventSynchronize"},
      {Op::kContextSync, "cuCtxSynchronize"},
      {Op::kEventRecord, "cuEventRecord"},
      {Op::kStreamWait, "cuStreamWaitEvent"},
  };
  const auto* const named = std::ranges::find(kNames, op, &std::pair<Op, const char*>::first);
  if (named == std::end(kNames)) return "driver call";
  const std::string_view name = named->second;
  return absl::StrCat(named->second, blocks || !name.starts_with("cuMem") ? "" : "Async");
}

WorkKind CopyKind(uint8_t kind) {
  return kind == 1   ? WorkKind::kCopyH2D  // CUpti_ActivityMemcpyKind
         : kind == 2 ? WorkKind::kCopyD2H
         : kind == 8 ? WorkKind::kCopyD2D
                     : WorkKind::kCopyOther;
}

std::string CopyName(WorkKind kind) {
  const std::string direction(CopyDirection(kind));
  return direction.empty() ? "Memcpy" : absl::StrCat("Memcpy ", direction);
}

}  // namespace

// Makes calls for work that no recorded call launched. Returns when the first of them went on to
// the driver, where the record shows it: the library stops in this call to close one window and to
// open the next, with the GPU idle, so its work starts with the usual latency after that.
int64_t WindowReader::AddOpeningCalls(int64_t begin_ns, trace::Trace* trace) const {
  if (trace->calls.empty()) return begin_ns;
  absl::flat_hash_set<uint64_t> called;
  const trace::Call* first = &trace->calls[0];
  for (const trace::Call& call : trace->calls) {
    called.insert(call.correlation);
    if (call.begin_ns < first->begin_ns) first = &call;
  }
  std::map<uint64_t, const trace::Work*> missing;  // in the order of the calls
  for (const trace::Work& work : trace->works) {
    if (work.correlation != 0 && !called.contains(work.correlation))
      missing.emplace(work.correlation, &work);
  }
  const trace::Call before = *first;
  if (!missing.empty()) {
    absl::flat_hash_map<uint64_t, int64_t> begins;
    for (const trace::Call& call : trace->calls) begins[call.correlation] = call.begin_ns;
    const int64_t first_start_ns = missing.begin()->second->start_ns;
    int64_t latency_ns = first_start_ns - begin_ns;
    for (const trace::Work& work : trace->works) {
      const auto it = begins.find(work.correlation);
      if (it == begins.end()) continue;
      latency_ns = std::min(latency_ns, std::max<int64_t>(work.start_ns - it->second, 0));
    }
    begin_ns = std::min(first_start_ns - latency_ns, before.begin_ns);
  }
  const int64_t space_ns = std::max<int64_t>(before.begin_ns - begin_ns, 0) /
                           std::max<int64_t>(static_cast<int64_t>(missing.size()), 1);
  int64_t at_ns = begin_ns;
  for (const auto& [correlation, work] : missing) {
    // Work starts after its call began.
    const int64_t call_ns = std::min(at_ns, work->start_ns);
    trace->calls.push_back({.begin_ns = call_ns,
                            .end_ns = call_ns,
                            .correlation = correlation,
                            .name = opening_names_.at(work->kind),
                            .thread = before.thread,
                            .kind = builder_.CallKindOf(opening_names_.at(work->kind))});
    at_ns += space_ns;
  }
  return begin_ns;
}

void WindowReader::AddName(uint32_t name_id, std::string_view text) {
  names_[name_id] = builder_.Name(text);
}

uint32_t WindowReader::NameOf(uint32_t name_id) const {
  const auto it = names_.find(name_id);
  return it == names_.end() ? 0 : it->second;
}

void WindowReader::Add(const abi::DataRecord& record) {
  trace::Work work;
  const auto place = [&](const auto& in) {
    work.start_ns = static_cast<int64_t>(in.start_ns);
    work.end_ns = static_cast<int64_t>(in.end_ns);
    work.correlation = in.correlation_id;
    work.stream = builder_.Stream(in.device, in.stream);
  };
  switch (static_cast<abi::DataType>(record.type)) {
    case abi::DataType::kKernel: {
      const abi::KernelRecord& in = record.kernel;
      place(in);
      work.name = NameOf(in.name_id);
      work.grid[0] = in.grid_x;
      work.grid[1] = in.grid_y;
      work.grid[2] = in.grid_z;
      work.block[0] = in.block_x;
      work.block[1] = in.block_y;
      work.block[2] = in.block_z;
      work.kind = builder_.IsCollective(work.name) ? WorkKind::kCollective : WorkKind::kKernel;
      break;
    }
    case abi::DataType::kCopy:
    case abi::DataType::kMemset: {
      const abi::CopyRecord& in = record.copy;
      const bool memset = record.type == static_cast<uint16_t>(abi::DataType::kMemset);
      place(in);
      work.bytes = in.bytes;
      work.kind = memset ? WorkKind::kMemset : CopyKind(in.kind);
      work.name = builder_.Name(memset ? "Memset" : CopyName(work.kind));
      work.pageable = true;  // not recorded; the times show whether its call waited for it
      break;
    }
    case abi::DataType::kGraph: {
      const abi::GraphRecord& in = record.graph;
      place(in);
      work.name = builder_.Name(absl::StrCat("graph ", in.graph_id));
      work.kind = WorkKind::kGraph;
      break;
    }
    case abi::DataType::kApi: {
      const abi::ApiRecord& in = record.api;
      trace::Call call;
      call.begin_ns = static_cast<int64_t>(in.start_ns);
      call.end_ns = static_cast<int64_t>(in.end_ns);
      call.correlation = in.correlation_id;
      call.name = builder_.Name(CallName(static_cast<Op>(in.op), in.blocks != 0));
      call.thread = builder_.Thread("", absl::StrCat(in.thread_id));
      call.kind = builder_.CallKindOf(call.name);
      if (call.end_ns >= call.begin_ns) builder_.calls().Add(call);
      return;
    }
    case abi::DataType::kSync:
      if (record.sync.kind == kStreamSynchronize) stream_syncs_.push_back(record.sync);
      return;
    default:
      return;
  }
  if (work.end_ns < work.start_ns) return;
  opening_names_[work.kind] = builder_.Name(CallName(OpOf(work.kind), /*blocks=*/false));
  builder_.AddWork(work);
}

trace::Trace WindowReader::Finish(const Window& window) {
  trace::Trace trace = builder_.Take();
  // Some kinds of records are always on; their records of iterations before do not belong to the
  // window.
  std::erase_if(trace.calls, [&](const trace::Call& call) {
    return call.begin_ns < window.begin_ns || call.begin_ns >= window.end_ns;
  });
  std::erase_if(trace.works,
                [&](const trace::Work& work) { return work.start_ns < window.begin_ns; });
  begin_ns_ = AddOpeningCalls(window.begin_ns, &trace);
  // These records name no device: it is the one on which the stream's number is in use.
  absl::flat_hash_map<int64_t, uint32_t> streams;
  for (uint32_t i = 0; i < trace.streams.size(); ++i) {
    const auto [it, inserted] = streams.try_emplace(trace.streams[i].id, i);
    if (!inserted) it->second = trace::kNone;
  }
  for (const abi::SyncRecord& sync : stream_syncs_) {
    const auto it = streams.find(sync.stream);
    if (it == streams.end() || it->second == trace::kNone) continue;
    trace.waits.push_back({.correlation = sync.correlation_id, .stream = it->second});
  }
  return trace;
}

}  // namespace seqpoint::traces
