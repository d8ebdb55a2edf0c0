// How long collectives take once all ranks have come, by their bytes and ranks: latency and
// bandwidth, fitted from those of the windows.
//
// With n ranks and S bytes the ring of an all-reduce takes 2 (n - 1) steps and moves 2 (n - 1)/n S
// over each link; all-gather and reduce-scatter half of that; a broadcast, a reduce, or a pair S.
//
// Threading: plain values, free functions. Ownership: values.
#ifndef DAEMON_RANKS_TRANSFER_LAW_H_
#define DAEMON_RANKS_TRANSFER_LAW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "daemon/ranks/rank_recording.h"

namespace seqpoint::ranks {

// Of one function among so many ranks.
struct TransferLaw {
  double fixed_ns = 0;
  double ns_per_byte = 0;
  uint64_t least_bytes = 0, most_bytes = 0;  // of those that it was fitted to
  double error = 0;                          // of these, relative, root mean square

  double At(double bytes) const { return fixed_ns + ns_per_byte * bytes; }
};
// For another number of ranks, by the ring's steps and shares.
TransferLaw Scaled(TransferLaw law, const std::string& function, size_t from, size_t to);

class TransferLaws {
 public:
  explicit TransferLaws(absl::Span<const RankRecording* const> recordings);

  // Nothing where collectives of fewer than two sizes were seen, or their bytes are not known.
  std::optional<TransferLaw> Of(const std::string& function, size_t ranks) const;

 private:
  std::map<std::pair<std::string, size_t>, TransferLaw> laws_;
};

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_TRANSFER_LAW_H_
