#include "daemon/sparse/joint_search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>

#include "daemon/sparse/annealing.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/layered_hypergraph.h"
#include "daemon/sparse/partition_state.h"
#include "daemon/sparse/recombination.h"

namespace seqpoint::sparse {
namespace {

using Parts = std::vector<int32_t>;

// Rows are alike that have this share of their inputs in common. RadiX-Net: 1 for rows of a residue
// class, 1/2 for the next class; pruned at random to a tenth: 1/10.
constexpr double kAlike = 0.9;

// Temperatures in words for each row of a vertex, as are the words that depend on it. From
// RadiX-Net 1,024 x 60 on 4 to 64 parts: above the first one nearly every step is taken, below the
// last one none is.
constexpr double kHot = 0.45;
constexpr double kCold = 0.05;
// A cycle begins between kHot and kHot / 32, and ends at a sixth of that: hot ones find other
// partitions, cold ones improve the present one, and the network decides which of them helps.
constexpr double kColdestCycle = 1.0 / 32;
constexpr double kCooling = 1.0 / 6;
// A vertex too many in a part costs so many words for each of its rows: at first little against the
// words that its place saves, then as much.
constexpr double kSoft = 1.0 / 16;
constexpr double kStiff = 1.0;

// Looks at pins, for each pin of the network: on RadiX-Net twice as many save another 0.1 %.
constexpr double kFirstWork = 150;  // of the first annealing
constexpr double kCycleWork = 20;   // of each cycle
constexpr double kRowWork = 15;     // of each annealing of single rows
constexpr int kRounds = 4;
constexpr int kCyclesOfRound = 10;
constexpr int kFewestSweeps = 4;

// Hypergraphs from fine to coarse.
struct Hierarchy {
  explicit Hierarchy(const LayeredHypergraph& finest) : graphs{&finest} {}

  std::vector<const LayeredHypergraph*> graphs;  // the first one belongs to somebody else
  std::deque<LayeredHypergraph> coarser;         // the others
  std::vector<std::vector<int32_t>> coarse_of;

  Parts Lift(Parts part_of, size_t from, size_t to) const {  // to a finer one
    for (size_t i = from; i > to; --i) {
      Parts finer(coarse_of[i - 1].size());
      for (size_t v = 0; v < finer.size(); ++v) finer[v] = part_of[coarse_of[i - 1][v]];
      part_of = std::move(finer);
    }
    return part_of;
  }

  // The partition is the same within each coarse vertex.
  Parts Lower(Parts part_of, size_t from, size_t to) const {
    for (size_t i = from; i < to; ++i) {
      Parts merged(graphs[i + 1]->vertices());
      for (size_t v = 0; v < part_of.size(); ++v) merged[coarse_of[i][v]] = part_of[v];
      part_of = std::move(merged);
    }
    return part_of;
  }
};

class JointSearch {
 public:
  JointSearch(const Network& network, const JointSearchOptions& options)
      : network_(network),
        options_(options),
        random_(options.seed),
        rows_(MakeHypergraph(network)),
        limits_(PartLimits(rows_, options.parts, options.imbalance)) {
    for (int layer = 0; layer < rows_.layers(); ++layer) {
      int64_t all = 0;
      for (int32_t v = rows_.vertices_of_layer[layer]; v < rows_.vertices_of_layer[layer + 1];
           ++v) {
        all += rows_.vertex_weight[v];
      }
      nonzeros_.push_back(all);
    }
  }

  JointSearchResult Run(const std::vector<Owners>& candidates) {
    best_ = SpreadEvenly(rows_, options_.parts, &random_);
    std::vector<Parts> starts = {best_};
    for (const Owners& owners : candidates) {
      Parts part_of;
      for (size_t l = 1; l < owners.size(); ++l) {
        part_of.insert(part_of.end(), owners[l].begin(), owners[l].end());
      }
      starts.push_back(Balanced(rows_, std::move(part_of)));
    }
    best_ = Recombine(rows_, options_.parts, limits_, starts);
    Report(0);
    if (options_.parts > 1) Search();

    return {.owners = OwnersOfRows(network_, options_.parts, best_), .stopped = Stopped()};
  }

 private:
  void Search() {
    const double all = kFirstWork + kRounds * (kCyclesOfRound * kCycleWork + kRowWork);
    double done = 0;
    const auto finish = [&](double work) {
      done += work;
      Report(done / all);
    };
    const auto work = [&](double looks) {
      return looks * options_.effort * static_cast<double>(rows_.pins());
    };
    AnnealFromRandomStart(work(kFirstWork));
    finish(kFirstWork);
    for (int round = 0; round < kRounds; ++round) {
      const Hierarchy alike = MergeAlike(&best_);
      const size_t top = alike.graphs.size() - 1;
      const LayeredHypergraph& graph = *alike.graphs[top];
      Parts best = alike.Lower(best_, 0, top);
      for (int cycle = 0; cycle < kCyclesOfRound && !Stopped(); ++cycle) {
        best =
            Recombine(graph, options_.parts, limits_, {best, Cycle(graph, best, work(kCycleWork))});
        best_ = alike.Lift(best, top, 0);
        finish(kCycleWork);
      }
      if (Stopped()) return;
      AnnealRows(work(kRowWork));
      finish(kRowWork);
    }
  }

  void AnnealFromRandomStart(double work) {
    const Hierarchy alike = MergeAlike(nullptr);
    const LayeredHypergraph& graph = *alike.graphs.back();
    PartitionState state(graph, options_.parts, SpreadEvenly(graph, options_.parts, &random_));
    const double rows = RowsOfVertex(graph);
    AnnealingOptions annealing = Annealing(graph, kHot * rows, kCold * rows);
    annealing.sweeps = Sweeps(work, graph.pins());
    Anneal(annealing, &random_, &state);
    RestoreBalance(limits_, &state);
    const Parts found = alike.Lift(state.part_of(), alike.graphs.size() - 1, 0);
    best_ = Recombine(rows_, options_.parts, limits_, {best_, Balanced(rows_, found)});
  }

  // A candidate near `best`: merged within parts, annealed from coarse to fine.
  Parts Cycle(const LayeredHypergraph& graph, const Parts& best, double work) {
    Hierarchy hierarchy(graph);
    Parts part_of = best;
    double pins = static_cast<double>(graph.pins());
    for (;;) {
      CoarseningLimits limits{.common_nets = 0, .most_weight = MostWeight(), .part = &part_of};
      if (!AddCoarser(limits, &hierarchy)) break;
      const size_t last = hierarchy.graphs.size() - 1;
      part_of = hierarchy.Lower(part_of, last - 1, last);
      pins += static_cast<double>(hierarchy.graphs.back()->pins());
    }
    const double uniform = static_cast<double>(random_() >> 11) * 0x1p-53;
    const double temperature = kHot * std::pow(kColdestCycle, uniform) * RowsOfVertex(graph);
    for (size_t i = hierarchy.graphs.size(); i-- > 0;) {
      PartitionState state(*hierarchy.graphs[i], options_.parts, part_of);
      AnnealingOptions annealing = Annealing(graph, temperature, temperature * kCooling);
      annealing.sweeps = Sweeps(work, pins);
      Anneal(annealing, &random_, &state);
      if (i == 0) RestoreBalance(limits_, &state);
      part_of = hierarchy.Lift(state.part_of(), i, i > 0 ? i - 1 : 0);
    }
    return part_of;
  }

  void AnnealRows(double work) {
    PartitionState state(rows_, options_.parts, best_);
    AnnealingOptions annealing = Annealing(rows_, kCold, kCold * kCooling);
    annealing.sweeps = Sweeps(work, static_cast<double>(rows_.pins()));
    Anneal(annealing, &random_, &state);
    RestoreBalance(limits_, &state);
    best_ = Recombine(rows_, options_.parts, limits_, {best_, state.part_of()});
  }

  // Balance is measured in vertices of `graph`.
  AnnealingOptions Annealing(const LayeredHypergraph& graph, double first, double last) const {
    const double rows = RowsOfVertex(graph);
    AnnealingOptions annealing{.first_temperature = first,
                               .last_temperature = last,
                               .first_stiffness = kSoft * rows,
                               .last_stiffness = kStiff * rows,
                               .stop = options_.stop};
    for (int layer = 0; layer < graph.layers(); ++layer) {
      const int32_t vertices = graph.vertices_of_layer[layer + 1] - graph.vertices_of_layer[layer];
      annealing.unit.push_back(static_cast<double>(nonzeros_[layer]) / vertices);
    }
    return annealing;
  }

  Hierarchy MergeAlike(const Parts* part_of) {
    Hierarchy hierarchy(rows_);
    Parts parts;
    if (part_of != nullptr) parts = *part_of;
    for (;;) {
      CoarseningLimits limits{.common_nets = kAlike, .most_weight = MostWeight()};
      if (part_of != nullptr) limits.part = &parts;
      if (!AddCoarser(limits, &hierarchy)) return hierarchy;
      const size_t last = hierarchy.graphs.size() - 1;
      if (part_of != nullptr) parts = hierarchy.Lower(parts, last - 1, last);
    }
  }

  // False when hardly anything could be merged.
  bool AddCoarser(const CoarseningLimits& limits, Hierarchy* hierarchy) {
    const LayeredHypergraph& fine = *hierarchy->graphs.back();
    Coarsening next = Coarsen(fine, limits, &random_);
    if (next.coarse.vertices() > 0.95 * fine.vertices()) return false;
    hierarchy->coarse_of.push_back(std::move(next.coarse_of));
    hierarchy->coarser.push_back(std::move(next.coarse));
    hierarchy->graphs.push_back(&hierarchy->coarser.back());
    return true;
  }

  // A vertex is no heavier than a part.
  std::vector<int64_t> MostWeight() const {
    std::vector<int64_t> most;
    most.reserve(nonzeros_.size());
    for (const int64_t nonzeros : nonzeros_) most.push_back(nonzeros / options_.parts);
    return most;
  }

  Parts Balanced(const LayeredHypergraph& graph, Parts part_of) const {
    PartitionState state(graph, options_.parts, std::move(part_of));
    RestoreBalance(limits_, &state);
    return state.part_of();
  }

  double RowsOfVertex(const LayeredHypergraph& graph) const {
    return static_cast<double>(rows_.vertices()) / graph.vertices();
  }

  static int Sweeps(double work, double pins) {
    return std::max(kFewestSweeps, static_cast<int>(work / std::max(pins, 1.0)));
  }

  bool Stopped() const { return options_.stop && options_.stop(); }

  void Report(double share) {
    if (!options_.progress) return;
    options_.progress(share, PartitionState(rows_, options_.parts, best_).words());
  }

  const Network& network_;
  const JointSearchOptions& options_;
  std::mt19937_64 random_;
  const LayeredHypergraph rows_;
  const std::vector<int64_t> limits_;
  std::vector<int64_t> nonzeros_;  // of each layer
  Parts best_;                     // of each row
};

}  // namespace

JointSearchResult SearchJointly(const Network& network, const std::vector<Owners>& candidates,
                                const JointSearchOptions& options) {
  return JointSearch(network, options).Run(candidates);
}

}  // namespace seqpoint::sparse
