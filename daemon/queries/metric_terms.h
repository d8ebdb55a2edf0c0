// Metrics as the engine projects them: their kinds, and sums of several.
//
// Threading: pure functions.
#ifndef DAEMON_QUERIES_METRIC_TERMS_H_
#define DAEMON_QUERIES_METRIC_TERMS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/counters/metric_sets.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint::queries {

StatisticKind KindOf(const counters::Metric& metric);

// Weighted sum of projections; their errors are taken to agree, which is the widest they can be.
// Nothing without terms, or while one of them was not measured.
std::optional<Projection> SumOf(const std::vector<counters::Term>& terms,
                                const std::map<std::string, Projection>& projected);

}  // namespace seqpoint::queries

#endif  // DAEMON_QUERIES_METRIC_TERMS_H_
