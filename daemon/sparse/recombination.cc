#include "daemon/sparse/recombination.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "daemon/sparse/assignment.h"

namespace seqpoint::sparse {
namespace {

constexpr int64_t kBarred = std::numeric_limits<int64_t>::max() / 4;

// The best way to a candidate of a layer.
struct Step {
  int64_t words = kBarred;  // of all layers up to here
  int before = 0;           // candidate of the layer before
  std::vector<int> label;   // of each part of this candidate: the part of the one before
};

class Recombination {
 public:
  Recombination(const LayeredHypergraph& graph, int parts, const std::vector<int64_t>& limits,
                const std::vector<std::vector<int32_t>>& candidates)
      : graph_(graph), parts_(parts), limits_(limits), candidates_(candidates) {}

  std::vector<int32_t> Run() {
    const int count = static_cast<int>(candidates_.size());
    std::vector<std::vector<Step>> steps(graph_.layers(), std::vector<Step>(count));
    for (int layer = 0; layer < graph_.layers(); ++layer) {
      const std::vector<bool> allowed = Allowed(layer);
      for (int candidate = 0; candidate < count; ++candidate) {
        if (!allowed[candidate]) continue;
        steps[layer][candidate] =
            BestStep(layer, candidate, layer == 0 ? nullptr : &steps[layer - 1]);
      }
    }
    return Follow(steps);
  }

 private:
  // The candidates whose fullest part is within the limit; else those that are nearest to it.
  std::vector<bool> Allowed(int layer) const {
    std::vector<int64_t> fullest;
    for (const std::vector<int32_t>& part_of : candidates_) {
      std::vector<int64_t> load(parts_, 0);
      for (int32_t vertex = graph_.vertices_of_layer[layer];
           vertex < graph_.vertices_of_layer[layer + 1]; ++vertex) {
        load[part_of[vertex]] += graph_.vertex_weight[vertex];
      }
      fullest.push_back(std::max(limits_[layer], *std::max_element(load.begin(), load.end())));
    }
    const int64_t least = *std::min_element(fullest.begin(), fullest.end());
    std::vector<bool> allowed;
    allowed.reserve(fullest.size());
    for (const int64_t load : fullest) allowed.push_back(load == least);
    return allowed;
  }

  Step BestStep(int layer, int candidate, const std::vector<Step>* before) {
    const std::vector<int32_t>& part_of = candidates_[candidate];
    const size_t count = before == nullptr ? 0 : before->size();
    // Words if no owner consumed its own neuron, and how many each pair of labels saves.
    int64_t words = 0;
    std::vector<std::vector<int64_t>> saved(
        count, std::vector<int64_t>(static_cast<size_t>(parts_) * parts_, 0));
    std::vector<bool> seen(parts_, false);
    std::vector<int32_t> consumers;
    for (int32_t net = graph_.nets_of_layer[layer]; net < graph_.nets_of_layer[layer + 1]; ++net) {
      consumers.clear();
      for (int64_t k = graph_.consumers_of_net[net]; k < graph_.consumers_of_net[net + 1]; ++k) {
        const int32_t part = part_of[graph_.consumer[k]];
        if (!seen[part]) consumers.push_back(part);
        seen[part] = true;
      }
      for (const int32_t part : consumers) seen[part] = false;
      if (consumers.empty()) continue;
      const int32_t owner = graph_.owner[net];
      const auto sent = static_cast<int64_t>(consumers.size()) - (owner < 0 ? 1 : 0);
      words += sent * graph_.net_weight[net];
      if (owner < 0) continue;
      for (size_t other = 0; other < count; ++other) {
        for (const int32_t part : consumers) {
          saved[other][static_cast<size_t>(part) * parts_ + candidates_[other][owner]] +=
              graph_.net_weight[net];
        }
      }
    }
    Step best;
    if (before == nullptr) {
      best.words = words;
      best.label.resize(parts_);
      std::iota(best.label.begin(), best.label.end(), 0);
      return best;
    }
    for (size_t other = 0; other < count; ++other) {
      if ((*before)[other].words >= kBarred) continue;
      std::vector<int> label = LargestAssignment(saved[other], parts_);
      int64_t all = (*before)[other].words + words;
      for (int part = 0; part < parts_; ++part) {
        all -= saved[other][static_cast<size_t>(part) * parts_ + label[part]];
      }
      if (all < best.words) best = {all, static_cast<int>(other), std::move(label)};
    }
    return best;
  }

  std::vector<int32_t> Follow(const std::vector<std::vector<Step>>& steps) const {
    std::vector<int> choice(steps.size());
    const auto less = [](const Step& a, const Step& b) { return a.words < b.words; };
    choice.back() = static_cast<int>(
        std::min_element(steps.back().begin(), steps.back().end(), less) - steps.back().begin());
    for (size_t layer = steps.size() - 1; layer > 0; --layer) {
      choice[layer - 1] = steps[layer][choice[layer]].before;
    }
    std::vector<int32_t> result(graph_.vertices());
    std::vector<int> name(parts_);  // in the result, of each part of the layer's candidate
    std::iota(name.begin(), name.end(), 0);
    for (size_t layer = 0; layer < steps.size(); ++layer) {
      std::vector<int> next(parts_);
      for (int part = 0; part < parts_; ++part) {
        next[part] = name[steps[layer][choice[layer]].label[part]];
      }
      name = next;
      for (int32_t vertex = graph_.vertices_of_layer[layer];
           vertex < graph_.vertices_of_layer[layer + 1]; ++vertex) {
        result[vertex] = name[candidates_[choice[layer]][vertex]];
      }
    }
    return result;
  }

  const LayeredHypergraph& graph_;
  int parts_;
  const std::vector<int64_t>& limits_;
  const std::vector<std::vector<int32_t>>& candidates_;
};

}  // namespace

std::vector<int32_t> Recombine(const LayeredHypergraph& graph, int parts,
                               const std::vector<int64_t>& limits,
                               const std::vector<std::vector<int32_t>>& candidates) {
  return Recombination(graph, parts, limits, candidates).Run();
}

}  // namespace seqpoint::sparse
