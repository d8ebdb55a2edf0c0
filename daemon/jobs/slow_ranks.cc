#include "daemon/jobs/slow_ranks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace seqpoint::jobs {
namespace {

struct MeasuredCounts {
  int64_t before = 0, slow = 0, all = 0;  // of the rank; before `first`, in the span, all
  int64_t unknown = 0;                    // measurements of which the rank was not kept
};

MeasuredCounts CountsOf(const SlowSpan& span,
                        const std::map<int32_t, std::vector<int64_t>>& measured, int32_t count) {
  MeasuredCounts counts;
  counts.unknown = count;
  for (const auto& [rank, numbers] : measured) {
    counts.unknown -= static_cast<int64_t>(numbers.size());
    if (rank != span.rank && !span.collectives) continue;
    counts.all += static_cast<int64_t>(numbers.size());
    for (const int64_t number : numbers) {
      counts.before += number < span.first;
      counts.slow += number >= span.first && number < span.end;
    }
  }
  counts.unknown = std::max<int64_t>(counts.unknown, 0);
  return counts;
}

// How many times as long as it was measured something takes, where the slow part takes `factor`
// times as long.
double Corrected(double asked, double measured, double factor) {
  const auto quotient = [](double of, double by) {
    return by > 0 ? of / by : of > 0 ? std::numeric_limits<double>::infinity() : 1;
  };
  if (std::isinf(factor)) return quotient(asked, measured);
  return quotient(1 + asked * (factor - 1), 1 + measured * (factor - 1));
}

// The share of the slow part in an estimate. A measurement counts by its length, and ranks measure
// different lengths: where some are slow and others not, it may be any.
SlowRange WeightOf(const SlowRange& measured) {
  return {.low = measured.low >= 1 ? 1.0 : 0, .high = measured.high > 0 ? 1.0 : 0};
}

}  // namespace

SlowSpan OfCollectives(SlowSpan span) {
  span.collectives = true;
  span.most = std::numeric_limits<double>::infinity();
  span.all = 1;
  return span;
}

SlowShares SharesOf(const SlowSpan& span, const std::map<int32_t, std::vector<int64_t>>& measured,
                    int32_t count, size_t ranks, int64_t begin, int64_t end) {
  const MeasuredCounts counts = CountsOf(span, measured, count);
  // Where no other rank does the same work, something may be its work alone.
  const double part =
      span.alone || span.collectives ? 1 : 1 / static_cast<double>(std::max<size_t>(ranks, 1));
  const double of =
      static_cast<double>(span.alone && !span.collectives ? counts.all + counts.unknown : count);
  const auto share = [&](int64_t number) { return of > 0 ? static_cast<double>(number) / of : 0; };
  SlowShares shares;
  shares.measured.low = share(counts.slow);
  shares.measured.high =
      share(counts.slow + counts.unknown + (span.maybe_before ? counts.before : 0));
  if (end < 0 || end <= begin) {
    shares.asked.high = part;
    return shares;
  }
  const auto within = [&](int64_t first) {
    const int64_t slow = std::min(span.end, end) - std::max(first, begin);
    return part * static_cast<double>(std::max<int64_t>(slow, 0)) /
           static_cast<double>(end - begin);
  };
  shares.asked.low = within(span.first);
  shares.asked.high = within(span.maybe_before ? 0 : span.first);
  return shares;
}

Estimate WithSpan(const Estimate& estimate, const SlowSpan& span, const SlowShares& shares,
                  bool kernel_times) {
  // Measurements of all ranks are of both parts: their lengths are no other in the slow one.
  const SlowRange counts = span.collectives ? shares.measured : WeightOf(shares.measured);
  double least = std::min(1.0, Corrected(shares.asked.low, counts.high, span.most));
  const double most = std::max(1.0, Corrected(shares.asked.high, counts.low, span.most));
  if (span.collectives) least = std::min(least, Corrected(shares.asked.high, counts.low, 0));
  const double usual = kernel_times
                           ? Corrected((shares.asked.low + shares.asked.high) / 2,
                                       (shares.measured.low + shares.measured.high) / 2, span.all)
                           : 1;
  Estimate to = {estimate.value * std::clamp(usual, least, most), estimate.low * least,
                 estimate.high};
  if (estimate.high > 0) to.high *= most;
  return to;
}

std::string SpanInWords(const SlowSpan& span,
                        const std::map<int32_t, std::vector<int64_t>>& measured, int32_t count) {
  const MeasuredCounts counts = CountsOf(span, measured, count);
  std::string text = absl::StrCat("rank ", span.rank, " became slower at iteration ", span.first,
                                  span.maybe_before ? " or before" : "");
  if (counts.unknown > 0) {
    absl::StrAppend(&text, "; of ", counts.unknown, " of the ", count,
                    " measurements the rank is not known");
  } else {
    absl::StrAppend(&text, "; ", counts.before, " of its ", counts.all,
                    counts.all == 1 ? " measurement is" : " measurements are",
                    " of iterations before it");
  }
  absl::StrAppend(&text, std::isinf(span.most)
                             ? ", and by how much its kernels are slower is not known: no upper "
                               "bound is known"
                         : span.most > 1 ? ", so intervals are wider: they hold its slower part"
                                         : "; its kernels are not slower");
  return text;
}

}  // namespace seqpoint::jobs
