// Queries.
#include <zstd.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/store/iteration_block.h"
#include "daemon/store/postgres_store_impl.h"
#include "daemon/store/rows.h"

namespace seqpoint {
namespace {

// Blocks that one query of iterations takes at most: memory does not grow with the job.
constexpr int kBlocksAtOnce = 64;

// What was set aside is read, too: it fails as it did before, instead of being left out.
constexpr const char* kBlocks =
    "(SELECT job_id, rank, block, iterations, measured, bytes FROM seqpoint.iteration_block "
    "UNION ALL SELECT job_id, rank, block, iterations, measured, bytes FROM "
    "seqpoint.damaged_block) "
    "AS blocks";

// Reads the row's fields in order.
struct Fields {
  const pqxx::row& row;
  int next = 0;

  void Take(std::string* to) { *to = BytesOf(row[next++]); }
  void Take(bool* to) { *to = row[next++].as<bool>(); }
  template <typename Number>
  void Take(Number* to) {
    *to = static_cast<Number>(row[next++].as<int64_t>());
  }
};

template <typename... To>
void ReadFields(const pqxx::row& row, To*... to) {
  Fields fields{row};
  (fields.Take(to), ...);
}

constexpr const char* kProcessFields =
    "SELECT process_id, job_id, rank, incarnation, pid, host, ring_id, text, start_ns, end_ns, "
    "lost, identity FROM seqpoint.process ";

void ReadProcessRow(const pqxx::row& from, ProcessRow& row) {
  ReadFields(from, &row.process_id, &row.job_id, &row.rank, &row.incarnation, &row.pid, &row.host,
             &row.ring_id, &row.text, &row.start_ns, &row.end_ns, &row.lost, &row.identity);
}

constexpr const char* kStateFields = "SELECT job_id, part, version, bytes FROM seqpoint.state ";

void ReadStateRow(const pqxx::row& from, StateRow& row) {
  ReadFields(from, &row.job_id, &row.part, &row.version, &row.bytes);
}

}  // namespace

absl::StatusOr<std::vector<JobRow>> PostgresStore::ListJobs() {
  return impl_->ReadAll<JobRow>(
      "SELECT job_id, name, run_id, host, command, state, start_ns, end_ns FROM seqpoint.job "
      "ORDER BY start_ns DESC, job_id DESC",
      [](const pqxx::row& from, JobRow& row) {
        ReadFields(from, &row.job_id, &row.name, &row.run_id, &row.host, &row.command, &row.state,
                   &row.start_ns, &row.end_ns);
      });
}

absl::StatusOr<std::vector<ProcessRow>> PostgresStore::ListProcesses(int64_t job_id) {
  return impl_->ReadAll<ProcessRow>(absl::StrCat(kProcessFields, "WHERE job_id = ", job_id,
                                                 " ORDER BY rank, incarnation, process_id"),
                                    ReadProcessRow);
}

absl::StatusOr<std::optional<ProcessRow>> PostgresStore::FindProcess(std::string_view ring_id) {
  return impl_->ReadFirst<ProcessRow>(
      absl::StrCat(kProcessFields, "WHERE ring_id = ", SqlBytes(ring_id),
                   " AND job_id IN (SELECT job_id FROM seqpoint.job) "
                   "ORDER BY process_id DESC LIMIT 1"),
      ReadProcessRow);
}

absl::StatusOr<std::vector<StateRow>> PostgresStore::LoadStates(int64_t job_id) {
  return impl_->ReadAll<StateRow>(
      absl::StrCat(kStateFields, "WHERE job_id = ", job_id, " ORDER BY part"), ReadStateRow);
}

absl::StatusOr<std::optional<StateRow>> PostgresStore::LoadPart(int64_t job_id,
                                                                std::string_view part) {
  return impl_->ReadFirst<StateRow>(
      absl::StrCat(kStateFields, "WHERE job_id = ", job_id, " AND part = ", SqlBytes(part)),
      ReadStateRow);
}

absl::StatusOr<std::optional<std::string>> PostgresStore::LoadCursor(std::string_view ring_id) {
  return impl_->ReadFirst<std::string>(
      absl::StrCat("SELECT bytes FROM seqpoint.ring_cursor WHERE ring_id = ", SqlBytes(ring_id)),
      [](const pqxx::row& from, std::string& bytes) { ReadFields(from, &bytes); });
}

absl::StatusOr<std::vector<NameRow>> PostgresStore::ReadNames(int64_t process_id) {
  return impl_->ReadAll<NameRow>(
      absl::StrCat("SELECT process_id, name_id, name_hash, text FROM seqpoint.name "
                   "WHERE process_id = ",
                   process_id, " ORDER BY name_id"),
      [](const pqxx::row& from, NameRow& row) {
        ReadFields(from, &row.process_id, &row.name_id, &row.name_hash, &row.text);
      });
}

absl::StatusOr<std::vector<IterationRow>> PostgresStore::ReadIterations(
    int64_t job_id, int32_t rank, int64_t first_number, int limit, bool measured_only) {
  const size_t wanted = limit < 0 ? std::numeric_limits<size_t>::max() : limit;
  std::vector<IterationRow> rows;
  int64_t block = BlockOf(first_number);
  while (rows.size() < wanted) {
    SEQPOINT_ASSIGN_OR_RETURN(
        const auto blocks,
        (impl_->ReadAll<std::pair<int64_t, std::string>>(
            absl::StrCat("SELECT block, bytes FROM ", kBlocks, " WHERE job_id = ", job_id,
                         " AND rank = ", rank, " AND block >= ", block,
                         measured_only ? " AND measured" : "", " ORDER BY block LIMIT ",
                         std::min<int64_t>(kBlocksAtOnce,
                                           limit < 0 ? kBlocksAtOnce : limit / kBlockNumbers + 2)),
            [](const pqxx::row& from, std::pair<int64_t, std::string>& to) {
              ReadFields(from, &to.first, &to.second);
            })));
    if (blocks.empty()) break;
    block = blocks.back().first + 1;
    for (const auto& [number, bytes] : blocks) {
      auto all = UnpackBlock(bytes, job_id, rank);
      if (!all.ok()) {
        return absl::Status(
            all.status().code(),
            absl::StrCat("store ", path(), ": iterations from ", number * kBlockNumbers,
                         " of rank ", rank, " of job ", job_id, ": ", all.status().message(),
                         "; those from ", (number + 1) * kBlockNumbers,
                         " on are not touched by that"));
      }
      for (const IterationRow& row : *all) {
        if (row.number < first_number || (measured_only && row.config_id == 0)) continue;
        // All incarnations of a number come together.
        if (rows.size() >= wanted && row.number != rows.back().number) return rows;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

absl::StatusOr<std::map<int32_t, int64_t>> PostgresStore::CountIterations(int64_t job_id) {
  using RankCount = std::pair<int32_t, int64_t>;
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto counts,
      impl_->ReadAll<RankCount>(
          absl::StrCat("SELECT rank, sum(iterations) FROM ", kBlocks, " WHERE job_id = ", job_id,
                       " AND rank >= 0 GROUP BY rank"),
          [](const pqxx::row& from, RankCount& to) { ReadFields(from, &to.first, &to.second); }));
  return std::map<int32_t, int64_t>(counts.begin(), counts.end());
}

absl::StatusOr<std::string> PostgresStore::DescribeDamage(int64_t job_id) {
  struct Damaged {
    int64_t blocks, rank, block, iterations;
  };
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto first, impl_->ReadFirst<Damaged>(
                            absl::StrCat("SELECT count(*) OVER (), rank, block, iterations FROM "
                                         "seqpoint.damaged_block WHERE job_id = ",
                                         job_id, " ORDER BY rank, block, damage_id LIMIT 1"),
                            [](const pqxx::row& from, Damaged& to) {
                              ReadFields(from, &to.blocks, &to.rank, &to.block, &to.iterations);
                            }));
  if (!first) return "";
  return absl::StrCat(
      "store ", path(), ": ", first->iterations, " stored iterations of rank ", first->rank,
      " from number ", first->block * kBlockNumbers, " to ", (first->block + 1) * kBlockNumbers - 1,
      first->blocks > 1 ? absl::StrCat(", and ", first->blocks - 1, " more such blocks,") : "",
      " are damaged and were set aside: the list of iterations and exports fail there; SeqPoints "
      "and sums do not need them, and other jobs are not touched by that");
}

absl::StatusOr<std::vector<ConfigRow>> PostgresStore::ReadConfigs(int64_t job_id) {
  return impl_->ReadAll<ConfigRow>(
      absl::StrCat("SELECT job_id, config_id, name, metrics FROM seqpoint.config WHERE job_id = ",
                   job_id, " ORDER BY config_id"),
      [](const pqxx::row& from, ConfigRow& row) {
        std::string metrics;
        ReadFields(from, &row.job_id, &row.config_id, &row.name, &metrics);
        row.metrics = absl::StrSplit(metrics, '\n', absl::SkipEmpty());
      });
}

absl::StatusOr<std::vector<MeasurementRow>> PostgresStore::ReadMeasurements(int64_t job_id) {
  return impl_->ReadAll<MeasurementRow>(
      absl::StrCat("SELECT job_id, rank, number, incarnation, config_id, complete, value_bytes "
                   "FROM seqpoint.measurement WHERE job_id = ",
                   job_id, " ORDER BY rank, number, incarnation, config_id"),
      [](const pqxx::row& from, MeasurementRow& row) {
        std::string bytes;
        ReadFields(from, &row.job_id, &row.rank, &row.number, &row.incarnation, &row.config_id,
                   &row.complete, &bytes);
        row.values.resize(bytes.size() / sizeof(double));
        std::memcpy(row.values.data(), bytes.data(), row.values.size() * sizeof(double));
      });
}

absl::StatusOr<std::vector<std::pair<int32_t, int64_t>>> PostgresStore::ListTraces(int64_t job_id) {
  using Trace = std::pair<int32_t, int64_t>;
  return impl_->ReadAll<Trace>(
      absl::StrCat("SELECT DISTINCT rank, number FROM seqpoint.trace_segment WHERE job_id = ",
                   job_id, " ORDER BY rank, number"),
      [](const pqxx::row& from, Trace& trace) { ReadFields(from, &trace.first, &trace.second); });
}

absl::StatusOr<std::vector<TraceSegmentRow>> PostgresStore::ReadTrace(int64_t job_id, int32_t rank,
                                                                      int64_t number) {
  absl::Status damage;
  auto rows = impl_->ReadAll<TraceSegmentRow>(
      absl::StrCat("SELECT job_id, rank, number, process_id, record_count, zstd_bytes "
                   "FROM seqpoint.trace_segment WHERE job_id = ",
                   job_id, " AND rank = ", rank, " AND number = ", number, " ORDER BY segment_id"),
      [&](const pqxx::row& from, TraceSegmentRow& row) {
        int64_t record_count = 0;
        std::string compressed;
        ReadFields(from, &row.job_id, &row.rank, &row.number, &row.process_id, &record_count,
                   &compressed);
        damage.Update(UnpackRecords(compressed, record_count, path(), &row));
      });
  if (rows.ok() && !damage.ok()) return damage;
  return rows;
}

absl::StatusOr<std::string> PostgresStore::NodeId() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto id, impl_->ReadFirst<std::string>(
                         "SELECT node_id FROM seqpoint.node",
                         [](const pqxx::row& from, std::string& to) { ReadFields(from, &to); }));
  return id.value_or("");
}

absl::StatusOr<int64_t> PostgresStore::LastOutboxSequence() {
  SEQPOINT_ASSIGN_OR_RETURN(
      const auto last,
      impl_->ReadFirst<int64_t>("SELECT last_sequence FROM seqpoint.node",
                                [](const pqxx::row& from, int64_t& to) { ReadFields(from, &to); }));
  return last.value_or(0);
}

absl::StatusOr<std::vector<OutboxRow>> PostgresStore::ReadOutbox(int64_t after, int64_t through,
                                                                 int limit) {
  return impl_->ReadAll<OutboxRow>(
      absl::StrCat("SELECT sequence, bytes FROM seqpoint.outbox WHERE sequence > ", after,
                   " AND sequence <= ", through, " ORDER BY sequence LIMIT ", limit),
      [](const pqxx::row& from, OutboxRow& row) { ReadFields(from, &row.sequence, &row.bytes); });
}

}  // namespace seqpoint
