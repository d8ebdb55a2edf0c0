// The tables in PostgreSQL. Threading: constants.
#ifndef DAEMON_STORE_POSTGRES_SCHEMA_H_
#define DAEMON_STORE_POSTGRES_SCHEMA_H_

namespace seqpoint {

// Strings are bytea: a process may send any bytes, and a row that the server refuses would stop all
// commits. kPostgresMigrations[i] makes version i + 1 of version i; version 0 has no tables.
inline constexpr const char* kPostgresMigrations[] = {R"sql(
CREATE SEQUENCE seqpoint.job_ids INCREMENT BY 1000 START 1;
CREATE SEQUENCE seqpoint.process_ids INCREMENT BY 1000000 START 1;
CREATE TABLE seqpoint.job (
  job_id bigint PRIMARY KEY,
  name bytea NOT NULL, run_id bytea NOT NULL, host bytea NOT NULL, command bytea NOT NULL,
  state integer NOT NULL, start_ns bigint NOT NULL, end_ns bigint NOT NULL,
  UNIQUE (name, run_id));
CREATE TABLE seqpoint.doomed_job (job_id bigint PRIMARY KEY);
CREATE TABLE seqpoint.process (
  process_id bigint PRIMARY KEY,
  job_id bigint NOT NULL, rank integer NOT NULL, incarnation integer NOT NULL,
  pid integer NOT NULL, host bytea NOT NULL, ring_id bytea NOT NULL, text bytea NOT NULL,
  start_ns bigint NOT NULL, end_ns bigint NOT NULL, lost boolean NOT NULL,
  identity bytea NOT NULL);
CREATE INDEX process_of_job ON seqpoint.process (job_id, rank, incarnation);
CREATE INDEX process_of_ring ON seqpoint.process (ring_id);
CREATE TABLE seqpoint.state (
  job_id bigint NOT NULL, part bytea NOT NULL, version integer NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (job_id, part));
CREATE TABLE seqpoint.ring_cursor (ring_id bytea PRIMARY KEY, bytes bytea NOT NULL);
CREATE TABLE seqpoint.name (
  process_id bigint NOT NULL, name_id bigint NOT NULL, name_hash bigint NOT NULL,
  text bytea NOT NULL,
  PRIMARY KEY (process_id, name_id));
CREATE TABLE seqpoint.iteration_block (
  job_id bigint NOT NULL, rank integer NOT NULL, block bigint NOT NULL,
  iterations integer NOT NULL, measured boolean NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (job_id, rank, block));
CREATE TABLE seqpoint.config (
  job_id bigint NOT NULL, config_id bigint NOT NULL, name bytea NOT NULL, metrics bytea NOT NULL,
  PRIMARY KEY (job_id, config_id));
CREATE TABLE seqpoint.measurement (
  job_id bigint NOT NULL, rank integer NOT NULL, number bigint NOT NULL,
  incarnation integer NOT NULL, config_id bigint NOT NULL, complete boolean NOT NULL,
  value_bytes bytea NOT NULL,
  PRIMARY KEY (job_id, rank, number, incarnation, config_id));
CREATE TABLE seqpoint.trace_segment (
  job_id bigint NOT NULL, rank integer NOT NULL, number bigint NOT NULL,
  process_id bigint NOT NULL, digest bytea NOT NULL,
  segment_id bigint GENERATED ALWAYS AS IDENTITY,
  record_count bigint NOT NULL, zstd_bytes bytea NOT NULL,
  PRIMARY KEY (job_id, rank, number, process_id, digest));
CREATE TABLE seqpoint.node (
  one integer PRIMARY KEY CHECK (one = 1), node_id bytea NOT NULL, last_sequence bigint NOT NULL,
  owner bytea NOT NULL);
CREATE TABLE seqpoint.outbox (sequence bigint PRIMARY KEY, bytes bytea NOT NULL);
)sql",
                                                      R"sql(
ALTER TABLE seqpoint.node DROP COLUMN owner;
CREATE TABLE seqpoint.lease (
  one integer PRIMARY KEY CHECK (one = 1), fence bigint NOT NULL, holder bytea NOT NULL);
INSERT INTO seqpoint.lease VALUES (1, 0, ''::bytea);
CREATE TABLE seqpoint.lease_time (
  one integer PRIMARY KEY CHECK (one = 1), fence bigint NOT NULL, expires timestamptz NOT NULL);
INSERT INTO seqpoint.lease_time VALUES (1, 0, '-infinity');
)sql",
                                                      R"sql(
CREATE TABLE seqpoint.damaged_block (
  job_id bigint NOT NULL, rank integer NOT NULL, block bigint NOT NULL,
  damage_id bigint GENERATED ALWAYS AS IDENTITY,
  iterations integer NOT NULL, measured boolean NOT NULL, bytes bytea NOT NULL,
  PRIMARY KEY (job_id, rank, block, damage_id));
)sql"};

}  // namespace seqpoint

#endif  // DAEMON_STORE_POSTGRES_SCHEMA_H_
