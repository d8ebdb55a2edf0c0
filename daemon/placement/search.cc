#include "daemon/placement/search.h"

#include <math.h>

#include <algorithm>
#include <limits>
#include <map>

namespace seqpoint::placement {
namespace {

constexpr int kMostForContiguity = 64;  // bits of a word

// All threads read it.
struct Costs {
  const ClassGraph& graph;  // classes, their memory and precedence: the same at all lengths
  int nets = 0;
  int lengths = 0;
  int accelerators = 0;
  int devices = 0;
  double memory_bytes = 0;
  std::vector<double> weight;                // [length]
  std::vector<double> accelerator_time;      // [class][length]
  std::vector<double> cpu_time;              // [class][length]
  std::vector<double> transfer_time;         // [net][length]
  std::vector<std::vector<int>> classes_of;  // of each net
  std::vector<std::vector<int>> nets_of;     // of each class
  double load_of_each = 0;                   // the load of a device when all have the same
};

Costs MakeCosts(absl::Span<const WeightedGraph> lengths, const Problem& devices) {
  Costs costs = {.graph = *lengths[0].graph};
  const int classes = costs.graph.size();
  costs.lengths = static_cast<int>(lengths.size());
  costs.accelerators = devices.accelerators;
  costs.devices = devices.devices();
  costs.memory_bytes = devices.memory_limit();
  costs.nets_of.resize(classes);
  costs.accelerator_time.resize(size_t{1} * classes * costs.lengths);
  costs.cpu_time.resize(costs.accelerator_time.size());
  // A net may be missing at a length at which it costs nothing.
  std::map<std::vector<int>, int> net_of;
  for (const WeightedGraph& length : lengths) {
    for (const Net& net : length.graph->nets) {
      if (!net_of.try_emplace(net.classes, costs.nets).second) continue;
      for (int c : net.classes) costs.nets_of[c].push_back(costs.nets);
      costs.classes_of.push_back(net.classes);
      ++costs.nets;
    }
  }
  costs.transfer_time.resize(size_t{1} * costs.nets * costs.lengths);
  for (int s = 0; s < costs.lengths; ++s) {
    const ClassGraph& graph = *lengths[s].graph;
    costs.weight.push_back(lengths[s].weight);
    double work = 0;
    for (int c = 0; c < classes; ++c) {
      costs.accelerator_time[c * costs.lengths + s] = graph.classes[c].accelerator_time;
      costs.cpu_time[c * costs.lengths + s] = graph.classes[c].cpu_time;
      work +=
          devices.accelerators > 0 ? graph.classes[c].accelerator_time : graph.classes[c].cpu_time;
    }
    for (const Net& net : graph.nets) {
      costs.transfer_time[net_of[net.classes] * costs.lengths + s] += net.transfer_time;
    }
    const int alike = devices.accelerators > 0 ? devices.accelerators : devices.cpus;
    costs.load_of_each += lengths[s].weight * work / alike;
  }
  return costs;
}

// No better placement has a load of `value`, which one has already. More than twice that is not
// counted: sums that change by 1e16 lose times of 1.
void Limit(double value, Costs* costs) {
  for (std::vector<double>* times :
       {&costs->accelerator_time, &costs->cpu_time, &costs->transfer_time}) {
    for (size_t i = 0; i < times->size(); ++i) {
      const double weight = costs->weight[i % costs->lengths];
      if (weight > 0) (*times)[i] = std::min((*times)[i], 2 * value / weight);
    }
  }
}

// A device for each class, and the loads that follow. A move costs O(nets of the class x lengths).
class LoadState {
 public:
  LoadState(const Costs& costs, const std::vector<int>& device, bool contiguous)
      : costs_(costs), contiguous_(contiguous), device_(device) {
    Recount();
  }

  // Counts again from the devices: sums of many differences lose digits.
  void Recount() {
    const size_t devices = costs_.devices;
    load_.assign(devices * costs_.lengths, 0);
    bytes_.assign(devices, 0);
    pins_.assign(devices * costs_.nets, 0);
    spread_.assign(costs_.nets, 0);
    edges_.assign(devices * devices, 0);
    for (int c = 0; c < costs_.graph.size(); ++c) AddCompute(c, device_[c], +1);
    for (int net = 0; net < costs_.nets; ++net) {
      for (int c : costs_.classes_of[net]) {
        if (pins_[net * devices + device_[c]]++ == 0) ++spread_[net];
      }
      if (spread_[net] < 2) continue;
      for (size_t d = 0; d < devices; ++d) {
        if (pins_[net * devices + d] > 0) AddTransfer(net, static_cast<int>(d), +1);
      }
    }
    for (int c = 0; c < costs_.graph.size(); ++c) {
      for (int next : costs_.graph.successors[c]) ++edges_[device_[c] * devices + device_[next]];
    }
  }

  const std::vector<int>& devices() const { return device_; }

  void Move(int c, int to) {
    const int from = device_[c];
    const int devices = costs_.devices;
    AddCompute(c, from, -1);
    AddCompute(c, to, +1);
    for (int net : costs_.nets_of[c]) {
      int* pins = &pins_[size_t{1} * net * devices];
      const bool was_cut = spread_[net] > 1;
      const bool leaves = --pins[from] == 0;
      const bool comes = pins[to]++ == 0;
      spread_[net] += (comes ? 1 : 0) - (leaves ? 1 : 0);
      const bool is_cut = spread_[net] > 1;
      if (was_cut && (leaves || !is_cut)) AddTransfer(net, from, -1);
      if (is_cut && (comes || !was_cut)) AddTransfer(net, to, +1);
      if (was_cut && !is_cut && !comes) AddTransfer(net, to, -1);
      if (!was_cut && is_cut && !leaves) AddTransfer(net, from, +1);
    }
    for (int next : costs_.graph.successors[c]) {
      --edges_[from * devices + device_[next]];
      ++edges_[to * devices + device_[next]];
    }
    for (int previous : costs_.graph.predecessors[c]) {
      --edges_[device_[previous] * devices + from];
      ++edges_[device_[previous] * devices + to];
    }
    device_[c] = to;
  }

  double Value() const {
    for (int d = 0; d < costs_.accelerators; ++d) {
      if (bytes_[d] > costs_.memory_bytes) return std::numeric_limits<double>::infinity();
    }
    double value = 0;
    for (int s = 0; s < costs_.lengths; ++s) value += costs_.weight[s] * Largest(s);
    return value;
  }

  // The 8-norm of the loads and not their maximum: most moves do not touch the device with the
  // largest load, and have to be compared, too. Missing memory has a price.
  double Energy() const {
    double energy = 0;
    for (int s = 0; s < costs_.lengths; ++s) {
      const double largest = Largest(s);
      if (largest <= 0) continue;
      double sum = 0;
      for (int d = 0; d < costs_.devices; ++d) {
        const double share = load_[s * costs_.devices + d] / largest;
        const double squared = share * share;
        sum += squared * squared * squared * squared;
      }
      energy += costs_.weight[s] * largest * sqrt(sqrt(sqrt(sum)));
    }
    double excess = 0;
    for (int d = 0; d < costs_.accelerators; ++d) {
      excess += std::max(0.0, bytes_[d] / costs_.memory_bytes - 1);
    }
    // A device twice too full costs as much as two loads more.
    return energy + 2 * costs_.load_of_each * excess;
  }

  bool Allowed(const Neighbourhood::Moves& moves) const {
    return !contiguous_ || std::all_of(moves.begin(), moves.end(), [this](const auto& move) {
      return LeavesForGood(move.second);
    });
  }

 private:
  // No edge between devices leads back to `device`. After moves to it no other can be in a circle.
  bool LeavesForGood(int device) const {
    const int devices = costs_.devices;
    uint64_t reached = 0, next = uint64_t{1} << device;
    while (next != 0) {
      const int d = __builtin_ctzll(next);
      next &= next - 1;
      for (int e = 0; e < devices; ++e) {
        const uint64_t bit = uint64_t{1} << e;
        if (e == d || edges_[d * devices + e] == 0 || (reached & bit) != 0) continue;
        if (e == device) return false;
        reached |= bit;
        next |= bit;
      }
    }
    return true;
  }
  void AddCompute(int c, int device, int sign) {
    const bool accelerator = device < costs_.accelerators;
    const std::vector<double>& time = accelerator ? costs_.accelerator_time : costs_.cpu_time;
    for (int s = 0; s < costs_.lengths; ++s) {
      load_[s * costs_.devices + device] += sign * time[c * costs_.lengths + s];
    }
    if (accelerator) bytes_[device] += sign * costs_.graph.classes[c].memory_bytes;
  }
  void AddTransfer(int net, int device, int sign) {
    if (device >= costs_.accelerators) return;
    for (int s = 0; s < costs_.lengths; ++s) {
      load_[s * costs_.devices + device] += sign * costs_.transfer_time[net * costs_.lengths + s];
    }
  }
  double Largest(int length) const {
    const auto begin = load_.begin() + length * costs_.devices;
    return *std::max_element(begin, begin + costs_.devices);
  }

  const Costs& costs_;
  bool contiguous_;
  std::vector<int> device_;    // [class]
  std::vector<double> load_;   // [length][device]
  std::vector<double> bytes_;  // [device]
  std::vector<int> pins_;      // [net][device]: its classes there
  std::vector<int> spread_;    // [net]: devices with a class of it
  std::vector<int> edges_;     // [device][device]: forward edges between classes
};

constexpr int64_t kSweeps = 2000;  // moves per class and device
// The largest published graph has 6.4 million moves a run, which is 3 s. With 100,000 classes and
// no limit a run took hours.
constexpr int64_t kMostMoves = 10'000'000;
// Pins of 4 bytes, for each thread.
constexpr double kMostPins = 1e8;

}  // namespace

SearchResult Search(absl::Span<const WeightedGraph> lengths, const Problem& devices,
                    const std::vector<int>& start, bool contiguous, const SearchOptions& options) {
  Costs costs = MakeCosts(lengths, devices);
  if (static_cast<double>(costs.nets) * costs.devices > kMostPins) return {};
  Limit(LoadState(costs, start, contiguous).Value(), &costs);
  const Neighbourhood neighbourhood(costs.graph, devices.accelerators, devices.devices());
  const int64_t moves = std::min(kSweeps * costs.graph.size() * costs.devices, kMostMoves);
  const bool few_enough = !contiguous || costs.devices <= kMostForContiguity;
  return Restarts(
      neighbourhood,
      [&](const std::vector<int>& device) {
        return LoadState(costs, device, contiguous && few_enough);
      },
      start, {.unit = costs.load_of_each, .moves = few_enough ? moves : 0}, options);
}

}  // namespace seqpoint::placement
