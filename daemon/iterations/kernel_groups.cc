#include "daemon/iterations/kernel_groups.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace seqpoint::iterations {
namespace {

// Symbols that alternate with no other make groups of one. More than this many per count are noise
// and would only cost time.
constexpr size_t kMaxGroupsPerCount = 96;

// More graphs than this are one per batch shape. They come back so seldom that some alternate by
// accident.
constexpr size_t kManyGraphs = 16;

constexpr double kSizedOnly = 0.2;
constexpr double kGraphBonus = 6;  // a graph stands for many launches

bool IsGraph(const abi::CallRecord& call) {
  return call.op == static_cast<uint8_t>(abi::Op::kGraphLaunch);
}

void Weigh(const LaunchLog& stream, KernelGroup* group) {
  const uint32_t from = group->at()[group->count() / 2];
  absl::flat_hash_set<uint32_t> calls, sized, graphs;
  for (const Member& member : group->members) {
    auto it = std::lower_bound(member.at.begin(), member.at.end(), from);
    const uint32_t call = it == member.at.end() ? member.at.back() : *it;
    const bool graph = IsGraph(stream.calls()[call]);
    if (graph) graphs.insert(call);
    (member.alphabet == Alphabet::kSized && !graph ? sized : calls).insert(call);
  }
  for (uint32_t call : calls) sized.erase(call);
  group->weight = static_cast<uint32_t>(calls.size() + sized.size());
  group->strength = static_cast<double>(calls.size()) +
                    kSizedOnly * static_cast<double>(sized.size()) +
                    kGraphBonus * static_cast<double>(graphs.size());
  group->graphs = !graphs.empty();
}

bool HasManyGraphs(const LaunchLog& stream, uint32_t begin, uint32_t end) {
  if (stream.SymbolOf(Alphabet::kSized, abi::Op::kGraphLaunch) == 0) return false;
  absl::flat_hash_set<uint32_t> graphs;
  for (uint32_t i = begin; i < end && graphs.size() <= kManyGraphs; ++i) {
    if (IsGraph(stream.calls()[i])) graphs.insert(stream.symbols()[i].of[0]);
  }
  return graphs.size() > kManyGraphs;
}

// Whether the symbol stands for one particular graph, or for a call that follows it.
bool NamesGraph(const LaunchLog& stream, Alphabet alphabet, uint32_t call) {
  if (alphabet == Alphabet::kSized) return false;
  if (alphabet != Alphabet::kAfter && IsGraph(stream.calls()[call])) return true;
  if (alphabet == Alphabet::kKind) return false;
  while (call > 0 && !IsLaunch(stream.calls()[call - 1].op)) --call;
  return call > 0 && IsGraph(stream.calls()[call - 1]);
}

}  // namespace

Occurrences::Occurrences(const LaunchLog& stream) {
  const std::vector<Symbols>& symbols = stream.symbols();
  for (size_t a = 0; a < kAlphabets; ++a) {
    const uint32_t count = stream.symbol_count(static_cast<Alphabet>(a));
    std::vector<uint32_t>& offsets = offsets_[a];
    offsets.assign(count + 1, 0);
    for (const Symbols& s : symbols) ++offsets[s.of[a] + 1];
    offsets[1] = 0;  // symbol 0 is "none"
    for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
    positions_[a].resize(offsets.back());
    std::vector<uint32_t> next(offsets.begin(), offsets.end() - 1);
    for (uint32_t i = 0; i < symbols.size(); ++i) {
      const uint32_t symbol = symbols[i].of[a];
      if (symbol != 0) positions_[a][next[symbol]++] = i;
    }
  }
}

absl::Span<const uint32_t> Occurrences::Of(Alphabet alphabet, uint32_t symbol, uint32_t begin,
                                           uint32_t end) const {
  const auto a = static_cast<size_t>(alphabet);
  if (symbol == 0 || symbol + 1 >= offsets_[a].size()) return {};
  const uint32_t* first = positions_[a].data() + offsets_[a][symbol];
  const uint32_t* last = positions_[a].data() + offsets_[a][symbol + 1];
  first = std::lower_bound(first, last, begin);
  last = std::lower_bound(first, last, end);
  return {first, static_cast<size_t>(last - first)};
}

bool Interleave(absl::Span<const uint32_t> a, absl::Span<const uint32_t> b) {
  if (a.empty() || b.empty()) return false;
  if (b[0] < a[0]) std::swap(a, b);
  if (a.size() != b.size() && a.size() != b.size() + 1) return false;
  for (size_t i = 0; i < b.size(); ++i) {
    if (b[i] < a[i]) return false;
    if (i + 1 < a.size() && b[i] >= a[i + 1]) return false;
  }
  return true;
}

std::vector<KernelGroup> FindKernelGroups(const LaunchLog& stream, const Occurrences& occurrences,
                                          uint32_t begin, uint32_t end, size_t min_count) {
  const bool many_graphs = HasManyGraphs(stream, begin, end);
  std::vector<Member> symbols;
  for (int a = 0; a < kAlphabets; ++a) {
    const auto alphabet = static_cast<Alphabet>(a);
    for (uint32_t symbol = 1; symbol < stream.symbol_count(alphabet); ++symbol) {
      const auto at = occurrences.Of(alphabet, symbol, begin, end);
      if (at.size() < min_count) continue;
      if (!many_graphs || !NamesGraph(stream, alphabet, at[0]))
        symbols.push_back({alphabet, symbol, at});
    }
  }
  std::stable_sort(symbols.begin(), symbols.end(),
                   [](const Member& x, const Member& y) { return x.at.size() > y.at.size(); });

  // The groups of counts n + 1 and n, while symbols of count n are looked at.
  std::vector<KernelGroup> found;
  size_t above_begin = 0, same_begin = 0;
  size_t count = 0;
  for (const Member& symbol : symbols) {
    if (symbol.at.size() != count) {
      above_begin = symbol.at.size() + 1 == count ? same_begin : found.size();
      same_begin = found.size();
      count = symbol.at.size();
    }
    bool placed = false;
    for (size_t i = above_begin; i < found.size() && !placed; ++i) {
      if (!Interleave(found[i].at(), symbol.at)) continue;
      found[i].members.push_back(symbol);
      placed = true;
    }
    if (!placed && found.size() - same_begin < kMaxGroupsPerCount) {
      found.push_back({.members = {symbol}});
    }
  }
  for (KernelGroup& group : found) Weigh(stream, &group);
  std::stable_sort(found.begin(), found.end(),
                   [](const KernelGroup& x, const KernelGroup& y) { return x.weight > y.weight; });
  return found;
}

}  // namespace seqpoint::iterations
