#include "daemon/ranks/collective_match.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace seqpoint::ranks {
namespace {

// One collective or transfer on one rank.
struct Entry {
  uint64_t communicator;
  int32_t from, to;  // -1: a collective
  uint32_t kind, sequence;
  size_t part;  // the rank's place in JoinedIteration::ranks
  int64_t duration_ns;

  bool is_transfer() const { return from >= 0; }
  auto Group() const { return std::tuple(communicator, from, to, kind); }
};
using Entries = std::vector<Entry>;
using Members = std::map<uint64_t, std::set<size_t>>;  // communicator -> parts

// The end of the run of equal `key`s that starts at `at`.
template <typename Iterator, typename Key>
Iterator RunEnd(Iterator at, Iterator end, Key key) {
  return std::find_if(at, end, [&](const auto& entry) { return key(entry) != key(*at); });
}

uint64_t Mix(uint64_t value) {  // the finaliser of splitmix64
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

int64_t UnionNs(absl::Span<const Collective> collectives) {
  std::vector<std::pair<int64_t, int64_t>> times;
  times.reserve(collectives.size());
  for (const Collective& c : collectives) times.emplace_back(c.start_ns, c.end_ns);
  std::sort(times.begin(), times.end());
  int64_t sum = 0, covered = std::numeric_limits<int64_t>::min();
  for (const auto& [start, end] : times) {
    if (end <= covered) continue;
    sum += end - std::max(start, covered);
    covered = end;
  }
  return sum;
}

// From the first start to the last end.
int64_t SpanNs(absl::Span<const Collective> collectives) {
  int64_t start = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  for (const Collective& c : collectives) {
    start = std::min(start, c.start_ns);
    end = std::max(end, c.end_ns);
  }
  return collectives.empty() ? 0 : end - start;
}

// Between each collective and those that started before it, in the order of their starts.
std::vector<int64_t> GapsNs(absl::Span<const Collective> collectives) {
  std::vector<std::pair<int64_t, int64_t>> times;
  times.reserve(collectives.size());
  for (const Collective& c : collectives) times.emplace_back(c.start_ns, c.end_ns);
  std::sort(times.begin(), times.end());
  std::vector<int64_t> gaps;
  for (size_t i = 1; i < times.size(); ++i) {
    gaps.push_back(std::max<int64_t>(times[i].first - times[i - 1].second, 0));
    times[i].second = std::max(times[i].second, times[i - 1].second);
  }
  return gaps;
}

RankPart PartOf(const RankIteration& report) {
  RankPart part = {.rank = report.rank,
                   .lengths = report.lengths,
                   .distorted = report.distorted,
                   .new_length = report.new_length,
                   .duration_ns = report.duration_ns,
                   .collective_ns = UnionNs(report.collectives)};
  if (part.duration_ns > 0) {
    part.exclusive_ns = std::max<int64_t>(part.duration_ns - part.collective_ns, 0);
    part.outside_ns = std::max<int64_t>(part.duration_ns - SpanNs(report.collectives), 0);
    part.gaps_ns = GapsNs(report.collectives);
  }
  for (const Collective& c : report.collectives) {
    part.signature += Mix(uint64_t{c.kind} << 1 | uint64_t{c.is_transfer()});
    // The first and the last stage of a pipeline exchange as much, and do other work.
    if (c.is_transfer()) part.signature += Mix(~static_cast<uint64_t>(report.rank));
  }
  return part;
}

Entry EntryOf(const Collective& c, int32_t rank, size_t part) {
  Entry entry = {c.communicator, -1, -1, c.kind, c.sequence, part, c.end_ns - c.start_ns};
  if (c.is_transfer()) {
    entry.from = c.receives ? c.peer : rank;
    entry.to = c.receives ? rank : c.peer;
  }
  return entry;
}

// Numbers the transfers from one rank to another from 0 on, equally on both. False where the two do
// not agree on how many there are of each kind, or in which order. [begin, end) is sorted by rank
// and sequence.
bool NumberTransfers(Entries::iterator begin, Entries::iterator end) {
  const auto other = RunEnd(begin, end, [](const Entry& e) { return e.part; });
  const auto equal_kinds = [](const Entry& a, const Entry& b) { return a.kind == b.kind; };
  if (!std::equal(begin, other, other, end, equal_kinds)) return false;
  for (auto a = begin, b = other; b != end; ++a, ++b)
    a->sequence = b->sequence = static_cast<uint32_t>(a - begin);
  return true;
}

// Takes out the transfers on which sender and receiver do not agree.
void MatchTransfers(Entries& entries, const RankAgreement& agreement,
                    std::vector<RankPart>& parts) {
  const auto pair = [](const Entry& e) { return std::tuple(e.communicator, e.from, e.to); };
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return std::tuple(pair(a), a.part, a.sequence) < std::tuple(pair(b), b.part, b.sequence);
  });
  auto kept = entries.begin();
  for (auto at = entries.begin(); at != entries.end();) {
    const auto end = RunEnd(at, entries.end(), pair);
    if (!at->is_transfer() || (agreement.Agree(at->from, at->to) && NumberTransfers(at, end))) {
      kept = std::move(at, end, kept);
    } else {
      std::for_each(at, end, [&](const Entry& e) { ++parts[e.part].unmatched; });
    }
    at = end;
  }
  entries.erase(kept, entries.end());
}

// By key. A rank runs an operation once.
void SortUnique(Entries& entries) {
  const auto key = [](const Entry& e) { return std::tuple(e.Group(), e.sequence, e.part); };
  std::sort(entries.begin(), entries.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  const auto equal = [&](const Entry& a, const Entry& b) { return key(a) == key(b); };
  entries.erase(std::unique(entries.begin(), entries.end(), equal), entries.end());
}

Members MembersOf(const Entries& entries) {
  Members members;
  for (const Entry& entry : entries)
    if (!entry.is_transfer()) members[entry.communicator].insert(entry.part);
  return members;
}

void CountMissed(absl::Span<const Entry> ran, const std::set<size_t>& members,
                 std::vector<RankPart>& parts) {
  for (const size_t member : members)
    if (std::none_of(ran.begin(), ran.end(), [&](const Entry& e) { return e.part == member; }))
      ++parts[member].missed;
}

// The shortest duration of one operation, or nothing to join. `ran`: it, on those ranks that ran
// it.
void JoinOperation(absl::Span<const Entry> ran, std::vector<RankPart>& parts, TransferPart& sum) {
  if (ran.size() < 2) {
    ++parts[ran.front().part].unmatched;
    return;
  }
  const auto shorter = [](const Entry& a, const Entry& b) { return a.duration_ns < b.duration_ns; };
  const Entry& shortest = *std::min_element(ran.begin(), ran.end(), shorter);
  int64_t delay_ns = std::numeric_limits<int64_t>::max();
  for (const Entry& entry : ran) {
    const int64_t wait_ns = entry.duration_ns - shortest.duration_ns;
    ++parts[entry.part].matched;
    parts[entry.part].wait_ns += wait_ns;
    if (&entry != &shortest) delay_ns = std::min(delay_ns, wait_ns);
  }
  parts[shortest.part].delay_ns += delay_ns;
  parts[shortest.part].last += delay_ns > 0;
  ++sum.count;
  sum.transfer_ns += shortest.duration_ns;
}

// All operations of one communicator, pair and kind. `group` is sorted by sequence.
TransferPart JoinGroup(absl::Span<const Entry> group, const std::set<size_t>* members,
                       size_t expected, std::vector<RankPart>& parts) {
  const Entry& first = group.front();
  TransferPart sum = {first.communicator, first.kind, first.from, first.to};
  for (auto at = group.begin(); at != group.end();) {
    const auto end = RunEnd(at, group.end(), [](const Entry& e) { return e.sequence; });
    const absl::Span<const Entry> ran(&*at, static_cast<size_t>(end - at));
    if (members && ran.size() < members->size()) CountMissed(ran, *members, parts);
    if (ran.size() != expected) sum.complete = false;
    JoinOperation(ran, parts, sum);
    at = end;
  }
  return sum;
}

}  // namespace

JoinedIteration MatchCollectives(absl::Span<const RankIteration> reports,
                                 const absl::flat_hash_map<uint64_t, int32_t>& sizes,
                                 const RankAgreement& agreement) {
  JoinedIteration joined;
  Entries entries;
  for (const RankIteration& report : reports) {
    for (const Collective& c : report.collectives)
      entries.push_back(EntryOf(c, report.rank, joined.ranks.size()));
    joined.ranks.push_back(PartOf(report));
  }
  const Members members = MembersOf(entries);
  MatchTransfers(entries, agreement, joined.ranks);
  SortUnique(entries);
  for (auto at = entries.begin(); at != entries.end();) {
    const auto end = RunEnd(at, entries.end(), [](const Entry& e) { return e.Group(); });
    const auto found = members.find(at->communicator);
    const std::set<size_t>* all = at->is_transfer() ? nullptr : &found->second;
    const auto size = sizes.find(at->communicator);
    const size_t expected = !all ? 2 : size == sizes.end() ? all->size() : size->second;
    const TransferPart sum =
        JoinGroup({&*at, static_cast<size_t>(end - at)}, all, expected, joined.ranks);
    if (sum.count > 0) joined.transfers.push_back(sum);
    at = end;
  }
  for (const auto& [hash, places] : members) {
    auto& ranks = joined.communicators.emplace_back(hash, std::vector<int32_t>()).second;
    for (const size_t place : places) ranks.push_back(joined.ranks[place].rank);
  }
  return joined;
}

}  // namespace seqpoint::ranks
