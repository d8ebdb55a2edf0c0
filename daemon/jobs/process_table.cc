#include "daemon/jobs/process_table.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace seqpoint::jobs {

Process& ProcessTable::Add(std::unique_ptr<Process> process) {
  Process& added = *(processes_[process->row.process_id] = std::move(process));
  ranks_[added.row.rank].push_back(&added);
  return added;
}

const std::vector<Process*>& ProcessTable::OfRank(int32_t rank) const {
  static const std::vector<Process*> kNone;
  const auto found = ranks_.find(rank);
  return found != ranks_.end() ? found->second : kNone;
}

bool ProcessTable::live() const {
  return std::any_of(begin(), end(), [](const auto& entry) { return entry.second->alive(); });
}

bool ProcessTable::any_reported() const {
  return std::any_of(begin(), end(),
                     [](const auto& entry) { return entry.second->state.reported(); });
}

bool ProcessTable::HasLive(int32_t rank) const {
  const std::vector<Process*>& of_rank = OfRank(rank);
  return std::any_of(of_rank.begin(), of_rank.end(),
                     [](const Process* process) { return process->alive(); });
}

std::set<int32_t> ProcessTable::LiveRanks() const {
  std::set<int32_t> ranks;
  for (const auto& [id, process] : processes_) {
    if (process->alive() && RoleOf(*process) == Role::kCounted) ranks.insert(process->row.rank);
  }
  return ranks;
}

bool ProcessTable::all_read() const {
  return std::all_of(begin(), end(), [](const auto& entry) {
    const Process& process = *entry.second;
    return !process.alive() || process.state.reported() || process.traces.readings() > 0;
  });
}

int32_t ProcessTable::NextIncarnation(int32_t rank) const {
  int32_t next = 0;
  for (const Process* process : OfRank(rank)) next = std::max(next, process->row.incarnation + 1);
  return next;
}

std::map<int32_t, const Process*> ProcessTable::LastOfRanks(
    const std::function<bool(const Process&)>& counts) const {
  std::map<int32_t, const Process*> last;
  for (const auto& [id, process] : processes_) {
    const Process*& of_rank = last[process->row.rank];
    if (of_rank == nullptr || counts(*process) || !counts(*of_rank)) of_rank = process.get();
  }
  return last;
}

Role ProcessTable::RoleOf(const Process& process) const {
  if (process.state.concurrent()) return Role::kConcurrent;
  if (process.state.iterations() > 0) return Role::kCounted;
  const auto trains = [](const Process& other) {
    return other.state.iterations() > 0 || other.alignment.buffers() ||
           (other.learning && other.learning->iterates());
  };
  Role role = Role::kCounted;
  for (const int64_t id : process.state.overlaps()) {
    const auto it = processes_.find(id);
    if (it == processes_.end() || it->second->state.concurrent()) continue;
    const Process& other = *it->second;
    const bool over =
        !other.alive() && other.state.last_boundary_ns() < process.state.first_boundary_ns();
    if (trains(other) && !over) return Role::kConcurrent;
    if (other.alive()) role = Role::kOpen;
  }
  for (const Process* later : OfRank(process.row.rank)) {
    const auto& overlaps = later->state.overlaps();
    const bool overlap = std::count(overlaps.begin(), overlaps.end(), process.row.process_id) > 0;
    if (overlap && later->alive() && later->counts()) return Role::kConcurrent;
  }
  return role;
}

// A hub may hear of a node's processes once those of another node are over. Ranks that start
// together start nearer to one another than to the end of one of them, and clocks of nodes differ
// by less than a run is long.
std::vector<const Process*> ProcessTable::StartedWith(const Process& process) const {
  // When a process ended is not known where no daemon ran.
  std::optional<int64_t> before_ns;
  for (const Process* other : OfRank(process.row.rank)) {
    if (other == &process || !other->counts()) continue;
    before_ns = std::max(before_ns.value_or(other->row.start_ns), other->row.start_ns);
  }
  std::vector<const Process*> found;
  for (const auto& [id, other] : processes_) {
    if (other->row.rank == process.row.rank) continue;
    const int64_t start_ns = other->row.start_ns;
    const int64_t apart_ns = std::abs(start_ns - process.row.start_ns);
    if (!other->alive() && apart_ns >= std::abs(other->row.end_ns - process.row.start_ns)) continue;
    if (!before_ns || apart_ns < std::abs(start_ns - *before_ns)) found.push_back(other.get());
  }
  return found;
}

std::vector<const Process*> ProcessTable::MayShowNumbers(const Process& process) const {
  if (!process.collectives.has_communicators()) return {};
  std::vector<const Process*> others = StartedWith(process);
  std::erase_if(others,
                [](const Process* other) { return !other->collectives.has_communicators(); });
  return others;
}

std::map<const Process*, int64_t> CountedMore(const Process& process,
                                              const std::vector<const Process*>& others) {
  std::map<const Process*, int64_t> ahead;
  std::vector<std::pair<const Process*, int64_t>> reached = {{&process, 0}};
  for (size_t next = 0; next < reached.size(); ++next) {
    const auto [from, by] = reached[next];
    for (const Process* other : others) {
      if (other == from || ahead.contains(other)) continue;
      const auto same = from->SameIteration(*other);
      if (!same) continue;
      ahead[other] = by + same->second - same->first;
      reached.emplace_back(other, ahead[other]);
    }
  }
  return ahead;
}

// Ranks that start together have the same first number. This holds also when one rank had come
// further than another before all were started again, and when the end of a process is not known.
int64_t ProcessTable::FirstNumber(const Process& process, const RankTable& ranks) const {
  const int64_t largest = ranks.LargestNextNumber();
  if (largest == 0) return 0;  // nobody trained yet: thousands of ranks may start
  const int64_t of_rank = ranks.NextNumber(process.row.rank);
  std::optional<int64_t> of_others;
  for (const Process* other : StartedWith(process)) {
    of_others = std::max(of_others.value_or(0), other->state.first_number());
  }
  return std::max(of_rank, of_others.value_or(largest));
}

void ProcessTable::Place(Process& process, const RankTable& ranks,
                         const std::set<int64_t>& gone) const {
  const int32_t rank = process.row.rank;
  ProcessState& state = process.state;
  state.set_first_number(FirstNumber(process, ranks));
  state.set_rank_next(ranks.NextNumber(rank));
  state.clear_overlaps();
  for (const Process* other : OfRank(rank)) {
    const int64_t id = other->row.process_id;
    if (other != &process && other->alive() && !gone.contains(id)) state.add_overlaps(id);
  }
  state.set_aligning(state.first_number() > 0 || !state.overlaps().empty());
  process.learning->SetFirstNumber(state.first_number());
}

void ProcessTable::SetRepeats(int32_t rank) const {
  for (Process* process : OfRank(rank)) process->state.set_repeats(true);
}

bool ProcessTable::StartsLikeEnded(const Process& process,
                                   const std::vector<int64_t>& numbers) const {
  const std::vector<Process*>& of_rank = OfRank(process.row.rank);
  return std::any_of(of_rank.begin(), of_rank.end(), [&](const Process* other) {
    return other->state.ended_well() &&
           std::count(numbers.begin(), numbers.end(),
                      other->state.first_number() - other->state.repeated()) > 0;
  });
}

std::vector<Process*> ProcessTable::Move(Process& process, int32_t rank) {
  std::vector<Process*>& left = ranks_[process.row.rank];
  std::erase(left, &process);
  std::vector<Process*> free;
  for (Process* other : left) {
    auto& overlaps = *other->state.mutable_overlaps();
    overlaps.erase(std::remove(overlaps.begin(), overlaps.end(), process.row.process_id),
                   overlaps.end());
    if (other->state.aligning() && overlaps.empty() && other->state.first_number() == 0) {
      free.push_back(other);
    }
  }
  if (left.empty()) ranks_.erase(process.row.rank);
  process.row.incarnation = NextIncarnation(rank);
  process.row.rank = rank;
  std::vector<Process*>& joined = ranks_[rank];
  joined.insert(std::lower_bound(joined.begin(), joined.end(), &process,
                                 [](const Process* a, const Process* b) {
                                   return a->row.process_id < b->row.process_id;
                                 }),
                &process);
  return free;
}

}  // namespace seqpoint::jobs
