// The collectives of a job's ranks.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/process_descriptions.h"
#include "daemon/jobs/rank_verdicts.h"

namespace seqpoint::jobs {
namespace {

// Until a new control block is in the libraries: twice the 50 ms that the daemon's loop takes at
// most.
constexpr double kPublishS = 0.1;
// A hub hears of an iteration with its node's batch, which is up to 0.25 s old, and once more as
// much covers the commits on both sides and the way back.
constexpr double kPublishOverHubS = kPublishS + 0.5;

}  // namespace

void Job::OnCommunicator(Process& process, const abi::CommunicatorEvent& event) {
  observation_.AddMember(event.hash != 0 ? event.hash : event.communicator, event.rank,
                         process.row.rank, event.ranks);
}

uint32_t Job::KindId(const std::string& text, uint64_t elements) {
  return observation_.KindId(text, elements);
}

void Job::OnCollectives(int64_t process_id, const abi::DataRecord& record) {
  Process& process = processes_.at(process_id);
  if (process.collectives.OnRecord(record)) {
    if (reports_.on()) reports_.Add(process_id, record);
  } else {
    process.CountRejected();
  }
  changes_.Mark(Change::kCollectives);
  if (record.type != static_cast<uint16_t>(abi::DataType::kCollective) || process.learning) return;
  const int64_t number =
      process.JobNumber(record.collective.iteration + process.state.number_offset());
  if (diagnosis_.windows().idle() || number != diagnosis_.wanted()) return;
  if (auto named = NamedCollective(record.collective, process.collectives.names())) {
    diagnosis_.windows().AddCollective(process.row.rank, *std::move(named));
    const auto* const bytes = reinterpret_cast<const char*>(&record);
    AddTraceSegment(process, number, std::string(bytes, sizeof(record)));
  }
}

void Job::AddToCollectives(Process& process, const FinishedIteration& iteration,
                           const NumberedIteration& numbered) {
  if (!process.collectives.has_communicators()) return;
  const std::array<int64_t, 2> lengths = {numbered.key.first, numbered.key.second};
  diagnosis_.windows().AddBoundary(process.row.rank, numbered.number, iteration.boundary_ns(),
                                   lengths, numbered.cold);
  const int64_t number = process.LibraryNumber(numbered.number);
  // The library did not know (yet) where iterations begin, and says 0 of all.
  if (!process.marks() || number < 0) return;
  process.collectives.OnIteration(
      static_cast<uint64_t>(number),
      {.number = numbered.number,
       .rank = process.row.rank,
       .lengths = lengths,
       .duration_ns = iteration.duration_ns(),
       .distorted = iteration.distorted() || iteration.config_id() != abi::kConfigNone,
       .new_length = numbered.cold,
       .collectives = {}});
}

std::set<int32_t> Job::AwaitedRanks() const {
  std::set<int32_t> ranks;
  if (!engines_.split() || !processes_.any_reported()) return ranks;
  for (const int32_t rank : processes_.LiveRanks()) {
    const Process& process = *processes_.OfRank(rank).back();
    if (!engines_.builder().IsLeftBehind(rank) && process.alive() && !process.state.unmatched() &&
        process.collectives.has_communicators() && !process.state.concurrent()) {
      ranks.insert(rank);
    }
  }
  return ranks;
}

void Job::AddJoinedIterations() {
  const uint32_t period = observation_.period();
  const int64_t changes = observation_.changes();
  std::set<int32_t> ranks;
  observation_.SetAwaited(AwaitedRanks());
  for (auto& [id, process] : processes_) {
    for (ranks::RankIteration& iteration : process->collectives.TakeJoined(!process->alive())) {
      if (process->state.unmatched()) continue;
      // It may have waited for the GPU's stamps, behind the last records of collectives.
      changes_.Mark(Change::kCollectives);
      diagnosis_.windows().SetTimed(iteration.rank, iteration.number);
      observation_.Add(std::move(iteration));
    }
  }
  // The ranks of a run that has just ended are not gone from it.
  for (const auto& [rank, process] : processes_.LastOfRanks()) {
    const bool takes_part = !process->learning && !process->state.concurrent() &&
                            !process->state.unmatched() && process->collectives.any_calls();
    if (takes_part) ranks.insert(rank);
  }
  observation_.SetRanks(std::move(ranks));
  const bool diagnosed = diagnosis_.Update(observation_.verdicts());
  if (diagnosed || period != observation_.period() || changes != observation_.changes()) {
    changes_.Mark(Change::kRanks);
    AskForWindow();
  }
}

int64_t Job::NewestIteration() const {
  int64_t newest = -1;
  for (const auto& [id, process] : processes_) {
    if (!process->alive() || process->learning) continue;
    const auto next = static_cast<uint64_t>(process->builder.next_number());
    newest = std::max(newest, process->JobNumber(next));
  }
  return newest;
}

void Job::AskForWindow() {
  if (!live() || facts_.host_times()) return;  // a host's work is not traced
  if (diagnosis_.Ask(NewestIteration(), observation_.ranks(), observation_.verdicts())) {
    changes_.Mark(Change::kRanks);
  }
}

void Job::CheckRanks(int64_t monotonic_ns) {
  if (!engines_.split() || !live()) return;
  diagnosis_.OnTime(monotonic_ns, NewestIteration(),
                    processes_.any_reported() ? kPublishOverHubS : kPublishS);
  AskForWindow();
  if (CheckStandstill(monotonic_ns)) changes_.Mark(Change::kRanks);
}

bool Job::CheckStandstill(int64_t monotonic_ns) {
  int64_t progress = 0;
  bool lost_calls = false;
  std::vector<Standstill::Rank> ranks;
  for (const auto& [rank, process] : processes_.LastOfRanks()) {
    progress +=
        process->collectives.operations() + static_cast<int64_t>(process->state.iterations());
    Standstill::Rank& to = ranks.emplace_back();
    to.calls.rank = rank;
    to.calls.communicators = process->collectives.calls();
    to.calls.ended = !process->alive();
    to.lost = to.calls.ended && process->row.lost;
    lost_calls |= process->state.lost_batches() > 0;
  }
  if (lost_calls) ranks.clear();  // who waits for whom is told by their numbers
  const bool real = ClockKindOf(processes_) == v1::CLOCK_KIND_REAL;
  return standstill_.Check(monotonic_ns, progress, ranks, real);
}

std::string Job::NoRanksKnown() const {
  if (!engines_.split()) return "the job has one rank";
  if (std::string why = UnmatchedInWords(processes_); !why.empty()) return why;
  for (const auto& [id, process] : processes_) {
    const v1::Feature* const nccl = process->FindFeature(abi::Feature::kNccl);
    if (nccl != nullptr && nccl->state() != v1::FEATURE_STATE_READY) return nccl->message();
  }
  if (observation_.verdicts().observed > 0) return "";
  const bool called = std::any_of(processes_.begin(), processes_.end(), [](const auto& entry) {
    return entry.second->collectives.operations() > 0;
  });
  if (!called) return "no operation of NCCL was seen";
  if (!rule_) return "it is not known yet where iterations begin";
  return "no iteration's collectives were timed by the GPUs of two ranks: that takes NCCL 2.27 or "
         "later, and some iterations";
}

v1::GetRanksReply Job::DescribeRanks() const {
  v1::GetRanksReply reply;
  SetVerdicts(observation_.verdicts(), &reply);
  diagnosis_.SetReasons(observation_.verdicts(), facts_.host_times(), &reply);
  const auto processes = processes_.LastOfRanks();
  for (const auto& [rank, process] : processes) {
    auto* const list = reply.mutable_ranks();
    auto it = std::find_if(list->begin(), list->end(),
                           [rank = rank](const v1::RankSummary& r) { return r.rank() == rank; });
    v1::RankSummary& to = it != list->end() ? *it : *list->Add();
    to.set_rank(rank);
    to.set_host(process->row.host);
    to.set_pid(process->row.pid);
    to.set_live(process->alive());
    to.set_operations(process->collectives.operations());
    reply.set_incomplete(reply.incomplete() + process->collectives.incomplete());
  }
  std::sort(reply.mutable_ranks()->begin(), reply.mutable_ranks()->end(),
            [](const v1::RankSummary& a, const v1::RankSummary& b) { return a.rank() < b.rank(); });
  // Who stops a whole job by Ctrl-C or by a scheduler ends all of its ranks at once.
  const bool stopped = row_.state == v1::JOB_STATE_LOST && End().program;
  if (!stopped && !facts_.imported()) reply.set_first_end(FirstEndInWords(processes_));
  if (standstill_.found()) *reply.mutable_standstill() = *standstill_.found();
  reply.set_incomplete(reply.incomplete() + observation_.losses().incomplete);
  if (std::string why = NoRanksKnown(); !why.empty()) {
    reply.set_message(absl::StrCat("not known, because ", why));
    reply.clear_imbalance();
    for (v1::RankSummary& rank : *reply.mutable_ranks()) rank.clear_message();
  }
  reply.set_summary(SummaryOf(reply));
  *reply.mutable_losses() = SumLosses();
  reply.set_job_id(absl::StrCat(row_.job_id));
  return reply;
}

}  // namespace seqpoint::jobs
