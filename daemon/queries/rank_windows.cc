#include "daemon/queries/rank_windows.h"

#include <algorithm>
#include <string>

#include "daemon/base/status_macros.h"
#include "daemon/jobs/process_collectives.h"
#include "injection/abi/control.h"
#include "injection/abi/records.h"

namespace seqpoint::queries {

using Window = traces::WindowReader::Window;

Window TimesOf(const std::map<int64_t, IterationRow>& rows, const IterationRow& row) {
  Window times;
  times.begin_ns = row.boundary_ns > 0 ? row.boundary_ns : row.start_ns;
  times.end_ns = times.begin_ns + row.duration_ns;
  const auto next = rows.find(row.number + 1);
  if (next != rows.end() && next->second.incarnation == row.incarnation &&
      next->second.boundary_ns > times.begin_ns) {
    times.end_ns = next->second.boundary_ns;
  }
  return times;
}

std::optional<Window> WindowOf(const std::map<int64_t, IterationRow>& rows, int64_t number) {
  const auto row = rows.find(number);
  if (row == rows.end() || row->second.config_id != abi::kConfigTrace) return std::nullopt;
  const Window window = TimesOf(rows, row->second);
  return window.end_ns > window.begin_ns ? std::optional(window) : std::nullopt;
}

std::map<int64_t, std::vector<int32_t>> SharedIterations(
    const std::vector<std::pair<int32_t, int64_t>>& pieces) {
  std::map<int64_t, std::vector<int32_t>> shared;
  for (const auto& [rank, number] : pieces) {
    if (number >= 0) shared[number].push_back(rank);
  }
  std::erase_if(shared, [](const auto& of) { return of.second.size() < 2; });
  return shared;
}

absl::StatusOr<RankWindows> ReadRankWindows(Store& store, const jobs::SnapshotData& job,
                                            int64_t number, const std::vector<int32_t>& ranks,
                                            StoredWindows* reader) {
  RankWindows read;
  for (const int32_t rank : ranks) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto rows,
                              ReadRows(store, job.job_id, rank, number, number + 1));
    const std::optional<Window> window = WindowOf(rows, number);
    if (!window) continue;
    std::vector<abi::CollectiveRecord> timed;
    SEQPOINT_ASSIGN_OR_RETURN(
        auto trace,
        reader->Read(job.job_id, rank, number, window, [&](const abi::DataRecord& record) {
          const bool collective = record.type == static_cast<uint16_t>(abi::DataType::kCollective);
          if (collective) timed.push_back(record.collective);
        }));
    read.traces.push_back(std::move(trace));
    const IterationRow& row = rows.at(number);
    ranks::RankWindow& to =
        read.windows.emplace_back(ranks::RankWindow{.rank = rank,
                                                    .iteration = number,
                                                    .lengths = {row.length[0], row.length[1]},
                                                    .begin_ns = reader->begin_ns(),
                                                    .end_ns = window->end_ns,
                                                    .records = {}});
    const auto names = job.collectives.find(rank);
    if (names == job.collectives.end()) continue;
    for (const abi::CollectiveRecord& record : timed) {
      if (auto named = jobs::NamedCollective(record, names->second)) {
        to.records.push_back(*std::move(named));
      }
    }
    std::sort(to.records.begin(), to.records.end(),
              [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  }
  for (size_t i = 0; i < read.windows.size(); ++i) read.windows[i].trace = &read.traces[i];
  return read;
}

}  // namespace seqpoint::queries
