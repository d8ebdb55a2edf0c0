#include "daemon/placement/bound.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace seqpoint::placement {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kHalvings = 60;  // of an interval: to the last digit of a double

double Ratio(double gain, double cost) { return cost > 0 ? gain / cost : kInfinity; }

// What `gain` of the classes can be had at most for `cost` of them in all, if they could be divided
// (fractional knapsack).
template <typename Gain, typename Cost>
double MostGain(std::vector<const Class*> classes, double most_cost, Gain gain, Cost cost) {
  std::sort(classes.begin(), classes.end(), [&](const Class* a, const Class* b) {
    return Ratio(gain(*a), cost(*a)) > Ratio(gain(*b), cost(*b));
  });
  double total = 0;
  most_cost = std::max(most_cost, 0.0);
  for (const Class* of : classes) {
    if (cost(*of) > most_cost) return total + gain(*of) * (most_cost / cost(*of));
    total += gain(*of);
    most_cost -= cost(*of);
  }
  return total;
}

}  // namespace

bool RunsOnAccelerator(const ClassGraph& graph, const Class& of) {
  return graph.accelerators > 0 && of.accelerator_supported &&
         of.memory_bytes <= graph.memory_bytes;
}

double LoadBound(const ClassGraph& graph) {
  const auto accelerator_time = [](const Class& of) { return of.accelerator_time; };
  const auto cpu_time = [](const Class& of) { return of.cpu_time; };
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
    // Bytes that no accelerator holds go to the cores: the least time for them is all of it but
    // what the others can keep.
    double cpu_work = 0;
    for (const Class* of : either) cpu_work += of->cpu_time;
    const double kept = MostGain(either, graph.accelerators * graph.memory_bytes, cpu_time,
                                 [](const Class& of) { return of.memory_bytes; });
    low = std::max(low, (only_on_cpus + cpu_work - kept) / graph.cpus);
  } else if (bytes > graph.accelerators * graph.memory_bytes) {
    return kInfinity;
  }
  // The least load with which accelerators and cores together do the work.
  double high = std::max(low, all + only_on_cpus);
  for (int i = 0; i < kHalvings; ++i) {
    const double load = low + (high - low) / 2;
    const double taken = graph.cpus > 0 ? MostGain(either, graph.cpus * load - only_on_cpus,
                                                   accelerator_time, cpu_time)
                                        : 0;
    (work - taken <= graph.accelerators * load ? high : low) = load;
  }
  return low;
}

}  // namespace seqpoint::placement
