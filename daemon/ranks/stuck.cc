#include "daemon/ranks/stuck.h"

#include <algorithm>
#include <set>
#include <utility>

namespace seqpoint::ranks {
namespace {

// `waiter` has called `operation`, and `awaited` has not.
struct Edge {
  int32_t waiter = 0, awaited = 0;
  CallKey operation;
  int64_t number = 0;  // the first call that is missing
};

int64_t NumberOf(const LastCalls& calls, const CallKey& key) {
  const auto it = calls.find(key);
  return it == calls.end() ? 0 : it->second.number;
}

// The call of the peer's that answers this one.
std::optional<CallKey> Answer(const CallKey& key, int32_t own_rank) {
  if (key.peer < 0) return key;
  if (key.function == "Send") return CallKey{"Recv", own_rank};
  if (key.function == "Recv") return CallKey{"Send", own_rank};
  return std::nullopt;
}

void AddEdges(const RankCalls& waiter, const RankCalls& other, std::vector<Edge>* edges) {
  for (const auto& [hash, own] : waiter.communicators) {
    const auto it = other.communicators.find(hash);
    if (it == other.communicators.end()) continue;
    for (const auto& [key, call] : own.calls) {
      if (key.peer >= 0 && key.peer != it->second.rank) continue;
      const std::optional<CallKey> answer = Answer(key, own.rank);
      if (!answer) continue;
      const int64_t answered = NumberOf(it->second.calls, *answer);
      if (answered < call.number) {
        edges->push_back({waiter.rank, other.rank, *answer, answered + 1});
      }
    }
  }
}

int64_t LastCallNs(const RankCalls& rank) {
  int64_t last_ns = 0;
  for (const auto& [hash, communicator] : rank.communicators) {
    for (const auto& [key, call] : communicator.calls) last_ns = std::max(last_ns, call.at_ns);
  }
  return last_ns;
}

}  // namespace

std::optional<Stuck> FindStuck(const std::vector<RankCalls>& ranks) {
  std::vector<Edge> edges;
  for (const RankCalls& waiter : ranks) {
    if (waiter.ended) continue;
    for (const RankCalls& other : ranks) {
      if (waiter.rank != other.rank) AddEdges(waiter, other, &edges);
    }
  }
  if (edges.empty()) return std::nullopt;
  std::set<int32_t> waiting, awaited;
  for (const Edge& edge : edges) {
    waiting.insert(edge.waiter);
    awaited.insert(edge.awaited);
  }
  std::erase_if(awaited, [&](int32_t rank) { return waiting.contains(rank); });
  Stuck stuck = {.awaited = {awaited.begin(), awaited.end()},
                 .waiting = {waiting.begin(), waiting.end()}};
  const auto edge = std::find_if(edges.begin(), edges.end(), [&](const Edge& e) {
    return awaited.empty() || awaited.contains(e.awaited);
  });
  stuck.operation = edge->operation;
  stuck.number = edge->number;
  for (const RankCalls& rank : ranks) {
    if (awaited.contains(rank.rank)) stuck.since_ns = std::max(stuck.since_ns, LastCallNs(rank));
  }
  return stuck;
}

}  // namespace seqpoint::ranks
