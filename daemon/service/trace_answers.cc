#include "daemon/service/trace_answers.h"

#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/status_macros.h"
#include "daemon/base/zstd_frame.h"
#include "daemon/jobs/process.h"

namespace seqpoint::service {
namespace {

// All records of the iteration were read.
bool IsWhole(const jobs::Process& process, int64_t number) {
  return !process.alive() || (number < process.builder.next_number() &&
                              !process.traces.IsOpen(static_cast<uint64_t>(number)));
}

}  // namespace

absl::StatusOr<TraceAnswers::Found> TraceAnswers::Find(const v1::TraceRequest& request) const {
  SEQPOINT_ASSIGN_OR_RETURN(const auto row, parts_.store.FindProcess(request.ring_id()));
  if (!row) return absl::NotFoundError("its node does not have the process any more");
  Found found = {.process = *row};
  SEQPOINT_ASSIGN_OR_RETURN(const auto pieces, parts_.store.ListTraces(row->job_id));
  const std::set<int64_t> have(request.have().begin(), request.have().end());
  {
    absl::MutexLock lock(&parts_.registry.mutex());
    SEQPOINT_ASSIGN_OR_RETURN(const auto job, parts_.registry.Find(row->job_id));
    if (!job->processes().contains(row->process_id)) {
      return absl::NotFoundError("its node does not have the process any more");
    }
    const jobs::Process& process = job->processes().at(row->process_id);
    if (process.state.aligning()) {
      return absl::UnavailableError("its node does not know yet which iterations it repeats");
    }
    for (const auto& [rank, number] : pieces) {
      if (rank != row->rank || number < 0) continue;  // negative: what it is learned from
      const int64_t own = process.OwnNumber(number);
      const int64_t in_builder = own + process.state.first_number();
      if (own < 0 || have.contains(own) || !IsWhole(process, in_builder)) continue;
      if (request.has_up_to() && own > request.up_to()) continue;
      found.iterations.emplace_back(number, own);
    }
  }
  // The records of a whole iteration may be on their way to the store.
  SEQPOINT_RETURN_IF_ERROR(parts_.committer.AwaitStored(row->job_id));
  return found;
}

std::string TraceAnswers::SendAll(const v1::TraceRequest& request,
                                  absl::FunctionRef<bool(const v1::TracePart&)> send) const {
  const auto found = Find(request);
  if (!found.ok()) return std::string(found.status().message());
  if (found->iterations.empty()) return "";
  const auto names = parts_.store.ReadNames(found->process.process_id);
  if (!names.ok()) return std::string(names.status().message());
  v1::TracePart part;
  part.set_request(request.request());
  size_t bytes = 0;
  for (const NameRow& row : *names) {
    v1::TraceName& name = *part.add_names();
    name.set_id(row.name_id);
    name.set_hash(row.name_hash);
    name.set_text(row.text);
    bytes += row.text.size() + sizeof(NameRow);
    if (bytes < kMostPartBytes) continue;
    if (!send(part)) return "";
    part.clear_names();
    bytes = 0;
  }
  if (part.names_size() > 0 && !send(part)) return "";
  part.clear_names();
  size_t sent_bytes = 0, sent = 0;
  for (const auto& [number, own] : found->iterations) {
    if (sent_bytes > kMostAnswerBytes) {
      return absl::StrCat("only ", sent, " of ", found->iterations.size(),
                          " traced iterations came, as an answer has at most ",
                          kMostAnswerBytes >> 20, " MiB; ask again for more");
    }
    const auto segments =
        parts_.store.ReadTrace(found->process.job_id, found->process.rank, number);
    if (!segments.ok()) return std::string(segments.status().message());
    part.set_number(own);
    for (const TraceSegmentRow& segment : *segments) {
      if (segment.process_id != found->process.process_id) continue;
      const std::string_view records = segment.records;
      for (size_t at = 0; at < records.size(); at += kMostPartBytes) {
        part.set_records(ToZstdFrame(records.substr(at, kMostPartBytes)));
        sent_bytes += part.records().size();
        if (!send(part)) return "";
      }
    }
    ++sent;
  }
  return "";
}

void TraceAnswers::Answer(const v1::TraceRequest& request,
                          absl::FunctionRef<bool(const v1::TracePart&)> send) const {
  v1::TracePart last;
  last.set_request(request.request());
  last.set_message(SendAll(request, send));
  last.set_last(true);
  send(last);
}

}  // namespace seqpoint::service
