#include "daemon/seqpoint/block_trace.h"

#include <algorithm>
#include <utility>

namespace seqpoint {

void BlockTrace::Block::Add(const Block& other) {
  count += other.count;
  time_ns += other.time_ns;
  last = std::max(last, other.last);
  for (int t = 0; t < kTerms; ++t) terms[t] += other.terms[t];
}

void BlockTrace::Add(uint64_t iteration, absl::Span<const Key> keys, double time_ns) {
  if (open.count == 0 && blocks.empty()) origin = keys.front();
  // Blocks of very different sizes would be as many times taken for as much of the run.
  const auto count = static_cast<double>(keys.size());
  if (count > block_size) Widen(count);
  for (const Key& key : keys) {
    const double x = static_cast<double>(key.first) - static_cast<double>(origin.first);
    const double y = static_cast<double>(key.second) - static_cast<double>(origin.second);
    const Terms terms = QuadraticTerms({x, y});
    for (int t = 0; t < kTerms; ++t) open.terms[t] += terms[t];
  }
  open.count += count;
  open.time_ns += time_ns;
  open.last = std::max(open.last, iteration);
  Push();
}

// The open block, once it is full.
void BlockTrace::Push() {
  if (open.count < block_size) return;
  blocks.push_back(open);
  open = {};
  if (blocks.size() < kMaxBlocks) return;
  for (int b = 0; b < kMaxBlocks / 2; ++b) {
    Block merged = blocks[2 * b];
    merged.Add(blocks[2 * b + 1]);
    blocks[b] = merged;
  }
  blocks.resize(kMaxBlocks / 2);
  block_size *= 2;
}

// Blocks of at least `size` iterations from here on, and of those so far.
void BlockTrace::Widen(double size) {
  block_size = size;
  const Block unfinished = std::exchange(open, {});
  for (const Block& block : std::exchange(blocks, {})) {
    open.Add(block);
    Push();
  }
  open.Add(unfinished);
  Push();
}

Terms BlockTrace::TermsOf(const Block& block, const KeyScale& s) const {
  // Terms of the shifted and scaled key from those of the key relative to the origin.
  const double dx = static_cast<double>(origin.first) - s.centre[0];
  const double dy = s.two_dimensional ? static_cast<double>(origin.second) - s.centre[1] : 0;
  const double ux = s.unit[0], uy = s.unit[1];
  const Terms& b = block.terms;
  const double n = b[0], x = b[1], xx = b[2];
  const double y = s.two_dimensional ? b[3] : 0;
  const double xy = s.two_dimensional ? b[4] : 0;
  const double yy = s.two_dimensional ? b[5] : 0;
  return {n,
          (x + n * dx) / ux,
          (xx + 2 * dx * x + n * dx * dx) / (ux * ux),
          (y + n * dy) / uy,
          (xy + dx * y + dy * x + n * dx * dy) / (ux * uy),
          (yy + 2 * dy * y + n * dy * dy) / (uy * uy)};
}

double BlockTrace::Expected(const Block& block, const Quadratic& curve) const {
  return curve.OfTerms(TermsOf(block, curve.scale));
}

}  // namespace seqpoint
