#include "daemon/queries/trace_import.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/status_macros.h"
#include "daemon/iterations/trace_iterations.h"
#include "daemon/queries/log_import.h"
#include "daemon/trace/correlations.h"
#include "daemon/trace/marks.h"
#include "daemon/traces/trace_reader.h"

namespace seqpoint::queries {
namespace {

using iterations::TraceIterations;

constexpr int64_t kUnset = std::numeric_limits<int64_t>::max();
// Numbers of trace segments: those of iterations are from 0 on, those of learn logs from -1 down.
constexpr int64_t kFirstTrace = std::numeric_limits<int64_t>::min();
constexpr int64_t kMostTraces = 1 << 20;
// A piece of a trace in the store.
constexpr size_t kSegmentBytes = size_t{64} << 20;
// A file, or a part of one, with tables of its own.
constexpr size_t kMostHoles = 4096;

struct Recording {
  std::string file;
  int32_t rank = 0;
  trace::Trace trace;
  TraceIterations iterations;
  int64_t begin_ns = kUnset, end_ns = -kUnset;  // of all that it holds
  int64_t first_call_ns = kUnset;               // of its first iteration
  bool goes_on = false;                         // the file: another part of it is before this
};

void SetTimes(Recording* recording) {
  const std::vector<int64_t>& starts_ns = recording->iterations.starts_ns;
  for (const trace::Call& call : recording->trace.calls) {
    if (!starts_ns.empty() && call.begin_ns >= starts_ns[0]) {
      recording->first_call_ns = std::min(recording->first_call_ns, call.begin_ns);
    }
    recording->begin_ns = std::min(recording->begin_ns, call.begin_ns);
    recording->end_ns = std::max(recording->end_ns, call.end_ns);
  }
  for (const trace::Work& work : recording->trace.works) {
    recording->begin_ns = std::min(recording->begin_ns, work.start_ns);
    recording->end_ns = std::max(recording->end_ns, work.end_ns);
  }
}

struct Measured {
  jobs::ImportedIteration iteration;
  std::map<std::string, jobs::KernelSum> kernels;
};

// Which iteration each moment on the CPU belongs to; -1: none.
int64_t At(const TraceIterations& iterations, int64_t time_ns) {
  const auto next =
      std::upper_bound(iterations.starts_ns.begin(), iterations.starts_ns.end(), time_ns);
  return next - iterations.starts_ns.begin() - 1;
}

std::vector<Measured> Measure(const Recording& recording) {
  const trace::Trace& trace = recording.trace;
  const TraceIterations& iterations = recording.iterations;
  const trace::Correlations correlations(trace);
  // One more, for what comes behind the last one.
  std::vector<int64_t> starts_ns(iterations.count + 1, kUnset);
  std::vector<Measured> measured(iterations.count);
  for (const trace::Work& work : trace.works) {
    const uint32_t call = correlations.CallOf(work.correlation);
    // In a trace without calls, works take their place.
    if (call == trace::kNone && !trace.calls.empty()) continue;
    const int64_t at =
        At(iterations, call == trace::kNone ? work.start_ns : trace.calls[call].begin_ns);
    if (at < 0 || at > static_cast<int64_t>(iterations.count)) continue;
    const auto index = static_cast<size_t>(at);
    starts_ns[index] = std::min(starts_ns[index], work.start_ns);
    const bool kernel = work.kind == trace::WorkKind::kKernel ||
                        work.kind == trace::WorkKind::kCollective ||
                        work.kind == trace::WorkKind::kGraph;
    if (index == iterations.count || !kernel) continue;
    jobs::KernelSum& sum = measured[index].kernels[trace.names[work.name]];
    sum.time_ns += static_cast<double>(work.end_ns - work.start_ns);
    sum.launches += 1;
  }
  for (size_t i = 0; i < iterations.count; ++i) {
    jobs::ImportedIteration& to = measured[i].iteration;
    to.boundary_ns = iterations.starts_ns[i];
    to.start_ns = starts_ns[i] == kUnset ? to.boundary_ns : starts_ns[i];
    const bool work = starts_ns[i] != kUnset, next = starts_ns[i + 1] != kUnset;
    const bool last = i + 1 == iterations.count, ended = i + 1 < iterations.starts_ns.size();
    if (work && next) {
      to.duration_ns = starts_ns[i + 1] - starts_ns[i];
    } else if (iterations.count == 1) {
      // As a replay has it: from its first call or work on.
      const int64_t begin_ns =
          ended ? to.boundary_ns : std::min({to.start_ns, recording.first_call_ns});
      to.duration_ns =
          std::max(recording.end_ns, ended ? iterations.starts_ns.back() : begin_ns) - begin_ns;
    } else if (work && last && ended) {
      to.duration_ns = iterations.starts_ns[i + 1] - iterations.starts_ns[i];
    }
    to.duration_ns = std::max<int64_t>(to.duration_ns, 0);
    // The last one may be cut off, and a trace may hold the CPU's side of more than the GPU's.
    const bool cut = trace.left_out.truncated || (!ended && iterations.last_end_ns == 0);
    to.whole = iterations.count == 1 || (work && (next || (last && !cut)));
    if (iterations.dimensions > 0) {
      to.key = {iterations.lengths[i][0], iterations.dimensions > 1 ? iterations.lengths[i][1] : 0};
    }
  }
  return measured;
}

// Those that say no rank, or all the same one while they ran at the same time, are numbered.
void NumberRanks(std::vector<Recording>* recordings) {
  if (recordings->size() < 2) return;
  const int32_t first = recordings->front().rank;
  for (const Recording& recording : *recordings) {
    if (recording.rank != first || recording.trace.world_size > 1) return;
  }
  std::vector<const Recording*> order;
  for (const Recording& recording : *recordings) order.push_back(&recording);
  std::sort(order.begin(), order.end(),
            [](const Recording* a, const Recording* b) { return a->begin_ns < b->begin_ns; });
  bool overlap = false;
  for (size_t i = 1; i < order.size(); ++i) overlap |= order[i]->begin_ns < order[i - 1]->end_ns;
  if (!overlap) return;
  for (size_t i = 0; i < recordings->size(); ++i) {
    (*recordings)[i].rank = static_cast<int32_t>(i);
  }
}

absl::Status CheckOrder(const std::vector<Recording>& recordings) {
  for (size_t i = 1; i < recordings.size(); ++i) {
    const Recording& before = recordings[i - 1];
    const Recording& recording = recordings[i];
    if (recording.rank != before.rank || recording.begin_ns >= before.end_ns) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(before.file, " and ", recording.file, " are both of rank ", recording.rank,
                     " and overlap in time; import them as jobs of their own"));
  }
  return absl::OkStatus();
}

// Each in the parts between its holes, with the iterations of each part.
absl::StatusOr<std::vector<Recording>> Split(std::vector<Recording> files,
                                             const std::string& marker) {
  std::vector<Recording> parts;
  for (Recording& file : files) {
    if (const size_t holes = trace::FindHoles(file.trace).size(); holes > kMostHoles) {
      return absl::InvalidArgumentError(absl::StrCat(file.file, ": ", holes, " annotations \"",
                                                     trace::kNotRecorded, "\", more than ",
                                                     kMostHoles, ": export fewer windows at once"));
    }
    bool goes_on = false;
    for (trace::Trace& trace : trace::SplitAtHoles(std::move(file.trace))) {
      absl::StatusOr<TraceIterations> found = iterations::FindIterations(trace, marker);
      if (!found.ok()) {
        return absl::Status(found.status().code(),
                            absl::StrCat(file.file, ": ", std::string(found.status().message())));
      }
      if (!parts.empty() && parts.back().iterations.dimensions != found->dimensions) {
        return absl::InvalidArgumentError(absl::StrCat(
            parts.back().file, " has ", parts.back().iterations.dimensions,
            " lengths for each iteration, ", file.file, " has ", found->dimensions,
            "; say where they are (--marker with groups), or import the files one by one"));
      }
      parts.push_back({.file = file.file,
                       .rank = file.rank,
                       .trace = std::move(trace),
                       .iterations = *std::move(found),
                       .goes_on = std::exchange(goes_on, true)});
      SetTimes(&parts.back());
    }
  }
  return parts;
}

v1::ImportedTrace Describe(const Recording& recording) {
  v1::ImportedTrace described;
  described.set_file(recording.file);
  described.set_rank(recording.rank);
  described.set_iterations(static_cast<int64_t>(recording.iterations.count));
  described.set_boundary(recording.iterations.boundary_words);
  described.set_length(recording.iterations.length_words);
  described.set_calls(static_cast<int64_t>(recording.trace.calls.size()));
  described.set_gpu_tasks(static_cast<int64_t>(recording.trace.works.size()));
  std::vector<std::string> messages;
  if (std::string words = traces::LeftOutInWords(recording.trace.left_out); !words.empty()) {
    messages.push_back(std::move(words));
  }
  if (const size_t others = recording.iterations.marks_elsewhere; others > 0) {
    messages.push_back(absl::StrCat(others, others == 1 ? " mark" : " marks",
                                    " of other threads left out: one thread's are iterations"));
  }
  if (recording.trace.calls.empty()) {
    messages.push_back("no calls of the CPU were recorded, so no what-if can be asked of it");
  }
  described.set_message(absl::StrJoin(messages, "; "));
  return described;
}

}  // namespace

absl::StatusOr<TraceImport> ReadTraces(std::vector<TraceFile> files, const std::string& marker,
                                       int64_t now_ns) {
  std::vector<Recording> recordings;
  for (TraceFile& file : files) {
    Recording& recording = recordings.emplace_back();
    recording.file = OneLine(std::move(file.name));
    recording.trace = std::move(file.trace);
    recording.rank = recording.trace.rank;
    SetTimes(&recording);
  }
  NumberRanks(&recordings);
  std::stable_sort(recordings.begin(), recordings.end(),
                   [](const Recording& a, const Recording& b) {
                     return std::pair(a.rank, a.begin_ns) < std::pair(b.rank, b.begin_ns);
                   });
  SEQPOINT_RETURN_IF_ERROR(CheckOrder(recordings));
  SEQPOINT_ASSIGN_OR_RETURN(recordings, Split(std::move(recordings), marker));

  TraceImport import;
  jobs::ImportedRun& run = import.run;
  run.traced = true;
  run.dimensions = recordings[0].iterations.dimensions;
  run.boundary_words = recordings[0].iterations.boundary_words;
  run.length_words = recordings[0].iterations.length_words;
  std::vector<std::map<std::string, jobs::KernelSum>> kernels;  // of a step, all ranks together
  std::vector<bool> whole;
  int64_t first_ns = kUnset, last_ns = -kUnset;
  std::vector<std::string> names;
  for (Recording& recording : recordings) {
    v1::ImportedTrace described = Describe(recording);
    if (recording.goes_on) {
      v1::ImportedTrace& file = import.described.back();
      file.set_iterations(file.iterations() + described.iterations());
      file.set_calls(file.calls() + described.calls());
      file.set_gpu_tasks(file.gpu_tasks() + described.gpu_tasks());
    } else {
      names.push_back(recording.file);
      import.described.push_back(std::move(described));
    }
    if (run.ranks.empty() || run.ranks.back().rank != recording.rank) {
      run.ranks.emplace_back().rank = recording.rank;
    }
    std::vector<jobs::ImportedIteration>& rows = run.ranks.back().iterations;
    const size_t first = rows.size();
    for (Measured& measured : Measure(recording)) {
      const size_t step = rows.size();
      rows.push_back(measured.iteration);
      if (step >= run.iterations.size()) {
        run.iterations.push_back(measured.iteration);
        kernels.emplace_back();
      } else {
        // As long as its slowest rank.
        jobs::ImportedIteration& slowest = run.iterations[step];
        slowest.duration_ns = std::max(slowest.duration_ns, measured.iteration.duration_ns);
        slowest.key.first = std::max(slowest.key.first, measured.iteration.key.first);
        slowest.key.second = std::max(slowest.key.second, measured.iteration.key.second);
        slowest.whole &= measured.iteration.whole;
      }
      for (const auto& [name, sum] : measured.kernels) {
        kernels[step][name].time_ns += sum.time_ns;
        kernels[step][name].launches += sum.launches;
      }
    }
    first_ns = std::min(first_ns, recording.begin_ns);
    last_ns = std::max(last_ns, recording.end_ns);
    recording.trace.rank = recording.rank;
    import.traces.push_back({std::move(recording.trace), std::move(recording.iterations.starts_ns),
                             recording.iterations.count, static_cast<int64_t>(first)});
  }
  if (std::none_of(run.iterations.begin(), run.iterations.end(),
                   [](const jobs::ImportedIteration& each) { return each.duration_ns > 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(
        recordings[0].file, ": none of the ", run.iterations.size(), " iterations (",
        run.boundary_words, ") launches work of the GPU, so none has a time; is it the marker of ",
        "another thread, or was the GPU not recorded?"));
  }
  std::map<std::string, int> index;
  for (size_t step = 0; step < kernels.size(); ++step) {
    for (auto& [name, sum] : kernels[step]) {
      const auto [it, added] = index.try_emplace(name, static_cast<int>(index.size()));
      if (added) run.kernel_names.push_back(name);
      sum.kernel = it->second;
      if (run.iterations[step].whole) run.iterations[step].kernels.push_back(sum);
    }
  }
  constexpr size_t kMostNamed = 4;
  const size_t named = std::min(names.size(), kMostNamed);
  run.source = absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(named), ", ");
  if (names.size() > named) absl::StrAppend(&run.source, " and ", names.size() - named, " more");
  // As of a log, the run is taken to have ended now: jobs are kept by their age, and many traces
  // count from the start of a machine. The stored traces have their own times.
  const int64_t shift_ns = now_ns - last_ns;
  for (jobs::ImportedIteration& iteration : run.iterations) iteration.start_ns += shift_ns;
  for (jobs::ImportedRank& rank : run.ranks) {
    for (jobs::ImportedIteration& iteration : rank.iterations) {
      iteration.start_ns += shift_ns;
      iteration.boundary_ns += shift_ns;
    }
  }
  first_ns += shift_ns;
  last_ns += shift_ns;
  run.start_ns = std::max<int64_t>(first_ns, 1);
  run.end_ns = std::max(last_ns, run.start_ns);
  return import;
}

absl::Status StoreTraces(Store& store, int64_t job_id,
                         const std::vector<traces::RecordedTrace>& traces) {
  int64_t number = kFirstTrace;
  for (const traces::RecordedTrace& trace : traces) {
    SEQPOINT_ASSIGN_OR_RETURN(auto bytes, traces::ToBytes(trace));
    // Segments have a whole number of records: the length comes first, zeros at the end.
    const uint64_t size = bytes.size();
    bytes.insert(0, reinterpret_cast<const char*>(&size), sizeof(size));
    bytes.append((kTraceRecordBytes - bytes.size() % kTraceRecordBytes) % kTraceRecordBytes, '\0');
    for (size_t at = 0; at < bytes.size(); at += kSegmentBytes) {
      WriteBatch batch;
      batch.trace_segments.push_back({.job_id = job_id,
                                      .rank = trace.trace.rank,
                                      .number = number,
                                      .process_id = 0,
                                      .records = bytes.substr(at, kSegmentBytes)});
      SEQPOINT_RETURN_IF_ERROR(store.Write(batch));
    }
    ++number;
  }
  return absl::OkStatus();
}

bool IsRecordedTrace(int64_t number) { return number < kFirstTrace + kMostTraces; }

absl::StatusOr<traces::RecordedTrace> ReadRecordedTrace(Store& store, int64_t job_id, int32_t rank,
                                                        int64_t number) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto segments, store.ReadTrace(job_id, rank, number));
  std::string bytes;
  for (const TraceSegmentRow& segment : segments) bytes += segment.records;
  uint64_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (size == 0 || size > bytes.size() - sizeof(size)) {
    return absl::DataLossError("the stored trace is not whole; import it again");
  }
  return traces::FromBytes(std::string_view(bytes).substr(sizeof(size), size));
}

}  // namespace seqpoint::queries
