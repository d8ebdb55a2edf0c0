#include "daemon/iterations/trace_boundaries.h"

#include "daemon/traces/call_records.h"

namespace seqpoint::iterations {
namespace {

std::vector<uint64_t> Begins(const IterationLearner& learner, const LearnedRule& rule) {
  std::vector<uint64_t> begins;
  abi::Matcher matcher(rule.rule);
  bool replace = false;
  for (const abi::CallRecord& call : learner.stream().calls()) {
    const uint32_t flags = matcher.OnEvent(ToMatchEvent(call, learner.stream().names()));
    if ((flags & abi::kMatchedStep) != 0) replace = false;
    if ((flags & abi::kMatchedBoundary) != 0) {
      if (replace) begins.pop_back();
      begins.push_back(call.api_ns);
      replace = true;
    }
  }
  return begins;
}

}  // namespace

TraceBoundaries FindBoundaries(const trace::Trace& trace) {
  TraceBoundaries found;
  const traces::CallRecords stream = traces::ToCallRecords(trace);
  found.learner = std::make_unique<IterationLearner>();
  for (uint32_t id = 1; id < trace.names.size(); ++id) {
    found.learner->AddName(id, trace.names[id]);
  }
  for (const auto& [correlation, start] : stream.gpu_starts) {
    found.learner->AddGpuStart(correlation, start);
  }
  for (const abi::CallRecord& call : stream.calls) found.learner->AddCall(call);
  found.rule = found.learner->Analyse();
  if (found.rule) found.starts_ns = Begins(*found.learner, *found.rule);
  return found;
}

}  // namespace seqpoint::iterations
