#include "daemon/jobs/length_matching.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/horizon.h"
#include "daemon/base/status_macros.h"
#include "daemon/jobs/cumulative_rounder.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kScaleRetryIterations = 50;
constexpr double kLeastForDistribution = 100;

std::string WithoutTotal(const std::string& why) {
  return absl::StrCat("the given lengths do not say when the run ends: ", why,
                      "; --iterations says how many it has (seqpoint control JOB horizon "
                      "--iterations N)");
}

// For a run of which only the number of steps is known.
EngineHorizons Counted(int64_t steps, const RunShape& shape) {
  return {Horizon::Iterations(steps),
          Horizon::Iterations(std::min(steps * shape.working_ranks, kMaxRunIterations))};
}

LengthMap FindFactors(const v1::Horizon& horizon, const RunShape& shape,
                      const ObservedLengths& observed) {
  LengthMap map;
  if (shape.rule == nullptr) return map;
  const int dimensions = shape.dimensions();
  const int given = GivenDimensions(horizon);
  if (shape.imported) {
    if (given == dimensions) map.factor[0] = map.factor[1] = 1;
    return map;
  }
  const bool sums = shape.SummedBatches() > 1;
  const std::map<Lengths, int64_t> lengths = IterationLengths(horizon, shape.SummedBatches(), 1);
  double best = 2;
  for (const bool swapped : {false, true}) {
    if (dimensions == 0 || given == 0 || (swapped && given < 2)) continue;
    double distance = 0;
    int64_t factor[2] = {0, 0};
    bool matched = true;
    for (int i = 0; i < dimensions && matched; ++i) {
      const int column = given == 1 ? 0 : (swapped ? 1 - i : i);
      const Histogram1 expected = Marginal(lengths, column);
      auto scale = sums ? FindScaleOfSums(observed.histogram(i), expected)
                        : FindScale(observed.histogram(i), expected);
      // Batches are drawn: other lengths than the drawn ones occur, too.
      if (!scale && !sums && horizon.kind() == v1::Horizon::KIND_DISTRIBUTION) {
        scale = FindScaleOfDrawn(observed.histogram(i), expected);
      }
      matched = scale.has_value();
      if (!matched) break;
      factor[i] = scale->factor;
      distance = std::max(distance, scale->distance);
    }
    if (matched && distance < best) {
      best = distance;
      map = {.factor = {factor[0], factor[1]}, .swapped = swapped};
    }
  }
  return map;
}

// The lengths of `share` of the batches; a step has the largest of `data_parallel` batches.
absl::StatusOr<Horizon> EngineHorizonOf(const v1::Horizon& horizon, const LengthMap& map,
                                        const RunShape& shape, int64_t data_parallel,
                                        double share) {
  const int dimensions = shape.dimensions();
  if (dimensions == 0 || map.factor[0] == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the given lengths could not be matched to those that occur",
        dimensions > 0 ? absl::StrCat(", which are read from ", shape.rule->length_words) : ""));
  }
  const bool two = GivenDimensions(horizon) > 1;
  const auto in_features =
      [&](const std::map<Lengths, int64_t>& given) -> absl::StatusOr<std::vector<KeyCount>> {
    std::map<Key, int64_t> counts;
    for (const auto& [lengths, count] : given) {
      int64_t value[2] = {0, 0};
      for (int i = 0; i < dimensions; ++i) {
        const int64_t length = lengths[!two ? 0 : (map.swapped ? 1 - i : i)];
        const std::optional<int64_t> scaled = ScaledLength(length, map.factor[i]);
        if (!scaled) {
          return absl::FailedPreconditionError(
              absl::StrCat("the given length ", length, " is ", map.factor[i],
                           " times as much in the length feature that was learned, more than ",
                           kMaxLength, "; check the longest lengths"));
        }
        value[i] = *scaled;
      }
      counts[{value[0], value[1]}] += count;
    }
    std::vector<KeyCount> histogram;
    CumulativeRounder round;
    for (const auto& [key, count] : counts) {
      const int64_t here = round.Next(share * static_cast<double>(count));
      if (here > 0) histogram.push_back({key, here});
    }
    return histogram;
  };
  SEQPOINT_ASSIGN_OR_RETURN(
      std::vector<KeyCount> histogram,
      in_features(IterationLengths(horizon, shape.SummedBatches(), data_parallel)));
  const int64_t epochs = RepeatsOf(horizon);
  const bool exact =
      horizon.kind() == v1::Horizon::KIND_HISTOGRAM && data_parallel == 1 && share == 1;
  if (shape.SummedBatches() == 1) {
    return exact ? Horizon::Histogram(std::move(histogram), epochs)
                 : Horizon::Distribution(std::move(histogram), epochs);
  }
  Horizon sums = Horizon::Distribution(std::move(histogram), epochs);
  if (data_parallel > 1) return sums;
  // The micro-batches are the user's batches themselves.
  SEQPOINT_ASSIGN_OR_RETURN(std::vector<KeyCount> parts,
                            in_features(IterationLengths(horizon, 1, 1)));
  sums.parts = Horizon::Histogram(std::move(parts), epochs).histogram;
  sums.parts_certain = exact;
  return sums;
}

// An error when the lengths cannot be mapped onto the learned feature.
absl::StatusOr<EngineHorizons> InEngines(const v1::Horizon& horizon, const LengthMap& map,
                                         const RunShape& shape) {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_UNKNOWN:
      return EngineHorizons{Horizon::Unknown(), Horizon::Unknown()};
    case v1::Horizon::KIND_ITERATIONS:
      return Counted(horizon.iterations(), shape);
    default:
      break;
  }
  const int64_t data_parallel = DataParallel(horizon, shape);
  EngineHorizons horizons;
  SEQPOINT_ASSIGN_OR_RETURN(horizons.steps, EngineHorizonOf(horizon, map, shape, data_parallel, 1));
  if (shape.several_ranks) {
    const double share =
        static_cast<double>(shape.working_ranks) / static_cast<double>(data_parallel);
    SEQPOINT_ASSIGN_OR_RETURN(horizons.work, EngineHorizonOf(horizon, map, shape, 1, share));
  }
  return horizons;
}

// Most of the user's lengths lie between half the shortest and twice the longest observed length.
bool AreAlike(const v1::Horizon& horizon, const RunShape& shape, const ObservedLengths& observed,
              const LengthUnits& units) {
  const int dimensions = shape.dimensions();
  int64_t alike = 0, all = 0;
  for (const auto& [lengths, count] : IterationLengths(horizon, shape.SummedBatches(), 1)) {
    bool within = dimensions > 0;
    for (int i = 0; i < dimensions && within; ++i) {
      const int64_t length = lengths[units.swapped ? 1 - i : i];
      if (observed.histogram(i).empty()) return false;
      const int64_t unit = units.unit[i];
      within = length >= observed.histogram(i).begin()->first / unit / 2 &&
               length <= observed.histogram(i).rbegin()->first / unit * 2;
    }
    all += count;
    alike += within ? count : 0;
  }
  return all > 0 && alike >= all - all / 10;
}

// Lengths in another unit or of another column would seem very long or very short.
absl::Status CheckLikeLog(const v1::Horizon& horizon, const RunShape& shape,
                          const ObservedLengths& observed, const LengthUnits& units) {
  if (horizon.histogram_size() == 0) return absl::OkStatus();
  const int dimensions = shape.dimensions(), given = GivenDimensions(horizon);
  if (given != dimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("an iteration has ", given, given == 1 ? " length" : " lengths",
                     " in what is given and ", dimensions, " in the job (",
                     shape.rule->length_words, "); name ", dimensions == 1 ? "one" : "two",
                     dimensions == 1 ? " column" : " columns", " with --length-column"));
  }
  if (AreAlike(horizon, shape, observed, units)) return absl::OkStatus();
  std::string ranges;
  for (int i = 0; i < dimensions; ++i) {
    absl::StrAppend(&ranges, i == 0 ? "" : " x ", observed.histogram(i).begin()->first, " to ",
                    observed.histogram(i).rbegin()->first);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("more than a tenth of the given lengths are beyond twice or half of what the "
                   "job has seen (",
                   ranges, ": ", shape.rule->length_words, "); is it the same column and unit?"));
}

}  // namespace

void LengthMatching::SetHorizon(const v1::Horizon& horizon) {
  horizon_ = horizon;
  Restart(/*forget=*/true);
}

void LengthMatching::Restart(bool forget) {
  state_.set_applied(false);
  next_match_ = 0;
  if (forget) SetMap({});
}

void LengthMatching::SetMap(const LengthMap& map) {
  state_.mutable_factor()->Assign(std::begin(map.factor), std::end(map.factor));
  state_.set_swapped(map.swapped);
}

LengthMap LengthMatching::map() const {
  LengthMap map = {.swapped = state_.swapped()};
  for (int i = 0; i < 2 && i < state_.factor_size(); ++i) map.factor[i] = state_.factor(i);
  return map;
}

LengthMatching::Outcome LengthMatching::Apply(EngineHorizons horizons, const RunShape& shape) {
  applied_to_ = {shape.working_ranks, shape.world_size, shape.batches};
  state_.set_applied(true);
  return {.horizons = std::move(horizons), .looked = true};
}

LengthMatching::Outcome LengthMatching::Match(const RunShape& shape,
                                              const ObservedLengths& observed, const Run& run) {
  if (applied_to_ != std::tuple(shape.working_ranks, shape.world_size, shape.batches)) Restart();
  if (horizon_.kind() == v1::Horizon::KIND_UNKNOWN) {
    if (state_.applied()) return {};
    return Apply({Horizon::Unknown(), Horizon::Unknown()}, shape);
  }
  if (run.iterations < next_match_ && !run.over) return {};
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  if (by_length && shape.batches == abi::kBatchUnknown) {
    next_match_ = std::numeric_limits<int64_t>::max();  // until something else is said
    SetMap({});
    SetMessage(WithoutTotal(shape.batches_message));
    return Apply({Horizon::Unknown(), Horizon::Unknown()}, shape);
  }
  const EngineHorizons counted = Counted(RunIterations(horizon_, shape), shape);
  const int64_t micro_batches =
      shape.rule != nullptr ? std::max<int64_t>(shape.rule->rule.micro_batches, 1) : 1;
  const bool few = run.iterations * micro_batches < kScaleRetryIterations && !run.over;
  if (by_length && (few || shape.rule == nullptr)) {
    // The number of iterations is good from the start.
    return state_.applied() ? Outcome{} : Apply(counted, shape);
  }
  if (by_length && shape.batches == abi::kBatchEach && shape.micro_batches.vary()) {
    // It is not known which batches come together. Their number is known, and lengths are like
    // those of the past.
    next_match_ = 2 * run.iterations;
    SetMap({});
    SetMessage(absl::StrFormat(
        "%d of %d iterations had another number of micro-batches than %d: of the given lengths "
        "only "
        "the number is used, %.2f batches per iteration as so far; --iterations says it exactly",
        shape.micro_batches.unusual(), shape.micro_batches.iterations(), shape.SummedMicroBatches(),
        shape.micro_batches.mean()));
    return Apply(counted, shape);
  }
  const bool known_before = map().factor[0] > 0;
  if (by_length) SetMap(FindFactors(horizon_, shape, observed));
  absl::StatusOr<EngineHorizons> horizons = InEngines(horizon_, map(), shape);
  next_match_ = horizons.ok() ? std::max<int64_t>(2 * run.iterations, 1)
                              : run.iterations + kScaleRetryIterations;
  SetMessage(MessageOf(horizons, shape, observed, run));
  if (horizons.ok()) return Apply(*std::move(horizons), shape);
  if (known_before || !state_.applied()) return Apply(counted, shape);
  return {.looked = true};
}

std::string LengthMatching::MessageOf(const absl::StatusOr<EngineHorizons>& horizons,
                                      const RunShape& shape, const ObservedLengths& observed,
                                      const Run& run) const {
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  const auto n = static_cast<double>(observed.count(0));
  LengthDoubt doubt;
  if (by_length && n >= kLeastForDistribution) doubt = WhyLengthsDiffer(shape, observed);
  std::string message;
  if (!horizons.ok() && shape.rule != nullptr && shape.dimensions() == 0) {
    message =
        "nothing was found in the program that shows the length of an iteration, so the given "
        "lengths could not be matched: only their number is used";
  } else if (!horizons.ok() && n < kLeastForDistribution) {
    message = absl::StrCat("the given lengths could not be matched to the ", observed.count(0),
                           " iterations so far of which the length is known, which are few: "
                           "only their number is used",
                           run.over ? "" : " until more have come");
  } else if (!horizons.ok()) {
    message = absl::StrCat(
        doubt.cause.empty()
            ? std::string(horizons.status().message())
            : absl::StrCat("the given lengths are not those that occur: ", doubt.cause),
        run.over ? "; only the number of iterations is used"
                 : "; until then only the number of iterations is used");
  } else if (!doubt.cause.empty()) {
    message = absl::StrFormat(
        "the given lengths are distributed otherwise than those that occur (by up to %.0f %% of "
        "the iterations), so the total may be wrong: %s",
        100 * doubt.distance, doubt.cause);
    if (horizon_.kind() != v1::Horizon::KIND_DISTRIBUTION) {
      absl::StrAppend(&message, "; right as it is where they come in order of length");
    }
  }
  if (horizons.ok() && by_length && DataParallel(horizon_, shape) > 1 &&
      horizon_.data_parallel() == 0 && run.same_lengths) {
    message =
        "all ranks have the same lengths in every step; when they work on parts of the same "
        "batches (tensor or pipeline parallel), say how many have batches of their own: seqpoint "
        "control JOB horizon --lengths FILE --data-parallel N, with the run's other options";
  }
  return message;
}

// Shuffled batches come in no order, so that the lengths so far are a sample of all. Each dimension
// is compared with the nearest of the given lengths.
LengthDoubt LengthMatching::WhyLengthsDiffer(const RunShape& shape,
                                             const ObservedLengths& observed) const {
  LengthDoubt worst;
  if (shape.rule == nullptr || shape.imported || horizon_.uniform_steps() ||
      abi::SumsLengths(shape.rule->rule)) {
    return worst;
  }
  const std::map<Lengths, int64_t> lengths = IterationLengths(horizon_, 1, 1);
  for (int i = 0; i < shape.dimensions(); ++i) {
    LengthDoubt nearest = {.distance = 2};
    for (int column = 0; column < GivenDimensions(horizon_); ++column) {
      LengthDoubt doubt = jobs::WhyLengthsDiffer(observed.histogram(i), Marginal(lengths, column),
                                                 horizon_.batch(), shape.world_size);
      if (doubt.distance < nearest.distance) nearest = std::move(doubt);
    }
    if (!nearest.cause.empty() && nearest.distance > worst.distance) worst = std::move(nearest);
  }
  return worst;
}

absl::StatusOr<EngineHorizons> LengthMatching::OtherRun(const v1::Horizon& horizon,
                                                        const RunShape& shape,
                                                        const ObservedLengths& observed) const {
  SEQPOINT_RETURN_IF_ERROR(CheckJobHorizon(horizon));
  if (shape.batches == abi::kBatchUnknown && horizon.kind() != v1::Horizon::KIND_ITERATIONS &&
      horizon.kind() != v1::Horizon::KIND_UNKNOWN) {
    return absl::FailedPreconditionError(WithoutTotal(shape.batches_message));
  }
  const LengthUnits units = Units(shape, observed);
  if (shape.imported) {
    SEQPOINT_RETURN_IF_ERROR(CheckLikeLog(horizon, shape, observed, units));
  }
  // The same data has its factors found as usual. Other data has the factors of the job, where its
  // lengths are similar.
  LengthMap map = FindFactors(horizon, shape, observed);
  if (map.factor[0] == 0 && AreAlike(horizon, shape, observed, units)) {
    map = {.factor = {units.unit[0], units.unit[1]}, .swapped = units.swapped};
  }
  absl::StatusOr<EngineHorizons> horizons = InEngines(horizon, map, shape);
  if (horizons.ok()) horizons->steps.another = horizons->work.another = true;
  return horizons;
}

LengthUnits LengthMatching::Units(const RunShape& shape, const ObservedLengths& observed) const {
  const LengthMap map = this->map();
  LengthUnits units = {.swapped = map.swapped, .given = map.factor[0] > 0};
  for (int i = 0; i < 2; ++i) {
    // A length from the program or its framework has the user's unit.
    const auto op = shape.rule != nullptr
                        ? static_cast<abi::Op>(shape.rule->rule.length[i].pattern.op)
                        : abi::Op{};
    const bool given = op == abi::Op::kFeature || op == abi::Op::kMark;
    units.unit[i] = map.factor[i] > 0 ? map.factor[i] : given ? 1 : observed.unit(i);
  }
  return units;
}

}  // namespace seqpoint::jobs
