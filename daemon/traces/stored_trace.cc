#include "daemon/traces/stored_trace.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/traces/stored_trace.pb.h"

namespace seqpoint::traces {
namespace {

using trace::Trace;
using Parts = google::protobuf::RepeatedPtrField<StoredTrace::Rows>;

constexpr int kVersion = 1;
constexpr int kMostColumns = 16;  // of a table
// Rows in a part of a table: the columns of a whole trace are never all in memory.
constexpr size_t kPartRows = 1 << 16;

// Visit(io, row, trace) says for both directions which columns a table has: a Writer puts the
// members of a row into them; a TableReader takes them out, and notes whether a trace can have
// them.
class Writer {
 public:
  void BeginPart(StoredTrace::Rows* part) { part_ = part; }
  void BeginRow() { column_ = 0; }

  template <typename T>
  void Number(T value) {
    Put(static_cast<uint64_t>(value));
  }
  template <typename T>
  void Below(size_t /*limit*/, T value) {
    Number(value);
  }
  // Stored less that of the row before, in unsigned arithmetic: the numbers of a damaged file may
  // overflow.
  template <typename T>
  void Delta(T value) {
    const auto now = static_cast<uint64_t>(value);
    Put(now - std::exchange(last_[column_], now));
  }
  void End(int64_t begin_ns, int64_t end_ns) { Number(end_ns - begin_ns); }

 private:
  void Put(uint64_t value) {
    if (column_ == part_->columns_size()) part_->add_columns();
    part_->mutable_columns(column_++)->add_values(static_cast<int64_t>(value));
  }

  StoredTrace::Rows* part_ = nullptr;
  int column_ = 0;
  uint64_t last_[kMostColumns] = {};
};

class TableReader {
 public:
  void BeginPart(const StoredTrace::Rows* part) {
    part_ = part;
    row_ = -1;
  }
  void BeginRow() {
    ++row_;
    column_ = 0;
  }
  // No value may be left over.
  void EndPart(int rows) {
    good_ &= rows > 0 && column_ == part_->columns_size();
    for (const auto& column : part_->columns()) good_ &= column.values_size() == rows;
  }
  bool good() const { return good_; }

  template <typename T>
  void Number(T& value) {
    value = static_cast<T>(Take());
  }
  template <typename T>
  void Below(size_t limit, T& value) {
    const uint64_t stored = Take();
    good_ &= stored < limit;
    value = static_cast<T>(stored < limit ? stored : 0);
  }
  template <typename T>
  void Delta(T& value) {
    uint64_t& last = last_[column_];
    value = static_cast<T>(last += Take());
  }
  void End(int64_t begin_ns, int64_t& end_ns) {
    const auto duration_ns = static_cast<int64_t>(Take());
    good_ &= duration_ns >= 0 && !__builtin_add_overflow(begin_ns, duration_ns, &end_ns);
  }

 private:
  uint64_t Take() {
    good_ &= column_ < part_->columns_size() && row_ < part_->columns(column_).values_size();
    return good_ ? static_cast<uint64_t>(part_->columns(column_++).values(row_)) : 0;
  }

  const StoredTrace::Rows* part_ = nullptr;
  int row_ = 0, column_ = 0;
  bool good_ = true;
  uint64_t last_[kMostColumns] = {};
};

template <typename Io>
void Visit(Io& io, trace::Stream& stream, const Trace&) {
  io.Number(stream.device);
  io.Number(stream.id);
}

template <typename Io>
void Visit(Io& io, trace::Call& call, const Trace& trace) {
  io.Delta(call.begin_ns);
  io.End(call.begin_ns, call.end_ns);
  io.Delta(call.correlation);
  io.Below(trace.names.size(), call.name);
  io.Below(trace.threads.size(), call.thread);
  io.Below(static_cast<size_t>(trace::CallKind::kStreamWait) + 1, call.kind);
}

template <typename Io>
void Visit(Io& io, trace::Work& work, const Trace& trace) {
  io.Delta(work.start_ns);
  io.End(work.start_ns, work.end_ns);
  io.Delta(work.correlation);
  io.Number(work.bytes);
  io.Below(trace.names.size(), work.name);
  io.Below(trace.streams.size(), work.stream);
  for (uint32_t& size : work.grid) io.Number(size);
  for (uint16_t& size : work.block) io.Below(1 << 16, size);
  io.Below(static_cast<size_t>(trace::WorkKind::kGraph) + 1, work.kind);
  io.Below(2, work.pageable);
}

template <typename Io>
void Visit(Io& io, trace::Span& span, const Trace& trace) {
  io.Delta(span.begin_ns);
  io.End(span.begin_ns, span.end_ns);
  io.Below(trace.names.size(), span.name);
  io.Below(trace.threads.size(), span.thread);
  io.Below(static_cast<size_t>(trace::SpanKind::kAnnotation) + 1, span.kind);
}

template <typename Io>
void Visit(Io& io, trace::Wait& wait, const Trace& trace) {
  io.Delta(wait.correlation);
  io.Number(wait.record_correlation);
  for (uint32_t* stream : {&wait.stream, &wait.source}) {
    uint32_t stored = *stream + 1;  // 0: none
    io.Below(trace.streams.size() + 1, stored);
    *stream = stored - 1;
  }
}

template <typename Io>
void Visit(Io& io, trace::Flow& flow, const Trace& trace) {
  io.Delta(flow.forward_ns);
  io.Delta(flow.backward_ns);
  io.Below(trace.threads.size(), flow.forward_thread);
  io.Below(trace.threads.size(), flow.backward_thread);
}

template <typename Io>
void Visit(Io& io, trace::LeftOut& left_out, const Trace&) {
  for (uint64_t* count :
       {&left_out.damaged, &left_out.first_damaged_at, &left_out.mended, &left_out.without_duration,
        &left_out.python_frames, &left_out.other, &left_out.trailing_bytes}) {
    io.Number(*count);
  }
  io.Below(2, left_out.truncated);
}

template <typename Io>
void Visit(Io& io, int64_t& iteration_start_ns, const Trace&) {
  io.Delta(iteration_start_ns);
}

// Parts of a message stand one after the other, and a reader joins them.
template <typename Row>
void AppendTable(const std::vector<Row>& rows, Parts* (StoredTrace::*table)(), std::string* bytes) {
  Writer writer;
  for (size_t begin = 0; begin < rows.size(); begin += kPartRows) {
    StoredTrace part;
    writer.BeginPart((part.*table)()->Add());
    const size_t end = std::min(begin + kPartRows, rows.size());
    for (size_t i = begin; i < end; ++i) {
      writer.BeginRow();
      Row row = rows[i];
      Visit(writer, row, Trace());
    }
    part.AppendToString(bytes);
  }
}

// False: a row cannot be one of `trace`. Takes the columns, which go as soon as the rows are there.
template <typename Row>
bool ReadTable(Parts* stored, const Trace& trace, std::vector<Row>* rows) {
  const Parts parts = std::move(*stored);
  size_t all = 0;
  for (const StoredTrace::Rows& part : parts) {
    if (part.columns_size() > 0) all += part.columns(0).values_size();
  }
  rows->reserve(all);
  TableReader reader;
  for (const StoredTrace::Rows& part : parts) {
    reader.BeginPart(&part);
    const int count = part.columns_size() == 0 ? 0 : part.columns(0).values_size();
    for (int i = 0; reader.good() && i < count; ++i) {
      reader.BeginRow();
      Visit(reader, rows->emplace_back(), trace);
    }
    reader.EndPart(count);
  }
  return reader.good();
}

}  // namespace

absl::StatusOr<std::string> ToBytes(const RecordedTrace& recorded) {
  const Trace& trace = recorded.trace;
  StoredTrace head;
  head.set_version(kVersion);
  head.set_source(trace.source);
  for (const std::string& name : trace.names) head.add_names(name);
  for (const std::string& thread : trace.threads) head.add_threads(thread);
  for (const std::string& gpu : trace.gpus) head.add_gpus(gpu);
  head.set_rank(trace.rank);
  head.set_world_size(trace.world_size);
  head.set_iterations(recorded.iterations);
  head.set_first_iteration(recorded.first_iteration);
  std::string bytes = head.SerializeAsString();
  AppendTable(trace.streams, &StoredTrace::mutable_streams, &bytes);
  AppendTable(trace.calls, &StoredTrace::mutable_calls, &bytes);
  AppendTable(trace.works, &StoredTrace::mutable_works, &bytes);
  AppendTable(trace.spans, &StoredTrace::mutable_spans, &bytes);
  AppendTable(trace.waits, &StoredTrace::mutable_waits, &bytes);
  AppendTable(trace.flows, &StoredTrace::mutable_flows, &bytes);
  AppendTable(std::vector{trace.left_out}, &StoredTrace::mutable_left_out, &bytes);
  AppendTable(recorded.iteration_starts_ns, &StoredTrace::mutable_iteration_starts, &bytes);
  if (bytes.size() > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the trace needs ", bytes.size() >> 20,
                     " MiB in the store, and 2,047 is the most; record ", "fewer iterations"));
  }
  return bytes;
}

absl::StatusOr<RecordedTrace> FromBytes(std::string_view bytes) {
  const absl::Status damaged = absl::DataLossError("the stored trace is damaged; import it again");
  StoredTrace in;
  if (bytes.size() > std::numeric_limits<int32_t>::max() ||
      !in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return damaged;
  }
  if (in.version() != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the stored trace has version ", in.version(),
                                                      ", this program knows ", kVersion,
                                                      "; import the trace again"));
  }
  RecordedTrace recorded;
  Trace& trace = recorded.trace;
  trace.source = in.source();
  trace.names.assign(in.names().begin(), in.names().end());
  trace.threads.assign(in.threads().begin(), in.threads().end());
  trace.gpus.assign(in.gpus().begin(), in.gpus().end());
  trace.rank = in.rank();
  trace.world_size = in.world_size();
  recorded.iterations = in.iterations();
  recorded.first_iteration = in.first_iteration();
  std::vector<trace::LeftOut> left_out;
  std::vector<int64_t>& starts_ns = recorded.iteration_starts_ns;
  const bool good = ReadTable(in.mutable_streams(), trace, &trace.streams) &&
                    ReadTable(in.mutable_calls(), trace, &trace.calls) &&
                    ReadTable(in.mutable_works(), trace, &trace.works) &&
                    ReadTable(in.mutable_spans(), trace, &trace.spans) &&
                    ReadTable(in.mutable_waits(), trace, &trace.waits) &&
                    ReadTable(in.mutable_flows(), trace, &trace.flows) &&
                    ReadTable(in.mutable_left_out(), trace, &left_out) &&
                    ReadTable(in.mutable_iteration_starts(), trace, &starts_ns);
  if (!good || left_out.size() != 1 || !std::is_sorted(starts_ns.begin(), starts_ns.end()) ||
      recorded.first_iteration < 0 || recorded.iterations > starts_ns.size()) {
    return damaged;
  }
  trace.left_out = left_out[0];
  return recorded;
}

}  // namespace seqpoint::traces
