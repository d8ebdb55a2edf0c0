// What changes while the run goes on: times at equal length, and the lengths themselves.
//
// Real logs drift: time at equal length grows by 0.6 to 0.8 % within an epoch. The trace keeps sums
// over at most 64 consecutive blocks of iterations; when they are full, neighbours merge. Sums of
// the quadratic terms instead of expected times, because the curve is only known later.
//
// Threading: values.
#ifndef DAEMON_SEQPOINT_DRIFT_H_
#define DAEMON_SEQPOINT_DRIFT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "daemon/seqpoint/cost_curve.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/key.h"

namespace seqpoint {

class BlockTrace {
 public:
  static constexpr int kMaxBlocks = 64;
  struct Block {
    double count = 0;
    double time_ns = 0;
    uint64_t last = 0;  // its last iteration
    Terms terms = {};   // sums of QuadraticTerms of (key - origin)
  };

  void Add(uint64_t iteration, const Key& key, double time_ns) {
    Add(iteration, {&key, 1}, time_ns);
  }
  // Iterations that took so much together, `iteration` the last of them.
  void Add(uint64_t iteration, absl::Span<const Key> keys, double time_ns);

  absl::Span<const Block> blocks() const { return blocks_; }  // complete ones, oldest first
  // Sum of the quadratic terms over a block.
  Terms TermsOf(const Block& block, const KeyScale& scale) const;
  // Sum of `curve` over a block.
  double Expected(const Block& block, const Quadratic& curve) const;

  // For the engine's state.
  const Key& origin() const { return origin_; }
  const Block& open() const { return open_; }
  double block_size() const { return block_size_; }
  void Restore(const Key& origin, double block_size, const Block& open, std::vector<Block> blocks);

 private:
  void Push();
  void Widen(double size);

  Key origin_;  // the first key: differences to it keep the sums of squares exact
  double block_size_ = 4;
  Block open_;
  std::vector<Block> blocks_;
};

// By how much the time at equal length will differ, in the mean over the next `rest` iterations,
// from its mean over the `past` ones; relative. Kinds of
// drift, none among them, and their sizes are weighed by the trace; a surprise may always come.
// `noise` is the relative standard deviation of one iteration, with what correlation between
// neighbours adds. `host_times`: of a CPU's work, of which larger drifts are expected.
std::vector<Normal> ProjectDrift(const BlockTrace& trace, const Quadratic& curve, double noise,
                                 double past, double rest, bool host_times = false);

struct Level {
  double value = 0;
  double iterations = 0;  // a mean of so many is as certain
};

// The time at equal length about a past iteration: by how much, relative to its mean over the past,
// it differs from that. Single slow iterations and a slow start of the run do not raise it.
Level DriftAt(const BlockTrace& trace, const Quadratic& curve, uint64_t iteration);

// The variance of that over the past, beyond what `noise` makes of it (as in ProjectDrift).
double DriftVariance(const BlockTrace& trace, const Quadratic& curve, double noise);

struct Movement {
  double inflation = 1;      // of the variance of a mean over iterations, against independence
  double walk_variance = 0;  // per iteration, of a random walk of the expected time; 0 = steady
  double trend = 0;          // per iteration, where it goes one way all the time: a sorted epoch
  bool moving() const { return walk_variance > 0; }
};

// Whether the keys come in an order that has nothing to do with their cost, by differences between
// neighbouring stretches of every length. `variance` is that of the expected time of one iteration.
Movement KeyMovement(const BlockTrace& trace, const Quadratic& curve, double variance);
// The same of times themselves, whatever the keys. `variance` is that of one time.
Movement TimeMovement(const BlockTrace& trace, double variance);

}  // namespace seqpoint

#endif  // DAEMON_SEQPOINT_DRIFT_H_
