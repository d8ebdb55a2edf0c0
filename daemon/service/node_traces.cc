#include "daemon/service/node_traces.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/service/trace_answers.h"

namespace seqpoint::service {
namespace {

// A node reads a part from its disk and sends it within milliseconds, and an answer begins when
// its store has what came last, which takes at most a second.
constexpr absl::Duration kPartTimeout = absl::Seconds(10);
constexpr absl::Duration kPartSlice =
    absl::Milliseconds(250);  // how soon a client that left is noticed
constexpr int64_t kMostNumber = int64_t{1} << 50;
constexpr size_t kMostTextBytes = 64 << 10;  // as long as a name in a ring

}  // namespace

std::string NodeTraces::Fetch(int64_t job_id, absl::FunctionRef<bool()> cancelled) {
  absl::MutexLock lock(&fetching_);
  const auto sources = SourcesOf(job_id);
  if (!sources.ok()) return std::string(sources.status().message());
  std::map<std::string, std::set<int32_t>> missing;  // ranks by reason
  for (const Source& source : *sources) {
    if (cancelled()) break;
    const absl::Status status = FetchFrom(source, cancelled);
    if (!status.ok()) missing[std::string(status.message())].insert(source.rank);
  }
  std::vector<std::string> sentences;
  for (const auto& [why, ranks] : missing) {
    sentences.push_back(absl::StrCat("traces of rank", ranks.size() > 1 ? "s " : " ",
                                     absl::StrJoin(ranks, ", "), " are missing: ", why));
  }
  return absl::StrJoin(sentences, "; ");
}

absl::StatusOr<std::vector<NodeTraces::Source>> NodeTraces::SourcesOf(int64_t job_id) {
  std::vector<Source> sources;
  absl::ReleasableMutexLock lock(&registry_.mutex());
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, registry_.Find(job_id));
  for (const auto& [process_id, process] : job->processes()) {
    const auto key = NodeReports::ParseIdentity(process->row.identity);
    if (!key) continue;
    Source source = {.job_id = job_id,
                     .process_id = process_id,
                     .rank = process->row.rank,
                     .host = process->row.host,
                     .node_id = key->first};
    if (process->state.aligning()) {
      source.not_yet = "it is not known yet which iterations it repeats; ask again";
    }
    source.request.set_ring_id(process->row.ring_id);
    // A shared iteration's records come with the report of its work.
    if (process->alive()) source.request.set_up_to(process->state.work_reported_to());
    sources.push_back(std::move(source));
  }
  lock.Release();
  // Records that came with a report up to now are in the store then.
  SEQPOINT_RETURN_IF_ERROR(committer_.AwaitStored(job_id));
  SEQPOINT_ASSIGN_OR_RETURN(const auto pieces, store_.ListTraces(job_id));
  absl::MutexLock again(&registry_.mutex());
  for (Source& source : sources) {
    const jobs::Process& process = job->processes().at(source.process_id);
    for (const auto& [rank, number] : pieces) {
      if (rank == source.rank) source.request.add_have(process.OwnNumber(number));
    }
  }
  return sources;
}

absl::Status NodeTraces::FetchFrom(const Source& source, absl::FunctionRef<bool()> cancelled) {
  if (!source.not_yet.empty()) return absl::UnavailableError(source.not_yet);
  v1::TraceRequest request = source.request;
  {
    absl::MutexLock lock(&mutex_);
    request.set_request(++request_);
    asked_ = source.node_id;
    parts_.clear();
    bytes_ = 0;
  }
  absl::Status status = nodes_.Ask(source.node_id, request)
                            ? absl::OkStatus()
                            : absl::UnavailableError(absl::StrCat(
                                  "node ", source.host, ", which has them, is not connected"));
  WriteBatch batch;  // of one iteration: half of one would pass for the whole
  int64_t number = -1;
  while (status.ok()) {
    const auto part = AwaitPart(source, cancelled);
    status = part.status();
    if (!status.ok()) break;
    if ((part->last() || part->number() != number) && !batch.Empty()) {
      status = store_.Write(std::exchange(batch, {}));
    }
    number = part->number();
    if (status.ok()) status = Add(source, *part, batch);
    if (!status.ok() || !part->last()) continue;
    if (!part->message().empty()) status = absl::UnavailableError(part->message());
    break;
  }
  absl::MutexLock lock(&mutex_);
  asked_.clear();  // what still comes is too late
  parts_.clear();
  return status;
}

absl::StatusOr<v1::TracePart> NodeTraces::AwaitPart(const Source& source,
                                                    absl::FunctionRef<bool()> cancelled) {
  absl::MutexLock lock(&mutex_);
  const auto some = [this] {
    mutex_.AssertReaderHeld();
    return !parts_.empty() || asked_.empty();
  };
  for (absl::Duration waited; waited < kPartTimeout; waited += kPartSlice) {
    if (changed_.Await(mutex_, kPartSlice, some)) break;
    if (cancelled()) return absl::CancelledError("the client left");
  }
  if (!parts_.empty()) {
    v1::TracePart part = std::move(parts_.front());
    parts_.pop_front();
    return part;
  }
  if (asked_.empty()) {
    return absl::UnavailableError(absl::StrCat("node ", source.host, " went away meanwhile"));
  }
  return absl::DeadlineExceededError(absl::StrCat("node ", source.host, " did not answer within ",
                                                  absl::FormatDuration(kPartTimeout),
                                                  "; ask again, or look at its log"));
}

absl::Status NodeTraces::Add(const Source& source, const v1::TracePart& part, WriteBatch& batch) {
  for (const v1::TraceName& name : part.names()) {
    if (name.text().size() > kMostTextBytes) continue;
    batch.names.push_back({.process_id = source.process_id,
                           .name_id = name.id(),
                           .name_hash = name.hash(),
                           .text = name.text()});
  }
  std::string records;
  if (!part.records().empty()) {
    SEQPOINT_ASSIGN_OR_RETURN(records, FromZstdFrame(part.records(), TraceAnswers::kMostPartBytes));
  }
  if (records.size() % kTraceRecordBytes != 0 || part.number() < 0 || part.number() > kMostNumber) {
    return absl::DataLossError(absl::StrCat("node ", source.host, " sent ", records.size(),
                                            " bytes as records of iteration ", part.number()));
  }
  absl::MutexLock lock(&registry_.mutex());
  SEQPOINT_ASSIGN_OR_RETURN(const auto job, registry_.Find(source.job_id));
  if (!records.empty()) {
    const jobs::Process& process = job->processes().at(source.process_id);
    batch.trace_segments.push_back({.job_id = source.job_id,
                                    .rank = source.rank,
                                    .number = process.JobNumberOfOwn(part.number()),
                                    .process_id = source.process_id,
                                    .records = std::move(records)});
  }
  return absl::OkStatus();
}

void NodeTraces::OnPart(const std::string& node_id, v1::TracePart part) {
  absl::MutexLock lock(&mutex_);
  if (node_id != asked_ || part.request() != request_) return;  // nobody waits for it any more
  bytes_ += part.records().size();
  for (const v1::TraceName& name : part.names()) bytes_ += name.text().size();
  if (bytes_ > 2 * TraceAnswers::kMostAnswerBytes) {
    asked_.clear();  // no seqpointd sends as much
  } else {
    parts_.push_back(std::move(part));
  }
  changed_.NotifyAll();
}

void NodeTraces::OnDisconnect(const std::string& node_id) {
  absl::MutexLock lock(&mutex_);
  if (node_id == asked_) asked_.clear();
  changed_.NotifyAll();
}

}  // namespace seqpoint::service
