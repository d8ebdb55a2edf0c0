// Groups of calls that alternate.
//
// Two symbols belong to one group when they interleave: between two occurrences of one there is
// exactly one of the other. The calls that happen once per iteration (embedding, loss, optimiser,
// the first launch after the optimiser) form a large group. Its count is the number of iterations,
// however the sequence length changes all other calls.
//
// Threading: free functions over constant input.
#ifndef DAEMON_ITERATIONS_KERNEL_GROUPS_H_
#define DAEMON_ITERATIONS_KERNEL_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/iterations/launch_log.h"

namespace seqpoint::iterations {

// Where each symbol occurs. Indices are those of LaunchLog::calls().
class Occurrences {
 public:
  explicit Occurrences(const LaunchLog& stream);
  // Occurrences in [begin, end), ascending.
  absl::Span<const uint32_t> Of(Alphabet alphabet, uint32_t symbol, uint32_t begin,
                                uint32_t end) const;

 private:
  std::vector<uint32_t> offsets_[kAlphabets];
  std::vector<uint32_t> positions_[kAlphabets];
};

struct Member {
  Alphabet alphabet;
  uint32_t symbol;
  absl::Span<const uint32_t> at;
};
struct KernelGroup {
  std::vector<Member> members;  // the first one decides which others belong
  uint32_t weight = 0;          // different calls per loop iteration
  // The same, with less for calls that differ only in their geometry: at one particular length
  // every call has a geometry of its own, and alternates with every other call at that length.
  double strength = 0;
  bool graphs = false;  // holds graph launches
  double score = 0;     // the caller's
  size_t count() const { return members[0].at.size(); }
  absl::Span<const uint32_t> at() const { return members[0].at; }
};

// True when each occurrence of one is followed by exactly one of the other (equal positions are the
// same call). O(n).
bool Interleave(absl::Span<const uint32_t> a, absl::Span<const uint32_t> b);

// All groups in [begin, end) whose members occur at least `min_count` times, heaviest first.
// O(calls), because a symbol is compared only with the groups of its own count. `occurrences`
// must outlive the answer.
std::vector<KernelGroup> FindKernelGroups(const LaunchLog& stream, const Occurrences& occurrences,
                                          uint32_t begin, uint32_t end, size_t min_count);

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_KERNEL_GROUPS_H_
