#include "daemon/base/horizon.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/limits.h"

namespace seqpoint {
namespace {

template <typename... Parts>
absl::Status HorizonError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("horizon", parts...));
}

// `left`: how many iterations the entries that come may have.
absl::Status CheckEntry(const v1::Horizon& horizon, int i, int64_t* left) {
  const v1::LengthCount& entry = horizon.histogram(i);
  if (entry.lengths_size() < 1 || entry.lengths_size() > 2 ||
      entry.lengths_size() != horizon.histogram(0).lengths_size()) {
    return HorizonError(".histogram[", i, "] has ", entry.lengths_size(),
                        " lengths; all entries have one, or all have two");
  }
  for (const int64_t length : entry.lengths()) {
    if (length < 0) return HorizonError(".histogram[", i, "]: length ", length, " is negative");
    if (length > kMaxLength) {
      return HorizonError(".histogram[", i, "]: length ", length, " is more than ", kMaxLength,
                          "; give lengths in tokens, frames or pixels");
    }
  }
  if (entry.count() < 1) {
    return HorizonError(".histogram[", i, "]: count ", entry.count(), " is not positive");
  }
  if (entry.count() > *left) {
    return HorizonError(".histogram[", i, "]: count ", entry.count(),
                        " makes all epochs together have more than ", kMaxRunIterations,
                        " iterations; check the counts");
  }
  *left -= entry.count();
  return absl::OkStatus();
}

}  // namespace

int64_t RepeatsOf(const v1::Horizon& horizon) {
  return horizon.kind() == v1::Horizon::KIND_HISTOGRAM ? std::max<int64_t>(horizon.epochs(), 1) : 1;
}

absl::Status CheckHorizon(const v1::Horizon& horizon) {
  if (!v1::Horizon::Kind_IsValid(horizon.kind())) {
    return HorizonError(": kind ", static_cast<int>(horizon.kind()),
                        " is not known to this daemon");
  }
  if (horizon.source().size() > kMaxWordBytes) {
    return HorizonError(".source has ", horizon.source().size(), " bytes; it may have ",
                        kMaxWordBytes);
  }
  if (horizon.iterations() < 0 || horizon.iterations() > kMaxRunIterations) {
    return HorizonError(": iterations = ", horizon.iterations(), " is not in 0 ... ",
                        kMaxRunIterations);
  }
  if (horizon.epochs() < 0 || horizon.epochs() > kMaxRunIterations) {
    return HorizonError(": epochs = ", horizon.epochs(), " is not in 0 ... ", kMaxRunIterations);
  }
  if (horizon.data_parallel() < 0 || horizon.data_parallel() > kMaxRanks) {
    return HorizonError(": data_parallel = ", horizon.data_parallel(), " is not in 0 ... ",
                        kMaxRanks);
  }
  if (horizon.kind() == v1::Horizon::KIND_ITERATIONS && horizon.iterations() == 0) {
    return HorizonError(": iterations is 0, but the kind is ITERATIONS");
  }
  const bool wants_histogram = horizon.kind() == v1::Horizon::KIND_HISTOGRAM ||
                               horizon.kind() == v1::Horizon::KIND_DISTRIBUTION;
  if (wants_histogram == (horizon.histogram_size() == 0)) {
    return wants_histogram ? HorizonError(": the histogram is empty, but the kind needs one")
                           : HorizonError(": there is a histogram, but the kind takes none");
  }
  int64_t left = kMaxRunIterations / RepeatsOf(horizon);
  for (int i = 0; i < horizon.histogram_size(); ++i) {
    if (absl::Status status = CheckEntry(horizon, i, &left); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace seqpoint
