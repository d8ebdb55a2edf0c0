#include "daemon/service/node_reports.h"

#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "daemon/base/descriptors.h"
#include "daemon/base/limits.h"
#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/report_codec.h"
#include "daemon/ranks/rank_question.h"
#include "injection/abi/ring.h"
#include "spdlog/spdlog.h"

namespace seqpoint::service {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kMaxHelloBytes = 8 << 10;
constexpr int kMaxRank = 1'000'000;
// A question waits for the lock of the jobs no longer than for this and one batch.
constexpr int64_t kPollNs = 100'000'000;
// A node that lost its connection is back before.
constexpr int64_t kAbsentNs = 10'000'000'000;
// One that trains reports more often: an evaluation or a checkpoint is over before.
constexpr int64_t kSilentNs = 10ll * 60 * 1'000'000'000;
// A node that is away so long does not come back: a night and the morning after it.
constexpr int64_t kLostNs = 24ll * 3600 * 1'000'000'000;

// A process of a node, in ProcessRow::identity.
std::string IdentityOf(const std::string& node_id, int64_t process) {
  return absl::StrCat("node ", absl::BytesToHexString(node_id), " ", process);
}

// Errors of the store that are over by themselves or when somebody mends the disk. The others, as
// of a job that is damaged, would stop all nodes for ever.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsPermissionDenied(status) || absl::IsInternal(status);
}

// A row of its own: a hub of an earlier version reads and moves the number, and does not know this
// one, which then has another number.
std::string ChecksumKey(const std::string& node_id) { return absl::StrCat(node_id, " crc"); }

// DataLoss: what the store has of the node is no number.
absl::StatusOr<NodeCursor> LoadNodeCursor(Store& store, const v1::NodeHello& hello) {
  NodeCursor cursor{.node_id = hello.node_id()};
  SEQPOINT_ASSIGN_OR_RETURN(const auto number, store.LoadCursor(hello.node_id()));
  if (!number) return cursor;
  if (!absl::SimpleAtoi(*number, &cursor.sequence)) {
    return absl::DataLossError(absl::StrCat("what this hub's store has of node ", hello.host(),
                                            " is damaged; restore the store from a copy"));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const auto row, store.LoadCursor(ChecksumKey(hello.node_id())));
  const std::pair<std::string, std::string> words = absl::StrSplit(row.value_or(""), ' ');
  uint32_t checksum = 0;
  if (words.first == *number && absl::SimpleAtoi(words.second, &checksum)) {
    cursor.checksum = checksum;
  }
  return cursor;
}

absl::Status OlderCopy(const std::string& host, int64_t newest) {
  return absl::OutOfRangeError(absl::StrCat(
      "this hub has ", newest, " batches of node ", host,
      ", and they are not those of the node's store: the store was replaced by an older copy, or "
      "lost its last batches when the power went. The node must go on under a new node id: a "
      "seqpointd of this hub's version (",
      SEQPOINT_VERSION, ") takes one by itself; give an older one a new store with --store"));
}

}  // namespace

void NodeCursor::AddTo(WriteBatch& batch) const {
  batch.cursors.push_back({.ring_id = node_id, .bytes = absl::StrCat(sequence)});
  if (!checksum) return;
  batch.cursors.push_back(
      {.ring_id = ChecksumKey(node_id), .bytes = absl::StrCat(sequence, " ", *checksum)});
}

std::optional<NodeReports::ProcessKey> NodeReports::ParseIdentity(const std::string& identity) {
  const std::vector<std::string> words = absl::StrSplit(identity, ' ');
  int64_t process = 0;
  if (words.size() != 3 || words[0] != "node" || !absl::SimpleAtoi(words[2], &process)) {
    return std::nullopt;
  }
  return std::pair(absl::HexStringToBytes(words[1]), process);
}

NodeReports::NodeReports(Store* store, JobRegistry* registry, const Clock* clock)
    : store_(*store),
      registry_(*registry),
      clock_(*clock),
      start_ns_(clock->MonotonicNs()),
      skipped_(clock),
      unread_(clock) {}
NodeReports::~NodeReports() = default;

// ----------------------------------------------------------------------------------- any thread

absl::StatusOr<v1::HubHello> NodeReports::Connect(const v1::NodeHello& hello, Listener* listener) {
  if (hello.node_id().size() != kIdBytes || hello.first_sequence() < 1 ||
      hello.last_sequence() < hello.first_sequence() - 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hello of node ", hello.host(), " has a node id of ",
                     hello.node_id().size(), " bytes and batches ", hello.first_sequence(), " to ",
                     hello.last_sequence(), "; no seqpointd says that"));
  }
  if (hello.oldest_format() > kFormat || hello.newest_format() < kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", hello.host(), " (seqpointd ", hello.version(), ") writes batches of the formats ",
        hello.oldest_format(), " to ", hello.newest_format(), ", and this hub (", SEQPOINT_VERSION,
        ") reads ", kFormat, "; install the same version on both"));
  }
  if (hello.abi_version() != abi::kAbiVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", hello.host(), " (seqpointd ", hello.version(), ") has events of ABI ",
                     hello.abi_version(), ", and this hub (", SEQPOINT_VERSION, ") knows ",
                     abi::kAbiVersion, "; install the same version on both"));
  }
  SEQPOINT_ASSIGN_OR_RETURN(const NodeCursor stored, LoadNodeCursor(store_, hello));
  absl::MutexLock lock(&mutex_);
  const auto known = nodes_.find(hello.node_id());
  const int64_t newest =
      known == nodes_.end() ? stored.sequence : std::max(stored.sequence, known->second.next - 1);
  if (newest > hello.last_sequence()) return OlderCopy(hello.host(), newest);
  if (known != nodes_.end() && known->second.listener != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("a node with the store of ", hello.host(),
                     " is connected; two daemons with copies of one "
                     "store cannot be told apart, give this one a new store with --store"));
  }
  SEQPOINT_RETURN_IF_ERROR(MakeRoom(hello.node_id()));
  Node& node = nodes_[hello.node_id()];
  if (stored.sequence >= node.next) {
    node.next = stored.sequence + 1;
    node.checksum = stored.checksum;
  }
  if (hello.first_sequence() > node.next) {
    if (hello.former_node_id().empty()) {
      spdlog::warn("node {}: batches {} to {} are lost: neither the node nor this hub has them",
                   hello.host(), node.next, hello.first_sequence() - 1);
    }
    WaitingBatch last{.node_id = hello.node_id(), .lost = hello.first_sequence() - node.next};
    last.batch.set_sequence(hello.first_sequence() - 1);
    waiting_.push_back(std::move(last));
    node.next = hello.first_sequence();
    node.checksum.reset();
  }
  // Where the node has the newest one, it sends it again, as proof that its outbox is the same.
  // Until then it must not forget anything.
  const bool needs_proof = node.checksum && hello.first_sequence() < node.next;
  node.former_id = hello.former_node_id();
  node.listener = listener;
  node.is_new = true;
  node.host = ClipText(hello.host(), kMaxHostBytes);
  node.version = ClipText(hello.version(), kMaxHostBytes);
  node.since_ns = clock_.WallNs();
  node.changed_ns = clock_.MonotonicNs();
  v1::HubHello reply;
  reply.set_version(SEQPOINT_VERSION);
  reply.set_format(kFormat);
  reply.set_acknowledged(needs_proof ? hello.first_sequence() - 1 : stored.sequence);
  reply.set_next_sequence(needs_proof ? node.next - 1 : node.next);
  reply.set_window_bytes(kWindowBytes);
  return reply;
}

absl::Status NodeReports::MakeRoom(const std::string& node_id) {
  if (nodes_.size() < kMostNodes || nodes_.contains(node_id)) return absl::OkStatus();
  // The one that has been gone for longest. What it reported is in the store, with its cursor.
  auto longest = nodes_.end();
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    const bool gone = it->second.listener == nullptr && it->second.waiting_bytes == 0;
    if (!gone) continue;
    if (longest == nodes_.end() || it->second.changed_ns < longest->second.changed_ns) longest = it;
  }
  if (longest == nodes_.end()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMostNodes, " nodes are connected, as many as a hub takes; give this node another hub"));
  }
  nodes_.erase(longest);
  return absl::OkStatus();
}

absl::Status NodeReports::Offer(const std::string& node_id, v1::Batch batch) {
  const auto checksum = static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(batch.frame().data()), batch.frame().size()));
  absl::MutexLock lock(&mutex_);
  Node& node = nodes_[node_id];
  if (batch.sequence() < node.next) {  // it is here
    if (batch.sequence() + 1 < node.next || !node.checksum) return absl::OkStatus();
    if (*node.checksum != checksum) return OlderCopy(node.host, batch.sequence());
    const bool is_stored = !node.sizes.contains(batch.sequence());
    if (is_stored && node.listener != nullptr) node.listener->OnStored(batch.sequence());
    return absl::OkStatus();
  }
  if (batch.sequence() > node.next) {
    return absl::DataLossError(absl::StrCat("batch ", batch.sequence(), " came where ", node.next,
                                            " was expected; connect again"));
  }
  const auto size = static_cast<int64_t>(batch.frame().size());
  if (node.waiting_bytes + size > kWindowBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("batch ", batch.sequence(), " of ", size,
                                                     " bytes is beyond the window of ",
                                                     kWindowBytes, " bytes; connect again"));
  }
  if (waiting_bytes_ + size > kMostWaitingBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "batches of ", kMostWaitingBytes, " bytes wait for this hub's store; connect again"));
  }
  node.waiting_bytes += size;
  waiting_bytes_ += size;
  node.sizes[batch.sequence()] = size;
  ++node.next;
  node.checksum = checksum;
  waiting_.push_back(
      {.node_id = node_id, .batch = std::move(batch), .checksum = checksum, .lost = 0});
  return absl::OkStatus();
}

void NodeReports::Disconnect(const std::string& node_id, Listener* listener) {
  absl::MutexLock lock(&mutex_);
  Node& node = nodes_[node_id];
  if (node.listener != listener) return;
  node.listener = nullptr;
  node.since_ns = clock_.WallNs();
  node.changed_ns = clock_.MonotonicNs();
}

bool NodeReports::Ask(const std::string& node_id, const v1::TraceRequest& request) {
  absl::MutexLock lock(&mutex_);
  const auto node = nodes_.find(node_id);
  if (node == nodes_.end() || node->second.listener == nullptr) return false;
  node->second.listener->OnTraceRequest(request);
  return true;
}

// -------------------------------------------------------------------------------- ingest thread

void NodeReports::Recover() {
  for (const auto& [id, job] : registry_.loaded()) {
    for (const auto& [process_id, process] : job->processes()) {
      if (!process->alive() || !process->state.reported()) continue;
      const auto key = ParseIdentity(process->row.identity);
      if (!key) continue;
      processes_[*key] = {job, process_id, clock_.MonotonicNs()};
      ++live_[key->first];
      registry_.Connect(id);
    }
  }
}

bool NodeReports::Poll() {
  const int64_t until_ns = clock_.MonotonicNs() + kPollNs;
  Touched touched;
  bool more = false;
  while (const auto next = TakeWaiting(&more)) {
    const auto& [node_id, batch, checksum, lost] = *next;
    if (lost > 0) {
      OnLost(node_id, lost);
    } else if (const absl::Status status = Apply(node_id, batch, touched); !status.ok()) {
      if (const auto left_out = unread_.Admit()) {
        spdlog::error("batch {} of node {} waits for the store: {}{}", batch.sequence(),
                      absl::BytesToHexString(node_id), std::string(status.message()),
                      LeftOut(*left_out));
      }
      absl::MutexLock lock(&mutex_);
      waiting_.push_front(*next);
      more = false;  // not before the next round
      break;
    }
    read_.push_back({node_id, batch.sequence(), checksum});
    if (clock_.MonotonicNs() >= until_ns) break;
  }
  std::set<SharedJob> jobs;
  for (const auto& [job, process_id] : touched) {
    job->OnRead(process_id, true);
    jobs.insert(job);
  }
  for (const SharedJob& job : jobs) job->Advance();
  return more;
}

std::optional<NodeReports::WaitingBatch> NodeReports::TakeWaiting(bool* more) {
  absl::MutexLock lock(&mutex_);
  if (waiting_.empty()) return std::nullopt;
  std::optional<WaitingBatch> next = std::move(waiting_.front());
  waiting_.pop_front();
  *more = !waiting_.empty();
  return next;
}

bool NodeReports::IsAbsent(const std::string& node_id, int64_t for_ns) {
  absl::MutexLock lock(&mutex_);
  const auto node = nodes_.find(node_id);
  const int64_t now_ns = clock_.MonotonicNs();
  if (node == nodes_.end()) return now_ns - start_ns_ >= for_ns;
  return node->second.listener == nullptr && now_ns - node->second.changed_ns >= for_ns;
}

bool NodeReports::IsReplaced(const ReportedProcess& process) {
  const jobs::ProcessTable& all = process.job->processes();
  const std::vector<jobs::Process*>& of_rank = all.OfRank(all.at(process.process_id).row.rank);
  return of_rank.back()->row.process_id != process.process_id;
}

std::set<std::string> NodeReports::FormerIds() {
  absl::MutexLock lock(&mutex_);
  std::set<std::string> ids;
  for (const auto& [id, node] : nodes_) ids.insert(node.former_id);
  return ids;
}

void NodeReports::EndLost() {
  const std::set<std::string> former = FormerIds();
  EndWhere([&](const ProcessKey& key, const ReportedProcess& process) -> std::string {
    if (!IsAbsent(key.first, kAbsentNs)) return "";
    if (former.contains(key.first)) return "has another id now";
    if (IsReplaced(process)) return "is away, and a later process has its rank";
    return IsAbsent(key.first, kLostNs) ? "has been away for a day" : "";
  });
}

void NodeReports::EndAbsent(int64_t job_id) {
  EndWhere([&](const ProcessKey& key, const ReportedProcess& process) -> std::string {
    if (process.job->row().job_id != job_id) return "";
    if (IsAbsent(key.first, kAbsentNs)) return "is away";
    const jobs::ProcessState& state = process.job->processes().at(process.process_id).state;
    const bool silent = clock_.MonotonicNs() - process.heard_ns >= kSilentNs;
    return silent && state.lost_batches() > 0 && state.missing_events() ? "lost its reports" : "";
  });
}

void NodeReports::EndWhere(
    absl::FunctionRef<std::string(const ProcessKey&, const ReportedProcess&)> why_over) {
  for (auto it = processes_.begin(); it != processes_.end();) {
    const std::string why = why_over(it->first, it->second);
    it = why.empty() ? std::next(it) : EndUnreported(it, why);
  }
}

NodeReports::Processes::iterator NodeReports::EndUnreported(Processes::iterator process,
                                                            const std::string& why) {
  const SharedJob job = process->second.job;
  const int64_t process_id = process->second.process_id;
  const ProcessRow& row = job->processes().at(process_id).row;
  spdlog::warn("rank {} of {} is over for this hub: its node {} {}", row.rank, Title(job->row()),
               row.host, why);
  job->OnProcessEnd(process_id, /*orderly=*/false, clock_.WallNs());
  registry_.Disconnect(job->row().job_id);
  return Forget(process);
}

std::string NodeReports::AbsentInWords(int64_t job_id) {
  std::map<std::string, std::vector<int32_t>> ranks;  // by host
  for (const auto& [key, process] : processes_) {
    if (process.job->row().job_id != job_id || !IsAbsent(key.first, kAbsentNs)) continue;
    const ProcessRow& row = process.job->processes().at(process.process_id).row;
    ranks[row.host].push_back(row.rank);
  }
  std::vector<std::string> nodes;
  for (const auto& [host, of_host] : ranks) {
    nodes.push_back(absl::StrCat("node ", host, " with ", ranks::RanksInWords(of_host)));
  }
  if (nodes.empty()) return "";
  constexpr size_t kMost = 3;
  const size_t others = nodes.size() > kMost ? nodes.size() - kMost : 0;
  nodes.resize(nodes.size() - others);
  if (others > 0) nodes.push_back(absl::StrCat(others, " more"));
  return absl::StrCat("away: ", absl::StrJoin(nodes, ", "),
                      "; their iterations come when they are back, and `seqpoint control JOB end` "
                      "ends the job without them");
}

v1::ListNodesReply NodeReports::List() {
  std::map<std::string, v1::Node> nodes;
  for (const auto& [key, process] : processes_) {
    v1::Node& node = nodes[key.first];
    node.set_live_processes(node.live_processes() + 1);
    node.set_host(process.job->processes().at(process.process_id).row.host);
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, known] : nodes_) {
    v1::Node& node = nodes[id];
    node.set_host(known.host);
    node.set_version(known.version);
    node.set_connected(known.listener != nullptr);
    node.set_since_ns(known.since_ns);
  }
  v1::ListNodesReply reply;
  for (auto& [id, node] : nodes) {
    node.set_id(absl::BytesToHexString(id));
    *reply.add_nodes() = std::move(node);
  }
  std::sort(reply.mutable_nodes()->begin(), reply.mutable_nodes()->end(),
            [](const v1::Node& a, const v1::Node& b) {
              return std::pair(a.host(), a.id()) < std::pair(b.host(), b.id());
            });
  return reply;
}

void NodeReports::SendPlans() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, process] : processes_) {
    const auto node = nodes_.find(key.first);
    if (node == nodes_.end() || node->second.listener == nullptr) continue;
    if (node->second.is_new) process.job->RepublishControl(process.process_id);
    const abi::Control* const control = process.job->TakeControl(process.process_id);
    if (control == nullptr) continue;
    v1::Plan plan;
    plan.set_process(key.second);
    if (const auto rule = process.job->EncodedRule()) *plan.mutable_rule() = *rule;
    if (auto orders = process.job->OrdersForNodes()) *plan.mutable_orders() = *std::move(orders);
    plan.set_control(ToZstdFrame({reinterpret_cast<const char*>(control), sizeof(abi::Control)}));
    node->second.listener->OnPlan(std::move(plan));
  }
  for (auto& [id, node] : nodes_) node.is_new = false;
}

absl::Status NodeReports::LoadJobs(const std::vector<jobs::Report>& reports) {
  for (const jobs::Report& report : reports) {
    absl::Status status;
    if (const auto* const started = std::get_if<v1::ReportedProcess>(&report.what)) {
      status = registry_.FindRun(started->job(), started->run_id()).status();
    } else if (const auto* const end = std::get_if<v1::ReportedProgramEnd>(&report.what)) {
      status = registry_.FindRun(end->job(), end->run_id()).status();
    }
    if (MayPass(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status NodeReports::Apply(const std::string& node_id, const v1::Batch& batch,
                                Touched& touched) {
  const auto bytes = FromZstdFrame(batch.frame(), kMostBatchBytes);
  const absl::StatusOr<std::vector<jobs::Report>> reports =
      bytes.ok() ? jobs::ReadReports(*bytes) : bytes.status();
  if (!reports.ok()) {
    Skip(node_id, reports.status());
    OnLost(node_id, 1);
    return absl::OkStatus();
  }
  SEQPOINT_RETURN_IF_ERROR(LoadJobs(*reports));
  for (const jobs::Report& report : *reports) {
    const ProcessKey key(node_id, report.process_id);
    if (const auto* const started = std::get_if<v1::ReportedProcess>(&report.what)) {
      if (const absl::Status status = Start(key, *started); !status.ok()) Skip(node_id, status);
      continue;
    }
    if (const auto* const end = std::get_if<v1::ReportedProgramEnd>(&report.what)) {
      EndProgram(*end);
      continue;
    }
    const auto process = processes_.find(key);
    if (process == processes_.end()) {
      Skip(node_id, absl::NotFoundError(
                        absl::StrCat("no start of its process ", key.second,
                                     " was reported, or it was ended while the node was away")));
      continue;
    }
    process->second.heard_ns = clock_.MonotonicNs();
    const SharedJob job = process->second.job;
    const int64_t process_id = process->second.process_id;
    const absl::Status status = job->OnReport(process_id, report.what);
    if (!status.ok()) Skip(node_id, status);
    touched.emplace(job, process_id);
    if (job->processes().at(process_id).alive()) continue;
    Forget(process);
    registry_.Disconnect(job->row().job_id);
  }
  return absl::OkStatus();
}

void NodeReports::OnLost(const std::string& node_id, int64_t batches) {
  for (auto it = processes_.lower_bound({node_id, std::numeric_limits<int64_t>::min()});
       it != processes_.end() && it->first.first == node_id; ++it) {
    it->second.job->OnLostBatches(it->second.process_id, batches);
  }
}

NodeReports::Processes::iterator NodeReports::Forget(Processes::iterator process) {
  const auto live = live_.find(process->first.first);
  if (--live->second == 0) live_.erase(live);
  return processes_.erase(process);
}

absl::Status NodeReports::CountNewJob(const std::string& node_id) {
  constexpr int64_t kHourNs = 3'600'000'000'000;
  if (const int64_t now_ns = clock_.MonotonicNs(); now_ns - hour_ns_ >= kHourNs) {
    hour_ns_ = now_ns;
    new_jobs_.clear();
  }
  if (++new_jobs_[node_id] <= kMostNewJobs) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("it began ", kMostNewJobs, " jobs within an hour; further ones are not taken"));
}

absl::Status NodeReports::CheckNotSentAgain(const std::string& node_id,
                                            const v1::ReportedProcess& report,
                                            const jobs::Job& job) {
  for (const jobs::Process* process : job.processes().OfRank(report.rank())) {
    if (process->row.ring_id != report.ring_id()) continue;
    // A daemon that was started since it took another id does not name the former one.
    if (const auto key = ParseIdentity(process->row.identity); key && key->first != node_id) {
      absl::MutexLock lock(&mutex_);
      if (const auto node = nodes_.find(node_id); node != nodes_.end()) {
        node->second.former_id = key->first;
      }
    }
    return absl::AlreadyExistsError(
        absl::StrCat("process ", report.pid(), " of ", report.host(), ", rank ", report.rank(),
                     " of ", Title(job.row()),
                     ", was reported before, by this node or under the id that it had then; what "
                     "it reports from now on is not taken"));
  }
  return absl::OkStatus();
}

absl::Status NodeReports::Start(const ProcessKey& key, const v1::ReportedProcess& report) {
  const auto contradicts = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("process ", report.pid(), " of ", report.host(), " cannot be: ", what));
  };
  if (const auto before = processes_.find(key); before != processes_.end()) {
    const jobs::ProcessTable& all = before->second.job->processes();
    if (all.at(before->second.process_id).row.ring_id == report.ring_id()) {
      return contradicts("it has started before");
    }
    EndUnreported(before, "gave its number to another process");
  }
  if (const auto live = live_.find(key.first);
      live != live_.end() && live->second >= kMostProcesses) {
    return contradicts(absl::StrCat(kMostProcesses,
                                    " others of its node run, as many as a node "
                                    "reads"));
  }
  if (report.ring_id().size() != kIdBytes) return contradicts("the id of its ring");
  if (report.rank() < 0 || report.rank() >= kMaxRank) return contradicts("its rank");
  if (report.hello().size() > kMaxHelloBytes) return contradicts("its hello is too long");
  SEQPOINT_RETURN_IF_ERROR(CheckNewJob(report.job(), report.run_id()));
  SEQPOINT_ASSIGN_OR_RETURN(SharedJob job, registry_.FindRun(report.job(), report.run_id()));
  if (job == nullptr) {
    SEQPOINT_RETURN_IF_ERROR(CountNewJob(key.first));
    const int64_t now_ns = clock_.WallNs();
    const bool known = report.start_ns() > 0 && report.start_ns() < now_ns;
    const int64_t start_ns = known ? report.start_ns() : now_ns;
    job = registry_.Add({.name = report.job(),
                         .run_id = report.run_id(),
                         .host = ClipText(report.host(), kMaxHostBytes),
                         .command = ClipText(report.command(), kMaxCommandBytes),
                         .state = v1::JOB_STATE_LEARNING,
                         .start_ns = start_ns});
  }
  SEQPOINT_RETURN_IF_ERROR(CheckNotSentAgain(key.first, report, *job));
  SEQPOINT_RETURN_IF_ERROR(job->MayGoOn());
  if (job->processes().empty()) SEQPOINT_RETURN_IF_ERROR(job->SetReportedOptions(report));
  ProcessRow row{.process_id = store_.NewProcessId(),
                 .job_id = job->row().job_id,
                 .rank = report.rank(),
                 .pid = report.pid(),
                 .host = ClipText(report.host(), kMaxHostBytes),
                 .ring_id = report.ring_id(),
                 .text = report.hello(),
                 .start_ns = report.start_ns(),
                 .identity = IdentityOf(key.first, key.second)};
  row.incarnation = job->processes().NextIncarnation(row.rank);
  job->AddReportedProcess(row);
  processes_[key] = {job, row.process_id, clock_.MonotonicNs()};
  ++live_[key.first];
  registry_.Connect(row.job_id);
  spdlog::info("rank {} of job {}@{} started on {}", row.rank, report.job(), report.run_id(),
               row.host);
  return absl::OkStatus();
}

void NodeReports::EndProgram(const v1::ReportedProgramEnd& report) {
  const auto job = registry_.FindRun(report.job(), report.run_id());
  if (!job.ok() || *job == nullptr) return;  // none of its processes was one of a job
  jobs::ProgramEndState end;
  end.set_launch(report.launch());
  end.set_exit_status(report.exit_status());
  end.set_signal(report.signal());
  (*job)->EndProgram(end);
}

void NodeReports::Skip(const std::string& node_id, const absl::Status& why) {
  if (const auto left_out = skipped_.Admit()) {
    spdlog::warn("node {}: {}; skipped{}", absl::BytesToHexString(node_id),
                 std::string(why.message()), LeftOut(*left_out));
  }
}

void NodeReports::Release(const std::vector<NodeCursor>& stored) {
  read_.erase(read_.begin(), read_.begin() + static_cast<std::ptrdiff_t>(stored.size()));
  absl::MutexLock lock(&mutex_);
  for (const NodeCursor& cursor : stored) {
    Node& node = nodes_[cursor.node_id];
    const auto size = node.sizes.find(cursor.sequence);
    if (size == node.sizes.end()) continue;
    node.waiting_bytes -= size->second;
    waiting_bytes_ -= size->second;
    node.sizes.erase(size);
    if (node.listener != nullptr) node.listener->OnStored(cursor.sequence);
  }
}

}  // namespace seqpoint::service
