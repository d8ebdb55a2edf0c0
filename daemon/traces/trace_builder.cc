#include "daemon/traces/trace_builder.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace seqpoint::traces {
namespace {

using trace::CallKind;
using trace::WorkKind;

constexpr struct {
  WorkKind kind;
  std::string_view in_short, in_full;
} kCopies[] = {{WorkKind::kCopyH2D, "HtoD", "HostToDevice"},
               {WorkKind::kCopyD2H, "DtoH", "DeviceToHost"},
               {WorkKind::kCopyD2D, "DtoD", "DeviceToDevice"}};

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

CallKind KindOfCall(std::string_view name) {
  if (Contains(name, "GraphLaunch")) return CallKind::kGraphLaunch;
  // cudaGraphAddMemcpyNode and the like: nothing runs yet.
  if (Contains(name, "Graph")) return CallKind::kOther;
  if (Contains(name, "StreamSynchronize")) return CallKind::kStreamSync;
  if (Contains(name, "EventSynchronize")) return CallKind::kEventSync;
  if (Contains(name, "DeviceSynchronize") || Contains(name, "CtxSynchronize")) {
    return CallKind::kContextSync;
  }
  if (Contains(name, "EventRecord")) return CallKind::kEventRecord;
  if (Contains(name, "StreamWaitEvent")) return CallKind::kStreamWait;
  if (Contains(name, "Memset")) return CallKind::kMemset;
  if (Contains(name, "Memcpy")) return CallKind::kCopy;
  if (Contains(name, "Launch") && !Contains(name, "HostFunc")) return CallKind::kLaunch;
  return CallKind::kOther;
}

bool NamesCollective(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  return Contains(lower, "nccl") || Contains(lower, "rccl");
}

}  // namespace

TraceBuilder::TraceBuilder() : names_(0, NameHash{&trace_.names}, NameEqual{&trace_.names}) {
  Name("");
}

trace::Trace TraceBuilder::Take() {
  trace_.calls = calls_.Take();
  trace_.works = works_.Take();
  trace_.spans = spans_.Take();
  trace_.flows = flows_.Take();
  for (trace::Call& call : trace_.calls) call.begin_ns += base_ns_, call.end_ns += base_ns_;
  for (trace::Work& work : trace_.works) work.start_ns += base_ns_, work.end_ns += base_ns_;
  for (trace::Span& span : trace_.spans) span.begin_ns += base_ns_, span.end_ns += base_ns_;
  for (trace::Flow& flow : trace_.flows) {
    flow.forward_ns += base_ns_, flow.backward_ns += base_ns_;
  }
  for (const auto& [key, name] : thread_names_) {
    const auto it = threads_.find(key);
    if (it != threads_.end()) absl::StrAppend(&trace_.threads[it->second], " ", name);
  }
  return std::move(trace_);
}

void TraceBuilder::AddFlowEnd(std::string_view id, bool forward, int64_t at_ns, uint32_t thread) {
  const auto it = half_flows_.try_emplace(std::string(id)).first;
  FlowEnds& ends = it->second;
  (forward ? ends.forward : ends.backward) = true;
  (forward ? ends.flow.forward_ns : ends.flow.backward_ns) = at_ns;
  (forward ? ends.flow.forward_thread : ends.flow.backward_thread) = thread;
  if (!ends.forward || !ends.backward) return;
  flows_.Add(ends.flow);
  half_flows_.erase(it);
}

uint32_t TraceBuilder::Name(std::string_view text) {
  const auto it = names_.find(text);
  if (it != names_.end()) return *it;
  const auto id = static_cast<uint32_t>(trace_.names.size());
  trace_.names.emplace_back(text);
  facts_.push_back({KindOfCall(text), NamesCollective(text)});
  names_.insert(id);
  return id;
}

uint32_t TraceBuilder::Thread(std::string_view process, std::string_view thread) {
  key_.assign(process).append("/").append(thread);
  const auto [it, inserted] =
      threads_.try_emplace(key_, static_cast<uint32_t>(trace_.threads.size()));
  if (inserted) trace_.threads.push_back(key_);
  return it->second;
}

void TraceBuilder::SetThreadName(std::string_view process, std::string_view thread,
                                 std::string_view name) {
  key_.assign(process).append("/").append(thread);
  if (!name.empty()) thread_names_[key_] = name;
}

uint32_t TraceBuilder::Stream(int32_t device, int64_t id) {
  const auto [it, inserted] = streams_.try_emplace(std::make_pair(device, id),
                                                   static_cast<uint32_t>(trace_.streams.size()));
  if (inserted) trace_.streams.push_back({device, id});
  return it->second;
}

WorkKind CopyKindOf(std::string_view name) {
  for (const auto& [kind, in_short, in_full] : kCopies) {
    if (Contains(name, in_short) || Contains(name, in_full)) return kind;
  }
  return WorkKind::kCopyOther;
}

std::string_view CopyDirection(WorkKind kind) {
  for (const auto& [known, in_short, in_full] : kCopies) {
    if (kind == known) return in_short;
  }
  return "";
}

}  // namespace seqpoint::traces
