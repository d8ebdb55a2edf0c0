#include "daemon/sparse/annealing.h"

#include <cmath>

namespace seqpoint::sparse {
namespace {

class Annealer {
 public:
  Annealer(const AnnealingOptions& options, std::mt19937_64* random, PartitionState* state)
      : options_(options), random_(*random), state_(*state), graph_(state->graph()) {
    for (int layer = 0; layer < graph_.layers(); ++layer) {
      double all = 0;
      for (int part = 0; part < state_.parts(); ++part) {
        all += static_cast<double>(state_.load(layer, part));
      }
      mean_.push_back(all / state_.parts());
    }
  }

  void Run() {
    const auto between = [&](double first, double last, int sweep) {
      const double share = options_.sweeps > 1 ? sweep / (options_.sweeps - 1.0) : 1;
      return first * std::pow(last / first, share);
    };
    for (int sweep = 0; sweep < options_.sweeps; ++sweep) {
      if (options_.stop && options_.stop()) return;
      temperature_ = between(options_.first_temperature, options_.last_temperature, sweep);
      stiffness_ = between(options_.first_stiffness, options_.last_stiffness, sweep);
      for (int32_t i = 0; i < graph_.vertices(); ++i) Step();
    }
  }

 private:
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>((random_() >> 32) * static_cast<uint64_t>(bound) >> 32);
  }

  // The part of a random pin of a random net.
  int32_t PartOfNeighbour(int32_t vertex) {
    const int64_t first = graph_.nets_of_vertex[vertex];
    const int64_t nets = graph_.nets_of_vertex[vertex + 1] - first;
    if (nets == 0) return state_.part_of()[vertex];
    const int32_t net = graph_.net[first + Below(nets)];
    const int64_t begin = graph_.consumers_of_net[net];
    const int64_t consumers = graph_.consumers_of_net[net + 1] - begin;
    const bool owned = graph_.owner[net] >= 0;
    const int64_t pin = Below(consumers + (owned ? 1 : 0));
    return state_.part_of()[pin == consumers ? graph_.owner[net] : graph_.consumer[begin + pin]];
  }

  // The cost, in words to send, of so many more nonzeros in a part than now.
  double BalanceChange(int layer, int32_t part, int64_t nonzeros) const {
    const double off = static_cast<double>(state_.load(layer, part)) - mean_[layer];
    const double then = off + static_cast<double>(nonzeros);
    return stiffness_ * (then * then - off * off) / (options_.unit[layer] * options_.unit[layer]);
  }

  void Step() {
    const auto vertex = static_cast<int32_t>(Below(graph_.vertices()));
    const int32_t from = state_.part_of()[vertex];
    const int32_t to = PartOfNeighbour(vertex);
    if (to == from) return;
    const int layer = state_.layer_of(vertex);
    const double uniform = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    const double most = -temperature_ * std::log(uniform);  // the cost that a step may have
    const std::vector<int32_t>& others = state_.members(layer, to);
    const bool alone = (random_() & 1) != 0 || others.empty();
    const int32_t other = alone ? -1 : others[Below(static_cast<int64_t>(others.size()))];
    const int64_t moved = graph_.vertex_weight[vertex] - (alone ? 0 : graph_.vertex_weight[other]);
    const double balance = BalanceChange(layer, from, -moved) + BalanceChange(layer, to, moved);
    const auto change = static_cast<double>(state_.Change(vertex, to)) + balance;
    if (alone) {
      if (change <= most) state_.Move(vertex, to);
      return;
    }
    state_.Move(vertex, to);
    if (change + static_cast<double>(state_.Change(other, from)) <= most) {
      state_.Move(other, from);
    } else {
      state_.Move(vertex, from);
    }
  }

  const AnnealingOptions& options_;
  std::mt19937_64& random_;
  PartitionState& state_;
  const LayeredHypergraph& graph_;
  std::vector<double> mean_;  // nonzeros of a part, for each layer
  double temperature_ = 0;
  double stiffness_ = 0;
};

}  // namespace

void Anneal(const AnnealingOptions& options, std::mt19937_64* random, PartitionState* state) {
  Annealer(options, random, state).Run();
}

}  // namespace seqpoint::sparse
