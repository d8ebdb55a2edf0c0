// Built-in distributions of sequence lengths, counted from real corpora, and data sets drawn from
// them. Pure; any thread.
#ifndef SEQPOINT_TESTS_WORKLOADS_HISTOGRAMS_H_
#define SEQPOINT_TESTS_WORKLOADS_HISTOGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/workloads/lengths.h"
#include "tests/workloads/random.h"

namespace seqpoint::workload {

// "multi30k", "newstest" (source and target), "librispeech", "alpaca" (one length).
std::vector<std::string> HistogramNames();

// `count` examples (0: as many as the corpus has) drawn from the named histogram: a bin by its
// count, then a length evenly within the bin. An unknown name is an error that lists the known
// ones.
absl::StatusOr<LengthTable> DrawLengths(const std::string& name, int count, Random* random);

}  // namespace seqpoint::workload

#endif  // SEQPOINT_TESTS_WORKLOADS_HISTOGRAMS_H_
