#include "daemon/queries/recorded_run.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"
#include "daemon/queries/stored_windows.h"
#include "daemon/queries/trace_import.h"
#include "daemon/trace/marks.h"
#include "injection/abi/control.h"

namespace seqpoint::queries {
namespace {

using Window = traces::WindowReader::Window;

// Iterations of a live job after which a window's records are all there.
constexpr int64_t kSettled = 16;

Key KeyOf(const IterationRow& row) { return {row.length[0], row.length[1]}; }

// One iteration, with nothing recorded behind it. Nothing where it cannot be replayed.
std::optional<Stretch> WindowStretch(const trace::Trace& trace, const Window& window,
                                     const jobs::Snapshot& snapshot, int64_t number,
                                     const Key& key) {
  const int64_t period_ns = window.end_ns - window.begin_ns;
  if (trace.calls.empty() || trace.works.empty() || period_ns <= 0) return std::nullopt;
  std::vector<int64_t> starts_ns;
  for (int turn = 0; turn < kTurns; ++turn) starts_ns.push_back(window.begin_ns + turn * period_ns);
  Stretch stretch;
  stretch.window = window;
  stretch.calls = trace.calls.size();
  stretch.works = trace.works.size();
  std::vector<whatif::RecordedRank> ranks;
  ranks.push_back({whatif::Repeat(trace, kTurns, period_ns), std::move(starts_ns), kTurns});
  stretch.recording = whatif::MakeRecording(std::move(ranks));
  if (stretch.recording.measured_ns[0].size() <= kCountedTurn) return std::nullopt;
  stretch.steps.push_back({kCountedTurn, number, key, snapshot.UsualTime(key)});
  return stretch;
}

// An imported one, as FindIterations has it.
bool IsWindow(const traces::RecordedTrace& recorded) {
  return recorded.iterations == 1 && recorded.iteration_starts_ns.size() == 2 &&
         trace::FindHoles(recorded.trace).size() == 1;
}

// The imported traces that were recorded at the same time, one of each rank.
absl::StatusOr<std::vector<Stretch>> ReadImported(Store& store, const jobs::Snapshot& snapshot,
                                                  const Pieces& pieces, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  std::vector<std::vector<traces::RecordedTrace>> together;
  std::vector<Pieces> pieces_together;
  std::map<int32_t, size_t> next;  // by rank
  for (const auto& [rank, number] : pieces) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    SEQPOINT_ASSIGN_OR_RETURN(auto recorded, ReadRecordedTrace(store, job.job_id, rank, number));
    if (recorded.trace.calls.empty()) continue;
    const size_t at = next[rank]++;
    if (at >= together.size()) together.resize(at + 1), pieces_together.resize(at + 1);
    together[at].push_back(std::move(recorded));
    pieces_together[at].emplace_back(rank, number);
  }
  std::vector<Stretch> stretches;
  for (size_t at = 0; at < together.size(); ++at) {
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    std::vector<traces::RecordedTrace>& recorded = together[at];
    if (next.size() == 1 && IsWindow(recorded[0])) {
      const traces::RecordedTrace& window = recorded[0];
      const int64_t number = window.first_iteration;
      SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                                ReadRows(store, job.job_id, window.trace.rank, number, number));
      const auto row = rows.find(number);
      if (row == rows.end()) continue;
      std::optional<Stretch> stretch = WindowStretch(
          window.trace, {window.iteration_starts_ns[0], window.iteration_starts_ns[1]}, snapshot,
          number, KeyOf(row->second));
      if (!stretch) continue;
      stretch->pieces = pieces_together[at];
      stretches.push_back(*std::move(stretch));
      continue;
    }
    Stretch& stretch = stretches.emplace_back();
    stretch.pieces = pieces_together[at];
    std::vector<whatif::RecordedRank> ranks;
    std::map<int64_t, Stretch::Step> steps;  // by number
    for (traces::RecordedTrace& rank : recorded) {
      SEQPOINT_ASSIGN_OR_RETURN(
          const auto rows,
          ReadRows(store, job.job_id, rank.trace.rank, rank.first_iteration,
                   rank.first_iteration + static_cast<int64_t>(rank.iterations) - 1));
      for (const auto& [number, row] : rows) {
        Stretch::Step& step = steps[number - rank.first_iteration];
        step.number = std::max(step.number, number);
        step.key.first = std::max(step.key.first, KeyOf(row).first);
        step.key.second = std::max(step.key.second, KeyOf(row).second);
      }
      stretch.first_number.push_back(rank.first_iteration);
      ranks.push_back(
          {std::move(rank.trace), std::move(rank.iteration_starts_ns), rank.iterations});
    }
    stretch.recording = whatif::MakeRecording(std::move(ranks));
    const std::vector<double> measured = whatif::Steps(stretch.recording.measured_ns);
    for (auto& [index, step] : steps) {
      step.index = static_cast<size_t>(index);
      if (step.index >= measured.size()) continue;
      step.measured_ns = measured[step.index];
      stretch.steps.push_back(step);
    }
  }
  return stretches;
}

// One of our own windows; nothing where it cannot be replayed.
absl::StatusOr<std::optional<Stretch>> ReadWindow(Store& store, const jobs::Snapshot& snapshot,
                                                  int32_t rank, int64_t number,
                                                  StoredWindows* windows, int64_t* without_calls) {
  const jobs::SnapshotData& job = snapshot.data();
  SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                            ReadRows(store, job.job_id, rank, number, number + kSettled));
  // The last records of a window may come after its iteration.
  if (job.live && !rows.contains(number + kSettled)) return std::nullopt;
  const auto row = rows.find(number), next = rows.find(number + 1);
  // A rule that was learned again counts other lengths.
  if (row == rows.end() || next == rows.end() || row->second.config_id != abi::kConfigTrace ||
      row->second.incarnation != next->second.incarnation ||
      row->second.length_count != job.dimensions ||
      number < (job.work ? *job.work : job.engine).closed_iterations()) {
    return std::nullopt;
  }
  const int64_t end_ns = next->second.boundary_ns;
  SEQPOINT_ASSIGN_OR_RETURN(const auto trace, windows->Read(job.job_id, rank, number,
                                                            {{row->second.boundary_ns, end_ns}}));
  *without_calls += trace.calls.empty() && !trace.works.empty() ? 1 : 0;
  std::optional<Stretch> stretch =
      WindowStretch(trace, {windows->begin_ns(), end_ns}, snapshot, number, KeyOf(row->second));
  if (stretch) stretch->pieces = {{rank, number}};
  return stretch;
}

void TakeTracingOff(RecordedRun* run) {
  std::vector<whatif::Untraced> untraced, other;
  for (Stretch& stretch : run->stretches) {
    if (!stretch.window) continue;
    stretch.other = stretch.recording;
    untraced.push_back({&stretch.recording, kCountedTurn, stretch.steps[0].measured_ns});
    other.push_back({&stretch.other, kCountedTurn, stretch.steps[0].measured_ns});
  }
  const double by_ns = whatif::TakeTracingOff(untraced, other);
  if (by_ns > 0) run->left_out.push_back(whatif::TracingInWords(by_ns));
}

}  // namespace

std::vector<double> StepTimes(const Stretch& stretch,
                              const std::vector<std::vector<double>>& duration_ns) {
  const std::vector<double> all = whatif::Steps(duration_ns);
  std::vector<double> times;
  for (const Stretch::Step& step : stretch.steps) {
    times.push_back(step.index < all.size() ? all[step.index] : 0);
  }
  return times;
}

absl::Status CheckAsked(Cancelled cancelled) {
  if (!cancelled()) return absl::OkStatus();
  return absl::CancelledError("nobody waits for the answer any more");
}

absl::StatusOr<RecordedRun> ReadRecordedRun(Store& store, const jobs::Snapshot& snapshot,
                                            const Pieces& pieces, Cancelled cancelled) {
  const jobs::SnapshotData& job = snapshot.data();
  RecordedRun run;
  run.job_id = job.job_id;
  run.pieces = pieces;
  Pieces imported;
  StoredWindows windows(&store, StoredWindows::Names::kAsRecorded);
  int64_t left_out = 0, without_calls = 0;
  for (const auto& [rank, number] : pieces) {
    if (IsRecordedTrace(number)) imported.emplace_back(rank, number);
    if (number < 0) continue;  // that, or a learn log
    SEQPOINT_RETURN_IF_ERROR(CheckAsked(cancelled));
    SEQPOINT_ASSIGN_OR_RETURN(auto window,
                              ReadWindow(store, snapshot, rank, number, &windows, &without_calls));
    if (window) {
      run.stretches.push_back(*std::move(window));
    } else {
      ++left_out;
    }
  }
  SEQPOINT_ASSIGN_OR_RETURN(auto stretches, ReadImported(store, snapshot, imported, cancelled));
  for (Stretch& stretch : stretches) run.stretches.push_back(std::move(stretch));
  TakeTracingOff(&run);
  const bool replayed = !run.stretches.empty();
  std::erase_if(run.stretches, [](const Stretch& stretch) { return stretch.steps.empty(); });
  if (run.stretches.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", job.name, "\": ",
        replayed ? "of its traced iterations none is whole; record one more behind the last"
        : !imported.empty()
            ? "its traces have no calls of the CPU, so nothing tells what waits for "
              "what; record CPU activities, too"
        : job.traced() ? "its traces were removed as the store was full; import them again"
        : job.imported ? "it was made of a log; import traces for this (seqpoint import TRACE)"
        : !job.measurable
            ? "its processes have no CUPTI, most often as there is no GPU, so nothing "
              "was traced"
        : without_calls > 0
            ? "CUPTI recorded no calls of the CPU in its traced iterations, so nothing tells what "
              "waits for what: the library came when CUDA had begun; start the program with "
              "`seqpoint run`"
        : left_out > 0 ? "no traced iteration can be replayed yet; ask again a little later"
                       : "no iteration was traced yet, or the traces were removed as the store "
                         "was full; `seqpoint seqpoints` shows what is measured"));
  }
  if (left_out > 0) {
    run.left_out.push_back(absl::StrCat(
        left_out, " traced iterations that have no next one, or another rule's lengths"));
  }
  std::set<std::string> said;
  for (const Stretch& stretch : run.stretches) {
    run.tasks += stretch.recording.tasks();
    if (!stretch.recording.left_out.empty() && said.size() < 4) {
      said.insert(stretch.recording.left_out);
    }
  }
  for (const std::string& message : said) run.left_out.push_back(message);
  return run;
}

}  // namespace seqpoint::queries
