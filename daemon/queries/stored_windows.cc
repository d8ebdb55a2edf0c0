#include "daemon/queries/stored_windows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/demangle.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/step_rows.h"

namespace seqpoint::queries {
namespace {

constexpr char kOwnProcess[] = "1000000";

}  // namespace

absl::StatusOr<trace::Trace> StoredWindows::Read(
    int64_t job_id, int32_t rank, int64_t number,
    const std::optional<traces::WindowReader::Window>& window, Visitor visit) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto segments, store_.ReadTrace(job_id, rank, number));
  traces::WindowReader reader;
  traces::WindowReader::Window all = {std::numeric_limits<int64_t>::max(),
                                      std::numeric_limits<int64_t>::max()};
  std::set<int64_t> named;
  for (const TraceSegmentRow& segment : segments) {
    if (named.insert(segment.process_id).second) {
      auto& known = names_[segment.process_id];
      if (known.empty()) {
        SEQPOINT_ASSIGN_OR_RETURN(known, store_.ReadNames(segment.process_id));
        for (NameRow& name : known) {
          if (names_wanted_ == Names::kDemangled) name.text = Demangle(name.text);
        }
      }
      for (const NameRow& name : known) reader.AddName(name.name_id, name.text);
    }
    for (size_t at = 0; at + sizeof(abi::DataRecord) <= segment.records.size();
         at += sizeof(abi::DataRecord)) {
      abi::DataRecord record;
      std::memcpy(&record, segment.records.data() + at, sizeof(record));
      reader.Add(record);
      visit(record);
      // NCCL's times are of another clock.
      if (record.type == static_cast<uint16_t>(abi::DataType::kCollective)) continue;
      // Every record of a trace has its start at the same place.
      all.begin_ns = std::min(all.begin_ns, static_cast<int64_t>(record.kernel.start_ns));
    }
  }
  trace::Trace trace = reader.Finish(window.value_or(all));
  trace.rank = rank;
  begin_ns_ = reader.begin_ns();
  return trace;
}

absl::StatusOr<std::map<int64_t, IterationRow>> ReadRows(Store& store, int64_t job_id, int32_t rank,
                                                         int64_t first, int64_t last) {
  std::map<int64_t, IterationRow> rows;
  while (first <= last) {
    SEQPOINT_ASSIGN_OR_RETURN(
        const auto read,
        store.ReadIterations(job_id, rank, first,
                             static_cast<int>(std::min<int64_t>(last - first + 1, kPageRows))));
    if (read.empty()) break;
    for (const IterationRow& row : read) {
      if (row.number <= last) rows[row.number] = row;
    }
    first = read.back().number + 1;
  }
  return rows;
}

void NameOwnRows(trace::Trace* trace) {
  for (std::string& thread : trace->threads) {
    thread = absl::StrCat(kOwnProcess, thread, " thread");
  }
}

namespace {

uint32_t IndexOf(std::string_view text, std::vector<std::string>* table) {
  const auto it = std::find(table->begin(), table->end(), text);
  const auto index = static_cast<uint32_t>(it - table->begin());
  if (it == table->end()) table->emplace_back(text);
  return index;
}

}  // namespace

uint32_t AnnotationRow(trace::Trace* trace) {
  const std::string first = trace->threads.empty() ? "" : trace->threads[0];
  const size_t slash = first.find('/');
  const std::string process = slash == std::string::npos ? kOwnProcess : first.substr(0, slash);
  return IndexOf(absl::StrCat(process, "/0 iterations"), &trace->threads);
}

void AddAnnotation(std::string_view name, int64_t begin_ns, int64_t end_ns, trace::Trace* trace) {
  trace->spans.push_back({.begin_ns = begin_ns,
                          .end_ns = end_ns,
                          .name = IndexOf(name, &trace->names),
                          .thread = AnnotationRow(trace),
                          .kind = trace::SpanKind::kAnnotation});
}

std::string StepName(int64_t number, const std::vector<int64_t>& lengths) {
  std::string name = absl::StrCat("ProfilerStep#", number);
  if (!lengths.empty()) absl::StrAppend(&name, " lengths=[", absl::StrJoin(lengths, ","), "]");
  return name;
}

}  // namespace seqpoint::queries
