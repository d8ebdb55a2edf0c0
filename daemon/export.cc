#include "daemon/export.h"

#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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
std::string Micros(uint64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

std::string TraceEvent(const abi::DataRecord& record, int64_t iteration,
                       const std::map<uint32_t, std::string>& names) {
  const auto head = [](std::string_view category, std::string_view name, uint64_t start_ns,
                       uint64_t end_ns, uint32_t process, uint32_t thread) {
    return absl::StrCat(",\n{\"ph\":\"X\",\"cat\":\"", std::string(category),
                        "\",\"name\":", JsonString(name), ",\"pid\":", process, ",\"tid\":", thread,
                        ",\"ts\":", Micros(start_ns), ",\"dur\":", Micros(end_ns - start_ns),
                        ",\"args\":{\"iteration\":");
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

}  // namespace

absl::Status ExportChrome(Store& store, const JobRow& job, const ExportContext& context,
                          WriteFunction write) {
  const auto traces = store.ListTraces(job.job_id);
  if (!traces.ok()) return traces.status();
  bool any = false;
  for (const auto& [rank, number] : *traces) any = any || number >= 0;
  if (!any) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job.name, "@", job.run_id,
                     "\": no iteration was traced yet; wait for the first, or export --csv"));
  }
  Pieces pieces(write);
  pieces.Add("{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"traceName\":",
             JsonString(absl::StrCat(job.name, "@", job.run_id)),
             ",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,"
             "\"args\":{\"name\":",
             JsonString(job.command), "}}");
  std::map<int64_t, std::map<uint32_t, std::string>> names;  // process -> id -> text
  for (const auto& [rank, number] : *traces) {
    if (number < 0) continue;  // a learn log
    const auto segments = store.ReadTrace(job.job_id, rank, number);
    if (!segments.ok()) return segments.status();
    const auto rows = store.ReadIterations(job.job_id, rank, number, 1);
    if (!rows.ok()) return rows.status();
    if (!rows->empty() && (*rows)[0].number == number && (*rows)[0].start_ns > 0) {
      const IterationRow& row = (*rows)[0];
      pieces.Add(",\n{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#", number,
                 "\",\"pid\":", 1000000 + rank,
                 ",\"tid\":0,\"ts\":", Micros(static_cast<uint64_t>(row.start_ns)),
                 ",\"dur\":", Micros(static_cast<uint64_t>(row.duration_ns)),
                 ",\"args\":{\"lengths\":[", absl::StrJoin(context.lengths(row), ","), "]}}");
    }
    for (const TraceSegmentRow& segment : *segments) {
      auto& known = names[segment.process_id];
      if (known.empty()) {
        const auto read = store.ReadNames(segment.process_id);
        if (!read.ok()) return read.status();
        for (const NameRow& name : *read) known[name.name_id] = name.text;
      }
      for (size_t at = 0; at + sizeof(abi::DataRecord) <= segment.records.size();
           at += sizeof(abi::DataRecord)) {
        abi::DataRecord record;
        std::memcpy(&record, segment.records.data() + at, sizeof(record));
        if (!pieces.Add(TraceEvent(record, number, known))) return Gone();
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
      "rank,iteration,incarnation,length,length2,start_ns,duration_ns,config,distorted,redone\n");
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
                        (row.flags & kIterationRedone) != 0 ? 1 : 0, "\n")) {
          return Gone();
        }
      }
      next = rows->back().number + 1;
    }
  }
  return pieces.Flush() ? absl::OkStatus() : Gone();
}

}  // namespace seqpoint
