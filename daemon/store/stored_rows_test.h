// Rows that tests of the store write.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_STORE_STORED_ROWS_TEST_H_
#define DAEMON_STORE_STORED_ROWS_TEST_H_

#include <random>
#include <string>

#include "daemon/store/store.h"

namespace seqpoint {

inline std::string RingId(char c) { return std::string(16, c); }

inline std::string Records(int count, int seed) {
  std::mt19937 random(seed);
  std::string records(static_cast<size_t>(count) * kTraceRecordBytes, '\0');
  for (char& byte : records) byte = static_cast<char>(random());
  return records;
}

inline JobRow Job(Store& store, const std::string& name, int64_t start_ns, int64_t end_ns) {
  JobRow row;
  row.job_id = store.NewJobId();
  row.name = name;
  row.run_id = "1";
  row.start_ns = start_ns;
  row.end_ns = end_ns;
  return row;
}

// A job with everything that can belong to one.
inline WriteBatch FullJob(Store& store, const std::string& name, int64_t end_ns, char ring,
                          int iterations, int trace_records) {
  WriteBatch batch;
  batch.jobs = {Job(store, name, end_ns - 1, end_ns)};
  int64_t job_id = batch.jobs[0].job_id;
  int64_t process_id = store.NewProcessId();
  batch.processes = {{.process_id = process_id, .job_id = job_id, .ring_id = RingId(ring)}};
  batch.states = {{.job_id = job_id, .part = "engine", .version = 1, .bytes = "e"}};
  batch.cursors = {{.ring_id = RingId(ring), .bytes = "c"}};
  batch.names = {{.process_id = process_id, .name_id = 1, .text = "k"}};
  for (int i = 0; i < iterations; ++i) batch.iterations.push_back({.job_id = job_id, .number = i});
  batch.configs = {{.job_id = job_id, .config_id = 2, .name = "n", .metrics = {"m"}}};
  batch.measurements = {{.job_id = job_id, .number = 3, .config_id = 2, .values = {1.5}}};
  if (trace_records > 0) {
    batch.trace_segments = {{.job_id = job_id,
                             .number = 3,
                             .process_id = process_id,
                             .records = Records(trace_records, ring)}};
  }
  return batch;
}

}  // namespace seqpoint

#endif  // DAEMON_STORE_STORED_ROWS_TEST_H_
