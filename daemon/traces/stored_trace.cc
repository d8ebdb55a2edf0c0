#include "daemon/traces/stored_trace.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/traces/stored_trace.pb.h"

namespace seqpoint::traces {
namespace {

using trace::kNone;

constexpr int kVersion = 1;

// In unsigned arithmetic, as the numbers of a damaged file may overflow.
class Deltas {
 public:
  int64_t To(uint64_t value) {
    const uint64_t delta = value - last_;
    last_ = value;
    return static_cast<int64_t>(delta);
  }
  uint64_t From(int64_t delta) { return last_ += static_cast<uint64_t>(delta); }

 private:
  uint64_t last_ = 0;
};

uint64_t Unsigned(int64_t value) { return static_cast<uint64_t>(value); }

uint32_t FromStream(uint32_t stream) { return stream == kNone ? 0 : stream + 1; }
uint32_t ToStream(uint32_t stored) { return stored == 0 ? kNone : stored - 1; }

// Reads columns of one table row by row; remembers whether one had a value that cannot be.
struct Checks {
  bool good = true;
  template <typename Column>
  void Size(const Column& column, int rows) {
    good &= column.size() == rows;
  }
  uint32_t Below(uint32_t value, size_t limit) {
    if (value < limit) return value;
    good = false;
    return 0;
  }
  uint32_t Stream(uint32_t stored, size_t streams) {
    return stored == 0 ? kNone : Below(ToStream(stored), streams);
  }
  int64_t End(int64_t begin, uint64_t duration) {
    int64_t end = 0;
    if (duration > Unsigned(std::numeric_limits<int64_t>::max()) ||
        __builtin_add_overflow(begin, static_cast<int64_t>(duration), &end)) {
      good = false;
      return begin;
    }
    return end;
  }
};

}  // namespace

namespace {

// Rows in a part. Parts of a message stand one after the other, and a reader joins them: the
// columns of a trace are never all in memory.
constexpr size_t kPartRows = 1 << 16;

template <typename Rows, typename Fill>
void AppendParts(const Rows& rows, std::string* bytes, const Fill& fill) {
  for (size_t begin = 0; begin < rows.size(); begin += kPartRows) {
    StoredTrace part;
    const size_t end = std::min(begin + kPartRows, rows.size());
    for (size_t i = begin; i < end; ++i) fill(rows[i], &part);
    part.AppendToString(bytes);
  }
}

}  // namespace

absl::StatusOr<std::string> ToBytes(const RecordedTrace& recorded) {
  const trace::Trace& trace = recorded.trace;
  StoredTrace head;
  head.set_version(kVersion);
  head.set_source(trace.source);
  for (const std::string& name : trace.names) head.add_names(name);
  for (const std::string& thread : trace.threads) head.add_threads(thread);
  for (const std::string& gpu : trace.gpus) head.add_gpus(gpu);
  head.set_rank(trace.rank);
  head.set_world_size(trace.world_size);
  for (const trace::Stream& stream : trace.streams) {
    head.add_device(stream.device);
    head.add_stream_id(stream.id);
  }
  StoredTrace::LeftOut& left_out = *head.mutable_left_out();
  left_out.set_damaged(trace.left_out.damaged);
  left_out.set_first_damaged_at(trace.left_out.first_damaged_at);
  left_out.set_mended(trace.left_out.mended);
  left_out.set_without_duration(trace.left_out.without_duration);
  left_out.set_python_frames(trace.left_out.python_frames);
  left_out.set_other(trace.left_out.other);
  left_out.set_trailing_bytes(trace.left_out.trailing_bytes);
  left_out.set_truncated(trace.left_out.truncated);
  Deltas iteration;
  for (const int64_t begin_ns : recorded.iteration_starts_ns) {
    head.add_iteration_begin(iteration.To(Unsigned(begin_ns)));
  }
  head.set_iterations(recorded.iterations);
  head.set_first_iteration(recorded.first_iteration);
  std::string bytes = head.SerializeAsString();

  Deltas call_begin, call_correlation;
  AppendParts(trace.calls, &bytes, [&](const trace::Call& call, StoredTrace* part) {
    StoredTrace::Calls& to = *part->mutable_calls();
    to.add_begin(call_begin.To(Unsigned(call.begin_ns)));
    to.add_duration(Unsigned(call.end_ns - call.begin_ns));
    to.add_correlation(call_correlation.To(call.correlation));
    to.add_name(call.name);
    to.add_thread(call.thread);
    to.add_kind(static_cast<uint32_t>(call.kind));
  });
  Deltas start, work_correlation;
  AppendParts(trace.works, &bytes, [&](const trace::Work& work, StoredTrace* part) {
    StoredTrace::Works& to = *part->mutable_works();
    to.add_start(start.To(Unsigned(work.start_ns)));
    to.add_duration(Unsigned(work.end_ns - work.start_ns));
    to.add_correlation(work_correlation.To(work.correlation));
    to.add_bytes(work.bytes);
    to.add_name(work.name);
    to.add_stream(work.stream);
    for (const uint32_t size : work.grid) to.add_size(size);
    for (const uint16_t size : work.block) to.add_size(size);
    to.add_kind(static_cast<uint32_t>(work.kind));
    to.add_pageable(work.pageable);
  });
  Deltas span_begin;
  AppendParts(trace.spans, &bytes, [&](const trace::Span& span, StoredTrace* part) {
    StoredTrace::Spans& to = *part->mutable_spans();
    to.add_begin(span_begin.To(Unsigned(span.begin_ns)));
    to.add_duration(Unsigned(span.end_ns - span.begin_ns));
    to.add_name(span.name);
    to.add_thread(span.thread);
    to.add_kind(static_cast<uint32_t>(span.kind));
  });
  Deltas wait_correlation;
  AppendParts(trace.waits, &bytes, [&](const trace::Wait& wait, StoredTrace* part) {
    StoredTrace::Waits& to = *part->mutable_waits();
    to.add_correlation(wait_correlation.To(wait.correlation));
    to.add_record_correlation(wait.record_correlation);
    to.add_stream(FromStream(wait.stream));
    to.add_source(FromStream(wait.source));
  });
  Deltas flow_forward;
  AppendParts(trace.flows, &bytes, [&](const trace::Flow& flow, StoredTrace* part) {
    StoredTrace::Flows& to = *part->mutable_flows();
    to.add_forward(flow_forward.To(Unsigned(flow.forward_ns)));
    to.add_backward(static_cast<int64_t>(Unsigned(flow.backward_ns) - Unsigned(flow.forward_ns)));
    to.add_forward_thread(flow.forward_thread);
    to.add_backward_thread(flow.backward_thread);
  });
  if (bytes.size() > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the trace needs ", bytes.size() >> 20,
                     " MiB in the store, and 2,047 is the most; record ", "fewer iterations"));
  }
  return bytes;
}

absl::StatusOr<RecordedTrace> FromBytes(std::string_view bytes) {
  StoredTrace in;
  if (bytes.size() > std::numeric_limits<int32_t>::max() ||
      !in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("the stored trace is damaged; import it again");
  }
  if (in.version() != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the stored trace has version ", in.version(),
                                                      ", this program knows ", kVersion,
                                                      "; import the trace again"));
  }
  RecordedTrace recorded;
  trace::Trace& trace = recorded.trace;
  trace.source = in.source();
  trace.names.assign(in.names().begin(), in.names().end());
  trace.threads.assign(in.threads().begin(), in.threads().end());
  trace.gpus.assign(in.gpus().begin(), in.gpus().end());
  trace.rank = in.rank();
  trace.world_size = in.world_size();
  Checks checks;
  checks.Size(in.stream_id(), in.device_size());
  for (int i = 0; checks.good && i < in.device_size(); ++i) {
    trace.streams.push_back({in.device(i), in.stream_id(i)});
  }
  // Each table's columns go as soon as its rows are there.
  if (const std::unique_ptr<StoredTrace::Calls> columns(in.release_calls()); columns) {
    const StoredTrace::Calls& from = *columns;
    const int rows = from.begin_size();
    checks.Size(from.duration(), rows);
    checks.Size(from.correlation(), rows);
    checks.Size(from.name(), rows);
    checks.Size(from.thread(), rows);
    checks.Size(from.kind(), rows);
    Deltas begin, correlation;
    trace.calls.reserve(checks.good ? static_cast<size_t>(rows) : 0);
    for (int i = 0; checks.good && i < rows; ++i) {
      trace::Call& call = trace.calls.emplace_back();
      call.begin_ns = static_cast<int64_t>(begin.From(from.begin(i)));
      call.end_ns = checks.End(call.begin_ns, from.duration(i));
      call.correlation = correlation.From(from.correlation(i));
      call.name = checks.Below(from.name(i), trace.names.size());
      call.thread = checks.Below(from.thread(i), trace.threads.size());
      call.kind = static_cast<trace::CallKind>(
          checks.Below(from.kind(i), static_cast<size_t>(trace::CallKind::kStreamWait) + 1));
    }
  }
  if (const std::unique_ptr<StoredTrace::Works> columns(in.release_works()); columns) {
    const StoredTrace::Works& from = *columns;
    const int rows = from.start_size();
    checks.Size(from.duration(), rows);
    checks.Size(from.correlation(), rows);
    checks.Size(from.bytes(), rows);
    checks.Size(from.name(), rows);
    checks.Size(from.stream(), rows);
    checks.good &= from.size_size() / 6 == rows && from.size_size() % 6 == 0;
    checks.Size(from.kind(), rows);
    checks.Size(from.pageable(), rows);
    Deltas start, correlation;
    trace.works.reserve(checks.good ? static_cast<size_t>(rows) : 0);
    for (int i = 0; checks.good && i < rows; ++i) {
      trace::Work& work = trace.works.emplace_back();
      work.start_ns = static_cast<int64_t>(start.From(from.start(i)));
      work.end_ns = checks.End(work.start_ns, from.duration(i));
      work.correlation = correlation.From(from.correlation(i));
      work.bytes = from.bytes(i);
      work.name = checks.Below(from.name(i), trace.names.size());
      work.stream = checks.Below(from.stream(i), trace.streams.size());
      for (int k = 0; k < 3; ++k) {
        work.grid[k] = from.size(6 * i + k);
        work.block[k] = static_cast<uint16_t>(checks.Below(from.size(6 * i + 3 + k), 1 << 16));
      }
      work.kind = static_cast<trace::WorkKind>(
          checks.Below(from.kind(i), static_cast<size_t>(trace::WorkKind::kGraph) + 1));
      work.pageable = from.pageable(i);
    }
  }
  if (const std::unique_ptr<StoredTrace::Spans> columns(in.release_spans()); columns) {
    const StoredTrace::Spans& from = *columns;
    const int rows = from.begin_size();
    checks.Size(from.duration(), rows);
    checks.Size(from.name(), rows);
    checks.Size(from.thread(), rows);
    checks.Size(from.kind(), rows);
    Deltas begin;
    trace.spans.reserve(checks.good ? static_cast<size_t>(rows) : 0);
    for (int i = 0; checks.good && i < rows; ++i) {
      trace::Span& span = trace.spans.emplace_back();
      span.begin_ns = static_cast<int64_t>(begin.From(from.begin(i)));
      span.end_ns = checks.End(span.begin_ns, from.duration(i));
      span.name = checks.Below(from.name(i), trace.names.size());
      span.thread = checks.Below(from.thread(i), trace.threads.size());
      span.kind = static_cast<trace::SpanKind>(
          checks.Below(from.kind(i), static_cast<size_t>(trace::SpanKind::kAnnotation) + 1));
    }
  }
  if (const std::unique_ptr<StoredTrace::Waits> columns(in.release_waits()); columns) {
    const StoredTrace::Waits& from = *columns;
    const int rows = from.correlation_size();
    checks.Size(from.record_correlation(), rows);
    checks.Size(from.stream(), rows);
    checks.Size(from.source(), rows);
    Deltas correlation;
    for (int i = 0; checks.good && i < rows; ++i) {
      trace::Wait& wait = trace.waits.emplace_back();
      wait.correlation = correlation.From(from.correlation(i));
      wait.record_correlation = from.record_correlation(i);
      wait.stream = checks.Stream(from.stream(i), trace.streams.size());
      wait.source = checks.Stream(from.source(i), trace.streams.size());
    }
  }
  if (const std::unique_ptr<StoredTrace::Flows> columns(in.release_flows()); columns) {
    const StoredTrace::Flows& from = *columns;
    const int rows = from.forward_size();
    checks.Size(from.backward(), rows);
    checks.Size(from.forward_thread(), rows);
    checks.Size(from.backward_thread(), rows);
    Deltas forward;
    for (int i = 0; checks.good && i < rows; ++i) {
      trace::Flow& flow = trace.flows.emplace_back();
      const uint64_t forward_ns = forward.From(from.forward(i));
      flow.forward_ns = static_cast<int64_t>(forward_ns);
      flow.backward_ns = static_cast<int64_t>(forward_ns + Unsigned(from.backward(i)));
      flow.forward_thread = checks.Below(from.forward_thread(i), trace.threads.size());
      flow.backward_thread = checks.Below(from.backward_thread(i), trace.threads.size());
    }
  }
  Deltas iteration;
  int64_t last_ns = std::numeric_limits<int64_t>::min();
  for (const int64_t delta : in.iteration_begin()) {
    const auto begin_ns = static_cast<int64_t>(iteration.From(delta));
    checks.good &= begin_ns >= last_ns;
    recorded.iteration_starts_ns.push_back(last_ns = begin_ns);
  }
  recorded.iterations = in.iterations();
  recorded.first_iteration = in.first_iteration();
  checks.good &=
      recorded.first_iteration >= 0 && recorded.iterations <= recorded.iteration_starts_ns.size();
  if (!checks.good) return absl::DataLossError("the stored trace is damaged; import it again");
  const StoredTrace::LeftOut& left_out = in.left_out();
  trace.left_out.damaged = left_out.damaged();
  trace.left_out.first_damaged_at = left_out.first_damaged_at();
  trace.left_out.mended = left_out.mended();
  trace.left_out.without_duration = left_out.without_duration();
  trace.left_out.python_frames = left_out.python_frames();
  trace.left_out.other = left_out.other();
  trace.left_out.trailing_bytes = left_out.trailing_bytes();
  trace.left_out.truncated = left_out.truncated();
  return recorded;
}

}  // namespace seqpoint::traces
