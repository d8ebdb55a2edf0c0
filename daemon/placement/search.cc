#include "daemon/placement/search.h"

#include <math.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace seqpoint::placement {
namespace {

// What all threads read.
struct Costs {
  int classes = 0;
  int nets = 0;
  int lengths = 0;
  int accelerators = 0;
  int devices = 0;
  double memory_bytes = 0;
  std::vector<double> weight;                   // [length]
  std::vector<double> accelerator_time;         // [class][length]
  std::vector<double> cpu_time;                 // [class][length]
  std::vector<double> transfer_time;            // [net][length]
  std::vector<double> class_bytes;              // [class]
  std::vector<bool> accelerator_supported;      // [class]
  std::vector<std::vector<int>> classes_of;     // of each net
  std::vector<std::vector<int>> nets_of;        // of each class
  std::vector<std::vector<int>> before, after;  // of each class: forward precedence
  std::vector<int> line, place;  // the classes in a line, and where each stands in it
  double temperature_unit = 0;   // the load of a device when all have the same
};

// Each class after those that it needs, where no circle forbids that; depth first from the last
// ones, so that neighbours in the line need each other.
std::vector<int> InALine(const ClassGraph& graph) {
  std::vector<int> line;
  std::vector<bool> seen(graph.size(), false);
  std::vector<std::pair<int, size_t>> path;  // class, its next predecessor
  for (int last = graph.size() - 1; last >= 0; --last) {
    if (seen[last]) continue;
    seen[last] = true;
    path.emplace_back(last, 0);
    while (!path.empty()) {
      const int c = path.back().first;
      if (path.back().second == graph.predecessors[c].size()) {
        line.push_back(c);
        path.pop_back();
        continue;
      }
      const int before = graph.predecessors[c][path.back().second++];
      if (seen[before]) continue;
      seen[before] = true;
      path.emplace_back(before, 0);
    }
  }
  return line;
}

Costs MakeCosts(absl::Span<const WeightedGraph> lengths, const Problem& devices) {
  Costs costs;
  const ClassGraph& first = *lengths[0].graph;
  costs.classes = first.size();
  costs.lengths = static_cast<int>(lengths.size());
  costs.accelerators = devices.accelerators;
  costs.devices = devices.devices();
  costs.memory_bytes = devices.memory_bytes;
  costs.before = first.predecessors;
  costs.after = first.successors;
  costs.line = InALine(first);
  costs.place.resize(costs.classes);
  for (int i = 0; i < costs.classes; ++i) costs.place[costs.line[i]] = i;
  costs.nets_of.resize(costs.classes);
  costs.accelerator_time.resize(size_t{1} * costs.classes * costs.lengths);
  costs.cpu_time.resize(costs.accelerator_time.size());
  for (const Class& c : first.classes) {
    costs.class_bytes.push_back(c.memory_bytes);
    costs.accelerator_supported.push_back(c.accelerator_supported);
  }
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
    for (int c = 0; c < costs.classes; ++c) {
      costs.accelerator_time[c * costs.lengths + s] = graph.classes[c].accelerator_time;
      costs.cpu_time[c * costs.lengths + s] = graph.classes[c].cpu_time;
      work +=
          devices.accelerators > 0 ? graph.classes[c].accelerator_time : graph.classes[c].cpu_time;
    }
    for (const Net& net : graph.nets) {
      costs.transfer_time[net_of[net.classes] * costs.lengths + s] += net.transfer_time;
    }
    const int alike = devices.accelerators > 0 ? devices.accelerators : devices.cpus;
    costs.temperature_unit += lengths[s].weight * work / alike;
  }
  return costs;
}

// A device for each class, and the loads that follow; a move costs O(nets of the class x lengths).
class State {
 public:
  State(const Costs& costs, const std::vector<int>& device) : costs_(costs), device_(device) {
    Recount();
  }

  // Anew from the devices: sums of many differences lose digits.
  void Recount() {
    const size_t devices = costs_.devices;
    load_.assign(devices * costs_.lengths, 0);
    bytes_.assign(devices, 0);
    pins_.assign(devices * costs_.nets, 0);
    spread_.assign(costs_.nets, 0);
    edges_.assign(devices * devices, 0);
    for (int c = 0; c < costs_.classes; ++c) AddCompute(c, device_[c], +1);
    for (int net = 0; net < costs_.nets; ++net) {
      for (int c : costs_.classes_of[net]) {
        if (pins_[net * devices + device_[c]]++ == 0) ++spread_[net];
      }
      if (spread_[net] < 2) continue;
      for (size_t d = 0; d < devices; ++d) {
        if (pins_[net * devices + d] > 0) AddTransfer(net, static_cast<int>(d), +1);
      }
    }
    for (int c = 0; c < costs_.classes; ++c) {
      for (int next : costs_.after[c]) ++edges_[device_[c] * devices + device_[next]];
    }
  }

  const std::vector<int>& devices() const { return device_; }
  int device(int c) const { return device_[c]; }

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
    for (int next : costs_.after[c]) {
      --edges_[from * devices + device_[next]];
      ++edges_[to * devices + device_[next]];
    }
    for (int previous : costs_.before[c]) {
      --edges_[device_[previous] * devices + from];
      ++edges_[device_[previous] * devices + to];
    }
    device_[c] = to;
  }

  bool FitsInMemory() const {
    for (int d = 0; d < costs_.accelerators; ++d) {
      if (bytes_[d] > costs_.memory_bytes) return false;
    }
    return true;
  }

  // What the search is asked for.
  double Value() const {
    double value = 0;
    for (int s = 0; s < costs_.lengths; ++s) value += costs_.weight[s] * Largest(s);
    return value;
  }

  // What the annealing follows: never below the value, plus the price of memory that is not there.
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
    return energy + 2 * costs_.temperature_unit * excess;
  }

  // No edge between devices leads back to `device`. After a move no other can be in a circle.
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

 private:
  void AddCompute(int c, int device, int sign) {
    const bool accelerator = device < costs_.accelerators;
    const std::vector<double>& time = accelerator ? costs_.accelerator_time : costs_.cpu_time;
    for (int s = 0; s < costs_.lengths; ++s) {
      load_[s * costs_.devices + device] += sign * time[c * costs_.lengths + s];
    }
    if (accelerator) bytes_[device] += sign * costs_.class_bytes[c];
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
  std::vector<int> device_;    // [class]
  std::vector<double> load_;   // [length][device]
  std::vector<double> bytes_;  // [device]
  std::vector<int> pins_;      // [net][device]: its classes there
  std::vector<int> spread_;    // [net]: devices with a class of it
  std::vector<int> edges_;     // [device][device]: forward edges between classes
};

// One run from a high temperature to a low one.
class Annealing {
 public:
  Annealing(const Costs& costs, const std::vector<int>& start, bool contiguous, uint64_t seed)
      : costs_(costs), contiguous_(contiguous), random_(seed), state_(costs, start) {
    Note();
  }

  // `hot`, `cold`: in loads of a device. False: stopped.
  bool Run(double hot, double cold, int64_t steps, const std::function<bool()>& stop) {
    double energy = state_.Energy();
    for (int64_t step = 0; step < steps; ++step) {
      if (step % 256 == 0 && stop && stop()) return false;
      if (step % 65'536 == 65'535) {
        state_.Recount();
        energy = state_.Energy();
      }
      if (!Propose()) continue;
      for (const auto& [c, to] : moves_) state_.Move(c, to);
      const double share = static_cast<double>(step) / static_cast<double>(steps);
      const double temperature = costs_.temperature_unit * hot * pow(cold / hot, share);
      const double after = Allowed() ? state_.Energy() : std::numeric_limits<double>::infinity();
      if (after <= energy || exp((energy - after) / temperature) > Uniform()) {
        energy = after;
        Note();
      } else {
        for (size_t i = moves_.size(); i-- > 0;) state_.Move(moves_[i].first, from_[i]);
      }
    }
    return true;
  }

  double best_value() const { return best_value_; }
  const std::vector<int>& best() const { return best_; }

 private:
  // Fills moves_ and from_. False: nothing to do this time.
  bool Propose() {
    moves_.clear();
    from_.clear();
    const int c = Below(costs_.classes);
    const int from = state_.device(c);
    switch (Below(5)) {
      case 0: {  // exchange
        const int other = Below(costs_.classes);
        const int to = state_.device(other);
        if (to == from) return false;
        return Add(c, to) && Add(other, from);
      }
      case 1:  // to a neighbour
        return Add(c, state_.device(Neighbour(c)));
      case 2: {  // with a neighbour
        const int other = Neighbour(c);
        const int to = Below(costs_.devices);
        if (other == c || state_.device(other) != from) return false;
        return Add(c, to) && Add(other, to);
      }
      case 3:
        return Add(c, Below(costs_.devices));
      default:
        return Stretch(c);
    }
  }

  // From `c` on, forwards or backwards, the classes of its device, to the device that lies on the
  // other side of `c`, or to any. Lengths from one to half of the graph, short ones more often.
  bool Stretch(int c) {
    const int from = state_.device(c);
    const int direction = Below(2) == 0 ? 1 : -1;
    const double longest = std::max(2.0, costs_.classes / 2.0);
    const size_t wanted = static_cast<size_t>(exp(Uniform() * log(longest)));
    const int first = costs_.place[c];
    const int behind = first - direction;
    const bool to_neighbour = Below(2) == 0 && behind >= 0 && behind < costs_.classes;
    const int to = to_neighbour ? state_.device(costs_.line[behind]) : Below(costs_.devices);
    for (int i = first; i >= 0 && i < costs_.classes && moves_.size() < wanted; i += direction) {
      if (state_.device(costs_.line[i]) == from) {
        if (!Add(costs_.line[i], to)) return false;
      } else if (Below(2) == 0) {
        break;
      }
    }
    return true;
  }

  bool Add(int c, int to) {
    if (to == state_.device(c)) return false;
    if (to < costs_.accelerators && !costs_.accelerator_supported[c]) return false;
    moves_.emplace_back(c, to);
    from_.push_back(state_.device(c));
    return true;
  }

  int Neighbour(int c) {
    const std::vector<int>& nets = costs_.nets_of[c];
    if (nets.empty()) return c;
    const std::vector<int>& classes = costs_.classes_of[nets[Below(static_cast<int>(nets.size()))]];
    return classes[Below(static_cast<int>(classes.size()))];
  }

  bool Allowed() const {
    if (!contiguous_) return true;
    for (const auto& [c, to] : moves_) {
      if (!state_.LeavesForGood(to)) return false;
    }
    return true;
  }

  void Note() {
    const double value = state_.Value();
    if (value >= best_value_ || !state_.FitsInMemory()) return;
    best_value_ = value;
    best_ = state_.devices();
  }

  // Not the standard's distributions: their numbers differ between libraries.
  int Below(int n) { return static_cast<int>((random_() >> 32) * n >> 32); }
  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  const Costs& costs_;
  const bool contiguous_;
  std::mt19937_64 random_;
  State state_;
  std::vector<std::pair<int, int>> moves_;  // class, device
  std::vector<int> from_;
  double best_value_ = std::numeric_limits<double>::infinity();
  std::vector<int> best_;
};

// Figures: docs/placement-accuracy.md, "The search". Temperatures in loads of a device; steps per
// class and device.
constexpr double kHot = 0.3, kWarm = 0.1, kCold = 0.0005;
constexpr int64_t kSweeps = 2000;

}  // namespace

SearchResult Search(absl::Span<const WeightedGraph> lengths, const Problem& devices,
                    const std::vector<int>& start, const SearchOptions& options) {
  const Costs costs = MakeCosts(lengths, devices);
  SearchResult result;
  result.device = start;
  {
    const State state(costs, start);
    result.value = state.FitsInMemory() ? state.Value() : std::numeric_limits<double>::infinity();
  }
  if (costs.classes == 0 || costs.devices < 2 || (options.contiguous && costs.devices > 64)) {
    return result;
  }
  // Half of the runs go from the start, the others from the best that these found.
  const int64_t steps = kSweeps * costs.classes * costs.devices;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  for (int half = 0; half < 2 && !stopped; ++half) {
    const std::vector<int> from = result.device;
    const int runs = half == 0 ? (options.restarts + 1) / 2 : options.restarts / 2;
    struct Run {
      double value = std::numeric_limits<double>::infinity();
      std::vector<int> device;
    };
    std::vector<Run> found(runs);
    std::atomic<int> next = 0;
    double told = result.value;
    const auto work = [&] {
      for (int run = next++; run < runs && !stopped; run = next++) {
        Annealing annealing(costs, from, options.contiguous,
                            options.seed * 1'000'003 + half * 1'000 + run);
        if (!annealing.Run(half == 0 ? kHot : kWarm, kCold, steps, options.stop)) stopped = true;
        found[run] = {annealing.best_value(), annealing.best()};
        const std::lock_guard<std::mutex> lock(mutex);
        if (found[run].value < told && options.found) options.found(found[run].value);
        told = std::min(told, found[run].value);
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < std::min(options.threads, runs); ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    for (Run& run : found) {
      if (run.value >= result.value) continue;
      result.value = run.value;
      result.device = std::move(run.device);
    }
  }
  result.stopped = stopped;
  if (result.value == std::numeric_limits<double>::infinity()) result.device.clear();
  return result;
}

}  // namespace seqpoint::placement
