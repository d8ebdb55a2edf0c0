#include "daemon/queries/export.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/iterations/trace_iterations.h"
#include "daemon/jobs/imported_run.h"
#include "daemon/queries/iterations.h"
#include "daemon/queries/rank_windows.h"
#include "daemon/queries/step_rows.h"
#include "daemon/queries/stored_windows.h"
#include "daemon/queries/trace_import.h"
#include "daemon/trace/marks.h"
#include "daemon/traces/chrome_writer.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::queries {
namespace {

constexpr size_t kPieceBytes = 256 * 1024;

std::vector<int64_t> LengthsOf(const jobs::SnapshotData& job, const IterationRow& row) {
  return job.units.Of(row.length, row.length_count);
}

absl::Status Gone() { return absl::CancelledError("the receiver of the export went away"); }

int64_t EndOf(const trace::Trace& trace) {
  int64_t end_ns = 0;
  for (const trace::Call& call : trace.calls) end_ns = std::max(end_ns, call.end_ns);
  for (const trace::Work& work : trace.works) end_ns = std::max(end_ns, work.end_ns);
  for (const trace::Span& span : trace.spans) end_ns = std::max(end_ns, span.end_ns);
  return end_ns;
}

// Traces that the daemon recorded itself, under (rank, number). A measured iteration is a window:
// its records are filed under its number. Where everything was traced they are filed as they came,
// and time tells.
class OwnTraces {
 public:
  using Piece = std::pair<int32_t, int64_t>;
  OwnTraces(Store& store, const jobs::SnapshotData& job, bool by_rank)
      : store_(store),
        job_(job),
        by_rank_(by_rank),
        windows_(&store, StoredWindows::Names::kDemangled) {}

  // `next`: the piece behind it, if there is one. `writer` is asked for where there is something to
  // write: a rank that does the work on the host records no more than its collectives.
  absl::Status Write(const Piece& piece, const Piece* next,
                     absl::FunctionRef<traces::ChromeWriter*()> writer) {
    const auto [rank, number] = piece;
    SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                              ReadRows(store_, job_.job_id, rank, number, number + 1));
    const std::optional<Window> window = WindowOf(rows, number);
    records_.clear();
    auto trace = windows_.Read(job_.job_id, rank, number, window, [&](const auto& record) {
      if (record.type != static_cast<uint16_t>(abi::DataType::kKernel)) return;
      records_[{record.kernel.stream, static_cast<int64_t>(record.kernel.start_ns)}] = record;
    });
    if (!trace.ok()) return trace.status();
    if (trace->calls.empty() && trace->works.empty()) return absl::OkStatus();
    NameOwnRows(&*trace);
    const int64_t end_ns = EndOf(*trace);
    std::map<int64_t, int64_t> by_start;  // iterations by when they start on the GPU
    if (window) {
      AddStep(rows.at(number), *window, &*trace);
      // Before the next window nothing was recorded.
      int64_t next_ns = end_ns + 1;
      if (next != nullptr && next->first == rank) {
        SEQPOINT_ASSIGN_OR_RETURN(
            const auto behind, ReadRows(store_, job_.job_id, rank, next->second, next->second + 1));
        if (const auto other = WindowOf(behind, next->second)) next_ns = other->begin_ns;
      }
      AddAnnotation(trace::kNotRecorded, window->end_ns, std::max(window->end_ns, next_ns),
                    &*trace);
    } else {
      SEQPOINT_ASSIGN_OR_RETURN(
          const auto near, ReadRows(store_, job_.job_id, rank, number - kNear, number + kNear));
      const int64_t begin_ns = BeginOf(*trace);
      for (const auto& [of, row] : near) {
        const Window times = TimesOf(near, row);
        if (row.duration_ns == 0 || times.end_ns <= begin_ns || times.begin_ns >= end_ns) continue;
        by_start[row.start_ns] = of;
        if (shown_.emplace(rank, of).second) AddStep(row, times, &*trace);
      }
    }
    traces::ChromeRows options;
    options.process = by_rank_ ? job_.command : absl::StrCat(job_.command, ", rank ", rank);
    options.by_rank = by_rank_;
    options.work_fields = [&, number = number](const trace::Work& work) {
      const auto of = by_start.upper_bound(work.start_ns);
      return Fields(of == by_start.begin() ? number : std::prev(of)->second,
                    records_.find({trace->streams[work.stream].id, work.start_ns}));
    };
    return writer()->Add(*trace, options) ? absl::OkStatus() : Gone();
  }

  // Several ranks traced the iteration. Writes arrows from the rank that came last in a collective,
  // for which the others waited, to each of these. The pieces were written.
  absl::Status WriteCollectives(int64_t number, const std::vector<int32_t>& ranks,
                                traces::ChromeWriter* writer) {
    SEQPOINT_ASSIGN_OR_RETURN(const RankWindows read,
                              ReadRankWindows(store_, job_, number, ranks, &windows_));
    const std::vector<ranks::RankWindow>& windows = read.windows;
    if (windows.size() < 2) return absl::OkStatus();
    const ranks::WindowJoin join = ranks::JoinWindows(windows);
    const auto end_of = [&](const ranks::CollectivePart& part) -> traces::ChromeWriter::ArrowEnd {
      return {windows[part.window].trace, part.work};
    };
    for (const ranks::WindowCollective& collective : join.collectives) {
      for (size_t i = 0; i < collective.parts.size(); ++i) {
        if (i == collective.last) continue;
        if (!writer->AddArrow("waits for", end_of(collective.parts[collective.last]),
                              end_of(collective.parts[i]))) {
          return Gone();
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  using Window = traces::WindowReader::Window;
  using Records = std::map<std::pair<int64_t, int64_t>, abi::DataRecord>;  // by stream and start
  static constexpr int64_t kNear = 1000;  // iterations, in which records come late

  static int64_t BeginOf(const trace::Trace& trace) {
    int64_t begin_ns = INT64_MAX;
    for (const trace::Call& call : trace.calls) begin_ns = std::min(begin_ns, call.begin_ns);
    for (const trace::Work& work : trace.works) begin_ns = std::min(begin_ns, work.start_ns);
    return begin_ns;
  }

  void AddStep(const IterationRow& row, const Window& times, trace::Trace* trace) const {
    AddAnnotation(StepName(row.number, LengthsOf(job_, row)), times.begin_ns, times.end_ns, trace);
  }

  std::string Fields(int64_t iteration, Records::const_iterator record) const {
    std::string fields = absl::StrCat(",\"iteration\":", iteration);
    if (record == records_.end()) return fields;
    const abi::KernelRecord& r = record->second.kernel;
    absl::StrAppend(&fields, ",\"context\":", r.context,
                    ",\"registers per thread\":", r.registers_per_thread,
                    ",\"shared memory\":", r.static_shared_bytes + r.dynamic_shared_bytes);
    return fields;
  }

  Store& store_;
  const jobs::SnapshotData& job_;
  const bool by_rank_;
  StoredWindows windows_;
  Records records_;
  std::set<std::pair<int32_t, int64_t>> shown_;  // (rank, number)
};

// Where the marks of an imported trace do not tell its iterations and lengths (--marker did), it
// gets marks that do: imported again it is the same.
absl::Status Mark(Store& store, const jobs::SnapshotData& job, traces::RecordedTrace* recorded) {
  trace::Trace& trace = recorded->trace;
  const std::vector<int64_t>& starts_ns = recorded->iteration_starts_ns;
  const auto count = static_cast<int64_t>(recorded->iterations);
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                            ReadRows(store, job.job_id, trace.rank, recorded->first_iteration,
                                     recorded->first_iteration + count - 1));
  const auto found = iterations::FindIterations(trace, "");
  bool same = found.ok() && found->starts_ns == starts_ns && found->count == recorded->iterations;
  for (const auto& [number, row] : rows) {
    if (!same || row.length_count != found->dimensions) same = false;
    for (int d = 0; same && d < row.length_count; ++d) {
      same = found->lengths[static_cast<size_t>(number - recorded->first_iteration)]
                           [static_cast<size_t>(d)] == row.length[d];
    }
  }
  if (same) return absl::OkStatus();
  std::erase_if(trace.spans, [&](const trace::Span& span) {
    return trace.names[span.name].starts_with("ProfilerStep#");
  });
  // One begin more than iterations: points, of which the last one only ends an iteration.
  const bool points = starts_ns.size() > recorded->iterations;
  const int64_t end_ns = EndOf(trace);
  for (size_t i = 0; i < starts_ns.size(); ++i) {
    const int64_t number = recorded->first_iteration + static_cast<int64_t>(i);
    const auto row = rows.find(number);
    AddAnnotation(
        StepName(number, row == rows.end() ? std::vector<int64_t>() : LengthsOf(job, row->second)),
        starts_ns[i],
        points                     ? starts_ns[i]
        : i + 1 < starts_ns.size() ? starts_ns[i + 1]
                                   : end_ns,
        &trace);
  }
  return absl::OkStatus();
}

absl::Status NoTraces(const jobs::SnapshotData& job) {
  const char* const why = job.host_times
                              ? "no iteration was traced, because the host does the work and no GPU"
                          : job.end_ns == 0 ? "no iteration was traced yet; wait for the first"
                                            : "no iteration was traced before it ended";
  return absl::FailedPreconditionError(absl::StrCat("job \"", job.name, "@", job.run_id,
                                                    "\": ", why,
                                                    "; export --csv has a row of each iteration"));
}

}  // namespace

absl::Status ExportChrome(Store& store, const jobs::SnapshotData& job, std::string_view missing,
                          WriteFunction write) {
  SEQPOINT_ASSIGN_OR_RETURN(auto traces, store.ListTraces(job.job_id));
  std::erase_if(traces, [](const auto& trace) {  // learn logs
    return trace.second < 0 && !IsRecordedTrace(trace.second);
  });
  if (traces.empty()) return NoTraces(job);
  const bool by_rank = traces.front().first != traces.back().first;
  traces::ChromeFile file = {.name = absl::StrCat(job.name, "@", job.run_id),
                             .base_ns = job.start_ns,
                             .rank = traces.front().first};
  if (by_rank) file.only_to_view = "it has several ranks";
  if (!missing.empty()) file.only_to_view = missing;
  std::optional<traces::ChromeWriter> writer;
  OwnTraces own(store, job, by_rank);
  for (size_t i = 0; i < traces.size(); ++i) {
    const auto [rank, number] = traces[i];
    const auto* const next = i + 1 < traces.size() ? &traces[i + 1] : nullptr;
    if (!IsRecordedTrace(number)) {
      SEQPOINT_RETURN_IF_ERROR(own.Write(traces[i], next, [&] {
        if (!writer) writer.emplace(file, write);
        return &*writer;
      }));
      continue;
    }
    SEQPOINT_ASSIGN_OR_RETURN(auto recorded, ReadRecordedTrace(store, job.job_id, rank, number));
    trace::Trace& trace = recorded.trace;
    SEQPOINT_RETURN_IF_ERROR(Mark(store, job, &recorded));
    if (next != nullptr && next->first == rank && trace::FindHoles(trace).empty()) {
      const int64_t end_ns = EndOf(trace);
      AddAnnotation(trace::kNotRecorded, end_ns, end_ns + 1, &trace);
    }
    if (!writer) {
      // Many traces count from the start of the machine.
      file.base_ns = std::max<int64_t>(trace.works.empty() ? 0 : trace.works[0].start_ns, 0);
      file.world_size = trace.world_size;
      file.gpus = trace.gpus;
      writer.emplace(file, write);
    }
    if (!writer->Add(trace, {.by_rank = by_rank})) return Gone();
  }
  if (!writer) return NoTraces(job);
  for (const auto& [number, ranks] : SharedIterations(traces)) {
    SEQPOINT_RETURN_IF_ERROR(own.WriteCollectives(number, ranks, &*writer));
  }
  return writer->Finish() ? absl::OkStatus() : Gone();
}

absl::Status ExportCsv(Store& store, const jobs::SnapshotData& job, WriteFunction write) {
  std::string text =
      "rank,iteration,incarnation,length,length2,start_ns,duration_ns,rest_ns,config,distorted,"
      "redone,concurrent,phase\n";
  SEQPOINT_ASSIGN_OR_RETURN(const auto ranks, CountIterations(job, store));
  for (const auto& [rank, iterations] : ranks) {
    int64_t next = 0;
    while (true) {
      SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                                store.ReadIterations(job.job_id, rank, next, kPageRows));
      if (rows.empty()) break;
      for (const IterationRow& row : rows) {
        const std::vector<int64_t> lengths = LengthsOf(job, row);
        const auto length = [&](size_t i) {
          return i < lengths.size() ? absl::StrCat(lengths[i]) : std::string();
        };
        absl::StrAppend(
            &text, rank, ",", row.number, ",", row.incarnation, ",", length(0), ",", length(1), ",",
            row.start_ns, ",", row.duration_ns > 0 ? absl::StrCat(row.duration_ns) : "", ",",
            row.rest_ns, ",", job.metrics.NameOf(row.config_id), ",",
            (row.flags & kIterationDistorted) != 0 ? 1 : 0, ",",
            (row.flags & kIterationRedone) != 0 ? 1 : 0, ",",
            (row.flags & kIterationConcurrent) != 0 ? 1 : 0, ",", jobs::PhaseName(row.phase), "\n");
        if (text.size() < kPieceBytes) continue;
        if (!write(text)) return Gone();
        text.clear();
      }
      next = rows.back().number + 1;
    }
  }
  return text.empty() || write(text) ? absl::OkStatus() : Gone();
}

}  // namespace seqpoint::queries
