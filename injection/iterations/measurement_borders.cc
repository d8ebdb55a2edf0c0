#include "injection/iterations/measurement_borders.h"

namespace seqpoint::inject {

using Kind = Measurement::Kind;

bool MeasurementBorders::CanBegin(uint16_t config_id) {
  const CuptiOwnership::Share share = ownership_->share();
  if (share == CuptiOwnership::Share::kNothing || token_->holds_captures()) return false;
  // Ranges belong to contexts, whose end nobody would announce without callbacks.
  return config_id == abi::kConfigTrace
             ? activity_->traces() && !watch_->HidesGraphs()
             : share == CuptiOwnership::Share::kAll && counters_->Ready(config_id);
}

void MeasurementBorders::Open(CUcontext known) {
  Measurement opened = {};
  opened.begin_ns = clock_->NowNs();
  uint32_t status = 0;
  if (window_->kind() == Kind::kTrace) {
    opened.seen = activity_->seen();
    activity_->SetKindsOfWindow(watch_->TraceKinds());
    if (!activity_->traces()) {  // CUPTI refused, just now
      activity_->SetKindsOfWindow(watch_->applied_kinds());
      status = abi::kCountersAborted;
    }
  } else {
    status =
        counters_->Open(contexts_->Of(known), known, window_->config_id(), state_->iteration_ns);
  }
  if (status == 0 && (window_->of_kernels() || watch_->NamesLaunches())) watch_->WatchLaunches();
  const uint64_t end_ns = clock_->NowNs();
  LockGuard lock(&state_->lock);
  opened.usual_ns = state_->iteration_ns;
  opened.stopped_ns = end_ns - opened.begin_ns;
  window_->OnOpened(opened);
  state_->held_ns += opened.stopped_ns;
  if (status == 0) return;
  window_->OnRefused();
  ReportFailure(status);
  WriteWindow(end_ns, status);
}

void MeasurementBorders::Close(CUcontext known) {
  Measurement* closing = window_->closing();
  const uint64_t begin_ns = clock_->NowNs();
  uint32_t status = abi::kCountersOk;
  if (!closing->stepped) status = abi::kCountersAborted;
  if (closing->unwanted) status = abi::kCountersDiscarded;
  if (closing->captured) status = abi::kCountersNotTold;
  uint32_t closed = 0;
  if (closing->kind == Kind::kTrace) {
    activity_->SetKindsOfWindow(watch_->applied_kinds());
    if (activity_->Lost(closing->seen)) closed = abi::kCountersRangeDropped;
    if (watch_->NamesLaunches()) watch_->WatchLaunches();
  } else {
    closed = counters_->Close(known);
    if (closing->kernels) watch_->WatchLaunches();
  }
  const uint64_t end_ns = clock_->NowNs();
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
      counters_->Decode(ClosingEvent(status));
    } else {
      counters_->Discard();
      ReportFailure(status);
    }
  }
  WriteWindow(end_ns, status);
  LockGuard lock(&state_->lock);
  state_->held_ns += end_ns - begin_ns;
  if (status != abi::kCountersOk) window_->OnFailed(end_ns);
}

void MeasurementBorders::ReportAborted() {
  ReportFailure(abi::kCountersAborted);
  WriteWindow(clock_->NowNs(), abi::kCountersAborted);
}

void MeasurementBorders::WriteWindow(uint64_t end_ns, uint32_t status) {
  const Measurement& closing = *window_->closing();
  const bool trace = closing.kind == Kind::kTrace;
  abi::WindowEvent window = {};
  window.begin_ns = closing.begin_ns;
  window.end_ns = end_ns;
  window.iteration = closing.iteration;
  window.stopped_ns = closing.stopped_ns;
  window.level = static_cast<uint8_t>(trace ? abi::Level::kTrace : abi::Level::kMark);
  if (status != abi::kCountersOk) window.flags = abi::kWindowGivenUp;
  ring_->WriteEvent(abi::EventType::kWindow, &window, sizeof(window));
}

void MeasurementBorders::ReportFailure(uint32_t status) {
  if (window_->closing()->kind != Kind::kCounters) return;
  const abi::CountersEvent event = ClosingEvent(status);
  ring_->WriteEvent(abi::EventType::kCounters, &event, sizeof(event));
}

abi::CountersEvent MeasurementBorders::ClosingEvent(uint32_t status) const {
  const Measurement& closing = *window_->closing();
  return {closing.iteration, {closing.length[0], closing.length[1]}, closing.config_id, 0, status,
          closing.stopped_ns};
}

void MeasurementBorders::OnCaptureBegin(CUcontext context) {
  // A decode on the helper thread waits for the work that is queued on the GPU, which is rarely
  // more than an iteration. Going on earlier would break the capture.
  constexpr uint64_t kPatienceNs = 1'000'000'000;
  captures_->OnBegin();
  const uint64_t held_ns = captures_->AwaitUnsafe(kPatienceNs) + token_->AwaitForCapture();
  {
    // A kernel that is measured by itself is waited for, which a capture forbids.
    LockGuard lock(&state_->lock);
    state_->held_ns += held_ns;
    state_->distorted = state_->distorted || held_ns != 0;
    if (token_->taken() || !window_->of_kernels()) return;
    window_->SpoilByCapture();
    DeferredActions actions = {};
    window_->End(&actions);
    token_->Take();
  }
  counters_->RefuseKernels("a stream capture began in the iteration");
  Close(context);
  token_->GiveBack();
}

void MeasurementBorders::OnContextDestroy(CUcontext context) {
  {
    LockGuard lock(&state_->lock);
    // A trace window may stay: it belongs to no context.
    if (token_->taken() || window_->kind() != Kind::kCounters) return;
    DeferredActions actions = {};
    window_->End(&actions);
    token_->Take();
  }
  Close(context);
  token_->GiveBack();
}

}  // namespace seqpoint::inject
