#include "daemon/queries/store_import.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/base/status_macros.h"
#include "daemon/queries/trace_import.h"

namespace seqpoint::queries {
namespace {

// Rows in a transaction: a live job's commit comes between two of them.
constexpr size_t kPieceRows = 4096;

IterationRow RowOf(const jobs::ImportedRun& run, int32_t rank,
                   const jobs::ImportedIteration& iteration, int64_t job_id, int64_t number) {
  IterationRow row{
      .job_id = job_id,
      .rank = rank,
      .number = number,
      .length_count = run.dimensions,
      .length = {iteration.key.first, iteration.key.second},
      .start_ns = iteration.start_ns,
      .duration_ns = iteration.duration_ns,
      .level = run.traced ? v1::LEVEL_TRACE : v1::LEVEL_MARK,
      .config_id = run.traced && iteration.whole ? uint32_t{abi::kConfigTrace} : 0,
      .boundary_ns = iteration.boundary_ns != 0 ? iteration.boundary_ns : iteration.start_ns};
  if (iteration.first) row.flags |= kIterationFirst;
  if (iteration.start_up) {
    row.flags |= kIterationOther;
    row.phase = jobs::kStartUpPhase;
  }
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<jobs::Job>> StoreImport(
    Store& store, JobRow row, const jobs::ImportedRun& run, const jobs::JobOptions& options,
    const std::vector<traces::RecordedTrace>& traces) {
  auto job = std::make_unique<jobs::Job>(std::move(row), options);
  job->Import(run, [&] { return store.NewProcessId(); });
  const int64_t job_id = job->row().job_id;
  SEQPOINT_RETURN_IF_ERROR(store.BeginJob(job_id));
  SEQPOINT_RETURN_IF_ERROR(StoreTraces(store, job_id, traces));
  WriteBatch batch;
  const auto write = [&](int32_t rank, const std::vector<jobs::ImportedIteration>& iterations) {
    for (size_t i = 0; i < iterations.size(); ++i) {
      batch.iterations.push_back(RowOf(run, rank, iterations[i], job_id, static_cast<int64_t>(i)));
      if (batch.iterations.size() < kPieceRows && i + 1 < iterations.size()) continue;
      SEQPOINT_RETURN_IF_ERROR(store.Write(batch));
      batch = {};
    }
    return absl::OkStatus();
  };
  for (const jobs::ImportedRank& rank : run.ranks) {
    SEQPOINT_RETURN_IF_ERROR(write(rank.rank, rank.iterations));
  }
  if (run.ranks.size() != 1) {
    const int32_t rank = run.ranks.empty() ? 0 : kStepsRank;
    SEQPOINT_RETURN_IF_ERROR(write(rank, run.iterations));
  }
  job->TakeRows(batch);
  SEQPOINT_RETURN_IF_ERROR(store.Write(batch));
  return job;
}

}  // namespace seqpoint::queries
