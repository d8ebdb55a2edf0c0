#include "daemon/jobs/rank_observation.h"

#include <algorithm>

#include "daemon/jobs/rank_verdicts.h"
#include "injection/abi/names.h"

namespace seqpoint::jobs {
uint32_t RankObservation::KindId(const std::string& text, uint64_t elements) {
  const auto it = kinds_.find({text, elements});
  if (it != kinds_.end()) return it->second;
  if (kinds_.size() == kMostKinds) return 0;
  const auto id = static_cast<uint32_t>(kinds_.size()) + 1;
  AddKind(text, elements, id);
  return id;
}

void RankObservation::AddKind(const std::string& text, uint64_t elements, uint32_t id) {
  kinds_[{text, elements}] = id;
  // The monitor saves what it learned of a function under a number that must not change.
  monitor_.SetKind(id, abi::NameHash(text.data(), text.size()), elements);
}

void RankObservation::AddMember(uint64_t communicator, int32_t rank_in_communicator, int32_t rank,
                                int32_t size) {
  if (members_.size() >= ranks::IterationJoin::kMostCommunicators) return;
  CommunicatorMembers& members = members_[communicator];
  (*members.mutable_ranks())[rank_in_communicator] = rank;
  members.set_size(std::max(members.size(), size));
  TellSize(communicator, members);
}

// A rank that did not report must not go unnoticed.
void RankObservation::TellSize(uint64_t communicator, const CommunicatorMembers& members) {
  monitor_.SetSize(communicator, std::max(members.size(), members.ranks_size()));
}

void RankObservation::SetRanks(std::set<int32_t> ranks) {
  if (ranks == ranks_) return;
  ranks_ = ranks;
  monitor_.SetRanks(std::move(ranks));
}

void RankObservation::Add(ranks::RankIteration iteration) {
  // A transfer with a rank that is not seen has nothing to be compared with.
  std::erase_if(iteration.collectives, [&](ranks::Collective& collective) {
    if (!collective.is_transfer()) return false;
    const auto communicator = members_.find(collective.communicator);
    if (communicator == members_.end()) return true;
    const auto& ranks = communicator->second.ranks();
    const auto member = ranks.find(collective.peer);
    if (member == ranks.end()) return true;
    collective.peer = member->second;
    return false;
  });
  monitor_.Add(std::move(iteration));
}

uint32_t RankObservation::period() const {
  if (ranks_.size() < 2) return 0;
  return monitor_.wants_every_iteration() ? 1 : ranks::RankMonitor::kPeriod;
}

RankObservationState RankObservation::Save() const {
  RankObservationState to;
  const ranks::RankMonitorState state = monitor_.Save();
  SetVerdicts(state.verdicts, to.mutable_verdicts());
  to.set_late(state.losses.late);
  to.set_repeated(state.losses.repeated);
  to.set_incomplete(state.losses.incomplete);
  to.set_unmatched(state.losses.unmatched);
  to.set_missed(state.losses.missed);
  to.set_invalid(state.losses.invalid);
  to.set_changes(state.changes);
  to.set_version(state.version);
  to.mutable_learned()->Add(state.learned.begin(), state.learned.end());
  for (const auto& [kind, id] : kinds_) {
    CollectiveKindName& name = *to.add_kinds();
    name.set_text(kind.first);
    name.set_elements(kind.second);
    name.set_id(id);
  }
  for (const auto& [communicator, members] : members_) {
    (*to.mutable_members())[communicator] = members;
  }
  return to;
}

void RankObservation::Load(const RankObservationState& from) {
  monitor_.Load({.verdicts = VerdictsOf(from.verdicts()),
                 .losses = {.late = from.late(),
                            .repeated = from.repeated(),
                            .incomplete = from.incomplete(),
                            .unmatched = from.unmatched(),
                            .missed = from.missed(),
                            .invalid = from.invalid()},
                 .changes = from.changes(),
                 .version = from.version(),
                 .learned = {from.learned().begin(), from.learned().end()}});
  for (const CollectiveKindName& name : from.kinds()) {
    AddKind(name.text(), name.elements(), name.id());
  }
  for (const auto& [communicator, members] : from.members()) {
    members_[communicator] = members;
    TellSize(communicator, members);
  }
}

}  // namespace seqpoint::jobs
