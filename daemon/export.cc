#include "daemon/export.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "daemon/jobs/import.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint {
namespace {

constexpr int kPageRows = 4096;
constexpr size_t kPieceBytes = 256 * 1024;

// Gathers text and hands it on in pieces.
class Pieces {
 public:
  explicit Pieces(WriteFunction write) : write_(write) {}
  template <typename... Args>
  bool Add(const Args&... args) {
    absl::StrAppend(&text_, args...);
    return text_.size() < kPieceBytes || Flush();
  }
  bool Flush() {
    const bool taken = text_.empty() || write_(text_);
    text_.clear();
    return taken;
  }

 private:
  WriteFunction write_;
  std::string text_;
};

absl::Status Gone() { return absl::CancelledError("the receiver of the export went away"); }

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// A C++ symbol as it was written; other names as they are.
std::string Demangle(const std::string& name) {
  if (!absl::StartsWith(name, "_Z")) return name;
  int status = 0;
  std::unique_ptr<char, decltype(&free)> plain(
      ::abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &free);
  return status == 0 ? plain.get() : name;
}

std::string_view CopyName(uint8_t kind) {
  switch (kind) {  // CUpti_ActivityMemcpyKind
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 9:
      return "Memcpy HtoH";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

// Microseconds with three digits, as the format has it.
std::string Micros(int64_t ns) {
  const auto size = static_cast<uint64_t>(std::abs(ns));
  return absl::StrFormat("%s%d.%03d", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

constexpr int64_t kRankProcess = 1'000'000;  // plus the rank: the row of its iterations

std::string Metadata(const std::string& what, int64_t process, int64_t thread,
                     const std::string& argument, const std::string& value) {
  return absl::StrCat(",\n{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process,
                      ",\"tid\":", thread, ",\"args\":{\"", argument, "\":", value, "}}");
}

// Names and order of the rows, each before its first event.
class Rows {
 public:
  explicit Rows(const JobRow& job) : job_(job) {}

  std::string ForRank(int32_t rank) {
    const int64_t process = kRankProcess + rank;
    if (!known_.emplace(process, 0).second) return "";
    return absl::StrCat(Process(process, absl::StrCat(job_.command, ", rank ", rank), rank),
                        Metadata("thread_name", process, 0, "name", "\"iterations\""));
  }
  std::string ForStream(uint16_t device, uint32_t stream) {
    std::string text;
    if (devices_.insert(device).second) {
      text = Process(device, absl::StrCat("GPU ", device), kRankProcess + device);
    }
    if (!known_.emplace(device, stream).second) return text;
    return absl::StrCat(
        text,
        Metadata("thread_name", device, stream, "name",
                 JsonString(absl::StrCat("stream ", stream))),
        Metadata("thread_sort_index", device, stream, "sort_index", absl::StrCat(stream)));
  }

 private:
  static std::string Process(int64_t process, const std::string& name, int64_t place) {
    return absl::StrCat(
        Metadata("process_name", process, 0, "name", JsonString(name)),
        Metadata("process_sort_index", process, 0, "sort_index", absl::StrCat(place)));
  }

  const JobRow& job_;
  std::set<uint16_t> devices_;
  std::set<std::pair<int64_t, int64_t>> known_;
};

// Times are written relative to `base_ns`: readers hold microseconds in a double, which from 1970
// on would leave steps of a quarter of one.
std::string TraceEvent(const abi::DataRecord& record, int64_t iteration,
                       const std::map<uint32_t, std::string>& names, int64_t base_ns, Rows& rows) {
  const auto head = [&](std::string_view category, std::string_view name, uint64_t start_ns,
                        uint64_t end_ns, uint16_t device, uint32_t stream) {
    return absl::StrCat(
        rows.ForStream(device, stream), ",\n{\"ph\":\"X\",\"cat\":\"", std::string(category),
        "\",\"name\":", JsonString(name), ",\"pid\":", device, ",\"tid\":", stream,
        ",\"ts\":", Micros(static_cast<int64_t>(start_ns) - base_ns),
        ",\"dur\":", Micros(static_cast<int64_t>(end_ns - start_ns)), ",\"args\":{\"iteration\":");
  };
  switch (static_cast<abi::DataType>(record.type)) {
    case abi::DataType::kKernel: {
      const abi::KernelRecord& r = record.kernel;
      const auto name = names.find(r.name_id);
      return absl::StrCat(head("kernel", name == names.end() ? "unknown" : name->second, r.start_ns,
                               r.end_ns, r.device, r.stream),
                          iteration, ",\"device\":", r.device, ",\"context\":", r.context,
                          ",\"stream\":", r.stream, ",\"correlation\":", r.correlation_id,
                          ",\"registers per thread\":", r.registers_per_thread,
                          ",\"shared memory\":", r.static_shared_bytes + r.dynamic_shared_bytes,
                          ",\"grid\":[", r.grid_x, ",", r.grid_y, ",", r.grid_z, "],\"block\":[",
                          r.block_x, ",", r.block_y, ",", r.block_z, "]}}");
    }
    case abi::DataType::kCopy:
    case abi::DataType::kMemset: {
      const abi::CopyRecord& r = record.copy;
      const bool copy = record.type == static_cast<uint16_t>(abi::DataType::kCopy);
      return absl::StrCat(
          head(copy ? "gpu_memcpy" : "gpu_memset", copy ? CopyName(r.kind) : "Memset", r.start_ns,
               r.end_ns, r.device, r.stream),
          iteration, ",\"device\":", r.device, ",\"context\":", r.context, ",\"stream\":", r.stream,
          ",\"correlation\":", r.correlation_id, ",\"bytes\":", r.bytes, "}}");
    }
    case abi::DataType::kGraph: {
      const abi::GraphRecord& r = record.graph;
      return absl::StrCat(head("kernel", "graph", r.start_ns, r.end_ns, r.device, r.stream),
                          iteration, ",\"device\":", r.device, ",\"context\":", r.context,
                          ",\"stream\":", r.stream, ",\"correlation\":", r.correlation_id,
                          ",\"graph\":", r.graph_id, "}}");
    }
    default:
      return "";
  }
}

// Which iteration of a rank a piece of GPU work belongs to. A measured iteration has its records
// filed under its number; where everything was traced they are filed as they came, and time tells.
class IterationsByTime {
 public:
  // Iterations near [first, last].
  static absl::StatusOr<IterationsByTime> Read(Store& store, int64_t job_id, int32_t rank,
                                               int64_t first, int64_t last) {
    IterationsByTime result(rank);
    int64_t next = std::max<int64_t>(first - kNear, 0);
    while (next <= last + kNear) {
      const auto rows = store.ReadIterations(job_id, rank, next, kPageRows);
      if (!rows.ok()) return rows.status();
      if (rows->empty()) break;
      next = rows->back().number + 1;
      for (const IterationRow& row : *rows) {
        if (row.start_ns > 0 && row.duration_ns > 0) result.by_start_.emplace(row.start_ns, row);
        if (row.config_id == abi::kConfigTrace) result.traced_.insert(row.number);
      }
    }
    for (const auto& [start_ns, row] : result.by_start_) result.unshown_[row.number] = &row;
    return result;
  }
  int32_t rank() const { return rank_; }

  // `filed`: the number that it is stored under.
  int64_t Find(int64_t start_ns, int64_t filed) const {
    if (traced_.count(filed) != 0) return filed;
    auto next = by_start_.upper_bound(start_ns);
    if (next == by_start_.begin()) return filed;
    const IterationRow& row = std::prev(next)->second;
    return start_ns < row.start_ns + row.duration_ns ? row.number : filed;
  }

  // The row of an iteration with known time, once.
  const IterationRow* TakeUnshown(int64_t number) {
    const auto it = unshown_.find(number);
    if (it == unshown_.end()) return nullptr;
    const IterationRow* row = it->second;
    unshown_.erase(it);
    return row;
  }

 private:
  static constexpr int64_t kNear = 1000;
  explicit IterationsByTime(int32_t rank) : rank_(rank) {}

  int32_t rank_;
  std::map<int64_t, IterationRow> by_start_;
  std::map<int64_t, const IterationRow*> unshown_;
  std::set<int64_t> traced_;
};

}  // namespace

absl::Status ExportChrome(Store& store, const JobRow& job, const ExportContext& context,
                          WriteFunction write) {
  const auto traces = store.ListTraces(job.job_id);
  if (!traces.ok()) return traces.status();
  const auto first = std::find_if(traces->begin(), traces->end(),
                                  [](const auto& trace) { return trace.second >= 0; });
  if (first == traces->end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job.name, "@", job.run_id,
        job.end_ns == 0 ? "\": no iteration was traced yet; wait for the first, or export --csv"
                        : "\": no iteration was traced before it ended; export --csv has a row of "
                          "each iteration"));
  }
  const int64_t base_ns = job.start_ns;
  Rows rows(job);
  Pieces pieces(write);
  pieces.Add("{\"schemaVersion\":1,\"profiler\":\"SeqPoint\",\"displayTimeUnit\":\"ms\",",
             "\"traceName\":", JsonString(absl::StrCat(job.name, "@", job.run_id)),
             ",\"baseTimeNanoseconds\":", base_ns, ",\"traceEvents\":[",
             rows.ForRank(first->first).substr(1));          // without the comma of all others
  std::map<int64_t, std::map<uint32_t, std::string>> names;  // process -> id -> text
  std::optional<IterationsByTime> iterations;                // of a rank
  for (const auto& [rank, number] : *traces) {
    if (number < 0) continue;  // a learn log
    const auto segments = store.ReadTrace(job.job_id, rank, number);
    if (!segments.ok()) return segments.status();
    if (!iterations || iterations->rank() != rank) {
      int64_t last = number;
      for (const auto& [of_rank, traced] : *traces) {
        if (of_rank == rank) last = std::max(last, traced);
      }
      auto read = IterationsByTime::Read(store, job.job_id, rank, number, last);
      if (!read.ok()) return read.status();
      iterations = *std::move(read);
    }
    for (const TraceSegmentRow& segment : *segments) {
      auto& known = names[segment.process_id];
      if (known.empty()) {
        const auto read = store.ReadNames(segment.process_id);
        if (!read.ok()) return read.status();
        for (const NameRow& name : *read) known[name.name_id] = Demangle(name.text);
      }
      for (size_t at = 0; at + sizeof(abi::DataRecord) <= segment.records.size();
           at += sizeof(abi::DataRecord)) {
        abi::DataRecord record;
        std::memcpy(&record, segment.records.data() + at, sizeof(record));
        const int64_t of = iterations->Find(static_cast<int64_t>(record.kernel.start_ns), number);
        if (const IterationRow* row = iterations->TakeUnshown(of)) {
          pieces.Add(rows.ForRank(rank),
                     ",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#", of,
                     "\",\"pid\":", kRankProcess + rank,
                     ",\"tid\":0,\"ts\":", Micros(row->start_ns - base_ns),
                     ",\"dur\":", Micros(row->duration_ns), ",\"args\":{\"lengths\":[",
                     absl::StrJoin(context.lengths(*row), ","), "]}}");
        }
        if (!pieces.Add(TraceEvent(record, of, known, base_ns, rows))) return Gone();
      }
    }
  }
  pieces.Add("\n]}\n");
  return pieces.Flush() ? absl::OkStatus() : Gone();
}

absl::Status ExportCsv(Store& store, const JobRow& job, const ExportContext& context,
                       WriteFunction write) {
  Pieces pieces(write);
  pieces.Add(
      "rank,iteration,incarnation,length,length2,start_ns,duration_ns,config,distorted,redone,"
      "phase\n");
  for (const int32_t rank : context.ranks) {
    int64_t next = 0;
    while (true) {
      const auto rows = store.ReadIterations(job.job_id, rank, next, kPageRows);
      if (!rows.ok()) return rows.status();
      if (rows->empty()) break;
      for (const IterationRow& row : *rows) {
        const std::vector<int64_t> lengths = context.lengths(row);
        const auto length = [&](size_t i) {
          return i < lengths.size() ? absl::StrCat(lengths[i]) : std::string();
        };
        if (!pieces.Add(rank, ",", row.number, ",", row.incarnation, ",", length(0), ",", length(1),
                        ",", row.start_ns, ",", row.duration_ns, ",",
                        context.config_name(row.config_id), ",",
                        (row.flags & kIterationDistorted) != 0 ? 1 : 0, ",",
                        (row.flags & kIterationRedone) != 0 ? 1 : 0, ",",
                        jobs::PhaseName(row.phase), "\n")) {
          return Gone();
        }
      }
      next = rows->back().number + 1;
    }
  }
  return pieces.Flush() ? absl::OkStatus() : Gone();
}

}  // namespace seqpoint
