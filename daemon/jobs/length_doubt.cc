#include "daemon/jobs/length_doubt.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/base/horizon.h"

namespace seqpoint::jobs {
namespace {

constexpr double kNeverTheSame = 0.1, kKolmogorovFactor = 1.63;
constexpr int64_t kMostTried = 1 << 20;  // a hostile process has any unit
// The powers to try: batches from a 1024th of the given size to 1024 times as large, in steps of a
// fifth.
constexpr int kMostSteps = 40;
constexpr double kSteps = 4;         // to a factor of two
constexpr double kOtherSize = 1.35;  // a power of two steps and more is another size of batch
constexpr double kAsSorted = 1.5;    // examples; fewer are as from a sorted data set
constexpr double kAllBelow = 0.95;
constexpr double kNearlyAll = 0.98;  // the last batch of an epoch is another

// Both distributions at some expected lengths; no step between two of them is larger than 1 / 512.
struct Shares {
  std::vector<double> observed, expected;
};

Shares SharesOf(const Histogram1& observed, int64_t factor, const Histogram1& expected) {
  constexpr double kStep = 1.0 / 512;
  Shares shares;
  const auto of_observed = static_cast<double>(Total(observed)),
             of_expected = static_cast<double>(Total(expected));
  double observed_sum = 0, expected_sum = 0;
  auto it = observed.begin();
  for (const auto& [length, count] : expected) {
    const int64_t scaled = ScaledLength(length, factor).value_or(kMaxLength);
    for (; it != observed.end() && it->first <= scaled; ++it) {
      observed_sum += static_cast<double>(it->second);
    }
    expected_sum += static_cast<double>(count);
    const double a = observed_sum / of_observed, b = expected_sum / of_expected;
    const bool last = length == expected.rbegin()->first;
    if (!shares.observed.empty() && !last && a < shares.observed.back() + kStep &&
        b < shares.expected.back() + kStep) {
      continue;
    }
    shares.observed.push_back(a);
    shares.expected.push_back(b);
  }
  return shares;
}

double Distance(const Shares& shares, double power) {
  double largest = 0;
  for (size_t i = 0; i < shares.observed.size(); ++i) {
    largest = std::max(largest, std::abs(shares.observed[i] - std::pow(shares.expected[i], power)));
  }
  return largest;
}

// A candidate for the value of one step of length: a divisor of the observed values' unit. Where it
// is smaller than the unit, only lengths that are multiples of `multiple` occur.
struct Factor {
  int64_t factor;
  int64_t multiple;
};

// The factors that put the longest observed length near the longest expected one. So far only short
// lengths may have come.
std::vector<Factor> Factors(const Histogram1& observed, const Histogram1& expected) {
  constexpr int64_t kLonger = 2, kShorter = 64;
  constexpr size_t kMostFactors = 64;
  std::vector<Factor> factors;
  const int64_t unit = NaturalUnit(observed);
  const int64_t longest = observed.rbegin()->first;
  const auto add = [&](int64_t factor) {
    const std::optional<int64_t> scaled = ScaledLength(expected.rbegin()->first, factor);
    if (!scaled || longest / kLonger > *scaled || longest < *scaled / kShorter) return;
    if (factors.size() < kMostFactors) factors.push_back({factor, unit / factor});
  };
  for (int64_t divisor = 1; divisor <= unit / divisor && divisor < kMostTried; ++divisor) {
    if (unit % divisor != 0) continue;
    add(divisor);
    if (divisor != unit / divisor) add(unit / divisor);
  }
  return factors;
}

Histogram1 Padded(const Histogram1& lengths, int64_t multiple) {
  Histogram1 padded;
  for (const auto& [length, count] : lengths) {
    padded[(length + multiple - 1) / multiple * multiple] += count;
  }
  return padded;
}

// All lengths but one in fifty are multiples.
bool AreMultiples(const Histogram1& lengths, int64_t multiple) {
  double multiples = 0;
  for (const auto& [length, count] : lengths) {
    multiples += length % multiple == 0 ? static_cast<double>(count) : 0;
  }
  return multiples >= kNearlyAll * static_cast<double>(Total(lengths));
}

}  // namespace

double MostDistance(double observed, double expected) {
  return kNeverTheSame + kKolmogorovFactor * std::sqrt(1 / observed + 1 / expected);
}

std::optional<LengthScale> FindScaleOfDrawn(const Histogram1& observed,
                                            const Histogram1& expected) {
  if (observed.size() < kManyValues || expected.empty()) return std::nullopt;
  std::optional<LengthScale> best;
  for (const auto& [factor, multiple] : Factors(observed, expected)) {
    if (!AreMultiples(expected, multiple)) continue;
    const double distance = Distance(SharesOf(observed, factor, expected), 1);
    if (distance >
        MostDistance(static_cast<double>(Total(observed)), static_cast<double>(Total(expected))))
      continue;
    if (best && distance >= best->distance) continue;
    best = LengthScale{.factor = factor, .distance = distance};
  }
  return best;
}

LengthDoubt WhyLengthsDiffer(const Histogram1& observed, const Histogram1& expected, int64_t batch,
                             int64_t ranks) {
  LengthDoubt doubt;
  if (observed.empty() || expected.empty()) return doubt;
  const double most =
      MostDistance(static_cast<double>(Total(observed)), static_cast<double>(Total(expected)));
  double least = 2, power = 1, below = 0, least_padded = most / 2;
  double of_ranks = 2;  // distance if each rank has its share of a batch
  int64_t padded_to = 0;
  doubt.distance = 1;
  for (const auto& [factor, multiple] : Factors(observed, expected)) {
    if (!AreMultiples(expected, multiple)) {
      const Histogram1 padded = Padded(expected, multiple);
      const double distance = Distance(SharesOf(observed, factor, padded), 1);
      if (distance >= least_padded) continue;
      least_padded = distance;
      padded_to = multiple;
      continue;
    }
    const Shares shares = SharesOf(observed, factor, expected);
    for (int step = -kMostSteps; step <= kMostSteps; ++step) {
      const double tried = std::exp2(step / kSteps);
      const double distance = Distance(shares, tried);
      if (distance >= least) continue;
      least = distance;
      power = tried;
      below = shares.observed.front();
      of_ranks = Distance(shares, 1 / static_cast<double>(std::max<int64_t>(ranks, 1)));
      doubt.distance = Distance(shares, 1);
    }
  }
  if (doubt.distance <= most) return doubt;
  const bool larger = power > kOtherSize, smaller = power < 1 / kOtherSize;
  const double size = power * static_cast<double>(std::max<int64_t>(batch, 1));
  const std::string seen = absl::StrCat("they are as of batches of about ",
                                        size < 10 ? std::round(10 * size) / 10 : std::round(size));
  const std::string padding = padded_to == 0 ? ""
                                             : absl::StrCat("padded to multiples of ", padded_to,
                                                            " (--pad-to ", padded_to, ")");
  if (batch > 0 && smaller && below > kAllBelow) {
    doubt.cause =
        absl::StrCat("nearly all are below the shortest batch that was expected: are they ",
                     padding, padding.empty() ? "" : ", or ",
                     "of sorted examples (--order sorted), or of another column "
                     "(--length-column)?");
  } else if (padded_to > 0) {
    doubt.cause = absl::StrCat("they are as lengths ", padding);
  } else if (least > most || (!larger && !smaller) || (batch == 0 && smaller)) {
    doubt.cause =
        "no other size of batch explains it; is it the right column (--length-column), and the "
        "data of this run?";
  } else if (batch == 0) {
    doubt.cause =
        absl::StrCat(seen, " rows: is --batch missing? Without it each row is an iteration");
  } else if (smaller && size < kAsSorted) {
    doubt.cause =
        "they are as of batches of similar examples, not of shuffled ones; say --order bucket or "
        "--order sorted";
  } else if (ranks > 1 && smaller && of_ranks <= most) {
    doubt.cause = absl::StrCat("they are as of a share of ", batch, " examples for each of ", ranks,
                               " ranks: --batch is that of one rank");
  } else {
    doubt.cause = absl::StrCat(seen, " examples, not ", batch,
                               ": --batch is that of one forward pass of one rank");
  }
  return doubt;
}

}  // namespace seqpoint::jobs
