#include "daemon/whatif/graph/collectives.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace seqpoint::whatif {
namespace {

// Ends of one collective on ranks of one clock are within 10 us on real traces; more allows for
// clocks that drift and for times in whole microseconds.
constexpr int64_t kSameNs = 100'000;
constexpr int64_t kClockStepNs = 20'000;  // clocks are first aligned to this
constexpr size_t kClockSample = 512;      // collectives of a rank that show its clock

struct Member {
  uint32_t rank = 0;
  uint32_t task = 0;
};

// One collective of a communicator.
struct Item {
  std::string_view name;
  int64_t end_ns = 0;  // on the first rank's clock
  std::vector<Member> members;
};
using Sequence = std::vector<Item>;  // in order

struct Communicator {
  Sequence items;
  uint32_t last_rank = 0;  // of the ranks that take part
};

// Pairs of the same collectives, as indices; `behind_ns` is added to the times of `b`.
std::vector<std::pair<size_t, size_t>> Pairs(const Sequence& a, const Sequence& b,
                                             int64_t behind_ns) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const int64_t later_ns = b[k].end_ns + behind_ns - a[i].end_ns;
    if (std::abs(later_ns) <= kSameNs && a[i].name == b[k].name) {
      pairs.emplace_back(i++, k++);
    } else if (later_ns > 0) {
      ++i;
    } else {
      ++k;
    }
  }
  return pairs;
}

// How many of `b` end within the time of `a`: the windows of ranks differ.
size_t InWindow(const Sequence& a, const Sequence& b, int64_t behind_ns) {
  size_t count = 0;
  for (const Item& item : b) {
    const int64_t end_ns = item.end_ns + behind_ns;
    if (end_ns >= a.front().end_ns - kSameNs && end_ns <= a.back().end_ns + kSameNs) ++count;
  }
  return count;
}

// Times of a graph count from its start, which becomes the same moment on all ranks.
void BeginTogether(const std::vector<int64_t>& clock_behind_ns, absl::Span<Graph* const> graphs) {
  int64_t begin_ns = std::numeric_limits<int64_t>::max();
  for (size_t r = 0; r < graphs.size(); ++r) {
    begin_ns = std::min(begin_ns, graphs[r]->begin_ns + clock_behind_ns[r]);
  }
  for (size_t r = 0; r < graphs.size(); ++r) {
    Graph& graph = *graphs[r];
    const int64_t later_ns = graph.begin_ns + clock_behind_ns[r] - begin_ns;
    graph.begin_ns -= later_ns;
    for (int64_t& thread_ns : graph.thread_begin_ns) thread_ns += later_ns;
    for (GpuTask& task : graph.gpu) {
      if (!task.before) break;
      task.latency_ns += later_ns;
    }
  }
}

class Matcher {
 public:
  Matcher(absl::Span<Graph* const> graphs, absl::Span<const Trace* const> traces)
      : graphs_(graphs), traces_(traces) {}

  MatchedCollectives Run() {
    for (uint32_t rank = 0; rank < graphs_.size(); ++rank) {
      std::vector<Sequence> sequences = SequencesOf(rank);
      const int64_t behind_ns = ClockBehindNs(sequences);
      result_.clock_behind_ns.push_back(behind_ns);
      for (Sequence& sequence : sequences) Join(rank, behind_ns, std::move(sequence));
    }
    Number();
    BeginTogether(result_.clock_behind_ns, graphs_);
    return std::move(result_);
  }

 private:
  // The collectives of each stream.
  std::vector<Sequence> SequencesOf(uint32_t rank) const {
    const Graph& graph = *graphs_[rank];
    std::map<uint32_t, Sequence> by_lane;
    for (uint32_t t = 0; t < graph.gpu.size(); ++t) {
      const GpuTask& task = graph.gpu[t];
      if (task.kind != WorkKind::kCollective || task.work == kNone) continue;
      by_lane[task.lane].push_back(
          {graph.names[task.name], traces_[rank]->works[task.work].end_ns, {{rank, t}}});
    }
    std::vector<Sequence> sequences;
    for (auto& [lane, sequence] : by_lane) {
      std::stable_sort(sequence.begin(), sequence.end(),
                       [](const Item& a, const Item& b) { return a.end_ns < b.end_ns; });
      sequences.push_back(std::move(sequence));
    }
    return sequences;
  }

  // 0 where one clock explains the ends, else the difference that most pairs of ends have.
  int64_t ClockBehindNs(const std::vector<Sequence>& sequences) const {
    std::vector<int64_t> differences;
    for (const Communicator& communicator : communicators_) {
      for (const Sequence& sequence : sequences) {
        const size_t same = Pairs(communicator.items, sequence, 0).size();
        if (same > 1 && same * 2 >= InWindow(communicator.items, sequence, 0)) return 0;
        const size_t count = std::min(sequence.size(), kClockSample);
        for (const Item& item : communicator.items) {
          for (size_t k = 0; k < count; ++k) {
            if (item.name == sequence[k].name) {
              differences.push_back(item.end_ns - sequence[k].end_ns);
            }
          }
        }
      }
    }
    if (differences.empty()) return 0;
    std::sort(differences.begin(), differences.end());
    size_t best = 0, best_count = 0;
    for (size_t first = 0, last = 0; last < differences.size(); ++last) {
      while (differences[last] - differences[first] > kClockStepNs) ++first;
      const size_t count = last - first + 1;
      // The smallest of several that are as good: clocks of hosts are synchronised.
      const size_t middle = first + count / 2;
      if (count < best_count ||
          (count == best_count && std::abs(differences[middle]) >= std::abs(differences[best]))) {
        continue;
      }
      best = middle;
      best_count = count;
    }
    return differences[best];
  }

  void Join(uint32_t rank, int64_t behind_ns, Sequence sequence) {
    Communicator* best = nullptr;
    std::vector<std::pair<size_t, size_t>> best_pairs;
    for (Communicator& communicator : communicators_) {
      if (communicator.last_rank == rank) continue;
      std::vector<std::pair<size_t, size_t>> pairs = Pairs(communicator.items, sequence, behind_ns);
      if (pairs.size() <= best_pairs.size() ||
          pairs.size() * 2 < InWindow(communicator.items, sequence, behind_ns)) {
        continue;
      }
      best = &communicator;
      best_pairs = std::move(pairs);
    }
    for (Item& item : sequence) item.end_ns += behind_ns;
    if (best == nullptr) {
      communicators_.push_back({std::move(sequence), rank});
      return;
    }
    best->last_rank = rank;
    for (const auto& [i, k] : best_pairs) {
      best->items[i].members.push_back(sequence[k].members[0]);
      sequence[k].members.clear();
    }
    // Later ranks may have collectives that the ranks so far do not.
    for (Item& item : sequence) {
      if (!item.members.empty()) best->items.push_back(std::move(item));
    }
    std::stable_sort(best->items.begin(), best->items.end(),
                     [](const Item& a, const Item& b) { return a.end_ns < b.end_ns; });
  }

  void Number() {
    for (const Communicator& communicator : communicators_) {
      for (const Item& item : communicator.items) {
        if (item.members.size() < 2) {
          ++result_.alone;
          continue;
        }
        int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = -first_ns;
        for (const Member& member : item.members) {
          GpuTask& task = graphs_[member.rank]->gpu[member.task];
          task.collective = result_.count;
          const int64_t end_ns =
              traces_[member.rank]->works[task.work].end_ns + result_.clock_behind_ns[member.rank];
          first_ns = std::min(first_ns, end_ns);
          last_ns = std::max(last_ns, end_ns);
        }
        result_.spread_ns = std::max(result_.spread_ns, last_ns - first_ns);
        result_.members += item.members.size();
        ++result_.count;
      }
    }
  }

  const absl::Span<Graph* const> graphs_;
  const absl::Span<const Trace* const> traces_;
  std::vector<Communicator> communicators_;
  MatchedCollectives result_;
};

}  // namespace

MatchedCollectives MatchCollectives(absl::Span<Graph* const> graphs,
                                    absl::Span<const Trace* const> traces) {
  return Matcher(graphs, traces).Run();
}

void SetCollectives(const std::vector<std::vector<uint32_t>>& numbers,
                    const std::vector<int64_t>& clock_behind_ns, absl::Span<Graph* const> graphs) {
  for (size_t r = 0; r < graphs.size(); ++r) {
    for (GpuTask& task : graphs[r]->gpu) {
      if (task.work != kNone) task.collective = numbers[r][task.work];
    }
  }
  BeginTogether(clock_behind_ns, graphs);
}

}  // namespace seqpoint::whatif
