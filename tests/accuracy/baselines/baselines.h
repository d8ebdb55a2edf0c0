// Other ways to choose the iterations that stand for a run, to compare with.
//
// Threading: free functions without state. A log is that of GroupByKey; weights sum to its
// iterations.
#ifndef TESTS_ACCURACY_BASELINES_BASELINES_H_
#define TESTS_ACCURACY_BASELINES_BASELINES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {

// One length stands for all, measured `measurements` times: the most frequent, the median, the one
// with the largest mean time. Pati et al., SeqPoint, ISPASS 2020, section V ("frequent", "median",
// "worst").
Selection SelectFrequent(absl::Span<const KeyTimes> log, int measurements);
Selection SelectMedian(absl::Span<const KeyTimes> log, int measurements);
Selection SelectWorst(absl::Span<const KeyTimes> log, int measurements);

// `measurements` bins of equal numbers of iterations, each stood for by its median length. Equal
// allocation in stratified sampling: Cochran, Sampling Techniques, 3rd edition, chapter 5.
Selection SelectEqualMass(absl::Span<const KeyTimes> log, int measurements);

// Clusters by repeated halving where that lowers the cost, in each as many measurements as lower
// the variance of the total most per unit of time measured: m_i ~ count_i * spread_i /
// sqrt(cost_i). After STEM and ROOT, "Swift and Trustworthy Large-Scale GPU Simulation with
// Fine-Grained Error Modeling and Hierarchical Clustering", MICRO 2025; there clusters are of
// kernels by their time, here of lengths. Which iterations of a cluster are measured is random, so
// a draw is needed.
struct Cluster {
  std::vector<int> groups;  // of the log
  double count = 0;
  int measurements = 0;
};
std::vector<Cluster> ClusterStem(absl::Span<const KeyTimes> log, int measurements);

}  // namespace seqpoint

#endif  // TESTS_ACCURACY_BASELINES_BASELINES_H_
