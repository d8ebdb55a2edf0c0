#include "daemon/jobs/observed_lengths.h"

#include "daemon/seqpoint/engine_state.h"

namespace seqpoint::jobs {

void ObservedLengths::Refresh(const OnlineEngine& engine, bool now) {
  const IterationLog& log = engine.state().log;
  // Fewer: the engine is another one.
  const bool more = log.iterations > iterations_ + (now ? 0 : iterations_ / 64);
  if (!more && log.iterations >= iterations_) return;
  iterations_ = log.iterations;
  for (Dimension& of : of_) of = {};
  for (const auto& [key, record] : log.keys.records()) {
    if (key == Key{} || record.iterations == 0) continue;  // of unknown length; redone ones alone
    for (int i = 0; i < (log.two_dimensional ? 2 : 1); ++i) {
      of_[i].histogram[i == 0 ? key.first : key.second] += record.iterations;
      of_[i].count += record.iterations;
    }
  }
  for (Dimension& of : of_) {
    if (of.histogram.size() > 1) of.unit = NaturalUnit(of.histogram);
  }
}

}  // namespace seqpoint::jobs
