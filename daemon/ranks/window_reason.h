// Why a rank is slow, from windows of all ranks at the same iterations.
//
// The rank's work is longer than that of its peers at its lengths by some time, its excess. The
// excess is the sum of its parts: the same kernels take longer, there are more kernels, the host
// launches later, the batch comes later. The reason is the part that holds most of the excess,
// where it is larger than what the peers differ by among each other, and than what the iterations
// differ by. Otherwise it is not known, and the answer says why; longer lengths are the reason
// where there is no excess beyond them. A link is slow where transfers take longer although all
// ranks had come.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_RANKS_WINDOW_REASON_H_
#define DAEMON_RANKS_WINDOW_REASON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/ranks/rank_question.h"
#include "daemon/seqpoint/interval.h"

namespace seqpoint::ranks {

// From the cheapest to find out to the dearest.
enum class Reason : uint8_t {
  kUnknown,
  kClocks,     // the same kernels take longer, by one factor: clocks, heat, power
  kKernels,    // few kernels take longer
  kHost,       // equal kernels, launched later
  kLoader,     // the batch comes later
  kLink,       // collectives take longer although all ranks have come
  kMoreWork,   // more kernels at equal lengths: the work is split unevenly
  kImbalance,  // longer sequences
};
const char* ReasonName(Reason reason);

struct SlowKernel {
  std::string name;
  double factor = 1;     // of its duration, against the reference
  double excess_ns = 0;  // of an iteration
};

struct ReasonVerdict {
  Reason reason = Reason::kUnknown;
  Estimate factor = {1, 1, 1};      // of what is slow: kernels, transfers, work; 99 %
  double excess_ns = 0;             // of the rank's work, in the usual iteration,
  double explained_ns = 0;          // ... and the part of it that the reason holds
  double error_ns = 0;              // of the excess, a standard deviation
  std::vector<SlowKernel> kernels;  // most excess first
  std::vector<int32_t> link;        // ranks that share the slow link
  // Compared with the first iterations of lengths: how much longer the work is, is not known.
  bool first_times = false;
  std::string text;  // a sentence with what was compared with how much
};

ReasonVerdict FindReason(const RankQuestion& question);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_REASON_H_
