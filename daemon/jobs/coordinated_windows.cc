#include "daemon/jobs/coordinated_windows.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "daemon/base/demangle.h"
#include "daemon/ranks/window_profile.h"
#include "daemon/traces/window_reader.h"

namespace seqpoint::jobs {
namespace {

uint32_t NameOf(const abi::DataRecord& record) {
  const bool kernel = record.type == static_cast<uint16_t>(abi::DataType::kKernel);
  return kernel ? record.kernel.name_id : 0;
}

}  // namespace

void CoordinatedWindows::Want(int64_t number, std::set<int32_t> ranks) {
  wanted_ = number;
  waited_ = 0;
  ranks_.clear();
  for (const int32_t rank : ranks) ranks_[rank];
}

void CoordinatedWindows::AddBoundary(int32_t rank, int64_t number, int64_t boundary_ns,
                                     std::array<int64_t, 2> lengths, bool disturbed) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end()) return;
  it->second.newest = std::max(it->second.newest, number);
  if (number == wanted_) {
    it->second.begin_ns = boundary_ns;
    it->second.lengths = lengths;
    it->second.disturbed = disturbed;
  } else if (number == wanted_ + 1) {
    it->second.end_ns = boundary_ns;
  }
}

void CoordinatedWindows::AddWork(int32_t rank, int64_t number,
                                 const std::vector<abi::DataRecord>& records,
                                 const ProcessNames& names) {
  const auto it = ranks_.find(rank);
  if (number != wanted_ || it == ranks_.end()) return;
  it->second.records = records;
  std::set<uint32_t> used;
  for (const abi::DataRecord& record : records) {
    const uint32_t id = NameOf(record);
    const ProcessNames::Name* const name = names.Find(id);
    if (name == nullptr || !used.insert(id).second) continue;
    it->second.names.emplace_back(id, Demangle(name->text));
  }
}

void CoordinatedWindows::AddCollective(int32_t rank, ranks::CollectiveRecord record) {
  const auto it = ranks_.find(rank);
  if (it != ranks_.end()) it->second.collectives.push_back(std::move(record));
}

void CoordinatedWindows::SetTimed(int32_t rank, int64_t number) {
  const auto it = ranks_.find(rank);
  if (it == ranks_.end() || number != wanted_) return;
  it->second.timed = true;
  std::sort(it->second.collectives.begin(), it->second.collectives.end(),
            [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
}

bool CoordinatedWindows::IsOver() const {
  return !idle() && std::all_of(ranks_.begin(), ranks_.end(), [this](const auto& entry) {
    return entry.second.newest > wanted_;
  });
}

bool CoordinatedWindows::TakeFinished() {
  if (!IsOver()) return false;
  bool whole = true, timed = true;
  for (const auto& [rank, of] : ranks_) {
    whole &= of.begin_ns != 0 && of.end_ns != 0 && !of.records.empty();
    timed &= of.timed;
  }
  if (!(whole && timed) && waited_ < kPatience) return false;
  const bool joined = whole && Join();
  if (!joined) ++given_up_;
  wanted_ = -1;
  ranks_.clear();
  return joined;
}

bool CoordinatedWindows::Join() {
  std::vector<ranks::RankWindow> windows;
  for (auto& [rank, of] : ranks_) {
    traces::WindowReader reader;
    for (const auto& [id, text] : of.names) reader.AddName(id, text);
    for (const abi::DataRecord& record : of.records) reader.Add(record);
    of.trace = reader.Finish({.begin_ns = of.begin_ns, .end_ns = of.end_ns});
    windows.push_back({.rank = rank,
                       .iteration = wanted_,
                       .lengths = of.lengths,
                       .trace = &*of.trace,
                       .begin_ns = reader.begin_ns(),
                       .end_ns = of.end_ns,
                       .records = std::move(of.collectives),
                       .disturbed = of.disturbed});
  }
  if (windows.size() < 2) return false;
  const ranks::WindowJoin join = ranks::JoinWindows(windows);
  if (join.TooManyAlone()) return false;
  ranks::IterationProfiles profiles = ranks::ProfilesOf(windows, join);
  const bool tells = std::any_of(profiles.begin(), profiles.end(), [&](const auto& profile) {
    return ranks::TellsOf(profiles, profile.rank);
  });
  if (!tells) {
    // Later ones may be of a slow rank.
    if (std::ssize(first_times_) < kMostFirstTimes) first_times_.push_back(std::move(profiles));
    return true;
  }
  if (std::ssize(iterations_) == kMostKept) iterations_.erase(iterations_.begin());
  iterations_.push_back(std::move(profiles));
  return true;
}

}  // namespace seqpoint::jobs
