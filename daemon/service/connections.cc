#include "daemon/service/connections.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/ingest/control_writer.h"
#include "daemon/ingest/process_identity.h"
#include "daemon/ingest/ring_reader.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/rule_codec.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

// A process that does not come back this long after our own start, and does not run, is lost.
constexpr int64_t kReconnectNs = 5'000'000'000;

bool StillRuns(const ProcessRow& process) {
  return ingest::StillRuns(process.pid, process.identity);
}

}  // namespace

struct Connections::Connection final : public ingest::RingSink {
  SharedJob job;
  int64_t process_id = 0;
  uint64_t server_id = 0;  // as InjectServer counts it
  std::unique_ptr<ingest::RingReader> reader;
  std::unique_ptr<ingest::ControlWriter> control;
  bool gone = false;
  jobs::EndSeen seen;  // once it is gone
  bool ended = false;  // it is drained; it leaves after the commit
  std::optional<abi::Control> staged;
  // Published last.
  uint32_t rule_generation = 0;
  uint8_t level = 0;

  void OnEvent(uint64_t, abi::EventType type, absl::Span<const uint8_t> payload) override {
    job->OnEvent(process_id, type, payload);
  }
  void OnData(absl::Span<const abi::DataRecord> records) override {
    job->OnData(process_id, records);
  }
  void OnCollectives(const abi::DataRecord& record) override {
    job->OnCollectives(process_id, record);
  }
  void OnCallsMissing(uint64_t, uint64_t count) override { job->OnCallsMissing(process_id, count); }
};

Connections::Connections(Store* store, JobRegistry* registry, const Clock* clock)
    : store_(*store), registry_(*registry), clock_(*clock), start_ns_(clock->MonotonicNs()) {}
Connections::~Connections() = default;

absl::StatusOr<SharedJob> Connections::JobOf(const ingest::AcceptedProcess& process) {
  const std::string name = jobs::HelloField(process.text, "job");
  const std::string run_id = jobs::HelloField(process.text, "run_id");
  SEQPOINT_RETURN_IF_ERROR(CheckNewJob(name, run_id));
  const auto found = registry_.FindRun(name, run_id);
  if (!found.ok() || *found != nullptr) return found;
  return registry_.Add(
      {.name = name,
       .run_id = run_id,
       .host = ClipText(jobs::HelloField(process.text, "host"), kMaxHostBytes),
       .command = ClipText(jobs::HelloField(process.text, "command"), kMaxCommandBytes),
       .state = v1::JOB_STATE_LEARNING,
       .start_ns = clock_.WallNs()});
}

// We were restarted.
absl::Status Connections::Resume(const ProcessRow& known, const ingest::AcceptedProcess& process,
                                 Connection& connection) {
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, registry_.Find(known.job_id));
  if (!job->processes().contains(known.process_id)) {
    return absl::DataLossError(absl::StrCat(
        "process ", process.pid, " belongs to job ", job->row().name, "@", job->row().run_id,
        ", whose stored state cannot be read; start it under another run id"));
  }
  connection.job = job;
  connection.process_id = known.process_id;
  SEQPOINT_ASSIGN_OR_RETURN(const auto stored, store_.LoadCursor(known.ring_id));
  if (stored) {
    SEQPOINT_ASSIGN_OR_RETURN(const auto cursor, ingest::Cursor::Parse(*stored));
    SEQPOINT_RETURN_IF_ERROR(process.reader->Resume(cursor));
  }
  connection.job->RepublishControl(connection.process_id);
  return absl::OkStatus();
}

absl::Status Connections::Join(const ingest::AcceptedProcess& process, Connection& connection) {
  SEQPOINT_ASSIGN_OR_RETURN(connection.job, JobOf(process));
  SEQPOINT_RETURN_IF_ERROR(connection.job->MayGoOn());
  ProcessRow row{.process_id = store_.NewProcessId(),
                 .job_id = connection.job->row().job_id,
                 .pid = static_cast<int32_t>(process.pid),
                 .host = ClipText(jobs::HelloField(process.text, "host"), kMaxHostBytes),
                 .ring_id = process.reader->ring_id(),
                 .text = process.text,
                 .start_ns = static_cast<int64_t>(process.reader->created_real_ns()),
                 .identity = ingest::ProcessIdentity(process.pid)};
  row.rank = std::max(jobs::HelloNumber(row.text, "rank", 0), 0);
  row.incarnation = connection.job->processes().NextIncarnation(row.rank);
  connection.process_id = row.process_id;
  std::set<int64_t> gone;  // their ends may not have been read yet
  for (const auto& [id, other] : connection.job->processes()) {
    if (other->alive() && !other->state.reported() && !StillRuns(other->row)) gone.insert(id);
  }
  connection.job->AddProcess(row, gone);
  return absl::OkStatus();
}

absl::Status Connections::OnProcess(ingest::AcceptedProcess process) {
  absl::MutexLock lock(&registry_.mutex());
  auto connection = std::make_unique<Connection>();
  SEQPOINT_ASSIGN_OR_RETURN(const auto known, store_.FindProcess(process.reader->ring_id()));
  SEQPOINT_RETURN_IF_ERROR(known ? Resume(*known, process, *connection)
                                 : Join(process, *connection));
  connection->server_id = process.id;
  connection->reader = std::move(process.reader);
  connection->control =
      std::make_unique<ingest::ControlWriter>(connection->reader->control_block());
  connection->control->Heartbeat(static_cast<uint64_t>(clock_.MonotonicNs()));
  const JobRow& row = connection->job->row();
  spdlog::info("process {} of job {}@{} connected", process.pid, row.name, row.run_id);
  registry_.Connect(row.job_id);
  connections_.push_back(std::move(connection));
  count_ = connections_.size();
  return absl::OkStatus();
}

void Connections::BeforeWatch() {
  watched_before_ns_ = std::exchange(watched_ns_, clock_.MonotonicNs());
}

void Connections::OnGone(uint64_t id) {
  for (const auto& connection : connections_) {
    if (connection->server_id != id) continue;
    connection->gone = true;
    // It ran when the look before began.
    connection->seen = {.after_ns = watched_before_ns_, .before_ns = clock_.MonotonicNs()};
    connection->reader->SetProcessGone();
  }
}

Connections::Progress Connections::Poll(uint64_t most_records) {
  Progress progress;
  std::set<jobs::Job*> touched;
  for (const auto& connection : connections_) {
    if (connection->ended) continue;
    jobs::Job& job = *connection->job;
    ingest::RingReader& reader = *connection->reader;
    const ingest::PollResult result =
        reader.Poll(*connection, static_cast<uint64_t>(clock_.MonotonicNs()), most_records);
    progress.more |= result.more;
    if (job.OnRead(connection->process_id, !result.waiting && !result.more)) touched.insert(&job);
    const bool any = result.events + result.records > 0;
    if (!any && !connection->gone) continue;
    progress.any = true;
    touched.insert(&job);
    const ingest::RingStats stats = reader.stats();
    job.OnLosses(connection->process_id, {.dropped = stats.events_dropped + stats.records_dropped,
                                          .events_dropped = stats.events_dropped,
                                          .lost = stats.lost,
                                          .rejected = stats.rejected + stats.unknown_records,
                                          .cupti_dropped = stats.cupti_dropped,
                                          .invalid_timestamps = stats.invalid_timestamps,
                                          .clock_kind = static_cast<uint32_t>(stats.clock_kind)});
    if (connection->gone && !any && !result.more) End(*connection);
  }
  for (jobs::Job* job : touched) job->Advance();
  return progress;
}

void Connections::End(Connection& connection) {
  const ingest::RingStats stats = connection.reader->stats();
  connection.ended = true;
  connection.job->OnProcessEnd(connection.process_id, stats.closed, clock_.WallNs(), stats.failed,
                               connection.seen);
  const JobRow& row = connection.job->row();
  spdlog::info("process of job {}@{} {}: {} events and {} records read", row.name, row.run_id,
               stats.closed ? "ended" : "vanished", stats.events_received, stats.records_received);
}

void Connections::Heartbeat() {
  const auto now_ns = static_cast<uint64_t>(clock_.MonotonicNs());
  for (const auto& connection : connections_) connection->control->Heartbeat(now_ns);
}

void Connections::EndVanished() {
  if (clock_.MonotonicNs() - start_ns_ < kReconnectNs) return;
  std::set<int64_t> connected;
  for (const auto& connection : connections_) connected.insert(connection->process_id);
  for (const auto& [id, job] : registry_.loaded()) {
    for (const auto& [process_id, process] : job->processes()) {
      if (!process->alive() || process->state.reported() || connected.contains(process_id) ||
          StillRuns(process->row)) {
        continue;
      }
      job->OnProcessEnd(process_id, /*orderly=*/false, clock_.WallNs());
    }
  }
}

void Connections::FollowHub(HubPlans& plans) {
  const auto all = plans.Take();
  const bool lost = clock_.MonotonicNs() - plans.heard_ns() >= HubPlans::kFreshNs;
  if (all.empty() && !(follows_hub_ && lost)) return;
  follows_hub_ = !lost;
  for (const auto& connection : connections_) {
    if (connection->ended) continue;
    if (lost) connection->job->LeaveHub();
    const auto plan = all.find(connection->process_id);
    if (plan == all.end() || !connection->job->processes().contains(plan->first)) continue;
    const auto bytes = FromZstdFrame(plan->second.control(), sizeof(abi::Control));
    if (!bytes.ok() || bytes->size() != sizeof(abi::Control)) continue;
    abi::Control control;
    std::memcpy(&control, bytes->data(), sizeof(control));
    if (plan->second.has_orders()) connection->job->FollowOrders(plan->second.orders());
    connection->job->FollowHub(connection->process_id, jobs::DecodeRule(plan->second.rule()),
                               control);
  }
}

bool Connections::StageControls() {
  bool commit_first = false;
  for (const auto& connection : connections_) {
    if (connection->ended) continue;
    if (const abi::Control* control = connection->job->TakeControl(connection->process_id)) {
      connection->staged = *control;
    }
    if (!connection->staged) continue;
    commit_first |= connection->staged->rule.generation != connection->rule_generation ||
                    connection->staged->level != connection->level;
  }
  return commit_first;
}

void Connections::PublishControls() {
  for (const auto& connection : connections_) {
    if (!connection->staged || connection->ended) continue;
    connection->control->Write(*connection->staged);
    connection->rule_generation = connection->staged->rule.generation;
    connection->level = connection->staged->level;
    connection->staged.reset();
  }
}

std::vector<RingCursor> Connections::Cursors() const {
  std::vector<RingCursor> cursors;
  for (const auto& connection : connections_) {
    cursors.push_back({connection->reader->cursor(), connection->ended});
  }
  return cursors;
}

void Connections::Release(const std::vector<RingCursor>& stored) {
  absl::MutexLock lock(&registry_.mutex());
  for (const RingCursor& ring : stored) {
    const auto it =
        std::find_if(connections_.begin(), connections_.end(), [&](const auto& connection) {
          return connection->reader->ring_id() == ring.cursor.ring_id;
        });
    if (it == connections_.end()) continue;
    (*it)->reader->Release(ring.cursor);
    if (!ring.ended) continue;
    registry_.Disconnect((*it)->job->row().job_id);
    connections_.erase(it);
  }
  count_ = connections_.size();
}

}  // namespace seqpoint::service
