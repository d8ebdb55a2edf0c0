// Ranks that were slow in a part of the run, and which measurements are of that part: measured
// statistics of a run hold for the whole of it only where its parts are alike.
//
// Threading: free functions. Ownership: values.
#ifndef DAEMON_JOBS_SLOW_RANKS_H_
#define DAEMON_JOBS_SLOW_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "daemon/seqpoint/interval.h"

namespace seqpoint::jobs {

// Numbers of measured iterations, by statistic set and rank. None of those that an earlier version
// stored.
using MeasuredOfRanks = std::map<uint32_t, std::map<int32_t, std::vector<int64_t>>>;

struct SlowSpan {
  int32_t rank = 0;
  int64_t first = 0, end = std::numeric_limits<int64_t>::max();  // iterations; [first, end)
  bool maybe_before = false;  // nothing shows that it was ordinary before `first`
  bool alone = false;         // no other rank does the same work
  // How many times as long its kernels take: each at most, and, where all do alike, all of them.
  double most = std::numeric_limits<double>::infinity(), all = 1;
  bool more_work = false;    // it may have more kernels, too
  bool collectives = false;  // about those of all ranks: how long ranks wait in them is not known
};
// The same span for collectives: they have no upper bound.
SlowSpan OfCollectives(SlowSpan span);

struct SlowRange {
  double low = 0, high = 0;
};
// The slow part as a share of the measured iterations, and of those that are asked about.
struct SlowShares {
  SlowRange measured, asked;
};

// `measured`: of the statistic set, which has `count` measurements. Asked about are the iterations
// [begin, end) of `ranks` ranks; end < 0: another run, and nobody knows how slow the rank is there.
SlowShares SharesOf(const SlowSpan& span, const std::map<int32_t, std::vector<int64_t>>& measured,
                    int32_t count, size_t ranks, int64_t begin, int64_t end);
// The interval holds everything from a rank that is not slow in this to one that is by
// `span.most`; for collectives, from no time at all to any. `kernel_times`: the value takes
// `span.all`.
Estimate WithSpan(const Estimate& estimate, const SlowSpan& span, const SlowShares& shares,
                  bool kernel_times);
// "rank 2 became slower at iteration 500; 12 of its 14 measurements are of iterations before it"
std::string SpanInWords(const SlowSpan& span,
                        const std::map<int32_t, std::vector<int64_t>>& measured, int32_t count);

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_SLOW_RANKS_H_
