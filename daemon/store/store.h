// Store: everything the daemon must still know after it was killed, in one SQLite file or in a
// PostgreSQL database.
//
//   auto store = Store::Open("/var/lib/seqpoint/seqpoint.db", {});
//   WriteBatch batch;
//   batch.iterations.push_back({.job_id = job, .number = 17, ...});
//   batch.states.push_back({.job_id = job, .part = "engine", .version = 1, .bytes = ...});
//   batch.cursors.push_back({.ring_id = id, .bytes = cursor});
//   absl::Status status = (*store)->Write(batch);   // all of it or nothing
//
// A batch is plain data of the caller's; one that could not be written (disk full, no connection)
// is unchanged and can be written later, with more added to it. Layouts, versions and recovery:
// docs/formats/store.md, docs/formats/postgresql.md.
//
// Threading: thread-safe. Writes exclude each other. Reads see the last committed state; reads and
// writes never wait for each other.
//
// Ownership: one daemon writes a store: the one that holds its lease. A second Open fails, unless
// it is one that waits for the lease (StoreOptions::standby). A lease ends when it is given up or
// was not renewed for its length; who held it writes nothing any more, however long it was paused.
//
// Damaged rows of a job stop no other job: reads that need them fail, and writes go on.
//
// Errors: ResourceExhausted (disk full: free space, then write again; a batch without traces may
// still be taken), DataLoss (the file is damaged), AlreadyExists (another daemon holds it),
// FailedPrecondition (a newer version wrote it), PermissionDenied, Unavailable (I/O error, no
// connection: write again later). Every message names the store and the way out.
#ifndef DAEMON_STORE_STORE_H_
#define DAEMON_STORE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace seqpoint {

inline constexpr int kTraceRecordBytes = 64;

// Rows. A row with the key of an existing one replaces it. Keys are named first in each.

// key: job_id. (name, run_id) is unique too.
struct JobRow {
  int64_t job_id = 0;  // from Store::NewJobId
  std::string name;
  std::string run_id;
  std::string host;
  std::string command;
  int32_t state = 0;     // v1.JobState
  int64_t start_ns = 0;  // CLOCK_REALTIME
  int64_t end_ns = 0;    // 0: live. Only ended jobs are ever pruned
};

// key: process_id
struct ProcessRow {
  int64_t process_id = 0;  // from Store::NewProcessId
  int64_t job_id = 0;
  int32_t rank = 0;
  int32_t incarnation = 0;
  int32_t pid = 0;
  std::string host;
  std::string ring_id;  // 16 bytes
  std::string text;     // "key=value\n" lines of the process' Hello
  int64_t start_ns = 0;
  int64_t end_ns = 0;    // 0: alive
  bool lost = false;     // ended without goodbye
  std::string identity;  // ingest::ProcessIdentity: recognises a process id that was used again
};

// key: job_id, part. A part of a job's serialised state ("learner", "engine", ...); what changes
// at another pace belongs in another part.
struct StateRow {
  int64_t job_id = 0;
  std::string part;
  int32_t version = 0;  // of the part's format
  std::string bytes;    // empty: forget this part
};

// key: ring_id
struct CursorRow {
  std::string ring_id;  // 16 bytes
  std::string bytes;    // empty: forget this ring
};

// key: process_id, name_id
struct NameRow {
  int64_t process_id = 0;
  uint32_t name_id = 0;
  uint64_t name_hash = 0;
  std::string text;
};

enum IterationFlags : uint32_t {
  kIterationDistorted = 1,    // its time is partly our own doing
  kIterationRedone = 2,       // repeated after a checkpoint
  kIterationFirst = 4,        // first occurrence of its length
  kIterationOther = 8,        // not training; `phase` says what
  kIterationConcurrent = 16,  // of a concurrent incarnation of its rank: in no figure
  kIterationLate = 32,        // its step was finished without it: in none of the run's steps
};

// The rank of rows that are the run's steps, where there are several ranks.
inline constexpr int32_t kStepsRank = -1;

// key: job_id, rank, number, incarnation
struct IterationRow {
  int64_t job_id = 0;
  int32_t rank = 0;
  int64_t number = 0;  // within the job, from 0
  int32_t incarnation = 0;
  int32_t length_count = 0;  // 0, 1 or 2
  int64_t length[2] = {0, 0};
  int64_t start_ns = 0;
  int64_t duration_ns = 0;  // 0: unknown
  int64_t rest_ns = 0;      // of one whose end is not known: at most so much longer
  int32_t level = 0;        // v1.Level
  uint32_t flags = 0;       // IterationFlags
  uint32_t config_id = 0;   // configuration it ran under; 0: none
  int32_t phase = 0;        // 0: training
  int64_t boundary_ns = 0;  // API time of the call that begins it
};

// key: job_id, config_id
struct ConfigRow {
  int64_t job_id = 0;
  uint32_t config_id = 0;
  std::string name;
  std::vector<std::string> metrics;  // in the order of a measurement's values; no line breaks
};

// key: job_id, rank, number, incarnation, config_id
struct MeasurementRow {
  int64_t job_id = 0;
  int32_t rank = 0;
  int64_t number = 0;
  int32_t incarnation = 0;
  uint32_t config_id = 0;
  bool complete = false;
  std::vector<double> values;
};

// Trace records of one iteration, in the order they came. There may be several segments for one
// iteration. No key: segments are only added. Two segments of one process with the same records
// may become one: records have times, and a batch may be written twice.
struct TraceSegmentRow {
  int64_t job_id = 0;
  int32_t rank = 0;
  int64_t number = 0;
  int64_t process_id = 0;  // whose name ids the records use
  std::string records;     // a multiple of kTraceRecordBytes; compressed on the way to the file
};

// key: sequence. What this node has to tell a hub (docs/formats/ingest.md). The last one may be
// replaced by a longer one.
struct OutboxRow {
  int64_t sequence = 0;  // consecutive from 1, over the life of the store
  std::string bytes;
};

struct WriteBatch {
  std::vector<JobRow> jobs;
  std::vector<ProcessRow> processes;
  std::vector<StateRow> states;
  std::vector<CursorRow> cursors;
  std::vector<NameRow> names;
  std::vector<IterationRow> iterations;
  std::vector<ConfigRow> configs;
  std::vector<MeasurementRow> measurements;
  std::vector<TraceSegmentRow> trace_segments;
  std::vector<OutboxRow> outbox;
  int64_t acknowledged = 0;  // the hub has the rows of the outbox up to this one: they go
  std::string node_id;       // the node's, from now on; empty: as it is

  bool Empty() const;
};

struct StoreOptions {
  // A damaged file is renamed to PATH.corrupt-N and an empty one made. Otherwise Open fails.
  bool move_corrupt_aside = false;
  // Name of a registered SQLite VFS: the one door to the operating system, which tests replace to
  // fill the disk. Empty: the default.
  std::string vfs;

  // Those below are of a store that several daemons can reach: PostgreSQL.

  // Names who holds the lease, for people and for other hubs. A holder that starts again takes its
  // own lease at once, so that no two may have one name. Empty: a random one.
  std::string holder;
  // Open takes no lease; TakeLease does.
  bool standby = false;
  // A hub that is lost is replaced after so long. Renewed each third, it survives what stops a
  // healthy daemon for a moment: a slow commit, a machine that is moved.
  absl::Duration lease = absl::Seconds(5);
};

// Who writes a store.
struct StoreLease {
  bool ours = false;
  std::string holder;  // the last one; empty: there was none
};

struct PruneOptions {
  int64_t max_bytes = 0;        // as Store::Bytes; 0: no limit
  int64_t ended_before_ns = 0;  // jobs that ended earlier go; 0: no limit by age
  std::vector<int64_t> keep;    // jobs that stay, ended or not, or not whole yet
};

struct PruneResult {
  std::vector<int64_t> removed_jobs;    // ids, in this call
  std::vector<int64_t> removed_traces;  // jobs that lost their trace records only
  int64_t bytes = 0;                    // of the file, now
  bool more = false;                    // call again
  bool over_limit = false;              // still too large, and only jobs that stay are left
};

// Whether an address of Store::Open is one of a PostgreSQL database. Its server can be away.
bool IsPostgresAddress(std::string_view address);

class Store {
 public:
  // `address` is the path of a SQLite file, which is made with its directory (mode 0700) when there
  // is none, or postgresql://[USER@]HOST[:PORT]/DATABASE[?PARAMETERS] without a password.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& address,
                                                     const StoreOptions& options);
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Takes the lease if it is free: given up, run out, or of this holder. It is renewed from then
  // on.
  virtual absl::StatusOr<StoreLease> TakeLease() = 0;
  // Why another daemon holds the lease, or may hold it because it could not be renewed. Empty: it
  // is ours. What was read before may be old then.
  virtual std::string LostLease() = 0;

  // Never given twice, even after the job was pruned. From 1.
  virtual int64_t NewJobId() = 0;
  virtual int64_t NewProcessId() = 0;

  // All of it or nothing. AlreadyExists without the lease: nothing of it will ever be written by
  // this store. InvalidArgument when a row cannot be stored (a ring id that is not 16
  // bytes, records that are not a multiple of 64).
  virtual absl::Status Write(const WriteBatch& batch) = 0;

  // Jobs of which Write met rows that it could not read, since the last call. It set these aside
  // and wrote the rest. A read that would need them goes on to fail with DataLoss.
  virtual std::set<int64_t> TakeDamagedJobs() = 0;
  // What was set aside of the job, for people. Empty: nothing.
  virtual absl::StatusOr<std::string> DescribeDamage(int64_t job_id) = 0;

  // For a job with more rows than one batch should have: they are written before its own row, which
  // then makes it visible. Until then the job is doomed: Prune removes its rows unless the job is
  // one of those that stay.
  virtual absl::Status BeginJob(int64_t job_id) = 0;

  virtual absl::StatusOr<std::vector<JobRow>> ListJobs() = 0;  // latest first
  virtual absl::StatusOr<std::vector<ProcessRow>> ListProcesses(
      int64_t job_id) = 0;  // by rank, incarnation
  virtual absl::StatusOr<std::vector<StateRow>> LoadStates(int64_t job_id) = 0;  // by part
  // Nothing when the job has no such part.
  virtual absl::StatusOr<std::optional<StateRow>> LoadPart(int64_t job_id,
                                                           std::string_view part) = 0;
  // Finished iterations of each rank, over all incarnations. Reads every row's key.
  virtual absl::StatusOr<std::map<int32_t, int64_t>> CountIterations(int64_t job_id) = 0;
  virtual absl::StatusOr<std::optional<std::string>> LoadCursor(std::string_view ring_id) = 0;
  virtual absl::StatusOr<std::optional<ProcessRow>> FindProcess(
      std::string_view ring_id) = 0;                                               // latest
  virtual absl::StatusOr<std::vector<NameRow>> ReadNames(int64_t process_id) = 0;  // by name_id
  virtual absl::StatusOr<std::vector<ConfigRow>> ReadConfigs(int64_t job_id) = 0;  // by config_id
  virtual absl::StatusOr<std::vector<MeasurementRow>> ReadMeasurements(int64_t job_id) = 0;
  // About `limit` iterations of a rank from `first_number` on, by number, then incarnation; all
  // incarnations of a number come together.
  virtual absl::StatusOr<std::vector<IterationRow>> ReadIterations(int64_t job_id, int32_t rank,
                                                                   int64_t first_number, int limit,
                                                                   bool measured_only = false) = 0;
  // Iterations that have trace records, as (rank, number), in order.
  virtual absl::StatusOr<std::vector<std::pair<int32_t, int64_t>>> ListTraces(int64_t job_id) = 0;
  virtual absl::StatusOr<std::vector<TraceSegmentRow>> ReadTrace(int64_t job_id, int32_t rank,
                                                                 int64_t number) = 0;

  // 16 bytes that name this store among those of all nodes.
  virtual absl::StatusOr<std::string> NodeId() = 0;
  // The number of the last row that the outbox ever had; 0: it had none.
  virtual absl::StatusOr<int64_t> LastOutboxSequence() = 0;
  // The rows of the outbox behind `after` up to `through`, by number, at most `limit`.
  virtual absl::StatusOr<std::vector<OutboxRow>> ReadOutbox(int64_t after, int64_t through,
                                                            int limit) = 0;

  // Removes ended jobs beyond the age, then, oldest first, trace records and whole jobs until the
  // file is small enough. One call is short: it may stop in the middle of a job, which is already
  // invisible then. Call it again while `more`.
  virtual absl::StatusOr<PruneResult> Prune(const PruneOptions& options) = 0;
  // Removes a job that has ended: nobody finds it any more, its many rows go with Prune.
  virtual absl::Status RemoveJob(int64_t job_id) = 0;

  // The size of the SQLite file without its write-ahead log, or of the rows in PostgreSQL.
  virtual absl::StatusOr<int64_t> Bytes() = 0;
  virtual const std::string& path() const = 0;
  // The loss that Open found, for people: committed transactions that a damaged log no longer
  // gives. Empty: none.
  virtual const std::string& damage() const = 0;

 protected:
  Store() = default;
};

}  // namespace seqpoint

#endif  // DAEMON_STORE_STORE_H_
