#include "daemon/jobs/process_collectives.h"

#include <algorithm>
#include <utility>

#include "daemon/base/saturate.h"

namespace seqpoint::jobs {
namespace {

constexpr int32_t kMostCommunicatorRanks = 1'000'000;
constexpr int kMostCommunicators = 4096;
constexpr int kMostKinds = 16384;
constexpr uint64_t kMostIterations = uint64_t{1} << 50;  // more is a damaged number

// The size of an element; 0: an unknown type. "ncclFloat8e4m3" is one byte.
uint64_t BytesOf(const std::string& datatype) {
  if (datatype.find("loat8") != std::string::npos) return 1;
  if (datatype.find("64") != std::string::npos) return 8;
  if (datatype.find("32") != std::string::npos) return 4;
  if (datatype.find("16") != std::string::npos) return 2;
  return datatype.find("8") != std::string::npos ? 1 : 0;
}

}  // namespace

std::optional<ranks::CollectiveRecord> NamedCollective(const abi::CollectiveRecord& record,
                                                       const CollectivesState& names) {
  const auto communicator = names.communicators().find(record.communicator);
  const auto kind = names.kinds().find(record.kind);
  if (communicator == names.communicators().end() || kind == names.kinds().end()) {
    return std::nullopt;
  }
  return ranks::CollectiveRecord{.communicator = communicator->second.hash(),
                                 .sequence = record.sequence,
                                 .function = kind->second.function(),
                                 .bytes = kind->second.bytes(),
                                 .own = communicator->second.rank(),
                                 .peer = kind->second.peer(),
                                 .start_ns = Saturate(record.gpu_start_ns),
                                 .end_ns = Saturate(record.gpu_end_ns)};
}

bool ProcessCollectives::OnCommunicator(const abi::CommunicatorEvent& event,
                                        const std::string& name) {
  const bool known = event.ranks == 0 || (event.rank >= 0 && event.rank < event.ranks);
  if (event.communicator == 0 || event.ranks < 0 || event.ranks > kMostCommunicatorRanks ||
      !known || state_.communicators_size() >= kMostCommunicators) {
    return false;
  }
  CommunicatorState& to = (*state_.mutable_communicators())[event.communicator];
  // Communicators of a program come in the same order on all its ranks.
  to.set_hash(event.hash != 0 ? event.hash : event.communicator);
  to.set_rank(event.rank);
  to.set_ranks(event.ranks);
  to.set_name(name);
  calls_[to.hash()].rank = event.rank;
  return true;
}

bool ProcessCollectives::OnKind(const abi::CollectiveKindEvent& event, uint32_t id,
                                const std::string& function, const std::string& datatype) {
  if (event.kind == 0 || event.peer < -1 || state_.kinds_size() >= kMostKinds) return false;
  CollectiveKindState& to = (*state_.mutable_kinds())[event.kind];
  to.set_id(id);
  to.set_function(function);
  to.set_peer(event.peer);
  const uint64_t bytes = BytesOf(datatype);
  if (bytes > 0 && event.elements <= UINT64_MAX / bytes) to.set_bytes(event.elements * bytes);
  return true;
}

const CollectiveKindState& ProcessCollectives::KindOf(uint16_t kind) const {
  static const CollectiveKindState* const unknown = [] {
    auto* const state = new CollectiveKindState;
    state->set_peer(-1);
    return state;
  }();
  const auto it = state_.kinds().find(kind);
  return it == state_.kinds().end() ? *unknown : it->second;
}

bool ProcessCollectives::OnRecord(const abi::DataRecord& record) {
  // Both kinds of records have it at the same place.
  const auto it = state_.communicators().find(record.arrivals.communicator);
  if (it == state_.communicators().end()) return false;
  if (record.type == static_cast<uint16_t>(abi::DataType::kArrivals)) {
    AddArrivals(record.arrivals, it->second);
  } else {
    AddTimes(record.collective, it->second);
  }
  return true;
}

void ProcessCollectives::AddArrivals(const abi::ArrivalsRecord& record,
                                     const CommunicatorState& communicator) {
  for (int i = 0; i < record.count; ++i) {
    NoteCall(communicator, record.kind[i], record.sequence[i],
             Saturate(record.base_ns + record.delay_ns[i]));
  }
  AddMark(record, communicator);
  operations_ += record.count;
  Find(record.iteration).timed += record.timed;
}

void ProcessCollectives::AddMark(const abi::ArrivalsRecord& record,
                                 const CommunicatorState& communicator) {
  // Before its first boundary the library says 0 of all iterations.
  if (record.iteration == 0 || record.iteration >= kMostIterations) return;
  for (int i = 0; i < record.count; ++i) {
    const CollectiveKindState& kind = KindOf(record.kind[i]);
    if (kind.peer() >= 0 || kind.id() == 0) continue;
    if (std::exchange(marked_[communicator.hash()], record.iteration) == record.iteration) return;
    const Mark mark(communicator.hash(), kind.id(), record.sequence[i]);
    if (!marks_.try_emplace(mark, record.iteration).second) return;
    mark_order_.push_back(mark);
    if (mark_order_.size() <= kMarks) return;
    marks_.erase(mark_order_.front());
    mark_order_.pop_front();
    return;
  }
}

bool ProcessCollectives::any_calls() const {
  return operations_ > 0 || std::any_of(calls_.begin(), calls_.end(), [](const auto& entry) {
           return !entry.second.calls.empty();
         });
}

std::optional<std::pair<uint64_t, uint64_t>> ProcessCollectives::SameIteration(
    const ProcessCollectives& other) const {
  for (auto mark = mark_order_.rbegin(); mark != mark_order_.rend(); ++mark) {
    const auto found = other.marks_.find(*mark);
    if (found != other.marks_.end()) return std::pair(marks_.at(*mark), found->second);
  }
  return std::nullopt;
}

void ProcessCollectives::NoteCall(const CommunicatorState& communicator, uint16_t kind,
                                  uint32_t sequence, int64_t at_ns) {
  const CollectiveKindState& about = KindOf(kind);
  if (about.function().empty()) return;
  ranks::LastCall& call = calls_[communicator.hash()].calls[{about.function(), about.peer()}];
  // NCCL does not number sends and receives.
  call.number = about.peer() < 0 ? std::max(call.number, int64_t{sequence} + 1) : call.number + 1;
  call.at_ns = std::max(call.at_ns, at_ns);
}

void ProcessCollectives::AddTimes(const abi::CollectiveRecord& record,
                                  const CommunicatorState& communicator) {
  Pending& pending = Find(record.iteration);
  if (pending_operations_ == kMostOperations) {
    ++incomplete_;
    return Drop(pending_.find(record.iteration));
  }
  const CollectiveKindState& kind = KindOf(record.kind);
  pending.collectives.push_back({.communicator = communicator.hash(),
                                 .kind = kind.id(),
                                 .sequence = record.sequence,
                                 .peer = kind.peer(),
                                 .receives = kind.function() == "Recv",
                                 .start_ns = Saturate(record.gpu_start_ns),
                                 .end_ns = Saturate(record.gpu_end_ns)});
  ++pending_operations_;
}

ProcessCollectives::Pending& ProcessCollectives::Find(uint64_t number) {
  if (const auto it = pending_.find(number); it != pending_.end()) return it->second;
  if (pending_.size() == kMostPending) {
    ++incomplete_;
    Drop(pending_.begin());
  }
  return pending_[number];
}

void ProcessCollectives::Drop(std::map<uint64_t, Pending>::iterator at) {
  pending_operations_ -= at->second.collectives.size();
  pending_.erase(at);
}

void ProcessCollectives::OnIteration(uint64_t number, ranks::RankIteration iteration) {
  next_ = std::max(next_, number + 1);
  // Its records may come with the next reading.
  Pending& pending = Find(number);
  pending.iteration = std::move(iteration);
  pending.over_at = readings_;
}

std::vector<ranks::RankIteration> ProcessCollectives::TakeJoined(bool ended) {
  std::vector<ranks::RankIteration> joined;
  while (!pending_.empty()) {
    auto& [number, pending] = *pending_.begin();
    const auto times = static_cast<int64_t>(pending.collectives.size());
    const bool over = pending.iteration || number < next_;
    // The arrivals of an iteration are all written with the first ones of the next.
    const bool settled = over && readings_ > pending.over_at && number + 1 < next_;
    const bool late = over && readings_ > pending.over_at + kPatience;
    const bool whole = times == pending.timed;
    if (!ended && !late && !(whole && settled)) break;
    if (pending.iteration) {
      if (!whole) ++incomplete_;
      pending.iteration->distorted |= !whole;
      pending.iteration->collectives = std::move(pending.collectives);
      joined.push_back(*std::move(pending.iteration));
    }
    pending_operations_ -= static_cast<size_t>(times);
    pending_.erase(pending_.begin());
  }
  return joined;
}

CollectivesState ProcessCollectives::Save() const {
  CollectivesState to = state_;
  for (auto& [number, communicator] : *to.mutable_communicators()) {
    for (const auto& [key, call] : calls_.at(communicator.hash()).calls) {
      CallState& last = *communicator.add_calls();
      last.set_function(key.function);
      last.set_peer(key.peer);
      last.set_number(call.number);
      last.set_at_ns(call.at_ns);
    }
  }
  return to;
}

void ProcessCollectives::Load(const CollectivesState& from) {
  state_ = from;
  for (auto& [number, communicator] : *state_.mutable_communicators()) {
    auto& [rank, calls] = calls_[communicator.hash()];
    rank = communicator.rank();
    for (const CallState& last : communicator.calls()) {
      calls[{last.function(), last.peer()}] = {last.number(), last.at_ns()};
    }
    communicator.clear_calls();
  }
}

}  // namespace seqpoint::jobs
