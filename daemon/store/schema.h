// The store's tables. Threading: constants.
#ifndef DAEMON_STORE_SCHEMA_H_
#define DAEMON_STORE_SCHEMA_H_

#include <cstdint>
#include <iterator>

namespace seqpoint {

inline constexpr int64_t kStoreApplicationId = 0x53515054;  // "SQPT", in the file's header

inline constexpr int64_t kSchemaVersion = 2;
// Of version 1.
inline constexpr const char* kSchema = R"sql(
CREATE TABLE job (
  job_id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL, run_id TEXT NOT NULL, host TEXT NOT NULL, command TEXT NOT NULL,
  state INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  UNIQUE (name, run_id));
CREATE TABLE doomed_job (job_id INTEGER PRIMARY KEY);
CREATE TABLE process (
  process_id INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id INTEGER NOT NULL, rank INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  pid INTEGER NOT NULL, host TEXT NOT NULL, ring_id BLOB NOT NULL, text TEXT NOT NULL,
  start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, lost INTEGER NOT NULL,
  identity TEXT NOT NULL);
CREATE INDEX process_of_job ON process (job_id, rank, incarnation);
CREATE INDEX process_of_ring ON process (ring_id);
CREATE TABLE state (
  job_id INTEGER NOT NULL, part TEXT NOT NULL, version INTEGER NOT NULL, bytes BLOB NOT NULL,
  PRIMARY KEY (job_id, part));
CREATE TABLE ring_cursor (ring_id BLOB PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE name (
  process_id INTEGER NOT NULL, name_id INTEGER NOT NULL, name_hash INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (process_id, name_id)) WITHOUT ROWID;
CREATE TABLE iteration (
  job_id INTEGER NOT NULL, rank INTEGER NOT NULL, number INTEGER NOT NULL,
  incarnation INTEGER NOT NULL, length_count INTEGER NOT NULL, length0 INTEGER NOT NULL,
  length1 INTEGER NOT NULL, start_ns INTEGER NOT NULL, duration_ns INTEGER NOT NULL,
  level INTEGER NOT NULL, flags INTEGER NOT NULL, config_id INTEGER NOT NULL,
  phase INTEGER NOT NULL, boundary_ns INTEGER NOT NULL, rest_ns INTEGER NOT NULL,
  PRIMARY KEY (job_id, rank, number, incarnation)) WITHOUT ROWID;
CREATE TABLE config (
  job_id INTEGER NOT NULL, config_id INTEGER NOT NULL, name TEXT NOT NULL, metrics TEXT NOT NULL,
  PRIMARY KEY (job_id, config_id)) WITHOUT ROWID;
CREATE TABLE measurement (
  job_id INTEGER NOT NULL, rank INTEGER NOT NULL, number INTEGER NOT NULL,
  incarnation INTEGER NOT NULL, config_id INTEGER NOT NULL, complete INTEGER NOT NULL,
  value_bytes BLOB NOT NULL,
  PRIMARY KEY (job_id, rank, number, incarnation, config_id));
CREATE TABLE trace_segment (
  segment_id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL, rank INTEGER NOT NULL, number INTEGER NOT NULL,
  process_id INTEGER NOT NULL, record_count INTEGER NOT NULL, zstd_bytes BLOB NOT NULL);
CREATE INDEX trace_of_iteration ON trace_segment (job_id, rank, number);
)sql";

// What makes a file of version i + 1 one of version i + 2. A new file is made of all of them, too.
inline constexpr const char* kMigrations[] = {R"sql(
CREATE TABLE node (
  one INTEGER PRIMARY KEY CHECK (one = 1), node_id BLOB NOT NULL, last_sequence INTEGER NOT NULL);
INSERT INTO node VALUES (1, randomblob(16), 0);
CREATE TABLE outbox (sequence INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
)sql"};
static_assert(std::size(kMigrations) == kSchemaVersion - 1);

}  // namespace seqpoint

#endif  // DAEMON_STORE_SCHEMA_H_
