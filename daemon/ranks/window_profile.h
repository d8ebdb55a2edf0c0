// One rank's iteration in a few kilobytes: what its windows are compared by. Profiles of earlier
// windows can be kept when the traces are gone.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_PROFILE_H_
#define DAEMON_RANKS_WINDOW_PROFILE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/window_join.h"
#include "daemon/ranks/window_times.h"

namespace seqpoint::ranks {

// Kernels that do the same: name, grid and block.
struct KernelKey {
  std::string name;
  std::array<uint32_t, 3> grid = {};
  std::array<uint16_t, 3> block = {};

  auto operator<=>(const KernelKey&) const = default;
};
struct KernelUse {
  double count = 0;
  double sum_ns = 0;
  double median_ns = 0;
  double spread_ns = 0;  // of one kernel's duration, as a standard deviation; robust
};

// Collectives of one kind among the same ranks.
struct TransferKey {
  std::vector<int32_t> ranks;
  std::string function;
  uint64_t bytes = 0;
  uint32_t order = 0;  // among those of unknown bytes: a number of its own for each

  auto operator<=>(const TransferKey&) const = default;
};
struct TransferUse {
  double count = 0;
  double median_ns = 0;
  double spread_ns = 0;  // as KernelUse::spread_ns
};

struct RankProfile {
  int32_t rank = 0;
  int64_t iteration = 0;
  std::array<int64_t, 2> lengths = {};
  // The first iteration of a length takes longer, as libraries choose algorithms and load modules
  // in it: it says nothing of the rank's speed.
  bool disturbed = false;
  RankTime time;
  std::map<KernelKey, KernelUse> kernels;  // those that are no collective
  std::map<TransferKey, TransferUse> transfers;

  // What the time of kernels depends on: source and target of a translation count alike. 0: not
  // known.
  double length() const { return static_cast<double>(lengths[0] + lengths[1]); }
};

// By window.
std::vector<RankProfile> ProfilesOf(absl::Span<const RankWindow> windows, const WindowJoin& join);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_PROFILE_H_
