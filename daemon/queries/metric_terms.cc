#include "daemon/queries/metric_terms.h"

#include "daemon/jobs/figures.h"

namespace seqpoint::queries {
namespace {

void AddScaled(const Estimate& estimate, double by, Estimate& sum) {
  const Estimate scaled = Scaled(estimate, by);
  sum.value += scaled.value;
  sum.low += scaled.low;
  sum.high += scaled.high;
}

}  // namespace

StatisticKind KindOf(const counters::Metric& metric) {
  return metric.follows_time ? StatisticKind::kTimeLike : StatisticKind::kAmount;
}

std::optional<Projection> SumOf(const std::vector<counters::Term>& terms,
                                const std::map<std::string, Projection>& projected) {
  std::optional<Projection> sum;
  for (const counters::Term& term : terms) {
    const auto it = projected.find(term.metric);
    if (it == projected.end()) return std::nullopt;
    const Projection& part = it->second;
    if (!sum) {
      sum = part;
      for (std::optional<Estimate>* e : {&sum->total, &sum->so_far, &sum->per_1000}) {
        if (*e) *e = Estimate{};
      }
      sum->remaining = Estimate{};
    }
    if (sum->total && part.total) AddScaled(*part.total, term.weight, *sum->total);
    if (sum->so_far && part.so_far) AddScaled(*part.so_far, term.weight, *sum->so_far);
    if (sum->per_1000 && part.per_1000) AddScaled(*part.per_1000, term.weight, *sum->per_1000);
    AddScaled(part.remaining, term.weight, sum->remaining);
  }
  return sum;
}

}  // namespace seqpoint::queries
