// BlockTrace: the times of a run in order, in bounded memory.
//
// Sums over at most 64 consecutive blocks of iterations. When the blocks are full, neighbours
// merge. A block has sums of the quadratic terms of its keys instead of an expected time: the curve
// is only known later.
//
// Threading: values. Units: times in ns.
#ifndef DAEMON_SEQPOINT_BLOCK_TRACE_H_
#define DAEMON_SEQPOINT_BLOCK_TRACE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

struct BlockTrace {
  static constexpr int kMaxBlocks = 64;
  struct Block {
    void Add(const Block& other);

    double count = 0;
    double time_ns = 0;
    uint64_t last = 0;  // its last iteration
    Terms terms = {};   // sums of QuadraticTerms of (key - origin)
  };

  void Add(uint64_t iteration, const Key& key, double time_ns) {
    Add(iteration, {&key, 1}, time_ns);
  }
  // Iterations that took `time_ns` together; `iteration` is the last of them.
  void Add(uint64_t iteration, absl::Span<const Key> keys, double time_ns);

  // Sum of the quadratic terms over a block.
  Terms TermsOf(const Block& block, const KeyScale& scale) const;
  // Sum of `curve` over a block.
  double Expected(const Block& block, const Quadratic& curve) const;

  Key origin;  // the first key: differences to it keep the sums of squares exact
  double block_size = 4;
  Block open;
  std::vector<Block> blocks;  // complete ones, oldest first

 private:
  void Push();
  void Widen(double size);
};

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_BLOCK_TRACE_H_
