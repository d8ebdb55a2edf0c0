// A batch as statements of many rows.
#include <zstd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/store/iteration_block.h"
#include "daemon/store/postgres_store_impl.h"
#include "daemon/store/rows.h"

namespace seqpoint {
namespace {

// The most of one statement; a row that is longer has one of its own.
constexpr size_t kStatementBytes = 4 << 20;

// Rows of one table by key. The last of those with one key counts, because one statement cannot
// write a row twice.
class TableRows {
 public:
  // `keys` and `values` are names of columns, separated by commas.
  TableRows(std::string_view table, std::string_view keys, std::string_view values)
      : table_(table), keys_(keys), values_(values) {}

  // Literals of SQL, in the order of the columns.
  template <typename... Literals>
  void Put(const std::string& key, const Literals&... values) {
    rows_[key] = absl::StrJoin(std::tuple(values...), ", ");
  }
  void Delete(const std::string& key) { rows_[key] = std::nullopt; }

  void Write(pqxx::work& transaction) const {
    const auto updates = absl::StrJoin(absl::StrSplit(values_, ", "), ", ",
                                       [](std::string* out, absl::string_view column) {
                                         absl::StrAppend(out, column, " = excluded.", column);
                                       });
    Pieces([](const auto& row) { return !row.second.has_value(); },
           [](const auto& row) { return absl::StrCat("(", row.first, ")"); },
           [&](const std::string& rows) {
             transaction.exec0(
                 absl::StrCat("DELETE FROM ", table_, " WHERE (", keys_, ") IN (", rows, ")"));
           });
    Pieces([](const auto& row) { return row.second.has_value(); },
           [](const auto& row) { return absl::StrCat("(", row.first, ", ", *row.second, ")"); },
           [&](const std::string& rows) {
             transaction.exec0(absl::StrCat("INSERT INTO ", table_, " (", keys_, ", ", values_,
                                            ") VALUES ", rows, " ON CONFLICT (", keys_,
                                            ") DO UPDATE SET ", updates));
           });
  }

 private:
  template <typename Chosen, typename Text, typename Run>
  void Pieces(const Chosen& chosen, const Text& text, const Run& run) const {
    std::string rows;
    for (const auto& row : rows_) {
      if (!chosen(row)) continue;
      absl::StrAppend(&rows, rows.empty() ? "" : ",", text(row));
      if (rows.size() < kStatementBytes) continue;
      run(rows);
      rows.clear();
    }
    if (!rows.empty()) run(rows);
  }

  const std::string table_, keys_, values_;
  std::map<std::string, std::optional<std::string>> rows_;
};

std::string Bool(bool value) { return value ? "true" : "false"; }
std::string Key(std::initializer_list<int64_t> numbers) { return absl::StrJoin(numbers, ", "); }

void PutJobs(const WriteBatch& batch, pqxx::work& transaction) {
  // Names may be exchanged among the jobs of a batch, in any order of its rows.
  for (const JobRow& row : batch.jobs) {
    transaction.exec0(
        absl::StrCat("UPDATE seqpoint.job SET name = ", SqlBytes(absl::StrCat("\1", row.job_id)),
                     " WHERE job_id = ", row.job_id, " AND (name <> ", SqlBytes(row.name),
                     " OR run_id <> ", SqlBytes(row.run_id), ")"));
  }
  TableRows jobs("seqpoint.job", "job_id", "name, run_id, host, command, state, start_ns, end_ns");
  TableRows doomed("seqpoint.doomed_job", "job_id", "job_id");
  for (const JobRow& row : batch.jobs) {
    jobs.Put(Key({row.job_id}), SqlBytes(row.name), SqlBytes(row.run_id), SqlBytes(row.host),
             SqlBytes(row.command), row.state, row.start_ns, row.end_ns);
    doomed.Delete(Key({row.job_id}));
  }
  jobs.Write(transaction);
  doomed.Write(transaction);
  TableRows processes("seqpoint.process", "process_id",
                      "job_id, rank, incarnation, pid, host, ring_id, text, start_ns, end_ns, "
                      "lost, identity");
  for (const ProcessRow& row : batch.processes) {
    processes.Put(Key({row.process_id}), row.job_id, row.rank, row.incarnation, row.pid,
                  SqlBytes(row.host), SqlBytes(row.ring_id), SqlBytes(row.text), row.start_ns,
                  row.end_ns, Bool(row.lost), SqlBytes(row.identity));
  }
  processes.Write(transaction);
}

void PutStates(const WriteBatch& batch, pqxx::work& transaction) {
  TableRows states("seqpoint.state", "job_id, part", "version, bytes");
  for (const StateRow& row : batch.states) {
    const std::string key = absl::StrCat(row.job_id, ", ", SqlBytes(row.part));
    if (row.bytes.empty()) {
      states.Delete(key);
    } else {
      states.Put(key, row.version, SqlBytes(row.bytes));
    }
  }
  states.Write(transaction);
  TableRows cursors("seqpoint.ring_cursor", "ring_id", "bytes");
  for (const CursorRow& row : batch.cursors) {
    if (row.bytes.empty()) {
      cursors.Delete(SqlBytes(row.ring_id));
    } else {
      cursors.Put(SqlBytes(row.ring_id), SqlBytes(row.bytes));
    }
  }
  cursors.Write(transaction);
  TableRows names("seqpoint.name", "process_id, name_id", "name_hash, text");
  for (const NameRow& row : batch.names) {
    names.Put(Key({row.process_id, row.name_id}), static_cast<int64_t>(row.name_hash),
              SqlBytes(row.text));
  }
  names.Write(transaction);
}

void SetAside(const std::string& block_key, pqxx::work& transaction) {
  transaction.exec0(
      absl::StrCat("INSERT INTO seqpoint.damaged_block (job_id, rank, block, iterations, measured, "
                   "bytes) SELECT job_id, rank, block, iterations, measured, bytes "
                   "FROM seqpoint.iteration_block WHERE (job_id, rank, block) = (",
                   block_key, ")"));
}

void PutIterations(const WriteBatch& batch, pqxx::work& transaction, std::set<int64_t>* damaged) {
  using BlockKey = std::tuple<int64_t, int32_t, int64_t>;  // job, rank, block
  using Rows = std::map<std::pair<int64_t, int32_t>, IterationRow>;
  std::map<BlockKey, Rows> blocks;
  for (const IterationRow& row : batch.iterations) {
    blocks[{row.job_id, row.rank, BlockOf(row.number)}][{row.number, row.incarnation}] = row;
  }
  if (blocks.empty()) return;
  const auto key_text = [](const BlockKey& key) {
    return Key({std::get<0>(key), std::get<1>(key), std::get<2>(key)});
  };
  std::string keys;
  for (const auto& [key, rows] : blocks) {
    absl::StrAppend(&keys, keys.empty() ? "(" : ",(", key_text(key), ")");
  }
  for (const pqxx::row& found : transaction.exec(
           absl::StrCat("SELECT job_id, rank, block, bytes FROM seqpoint.iteration_block "
                        "WHERE (job_id, rank, block) IN (",
                        keys, ")"))) {
    const auto job_id = found[0].as<int64_t>();
    const auto rank = found[1].as<int32_t>();
    const BlockKey key = {job_id, rank, found[2].as<int64_t>()};
    const auto stored = UnpackBlock(BytesOf(found[3]), job_id, rank);
    if (!stored.ok()) {
      damaged->insert(job_id);
      SetAside(key_text(key), transaction);
      continue;
    }
    Rows& rows = blocks[key];
    for (const IterationRow& row : *stored) rows.try_emplace({row.number, row.incarnation}, row);
  }
  TableRows table("seqpoint.iteration_block", "job_id, rank, block", "iterations, measured, bytes");
  for (const auto& [key, rows] : blocks) {
    std::vector<IterationRow> all;
    all.reserve(rows.size());
    bool measured = false;
    for (const auto& [number, row] : rows) {
      all.push_back(row);
      measured = measured || row.config_id > 0;
    }
    table.Put(key_text(key), all.size(), Bool(measured), SqlBytes(PackBlock(all)));
  }
  table.Write(transaction);
}

void PutMeasurements(const WriteBatch& batch, pqxx::work& transaction) {
  TableRows configs("seqpoint.config", "job_id, config_id", "name, metrics");
  for (const ConfigRow& row : batch.configs) {
    configs.Put(Key({row.job_id, row.config_id}), SqlBytes(row.name),
                SqlBytes(absl::StrJoin(row.metrics, "\n")));
  }
  configs.Write(transaction);
  TableRows measurements("seqpoint.measurement", "job_id, rank, number, incarnation, config_id",
                         "complete, value_bytes");
  for (const MeasurementRow& row : batch.measurements) {
    const std::string_view values(reinterpret_cast<const char*>(row.values.data()),
                                  row.values.size() * sizeof(double));
    measurements.Put(Key({row.job_id, row.rank, row.number, row.incarnation, row.config_id}),
                     Bool(row.complete), SqlBytes(values));
  }
  measurements.Write(transaction);
}

absl::Status PutTraces(const WriteBatch& batch, pqxx::work& transaction) {
  std::string compressed;
  for (const TraceSegmentRow& row : batch.trace_segments) {
    compressed.resize(ZSTD_compressBound(row.records.size()));
    const size_t size = ZSTD_compress(compressed.data(), compressed.size(), row.records.data(),
                                      row.records.size(), kTraceZstdLevel);
    if (ZSTD_isError(size)) {
      return absl::InternalError(absl::StrCat("cannot compress the trace of iteration ", row.number,
                                              ": ", ZSTD_getErrorName(size)));
    }
    // Records have times: two segments of one process that are the same are one, written again.
    transaction.exec_params0(
        "INSERT INTO seqpoint.trace_segment "
        "(job_id, rank, number, process_id, digest, record_count, zstd_bytes) "
        "VALUES ($1, $2, $3, $4, sha256($6::bytea), $5, $6::bytea) ON CONFLICT DO NOTHING",
        row.job_id, row.rank, row.number, row.process_id, row.records.size() / kTraceRecordBytes,
        pqxx::binarystring(compressed.data(), size));
  }
  return absl::OkStatus();
}

void PutOutbox(const WriteBatch& batch, pqxx::work& transaction) {
  TableRows outbox("seqpoint.outbox", "sequence", "bytes");
  int64_t last = 0;
  for (const OutboxRow& row : batch.outbox) {
    outbox.Put(Key({row.sequence}), SqlBytes(row.bytes));
    last = std::max(last, row.sequence);
  }
  outbox.Write(transaction);
  if (last > 0) {
    transaction.exec0(absl::StrCat("UPDATE seqpoint.node SET last_sequence = ", last,
                                   " WHERE last_sequence < ", last));
  }
  if (!batch.node_id.empty()) {
    transaction.exec0(absl::StrCat("UPDATE seqpoint.node SET node_id = ", SqlBytes(batch.node_id)));
  }
  if (batch.acknowledged > 0) {
    transaction.exec0(
        absl::StrCat("DELETE FROM seqpoint.outbox WHERE sequence <= ", batch.acknowledged));
  }
}

}  // namespace

absl::Status PutRows(const WriteBatch& batch, pqxx::work& transaction, std::set<int64_t>* damaged) {
  PutJobs(batch, transaction);
  PutStates(batch, transaction);
  PutIterations(batch, transaction, damaged);
  PutMeasurements(batch, transaction);
  SEQPOINT_RETURN_IF_ERROR(PutTraces(batch, transaction));
  PutOutbox(batch, transaction);
  return absl::OkStatus();
}

}  // namespace seqpoint
