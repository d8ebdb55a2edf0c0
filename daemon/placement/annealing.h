// Simulated annealing over placements, for any objective.
//
// Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by Simulated Annealing", Science 220 (1983).
// Moves: one class, two classes that exchange devices, two neighbours together, and a stretch of
// classes in topological order (the border of a stage moves). A move is kept when it lowers the
// energy, or by lot, less often as the temperature falls.
//
// Same input, same answer, whatever the number of threads.
#ifndef SEQPOINT_DAEMON_PLACEMENT_ANNEALING_H_
#define SEQPOINT_DAEMON_PLACEMENT_ANNEALING_H_

#include <math.h>
#include <stdint.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/placement/class_graph.h"

namespace seqpoint::placement {

struct SearchOptions {
  int restarts = 32;
  int threads = 1;
  uint64_t seed = 1;
  // Asked every few moves, from every thread; true ends the search.
  std::function<bool()> stop;
  // A better value, from any thread, one call at a time.
  std::function<void(double value)> found;
};

struct SearchResult {
  std::vector<int> device;  // of each class; empty where no placement keeps to the rules
  double value = std::numeric_limits<double>::infinity();
  bool stopped = false;
};

// Each class after those that it needs, where no circle forbids that; depth first from the last
// ones, so that neighbours in the line need each other.
std::vector<int> TopologicalLine(const ClassGraph& graph);

// The moves that there are. All threads read it.
class Neighbourhood {
 public:
  // `graph` must outlive it. `devices`: accelerators first.
  Neighbourhood(const ClassGraph& graph, int accelerators, int devices);

  int classes() const { return graph_.size(); }
  int devices() const { return devices_; }

  // Fills `moves` with classes and their new devices. False: nothing to do this time.
  using Random = std::mt19937_64;
  using Moves = std::vector<std::pair<int, int>>;
  bool Propose(const std::vector<int>& device, Random& random, Moves& moves) const;

  // Not the standard's distributions: their numbers differ between libraries.
  static int Below(int n, Random& random) {
    return static_cast<int>((random() >> 32) * static_cast<uint64_t>(n) >> 32);
  }
  static double Uniform(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

 private:
  bool Add(int c, int to, const std::vector<int>& device, Moves& moves) const;
  bool Stretch(int c, const std::vector<int>& device, Random& random, Moves& moves) const;
  int Neighbour(int c, Random& random) const;

  const ClassGraph& graph_;
  const int accelerators_;
  const int devices_;
  const std::vector<std::vector<int>> nets_of_;  // of each class
  const std::vector<int> line_, place_;  // the classes in a line, and where each stands in it
};

// A move of 100,000 operators takes 10 ms, and people wait for the answer after Ctrl-C.
inline constexpr int64_t kStepsBetweenStops = 16;

// One run from a high temperature to a low one. Figures: docs/using/placement-accuracy.md, "The
// search".
struct Cooling {
  double hot = 0.3;  // in `unit`
  double cold = 0.0005;
  double unit = 1;  // of the energy
  int64_t moves = 0;
};

// State: a placement and its objective.
//   const std::vector<int>& devices() const;
//   void Move(int c, int to);
//   void Recount();              sums again, without the errors of many differences
//   bool Allowed(moves) const;   after these moves
//   double Energy() const;       what the annealing follows
//   double Value() const;        what is asked for; infinite where the placement breaks a rule
template <typename State>
class Annealing {
 public:
  Annealing(const Neighbourhood& neighbourhood, State state, uint64_t seed)
      : neighbourhood_(neighbourhood), random_(seed), state_(std::move(state)) {
    Note();
  }

  // False: stopped.
  bool Run(const Cooling& cooling, const std::function<bool()>& stop) {
    double energy = state_.Energy();
    Neighbourhood::Moves moves, back;
    for (int64_t step = 0; step < cooling.moves; ++step) {
      if (step % kStepsBetweenStops == 0 && stop && stop()) return false;
      if (step % 65'536 == 65'535) {
        state_.Recount();
        energy = state_.Energy();
      }
      if (!neighbourhood_.Propose(state_.devices(), random_, moves)) continue;
      back.clear();
      for (const auto& [c, to] : moves) {
        back.emplace_back(c, state_.devices()[c]);
        state_.Move(c, to);
      }
      const double done = static_cast<double>(step) / static_cast<double>(cooling.moves);
      const double temperature = cooling.unit * cooling.hot * pow(cooling.cold / cooling.hot, done);
      const double after =
          state_.Allowed(moves) ? state_.Energy() : std::numeric_limits<double>::infinity();
      if (after <= energy ||
          exp((energy - after) / temperature) > Neighbourhood::Uniform(random_)) {
        energy = after;
        Note();
      } else {
        for (size_t i = back.size(); i-- > 0;) state_.Move(back[i].first, back[i].second);
      }
    }
    return true;
  }

  double best_value() const { return best_value_; }
  const std::vector<int>& best() const { return best_; }

 private:
  void Note() {
    const double value = state_.Value();
    if (value >= best_value_) return;
    best_value_ = value;
    best_ = state_.devices();
  }

  const Neighbourhood& neighbourhood_;
  Neighbourhood::Random random_;
  State state_;
  double best_value_ = std::numeric_limits<double>::infinity();
  std::vector<int> best_;
};

// Runs from `start`, then as many from the best that these found, with a third of the heat. The
// answer is never worse than the start, unless that breaks a rule. `make_state(device)`.
template <typename MakeState>
SearchResult Restarts(const Neighbourhood& neighbourhood, const MakeState& make_state,
                      const std::vector<int>& start, Cooling cooling,
                      const SearchOptions& options) {
  SearchResult result;
  result.value = make_state(start).Value();
  result.device = start;
  const bool choice = neighbourhood.classes() > 0 && neighbourhood.devices() > 1;
  std::atomic<bool> stopped = false;
  std::mutex mutex;  // for `best_value`, and around `found`
  for (int half = 0; half < 2 && choice && !stopped; ++half) {
    if (half == 1) cooling.hot /= 3;
    const std::vector<int> from = result.device;
    const int runs = (options.restarts + 1 - half) / 2;
    std::vector<SearchResult> of_run(runs);
    std::atomic<int> next = 0;
    double best_value = result.value;
    const auto work = [&] {
      for (int run = next++; run < runs && !stopped; run = next++) {
        const uint64_t seed = options.seed * 1'000'003 + static_cast<uint64_t>(half * 1'000 + run);
        Annealing annealing(neighbourhood, make_state(from), seed);
        if (!annealing.Run(cooling, options.stop)) stopped = true;
        of_run[run].value = annealing.best_value();
        of_run[run].device = annealing.best();
        const std::lock_guard<std::mutex> lock(mutex);
        if (annealing.best_value() >= best_value) continue;
        best_value = annealing.best_value();
        if (options.found) options.found(best_value);
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < std::min(options.threads, runs); ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    for (SearchResult& run : of_run) {
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

#endif  // SEQPOINT_DAEMON_PLACEMENT_ANNEALING_H_
