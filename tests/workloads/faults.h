// Faults on purpose: ranks that are slow, late, hang or die, and slow links, from one iteration to
// another. docs/internals/workloads.md describes the options.
//
// Threading: one thread. Kernels and links are slowed by the software GPU.
#ifndef SEQPOINT_TESTS_WORKLOADS_FAULTS_H_
#define SEQPOINT_TESTS_WORKLOADS_FAULTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/workloads/ranks.h"

namespace seqpoint::workload {

struct Fault {
  enum class Kind { kKernels, kHost, kLoader, kLink, kHang, kDie };
  Kind kind = Kind::kKernels;
  int rank = 0;
  int other_rank = 0;   // of a link
  std::string kernels;  // a part of their names; empty: all
  double factor = 1;    // of a loader: milliseconds
  int64_t first = 0;    // iterations, both inclusive
  int64_t last = INT64_MAX;

  bool Acts(int64_t iteration) const { return iteration >= first && iteration <= last; }
};

// One value of the option. An error says what it has to look like.
absl::StatusOr<Fault> ParseSlow(const std::string& text);    // RANK:kernels|NAME:FACTOR[@N-M]
absl::StatusOr<Fault> ParseLate(const std::string& text);    // RANK:host:FACTOR[@N-M]
absl::StatusOr<Fault> ParseLoader(const std::string& text);  // RANK:MILLISECONDS[@N-M]
absl::StatusOr<Fault> ParseLink(const std::string& text);    // RANK-RANK:FACTOR[@N-M]
absl::StatusOr<Fault> ParseHang(const std::string& text);    // RANK@N
absl::StatusOr<Fault> ParseDie(const std::string& text);     // RANK@N

class Faults {
 public:
  Faults(std::vector<Fault> faults, const Ranks& ranks);

  // An error names a rank that is not there, or a fault that only the software GPU can have.
  absl::Status Check(bool software_gpu) const;

  // Sets what acts from this iteration on, before its first GPU call.
  void BeginIteration(int64_t iteration);
  // By how much the batch of an iteration comes later.
  uint64_t LoaderDelayNs(int64_t iteration) const;
  // Before each collective. Does not return when this rank hangs in the iteration.
  void BeforeCollective();

 private:
  template <typename Function>
  void ForEachActing(Fault::Kind kind, int64_t iteration, const Function& function) const;

  const std::vector<Fault> faults_;
  const Ranks ranks_;
  int64_t iteration_ = -1;
  std::map<std::string, double> kernels_;        // as they are set now
  std::map<std::pair<int, int>, double> links_;  // likewise
  double host_ = 1;                              // likewise
};

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_FAULTS_H_
