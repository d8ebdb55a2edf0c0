#include "injection/iterations/measurement_borders.h"

namespace seqpoint::inject {

using Kind = Measurement::Kind;

bool MeasurementBorders::CanBegin(uint16_t config_id) {
  const CuptiOwnership::Share share = parts_.ownership->share();
  if (share == CuptiOwnership::Share::kNothing || parts_.token->holds_captures()) return false;
  // Ranges belong to contexts, whose end nobody would announce without callbacks.
  return config_id == abi::kConfigTrace
             ? parts_.activity->traces()
             : share == CuptiOwnership::Share::kAll && parts_.counters->Ready(config_id);
}

void MeasurementBorders::Open(CUcontext known) {
  const uint64_t begin_ns = parts_.clock->NowNs();
  ActivityDecoder::Seen seen = {};
  uint32_t status = 0;
  if (parts_.window->kind() == Kind::kTrace) {
    seen = parts_.activity->seen();
    parts_.activity->SetKindsOfWindow(parts_.watch->TraceKinds());
    if (!parts_.activity->traces()) {  // CUPTI refused, just now
      parts_.activity->SetKindsOfWindow(parts_.watch->applied_kinds());
      status = abi::kCountersAborted;
    }
  } else {
    status = parts_.counters->Open(parts_.contexts->Of(known), known, parts_.window->config_id(),
                                   parts_.state->iteration_ns);
  }
  if (status == 0 && (parts_.window->of_kernels() || parts_.watch->NamesLaunches()))
    parts_.watch->WatchLaunches();
  const uint64_t end_ns = parts_.clock->NowNs();
  LockGuard lock(&parts_.state->lock);
  parts_.window->OnOpened(begin_ns, end_ns, seen);
  parts_.state->held_ns += end_ns - begin_ns;
  if (status == 0) return;
  parts_.window->Drop();
  Report(end_ns, status);
}

void MeasurementBorders::Close(CUcontext known) {
  Measurement* closing = parts_.window->closing();
  const uint64_t begin_ns = parts_.clock->NowNs();
  uint32_t status = abi::kCountersOk;
  if (!closing->stepped) status = abi::kCountersAborted;
  if (closing->unwanted) status = abi::kCountersDiscarded;
  if (closing->captured) status = abi::kCountersAmbiguous;
  uint32_t closed = 0;
  if (closing->kind == Kind::kTrace) {
    parts_.activity->SetKindsOfWindow(parts_.watch->applied_kinds());
    if (parts_.activity->Lost(closing->seen)) closed = abi::kCountersRangeDropped;
    if (parts_.watch->NamesLaunches()) parts_.watch->WatchLaunches();
  } else {
    closed = parts_.counters->Close(known);
    if (closing->kernels) parts_.watch->WatchLaunches();
  }
  const uint64_t end_ns = parts_.clock->NowNs();
  closing->stopped_ns += end_ns - begin_ns;
  // Kernels that were measured ran one after the other: the time of the iteration beyond that of
  // the one before it is a stop, too.
  const uint64_t took_ns = end_ns - closing->begin_ns;
  if (closing->kernels && took_ns > closing->usual_ns + closing->stopped_ns) {
    closing->stopped_ns = took_ns - closing->usual_ns;
  }
  if (closed != 0) status = closed;
  if (closing->kind == Kind::kCounters) {
    if (status == abi::kCountersOk) {
      parts_.counters->Decode(ClosingEvent(status));
    } else {
      parts_.counters->Discard();
    }
  }
  Report(end_ns, status);
  LockGuard lock(&parts_.state->lock);
  parts_.state->held_ns += end_ns - begin_ns;
  if (status != abi::kCountersOk) parts_.window->OnFailed(end_ns);
}

void MeasurementBorders::ReportAborted() { Report(parts_.clock->NowNs(), abi::kCountersAborted); }

void MeasurementBorders::Report(uint64_t end_ns, uint32_t status) {
  if (status != abi::kCountersOk) ReportFailure(status);
  const Measurement& closing = *parts_.window->closing();
  const bool trace = closing.kind == Kind::kTrace;
  abi::WindowEvent window = {};
  window.begin_ns = closing.begin_ns;
  window.end_ns = end_ns;
  window.iteration = closing.iteration;
  window.stopped_ns = closing.stopped_ns;
  window.level = static_cast<uint8_t>(trace ? abi::Level::kTrace : abi::Level::kMark);
  if (status != abi::kCountersOk) window.flags = abi::kWindowGivenUp;
  parts_.ring->WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
}

void MeasurementBorders::ReportFailure(uint32_t status) {
  if (parts_.window->closing()->kind != Kind::kCounters) return;
  const abi::CountersEvent event = ClosingEvent(status);
  parts_.ring->WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
}

abi::CountersEvent MeasurementBorders::ClosingEvent(uint32_t status) const {
  const Measurement& closing = *parts_.window->closing();
  return {
      closing.iteration, {closing.length[0], closing.length[1]}, closing.entry.config_id, 0, status,
      closing.stopped_ns};
}

void MeasurementBorders::OnCaptureBegin(CUcontext context) {
  // A decode on the helper thread waits for the work that is queued on the GPU, which is rarely
  // more than an iteration. Going on earlier would break the capture.
  constexpr uint64_t kPatienceNs = 1'000'000'000;
  parts_.captures->OnBegin();
  const uint64_t held_ns =
      parts_.captures->AwaitUnsafe(kPatienceNs) + parts_.token->AwaitForCapture();
  {
    // A kernel that is measured by itself is waited for, which a capture forbids.
    LockGuard lock(&parts_.state->lock);
    parts_.state->held_ns += held_ns;
    parts_.state->distorted = parts_.state->distorted || held_ns != 0;
    if (parts_.token->taken() || !parts_.window->of_kernels()) return;
    parts_.window->SpoilByCapture();
    DeferredActions actions = {};
    parts_.window->End(&actions);
    parts_.token->Take();
  }
  parts_.counters->RefuseKernels("a stream capture began in the iteration");
  Close(context);
  parts_.token->GiveBack();
}

void MeasurementBorders::OnContextDestroy(CUcontext context) {
  {
    LockGuard lock(&parts_.state->lock);
    // A trace window may stay: it belongs to no context.
    if (parts_.token->taken() || parts_.window->kind() != Kind::kCounters) return;
    DeferredActions actions = {};
    parts_.window->End(&actions);
    parts_.token->Take();
  }
  Close(context);
  parts_.token->GiveBack();
}

}  // namespace seqpoint::inject
