// The annotations around the times of a CPU thread.
//
// Threading: none. Ownership: Labels refers to the names, which outlive it.
#ifndef DAEMON_WHATIF_GRAPH_LABELS_H_
#define DAEMON_WHATIF_GRAPH_LABELS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// Names of annotations within each other, outermost first, a line each: added to Graph::names.
class LabelNames {
 public:
  explicit LabelNames(Graph* graph) : graph_(graph) {}
  // The label of annotation `name` inside of what `outer` says.
  uint32_t LabelIn(uint32_t outer, uint32_t name) {
    if (outer == 0) return name;
    const auto [it, made] = labels_.try_emplace({outer, name}, 0);
    if (made) {
      it->second = static_cast<uint32_t>(graph_->names.size());
      std::string label = graph_->names[outer];
      label += '\n';
      label += graph_->names[name];
      graph_->names.push_back(std::move(label));
    }
    return it->second;
  }

 private:
  Graph* graph_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> labels_;  // see LabelIn
};

// The annotations of a thread, outermost first, and where a gap crosses their borders.
class Labels {
 public:
  explicit Labels(LabelNames* names) : names_(names) {}
  void Add(const Span& span) { spans_.push_back(span); }
  void Sort() {
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::tie(a.begin_ns, b.end_ns) < std::tie(b.begin_ns, a.end_ns);
    });
  }
  // Calls `part(begin_ns, end_ns, label)` for each part of [begin_ns, end_ns) that has the same
  // annotations around it. Times of successive calls ascend.
  template <typename Part>
  void Cut(int64_t begin_ns, int64_t end_ns, const Part& part) {
    int64_t at_ns = begin_ns;
    do {
      Enter(at_ns);
      int64_t until_ns = end_ns;
      if (!open_.empty()) until_ns = std::min(until_ns, open_.back().end_ns);
      if (next_ < spans_.size()) until_ns = std::min(until_ns, spans_[next_].begin_ns);
      part(at_ns, until_ns, open_.empty() ? 0 : open_.back().label);
      at_ns = until_ns;
    } while (at_ns < end_ns);
  }

 private:
  static constexpr size_t kMostNested = 64;  // annotations; hostile traces have more

  void Enter(int64_t at_ns) {
    for (; next_ < spans_.size() && spans_[next_].begin_ns <= at_ns; ++next_) {
      const Span& span = spans_[next_];
      if (span.end_ns <= at_ns) continue;
      // An annotation that ended before this one started is not around it.
      while (!open_.empty() && open_.back().end_ns <= span.begin_ns) open_.pop_back();
      const uint32_t outer = open_.empty() ? 0 : open_.back().label;
      const bool deep = open_.size() >= kMostNested;
      open_.push_back({span.end_ns, deep ? outer : names_->LabelIn(outer, span.name)});
    }
    while (!open_.empty() && open_.back().end_ns <= at_ns) open_.pop_back();
  }
  struct Open {
    int64_t end_ns;
    uint32_t label;
  };
  LabelNames* names_;
  std::vector<Span> spans_;
  std::vector<Open> open_;
  size_t next_ = 0;
};

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_GRAPH_LABELS_H_
