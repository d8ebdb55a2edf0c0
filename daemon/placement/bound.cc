#include "daemon/placement/bound.h"

#include <algorithm>
#include <vector>

namespace seqpoint::placement {
namespace {

constexpr int kHalvings = 60;  // of an interval: to the last digit of a double

double Ratio(double gain, double cost) { return cost > 0 ? gain / cost : kInfinity; }

using Part = double Class::*;

// Items with the most of `gain` for the least of `cost` come first.
void SortByRatio(Part gain, Part cost, std::vector<const Class*>* classes) {
  std::sort(classes->begin(), classes->end(), [&](const Class* a, const Class* b) {
    return Ratio(a->*gain, a->*cost) > Ratio(b->*gain, b->*cost);
  });
}

// The least `gain` that is left when classes are taken away for `most_cost` in all, if they could
// be divided (fractional knapsack). `classes` are sorted. Adds up the rest: the difference of two
// large sums would lose it.
double LeastLeft(const std::vector<const Class*>& classes, double most_cost, Part gain, Part cost) {
  most_cost = std::max(most_cost, 0.0);
  double left = 0;
  for (const Class* of : classes) {
    const double taken = of->*cost > most_cost ? most_cost / (of->*cost) : 1;
    left += (1 - taken) * (of->*gain);
    most_cost = taken < 1 ? 0 : most_cost - of->*cost;
  }
  return left;
}

}  // namespace

bool RunsOnAccelerator(const ClassGraph& graph, const Class& of) {
  return graph.accelerators > 0 && of.accelerator_supported &&
         of.memory_bytes <= graph.memory_bytes;
}

double LoadBound(const ClassGraph& graph) {
  double largest = 0, only_on_cpus = 0, work = 0, bytes = 0, all = 0;
  std::vector<const Class*> either;
  for (const Class& of : graph.classes) {
    const bool runs = RunsOnAccelerator(graph, of);
    const double on_cpu = graph.cpus > 0 ? of.cpu_time : kInfinity;
    largest = std::max(largest, runs ? std::min(of.accelerator_time, on_cpu) : on_cpu);
    if (!runs) {
      only_on_cpus += on_cpu;
      continue;
    }
    either.push_back(&of);
    work += of.accelerator_time;
    bytes += of.memory_bytes;
    all += of.accelerator_time + of.cpu_time;
  }
  if (largest == kInfinity) return kInfinity;
  double low = largest;
  if (graph.cpus > 0) {
    // Bytes that no accelerator holds go to the cores: their least time is the time of all classes
    // without those that the accelerators can keep.
    SortByRatio(&Class::cpu_time, &Class::memory_bytes, &either);
    const double moved = LeastLeft(either, graph.accelerators * graph.memory_bytes,
                                   &Class::cpu_time, &Class::memory_bytes);
    low = std::max(low, (only_on_cpus + moved) / graph.cpus);
  } else if (bytes > graph.accelerators * graph.memory_bytes) {
    return kInfinity;
  }
  // The least load with which accelerators and cores together do the work.
  double high = std::max(low, all + only_on_cpus);
  SortByRatio(&Class::accelerator_time, &Class::cpu_time, &either);
  for (int i = 0; i < kHalvings; ++i) {
    const double load = low + (high - low) / 2;
    const double left = graph.cpus > 0 ? LeastLeft(either, graph.cpus * load - only_on_cpus,
                                                   &Class::accelerator_time, &Class::cpu_time)
                                       : work;
    (left <= graph.accelerators * load ? high : low) = load;
  }
  return low;
}

}  // namespace seqpoint::placement
