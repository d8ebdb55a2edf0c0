#include "daemon/traces/chrome_writer.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/json_string.h"
#include "daemon/trace/correlations.h"
#include "daemon/traces/json_text.h"
#include "daemon/traces/trace_builder.h"
#include "proto/utf8.h"

namespace seqpoint::traces {
namespace {

using trace::CallKind;
using trace::kNone;
using trace::Trace;
using trace::WorkKind;

constexpr size_t kPieceBytes = 256 * 1024;
constexpr int64_t kMostProcesses = 5'000'000;  // more than Linux gives; GPUs come behind them
constexpr int64_t kReplayedRows = 1'000'000'000;
constexpr std::string_view kLengths = " lengths=[";

std::string JsonText(std::string_view text) { return JsonString(ToUtf8(text)); }

// A number as it is written, or nothing.
bool IsInteger(std::string_view text, int64_t* value) {
  const absl::string_view digits(text.data(), text.size());
  return absl::SimpleAtoi(digits, value) && absl::StrCat(*value) == digits;
}

std::string Micros(int64_t ns) {
  const auto size = static_cast<uint64_t>(std::abs(ns));
  return absl::StrCat(ns < 0 ? "-" : "", size / 1000, ".", absl::Dec(size % 1000, absl::kZeroPad3));
}

std::string Metadata(const char* what, const std::string& row, const char* argument,
                     const std::string& value) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",", row, ",\"args\":{\"", argument,
                      "\":", value, "}}");
}

const char* CallCategory(const std::string& name) {
  const bool driver =
      (name.starts_with("cu") && !name.starts_with("cuda")) || name == "driver call";
  return driver ? "cuda_driver" : "cuda_runtime";
}

const char* SyncName(CallKind kind) {
  switch (kind) {
    case CallKind::kStreamWait:
      return "Stream Wait Event";
    case CallKind::kEventSync:
      return "Event Sync";
    case CallKind::kContextSync:
      return "Context Sync";
    default:
      return "Stream Sync";
  }
}

bool IsKernel(WorkKind kind) {
  return kind == WorkKind::kKernel || kind == WorkKind::kCollective || kind == WorkKind::kGraph;
}

// Where " lengths=[37,5]" begins in "ProfilerStep#12 lengths=[37,5]", which chrome_events makes of
// an annotation's arguments; npos: the name has none.
size_t LengthsIn(const std::string& name) {
  const size_t at = name.starts_with(kStepName) ? name.find(kLengths) : std::string::npos;
  if (at == std::string::npos || !name.ends_with(']')) return std::string::npos;
  const std::string numbers = name.substr(at + kLengths.size());
  int64_t value = 0;
  for (const absl::string_view number :
       absl::StrSplit(absl::string_view(numbers).substr(0, numbers.size() - 1), ',')) {
    if (!IsInteger({number.data(), number.size()}, &value)) return std::string::npos;
  }
  return at;
}

template <typename Number>
std::string Triple(const Number (&size)[3]) {
  return absl::StrCat("[", size[0], ",", size[1], ",", size[2], "]");
}

// The arguments of GPU work, without braces.
std::string WorkFields(const trace::Work& work, const trace::Stream& stream,
                       const std::string& name) {
  std::string fields = absl::StrCat("\"device\":", stream.device, ",\"stream\":", stream.id);
  const auto add = [&](const char* key, const auto& value) {
    absl::StrAppend(&fields, ",\"", key, "\":", value);
  };
  if (work.correlation != 0) add("correlation", work.correlation);
  if (IsKernel(work.kind)) {
    if (work.grid[0] != 0) add("grid", Triple(work.grid));
    if (work.block[0] != 0) add("block", Triple(work.block));
    if (work.kind == WorkKind::kGraph) add("graph", 1);
    if (work.kind == WorkKind::kCollective && work.bytes > 0) {
      add("In msg nelems", work.bytes);
      add("dtype", "\"Byte\"");
    }
    return fields;
  }
  add("bytes", work.bytes);
  const std::string direction(CopyDirection(work.kind));
  if (!direction.empty() && CopyKindOf(name) != work.kind) {
    add("kind", absl::StrCat("\"", direction, "\""));
  }
  if (work.pageable && name.find("Pageable") == std::string::npos) add("pageable", "true");
  return fields;
}

}  // namespace

// The rows of one trace: "pid" and "tid" of each, and their names before their first event.
class ChromeWriter::Rows {
 public:
  Rows(ChromeWriter* writer, const Trace& trace, const ChromeRows& rows)
      : writer_(*writer),
        trace_(trace),
        options_(rows),
        first_process_(rows.by_rank ? kRankProcesses * trace.rank : 0),
        first_gpu_(first_process_ + (rows.by_rank ? kMostProcesses : 0)),
        suffix_(rows.replayed ? " (replayed)" : ""),
        threads_(trace.threads.size()),
        streams_(trace.streams.size()) {
    // In a container processes may have the numbers that GPUs have.
    int64_t process = 0;
    for (const std::string& thread : trace.threads) {
      if (IsInteger(thread.substr(0, thread.find('/')), &process) && process >= 0 &&
          process < 1024) {
        first_gpu_ = first_process_ + kMostProcesses;
      }
    }
  }

  const std::string& OfThread(uint32_t thread) {
    std::string& row = threads_[thread];
    if (row.empty()) row = NewThread(trace_.threads[thread]);
    return row;
  }
  const std::string& OfStream(uint32_t stream) {
    std::string& row = streams_[stream];
    if (!row.empty()) return row;
    const auto [device, id] = trace_.streams[stream];
    const std::string process = absl::StrCat(first_gpu_ + device);
    std::string gpu = absl::StrCat("GPU ", device);
    if (static_cast<size_t>(device) < trace_.gpus.size() && device >= 0) {
      const std::string& name = trace_.gpus[static_cast<size_t>(device)];
      if (!name.empty()) absl::StrAppend(&gpu, ", ", name);
    }
    NameProcess(process, gpu, first_process_ + kMostProcesses + device);
    row = Row(process, absl::StrCat(id + (options_.replayed ? kReplayedRows : 0)));
    NameRow(row, absl::StrCat("stream ", id), 2 * id);
    return row;
  }

 private:
  static std::string Row(const std::string& process, const std::string& thread) {
    return absl::StrCat("\"pid\":", process, ",\"tid\":", thread);
  }

  // "12/345 name", as TraceBuilder makes it.
  std::string NewThread(const std::string& text) {
    const size_t slash = text.find('/');
    const bool parted = slash != std::string::npos;
    std::string process = parted ? text.substr(0, slash) : "";
    std::string thread = parted ? text.substr(slash + 1) : text;
    std::string name;
    const std::string key = absl::StrCat(first_process_, "/", process, "/", thread);
    const auto place = static_cast<int64_t>(
        2 * writer_.order_.try_emplace(key, writer_.order_.size()).first->second);
    int64_t number = 0;
    if (const size_t blank = thread.find(' '); IsInteger(thread.substr(0, blank), &number)) {
      if (blank != std::string::npos) name = thread.substr(blank + 1);
      if (name.empty() && options_.replayed) name = absl::StrCat("thread ", number);
      thread = absl::StrCat(number + (options_.replayed ? kReplayedRows : 0));
    } else {
      thread = JsonText(thread + suffix_);
    }
    if (IsInteger(process, &number)) {
      process = absl::StrCat(number + first_process_);
    } else {
      process =
          JsonText(options_.by_rank ? absl::StrCat("rank ", trace_.rank, " ", process) : process);
    }
    NameProcess(process, options_.process.empty() ? "CPU" : options_.process, first_process_);
    const std::string row = Row(process, thread);
    NameRow(row, name, place);
    return row;
  }

  void NameProcess(const std::string& process, const std::string& name, int64_t place) {
    if (!writer_.named_.insert(process).second) return;
    const std::string row = Row(process, "0");
    const std::string rank = options_.by_rank ? absl::StrCat("rank ", trace_.rank, ", ") : "";
    Event(Metadata("process_name", row, "name", JsonText(rank + name)));
    Event(Metadata("process_sort_index", row, "sort_index", absl::StrCat(place)));
  }
  // `place` is even: behind it comes the replayed one.
  void NameRow(const std::string& row, const std::string& name, int64_t place) {
    if (!writer_.named_.insert(row).second) return;
    if (!name.empty()) Event(Metadata("thread_name", row, "name", JsonText(name + suffix_)));
    Event(Metadata("thread_sort_index", row, "sort_index",
                   absl::StrCat(place + (options_.replayed ? 1 : 0))));
  }
  void Event(const std::string& event) {
    absl::StrAppend(&writer_.text_, std::exchange(writer_.first_, false) ? "\n" : ",\n", event);
  }

  ChromeWriter& writer_;
  const Trace& trace_;
  const ChromeRows& options_;
  const int64_t first_process_;
  int64_t first_gpu_;
  const std::string suffix_;
  std::vector<std::string> threads_, streams_;
};

ChromeWriter::ChromeWriter(const ChromeFile& file, WriteFunction write)
    : write_(write), base_ns_(file.base_ns) {
  absl::StrAppend(&text_, "{\"schemaVersion\":1,\"profiler\":\"SeqPoint\",",
                  "\"displayTimeUnit\":\"ms\",\"traceName\":", JsonText(file.name),
                  ",\"baseTimeNanoseconds\":", base_ns_);
  if (file.only_to_view.empty()) {
    absl::StrAppend(&text_, ",\"distributedInfo\":{\"rank\":", file.rank,
                    ",\"world_size\":", file.world_size, "}");
  } else {
    absl::StrAppend(&text_, ",\"onlyToView\":", JsonText(file.only_to_view));
  }
  absl::StrAppend(&text_, ",\"deviceProperties\":[");
  const char* comma = "";
  for (size_t gpu = 0; gpu < file.gpus.size(); ++gpu) {
    if (file.gpus[gpu].empty()) continue;
    absl::StrAppend(&text_, std::exchange(comma, ","), "{\"id\":", gpu,
                    ",\"name\":", JsonText(file.gpus[gpu]), "}");
  }
  absl::StrAppend(&text_, "],\"traceEvents\":[");
}

bool ChromeWriter::Flush() {
  const bool taken = write_(text_);
  text_.clear();
  return taken;
}

bool ChromeWriter::Add(const Trace& trace, const ChromeRows& options) {
  std::vector<std::string> names;
  for (const std::string& name : trace.names) names.push_back(JsonText(name));
  Rows rows(this, trace, options);
  // `fields`: the arguments, without braces.
  const auto event = [&](const char* category, const std::string& name, const std::string& row,
                         int64_t begin_ns, int64_t end_ns, const std::string& fields) {
    absl::StrAppend(&text_, std::exchange(first_, false) ? "\n" : ",\n", "{\"ph\":\"X\",\"cat\":\"",
                    category, "\",\"name\":", name, ",", row,
                    ",\"ts\":", Micros(begin_ns - base_ns_),
                    ",\"dur\":", Micros(end_ns - begin_ns));
    absl::StrAppend(&text_, fields.empty() ? "" : ",\"args\":{", fields,
                    fields.empty() ? "}" : "}}");
    return text_.size() < kPieceBytes || Flush();
  };
  for (const trace::Span& span : trace.spans) {
    const bool annotation = span.kind == trace::SpanKind::kAnnotation;
    const std::string& name = trace.names[span.name];
    const size_t lengths = annotation ? LengthsIn(name) : std::string::npos;
    const bool parted = lengths != std::string::npos;
    if (!event(
            annotation ? "user_annotation" : "cpu_op",
            parted ? JsonText(name.substr(0, lengths)) : names[span.name],
            rows.OfThread(span.thread), span.begin_ns, span.end_ns,
            parted ? absl::StrCat("\"lengths\":[", name.substr(lengths + kLengths.size())) : "")) {
      return false;
    }
  }
  for (const trace::Call& call : trace.calls) {
    if (!event(CallCategory(trace.names[call.name]), names[call.name], rows.OfThread(call.thread),
               call.begin_ns, call.end_ns,
               call.correlation == 0 ? "" : absl::StrCat("\"correlation\":", call.correlation))) {
      return false;
    }
  }
  for (const trace::Work& work : trace.works) {
    std::string fields = WorkFields(work, trace.streams[work.stream], trace.names[work.name]);
    if (options.work_fields) fields += options.work_fields(work);
    const char* category = IsKernel(work.kind)              ? "kernel"
                           : work.kind == WorkKind::kMemset ? "gpu_memset"
                                                            : "gpu_memcpy";
    if (!event(category, names[work.name], rows.OfStream(work.stream), work.start_ns, work.end_ns,
               fields)) {
      return false;
    }
  }
  absl::flat_hash_map<uint64_t, const trace::Call*> waiting;
  for (const trace::Wait& wait : trace.waits) waiting[wait.correlation] = nullptr;
  for (const trace::Call& call : trace.calls) {
    const auto it = waiting.find(call.correlation);
    if (it != waiting.end()) it->second = &call;
  }
  for (const trace::Wait& wait : trace.waits) {
    // Within its call; Kineto's lie in the streams' rows, where they overlap with work.
    const trace::Call* call = waiting[wait.correlation];
    const uint32_t stream = wait.stream != kNone ? wait.stream : wait.source;
    std::string fields = absl::StrCat("\"correlation\":", wait.correlation);
    const auto add = [&](const char* key, auto value) {
      absl::StrAppend(&fields, ",\"", key, "\":", value);
    };
    add("stream", wait.stream == kNone ? -1 : trace.streams[wait.stream].id);
    if (stream != kNone) add("device", trace.streams[stream].device);
    if (wait.source != kNone) add("wait_on_stream", trace.streams[wait.source].id);
    if (wait.record_correlation != 0) {
      add("wait_on_cuda_event_record_corr_id", wait.record_correlation);
    }
    if (!event("cuda_sync",
               absl::StrCat("\"", SyncName(call == nullptr ? CallKind::kOther : call->kind), "\""),
               call != nullptr ? rows.OfThread(call->thread)
                               : rows.OfStream(stream == kNone ? 0 : stream),
               call == nullptr ? base_ns_ : call->begin_ns,
               call == nullptr ? base_ns_ : call->end_ns, fields)) {
      return false;
    }
  }
  return AddFlows(trace, &rows);
}

// Arrows, as Kineto writes them: from each launch to its work, from each forward operator to the
// backward one. They bind to what lies around them in their rows (bp e).
bool ChromeWriter::AddFlowEnd(char phase, const std::string& category, uint64_t number,
                              const std::string& row, int64_t at_ns) {
  absl::StrAppend(&text_, std::exchange(first_, false) ? "\n" : ",\n", "{\"ph\":\"",
                  std::string(1, phase), "\",\"cat\":\"", category, "\",\"name\":\"", category,
                  "\",\"id\":", number, ",", row, ",\"ts\":", Micros(at_ns - base_ns_),
                  phase == 'f' ? ",\"bp\":\"e\"}" : "}");
  return text_.size() < kPieceBytes || Flush();
}

bool ChromeWriter::AddFlows(const Trace& trace, Rows* rows) {
  const auto end = [this](char phase, const char* category, uint64_t number, const std::string& row,
                          int64_t at_ns) {
    return AddFlowEnd(phase, category, number, row, at_ns);
  };
  const trace::Correlations correlations(trace);
  absl::flat_hash_map<uint32_t, uint64_t> numbers;  // by call
  for (const trace::Work& work : trace.works) {
    const uint32_t call = correlations.CallOf(work.correlation);
    if (work.correlation == 0 || call == kNone) continue;
    const auto [number, first] = numbers.try_emplace(call, flows_ + 1);
    if (first) {
      ++flows_;
      const trace::Call& launch = trace.calls[call];
      if (!end('s', "ac2g", number->second, rows->OfThread(launch.thread), launch.begin_ns)) {
        return false;
      }
    }
    if (!end('f', "ac2g", number->second, rows->OfStream(work.stream), work.start_ns)) return false;
  }
  for (const trace::Flow& flow : trace.flows) {
    ++flows_;
    if (!end('s', "fwdbwd", flows_, rows->OfThread(flow.forward_thread), flow.forward_ns) ||
        !end('f', "fwdbwd", flows_, rows->OfThread(flow.backward_thread), flow.backward_ns)) {
      return false;
    }
  }
  return true;
}

bool ChromeWriter::AddArrow(const std::string& category, const ArrowEnd& from, const ArrowEnd& to) {
  const ChromeRows by_rank = {.by_rank = true};
  Rows from_rows(this, *from.trace, by_rank), to_rows(this, *to.trace, by_rank);
  const trace::Work& begin = from.trace->works[from.work];
  const trace::Work& end = to.trace->works[to.work];
  ++flows_;
  return AddFlowEnd('s', category, flows_, from_rows.OfStream(begin.stream), begin.start_ns) &&
         AddFlowEnd('f', category, flows_, to_rows.OfStream(end.stream),
                    std::max(begin.start_ns, end.end_ns - 1));
}

bool ChromeWriter::Finish() {
  absl::StrAppend(&text_, "\n]}\n");
  return Flush();
}

}  // namespace seqpoint::traces
