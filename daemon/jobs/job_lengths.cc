// The user's lengths: matched to the learned feature, made the engine's horizon.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/base/repeats.h"
#include "daemon/jobs/hello.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/length_doubt.h"
#include "daemon/jobs/process.h"
#include "daemon/jobs/running_round.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kScaleRetryIterations = 50;
constexpr int64_t kLeastSummed = 16;
constexpr double kOtherwiseShare = 0.1;  // more than the last iteration of each epoch
constexpr double kLeastForDistribution = 100;
constexpr int64_t kMostIterations = int64_t{1} << 50;  // what an engine can count
constexpr int64_t kMostRanks = 1 << 16;                // more is a mistake

using Lengths = std::array<int64_t, 2>;

// Steps of an epoch of so many forward passes.
int64_t StepsOf(int64_t batches, int64_t micro_steps, int64_t data_parallel) {
  // The usual samplers give every rank as many batches, some of them twice.
  return (batches + data_parallel - 1) / data_parallel / micro_steps;
}

// How often each pair of lengths comes in an epoch's steps. The user's batches are forward passes:
// with gradient accumulation a rank's lengths are sums over `micro_steps` of them, and a step's
// lengths are the largest of `data_parallel` ranks. Batches are put together at random (by the same
// draws each time), or in order of length where those of a step are alike.
std::map<Lengths, int64_t> IterationLengths(const v1::Horizon& horizon, int64_t micro_steps,
                                            int64_t data_parallel) {
  constexpr int64_t kMostDrawn = 1 << 18;
  std::map<Lengths, int64_t> counts;
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    const int64_t second = entry.lengths_size() > 1 ? entry.lengths(1) : 0;
    counts[{entry.lengths(0), second}] += entry.count();
    total += entry.count();
  }
  // With fewer batches than ranks one step has what there is.
  data_parallel = std::clamp<int64_t>(data_parallel, 1, std::max<int64_t>(total / micro_steps, 1));
  const int64_t group = micro_steps * data_parallel;
  if (group <= 1) return counts;
  const double share = std::min(1.0, static_cast<double>(kMostDrawn) / std::max<int64_t>(total, 1));
  std::vector<Lengths> batches;
  for (const auto& [lengths, count] : counts) {
    const auto drawn = static_cast<size_t>(std::ceil(static_cast<double>(count) * share));
    batches.insert(batches.end(), drawn, lengths);
  }
  std::mt19937_64 random(1);
  if (!horizon.alike()) std::shuffle(batches.begin(), batches.end(), random);
  std::map<Lengths, int64_t> steps;
  int64_t drawn = 0;
  for (size_t i = 0; i + static_cast<size_t>(group) <= batches.size(); ++drawn) {
    Lengths most = {0, 0};
    for (int64_t rank = 0; rank < data_parallel; ++rank) {
      Lengths sum = {0, 0};
      for (int64_t step = 0; step < micro_steps; ++step, ++i) {
        for (int d = 0; d < 2; ++d) sum[d] = std::min(sum[d] + batches[i][d], kMaxLength + 1);
      }
      for (int d = 0; d < 2; ++d) most[d] = std::max(most[d], sum[d]);
    }
    ++steps[most];
  }
  const int64_t wanted = StepsOf(total, micro_steps, data_parallel);
  const double times =
      static_cast<double>(wanted) / static_cast<double>(std::max<int64_t>(drawn, 1));
  RunningRound round;
  for (auto& [lengths, count] : steps) count = round.Next(static_cast<double>(count) * times);
  std::erase_if(steps, [](const auto& entry) { return entry.second == 0; });
  return steps;
}

Histogram1 Marginal(const std::map<Lengths, int64_t>& lengths, int dimension) {
  Histogram1 histogram;
  for (const auto& [pair, count] : lengths) histogram[pair[dimension]] += count;
  return histogram;
}

int GivenDimensions(const v1::Horizon& horizon) {
  return horizon.histogram_size() == 0 ? 0 : horizon.histogram(0).lengths_size();
}

std::string WithoutTotal(const std::string& why) {
  return absl::StrCat("the given lengths do not say when the run ends: ", why,
                      "; --iterations says how many it has (seqpoint control JOB horizon "
                      "--iterations N)");
}

absl::Status CheckHorizon(const v1::Horizon& horizon) {
  constexpr int kMostLengths = 1 << 18;  // what an engine can tell apart
  if (horizon.histogram_size() > kMostLengths) {
    return absl::InvalidArgumentError(absl::StrCat(
        "horizon.histogram: ", horizon.histogram_size(), " different lengths, more than ",
        kMostLengths, "; pad them to a multiple (--pad-to), or give the number of iterations"));
  }
  const int64_t epochs = RepeatsOf(horizon);
  int64_t batches = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    if (entry.lengths_size() < 1 || entry.lengths_size() > 2 || entry.count() < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("horizon.histogram: an entry needs one or two lengths and a count, not ",
                       entry.lengths_size(), " and ", entry.count()));
    }
    for (const int64_t length : entry.lengths()) {
      if (length < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("horizon.histogram: length ", length, " is negative"));
      }
      if (length > kMaxLength) {
        return absl::InvalidArgumentError(
            absl::StrCat("horizon.histogram: length ", length, " is more than ", kMaxLength,
                         "; give lengths in tokens, frames or pixels"));
      }
    }
    if (entry.count() > kMostIterations / epochs - batches) {
      return absl::InvalidArgumentError(absl::StrCat("horizon: the counts and ", epochs,
                                                     " epochs make more than ", kMostIterations,
                                                     " iterations; check the counts"));
    }
    batches += entry.count();
  }
  if (horizon.iterations() < 0 || horizon.epochs() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("horizon: iterations ", horizon.iterations(),
                                                   " and epochs ", horizon.epochs(),
                                                   " must not be negative"));
  }
  if (horizon.data_parallel() < 0 || horizon.data_parallel() > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "horizon.data_parallel: ", horizon.data_parallel(), " is not in 0 ... ", kMostRanks));
  }
  if (horizon.iterations() > kMostIterations) {
    return absl::InvalidArgumentError(absl::StrCat("horizon: ", horizon.iterations(),
                                                   " iterations, more than ", kMostIterations));
  }
  return absl::OkStatus();
}

}  // namespace

Job::BatchesSaid Job::Batches() const {
  std::map<int32_t, const Process*> last;  // by rank
  for (const auto& [id, process] : processes_) {
    const bool counts = process->state.iterations() > 0 || process->alive();
    if (const Process*& of_rank = last[process->row.rank]; counts || of_rank == nullptr) {
      of_rank = process.get();
    }
  }
  BatchesSaid said;
  for (const auto& [rank, process] : last) {
    const auto feature = process->features.find(static_cast<uint16_t>(abi::Feature::kBatches));
    if (feature == process->features.end()) continue;
    const auto code = static_cast<uint32_t>(feature->second.code());
    if (code > said.code) said = {code, feature->second.sentence()};
  }
  return said;
}

uint32_t Job::SummedBatches() const {
  return Batches().code == abi::kBatchEach ? SummedSteps() : 1;
}

uint32_t Job::SummedSteps() const {
  return rule_ && abi::SumsLengths(rule_->rule) ? rule_->rule.micro_steps : 1;
}

bool Job::MicroStepsVary() const {
  return summed_iterations_ >= kLeastSummed &&
         otherwise_summed_ > kOtherwiseShare * static_cast<double>(summed_iterations_);
}

double Job::MeanMicroSteps() const {
  return static_cast<double>(micro_steps_) / static_cast<double>(summed_iterations_);
}

int64_t Job::RunIterations(const v1::Horizon& horizon) const {
  if (horizon.kind() == v1::Horizon::KIND_UNKNOWN) return 0;
  if (horizon.kind() == v1::Horizon::KIND_ITERATIONS) return horizon.iterations();
  const uint32_t said = Batches().code;
  if (said == abi::kBatchUnknown) return 0;
  int64_t batches = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) batches += entry.count();
  if (said == abi::kBatchEach && MicroStepsVary()) {
    const int64_t forwards = StepsOf(batches, 1, DataParallel(horizon));
    return std::llround(static_cast<double>(forwards) * static_cast<double>(RepeatsOf(horizon)) /
                        MeanMicroSteps());
  }
  const int64_t micro_steps =
      rule_ && said == abi::kBatchEach ? std::max<int64_t>(rule_->rule.micro_steps, 1) : 1;
  return StepsOf(batches, micro_steps, DataParallel(horizon)) * RepeatsOf(horizon);
}

int64_t Job::WorkingRanks() const {
  const int64_t ranks = std::count_if(start_ranks_.begin(), start_ranks_.end(),
                                      [&](int32_t rank) { return next_number_.contains(rank); });
  return std::max<int64_t>(ranks, 1);
}

int64_t Job::WorldSize() const {
  return std::min(std::max(world_size_, WorkingRanks()), kMostRanks);
}

int64_t Job::DataParallel(const v1::Horizon& horizon) const {
  if (horizon.data_parallel() > 0) return horizon.data_parallel();
  return imported_ ? 1 : WorldSize();
}

Job::EngineHorizons Job::Counted(int64_t steps) const {
  return {Horizon::Iterations(steps),
          Horizon::Iterations(std::min(steps * WorkingRanks(), kMostIterations))};
}

void Job::Apply(EngineHorizons horizons) {
  engine_.SetHorizon(std::move(horizons.steps)).IgnoreError();
  if (work_) work_->SetHorizon(std::move(horizons.work)).IgnoreError();
  applied_world_ = {WorkingRanks(), WorldSize()};
  horizon_applied_ = true;
  changes_.Mark(Change::kSchedule);
}

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (imported_ && horizon_.kind() != v1::Horizon::KIND_UNKNOWN) {  // it has the log's own
    return absl::FailedPreconditionError(absl::StrCat(
        "job \"", row_.name, "@", row_.run_id,
        "\" was made of another tool's log and is over; to ask about another run: seqpoint project "
        "JOB --lengths FILE"));
  }
  if (const absl::Status status = CheckHorizon(horizon); !status.ok()) return status;
  horizon_ = horizon;
  horizon_applied_ = false;
  next_match_ = 0;
  map_ = {};
  MatchLengths();
  changes_.Mark(Change::kHorizon);
  return absl::OkStatus();
}

void Job::MatchLengths() {
  const int64_t seen = static_cast<int64_t>(engine_.current().Totals().iterations);
  if (applied_world_ != std::pair(WorkingRanks(), WorldSize())) {
    horizon_applied_ = false;
    next_match_ = 0;
  }
  if (horizon_.kind() == v1::Horizon::KIND_UNKNOWN) {
    if (!horizon_applied_) Apply({Horizon::Unknown(), Horizon::Unknown()});
    return;
  }
  const bool over = row_.end_ns != 0;
  if (seen < next_match_ && !over) return;
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  const BatchesSaid said = Batches();
  if (by_length && said.code == abi::kBatchUnknown) {
    next_match_ = std::numeric_limits<int64_t>::max();  // until something else is said
    map_ = {};
    Apply({Horizon::Unknown(), Horizon::Unknown()});
    sentence_ = WithoutTotal(said.sentence);
    changes_.Mark(Change::kDescription);
    return;
  }
  const int64_t micro_steps = rule_ ? std::max<int64_t>(rule_->rule.micro_steps, 1) : 1;
  if (by_length && ((seen * micro_steps < kScaleRetryIterations && !over) || !rule_)) {
    if (horizon_applied_) return;
    // The number of iterations is good from the start.
    return Apply(Counted(RunIterations(horizon_)));
  }
  if (by_length && said.code == abi::kBatchEach && MicroStepsVary()) {
    // Which batches come together is not known: their number is, and lengths are like the past.
    next_match_ = 2 * seen;
    map_ = {};
    Apply(Counted(RunIterations(horizon_)));
    horizon_applied_ = true;
    sentence_ = absl::StrFormat(
        "%d of %d iterations had another number of micro-steps than %d: of the given lengths only "
        "the number is used, %.2f batches per iteration as so far; --iterations says it exactly",
        otherwise_summed_, summed_iterations_, SummedSteps(), MeanMicroSteps());
    changes_.Mark(Change::kDescription);
    return;
  }
  const bool known_before = map_.factor[0] > 0;
  if (by_length) map_ = FindFactors(horizon_);
  absl::StatusOr<EngineHorizons> horizon = EngineHorizon(horizon_, map_);
  // Looked at again and again: what fits the first lengths may not fit the later ones.
  next_match_ = horizon.ok() ? std::max<int64_t>(2 * seen, 1) : seen + kScaleRetryIterations;
  if (horizon.ok() || known_before || !horizon_applied_) {
    Apply(horizon.ok() ? *horizon : Counted(RunIterations(horizon_)));
  }
  const auto n = static_cast<double>(observed_count_[0]);
  LengthDoubt doubt;
  if (by_length && n >= kLeastForDistribution) doubt = WhyLengthsDiffer();
  sentence_.clear();
  if (!horizon.ok() && rule_ && rule_->rule.length_count == 0) {
    sentence_ =
        "nothing was found in the program that tells the length of an iteration, so the given "
        "lengths could not be matched: only their number is used";
  } else if (!horizon.ok() && n < kLeastForDistribution) {
    sentence_ = absl::StrCat("the given lengths could not be matched to the ", observed_count_[0],
                             " iterations so far of which the length is known, which are few: "
                             "only their number is used",
                             over ? "" : " until more have come");
  } else if (!horizon.ok()) {
    sentence_ = absl::StrCat(
        doubt.cause.empty()
            ? std::string(horizon.status().message())
            : absl::StrCat("the given lengths are not those that occur: ", doubt.cause),
        over ? "; only the number of iterations is used"
             : "; until then only the number of iterations is used");
  } else if (!doubt.cause.empty()) {
    sentence_ = absl::StrFormat(
        "the given lengths are distributed otherwise than those that occur (by up to %.0f %% of "
        "the iterations), so the total may be wrong: %s",
        100 * doubt.distance, doubt.cause);
    if (horizon_.kind() != v1::Horizon::KIND_DISTRIBUTION) {
      absl::StrAppend(&sentence_, "; right as it is where they come in order of length");
    }
  }
  if (horizon.ok() && by_length && DataParallel(horizon_) > 1 && horizon_.data_parallel() == 0 &&
      steps_.same_lengths()) {
    sentence_ =
        "all ranks have the same lengths in every step; when they work on parts of the same "
        "batches (tensor or pipeline parallel), say how many have batches of their own: seqpoint "
        "control JOB horizon --lengths FILE --data-parallel N, with the run's other options";
  }
  horizon_applied_ = true;
  changes_.Mark(Change::kDescription);
}

// Of shuffled batches, which come in no order: lengths so far are a sample of all. Of each
// dimension the given length that is nearest.
LengthDoubt Job::WhyLengthsDiffer() const {
  LengthDoubt worst;
  if (!rule_ || imported_ || horizon_.alike() || abi::SumsLengths(rule_->rule)) return worst;
  const std::map<Lengths, int64_t> lengths = IterationLengths(horizon_, 1, 1);
  for (uint32_t i = 0; i < rule_->rule.length_count; ++i) {
    LengthDoubt nearest = {.distance = 2};
    for (int column = 0; column < GivenDimensions(horizon_); ++column) {
      LengthDoubt doubt = jobs::WhyLengthsDiffer(observed_[i], Marginal(lengths, column),
                                                 horizon_.batch(), WorldSize());
      if (doubt.distance < nearest.distance) nearest = std::move(doubt);
    }
    if (!nearest.cause.empty() && nearest.distance > worst.distance) worst = std::move(nearest);
  }
  return worst;
}

Job::LengthMap Job::FindFactors(const v1::Horizon& horizon) const {
  LengthMap map;
  if (!rule_) return map;
  const int dimensions = static_cast<int>(rule_->rule.length_count);
  const int given = GivenDimensions(horizon);
  if (imported_) {
    if (given == dimensions) map.factor[0] = map.factor[1] = 1;
    return map;
  }
  const bool sums = SummedBatches() > 1;
  const std::map<Lengths, int64_t> lengths = IterationLengths(horizon, SummedBatches(), 1);
  double best = 2;
  for (const bool swapped : {false, true}) {
    if (dimensions == 0 || given == 0 || (swapped && given < 2)) continue;
    double distance = 0;
    int64_t factor[2] = {0, 0};
    bool matched = true;
    for (int i = 0; i < dimensions && matched; ++i) {
      const int column = given == 1 ? 0 : (swapped ? 1 - i : i);
      const Histogram1 expected = Marginal(lengths, column);
      auto scale =
          sums ? FindScaleOfSums(observed_[i], expected) : FindScale(observed_[i], expected);
      // Of drawn batches some lengths come that were not drawn.
      if (!scale && !sums && horizon.kind() == v1::Horizon::KIND_DISTRIBUTION) {
        scale = FindScaleOfDrawn(observed_[i], expected);
      }
      matched = scale.has_value();
      if (!matched) break;
      factor[i] = scale->factor;
      distance = std::max(distance, scale->distance);
    }
    if (matched && distance < best) {
      best = distance;
      map = {.factor = {factor[0], factor[1]}, .swapped = swapped, .distance = sums ? 0 : distance};
    }
  }
  return map;
}

absl::StatusOr<Job::EngineHorizons> Job::EngineHorizon(const v1::Horizon& horizon,
                                                       const LengthMap& map) const {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_UNKNOWN:
      return EngineHorizons{Horizon::Unknown(), Horizon::Unknown()};
    case v1::Horizon::KIND_ITERATIONS:
      return Counted(horizon.iterations());
    default:
      break;
  }
  const int64_t data_parallel = DataParallel(horizon);
  EngineHorizons horizons;
  absl::StatusOr<Horizon> of = EngineHorizonOf(horizon, map, data_parallel, 1);
  if (!of.ok()) return of.status();
  horizons.steps = *std::move(of);
  if (work_) {
    const double share = static_cast<double>(WorkingRanks()) / static_cast<double>(data_parallel);
    of = EngineHorizonOf(horizon, map, 1, share);
    if (!of.ok()) return of.status();
    horizons.work = *std::move(of);
  }
  return horizons;
}

absl::StatusOr<Horizon> Job::EngineHorizonOf(const v1::Horizon& horizon, const LengthMap& map,
                                             int64_t data_parallel, double share) const {
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  if (dimensions == 0 || map.factor[0] == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the given lengths could not be matched to those that occur",
        dimensions > 0 ? absl::StrCat(", which are told by ", rule_->length_words) : ""));
  }
  const bool two = horizon.histogram_size() > 0 && horizon.histogram(0).lengths_size() > 1;
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
    RunningRound round;
    for (const auto& [key, count] : counts) {
      const int64_t here = round.Next(share * static_cast<double>(count));
      if (here > 0) histogram.push_back({key, here});
    }
    return histogram;
  };
  auto histogram = in_features(IterationLengths(horizon, SummedBatches(), data_parallel));
  if (!histogram.ok()) return histogram.status();
  const int64_t epochs = RepeatsOf(horizon);
  const bool exact =
      horizon.kind() == v1::Horizon::KIND_HISTOGRAM && data_parallel == 1 && share == 1;
  if (SummedBatches() == 1) {
    return exact ? Horizon::Histogram(*std::move(histogram), epochs)
                 : Horizon::Distribution(*std::move(histogram), epochs);
  }
  Horizon sums = Horizon::Distribution(*std::move(histogram), epochs);
  if (data_parallel > 1) return sums;
  // The micro-steps are the user's batches themselves.
  auto parts = in_features(IterationLengths(horizon, 1, 1));
  if (!parts.ok()) return parts.status();
  sums.parts = Horizon::Histogram(*std::move(parts), epochs).histogram;
  sums.parts_certain = exact;
  return sums;
}

// Whether most of the user's lengths lie between half the shortest and twice the longest that ran.
bool Job::AreAlike(const v1::Horizon& horizon) const {
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  const LengthUnits units = Units();
  int64_t alike = 0, all = 0;
  for (const auto& [lengths, count] : IterationLengths(horizon, SummedBatches(), 1)) {
    bool within = dimensions > 0;
    for (int i = 0; i < dimensions && within; ++i) {
      const int64_t length = lengths[units.swapped ? 1 - i : i];
      if (observed_[i].empty()) return false;
      const int64_t unit = units.unit[i];
      within = length >= observed_[i].begin()->first / unit / 2 &&
               length <= observed_[i].rbegin()->first / unit * 2;
    }
    all += count;
    alike += within ? count : 0;
  }
  return all > 0 && alike >= all - all / 10;
}

// Lengths in another unit, or of another column, would be taken for very long or short ones.
absl::Status Job::CheckLikeLog(const v1::Horizon& horizon) const {
  if (horizon.histogram_size() == 0) return absl::OkStatus();
  const int dimensions = static_cast<int>(rule_->rule.length_count);
  const int given = horizon.histogram(0).lengths_size();
  if (given != dimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("an iteration has ", given, given == 1 ? " length" : " lengths",
                     " in what is given and ", dimensions, " in the job (", rule_->length_words,
                     "); name ", dimensions == 1 ? "one" : "two",
                     dimensions == 1 ? " column" : " columns", " with --length-column"));
  }
  if (AreAlike(horizon)) return absl::OkStatus();
  std::string ranges;
  for (int i = 0; i < dimensions; ++i) {
    absl::StrAppend(&ranges, i == 0 ? "" : " x ", observed_[i].begin()->first, " to ",
                    observed_[i].rbegin()->first);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("more than a tenth of the given lengths are beyond twice or half of what the "
                   "job has seen (",
                   ranges, ": ", rule_->length_words, "); is it the same column and unit?"));
}

absl::Status Job::SetOther(const v1::Horizon& horizon, RunEngine& steps, RunEngine* work) const {
  if (const absl::Status status = CheckHorizon(horizon); !status.ok()) return status;
  if (const BatchesSaid said = Batches(); said.code == abi::kBatchUnknown &&
                                          horizon.kind() != v1::Horizon::KIND_ITERATIONS &&
                                          horizon.kind() != v1::Horizon::KIND_UNKNOWN) {
    return absl::FailedPreconditionError(WithoutTotal(said.sentence));
  }
  if (imported_) {
    if (const absl::Status status = CheckLikeLog(horizon); !status.ok()) return status;
  }
  // Of the same data the factors are found as ever. Other data has them from the job's own, where
  // its lengths are at all like those.
  LengthMap map = FindFactors(horizon);
  if (map.factor[0] == 0 && AreAlike(horizon)) {
    const LengthUnits units = Units();
    map = {.factor = {units.unit[0], units.unit[1]}, .swapped = units.swapped};
  }
  absl::StatusOr<EngineHorizons> wanted = EngineHorizon(horizon, map);
  if (!wanted.ok()) return wanted.status();
  wanted->steps.another = wanted->work.another = true;
  const absl::Status status = steps.SetHorizon(std::move(wanted->steps));
  if (!status.ok() || work == nullptr) return status;
  return work->SetHorizon(std::move(wanted->work));
}

LengthUnits Job::Units() const {
  LengthUnits units;
  for (int i = 0; i < 2; ++i) {
    if (observed_count_[i] > unit_count_[i] + unit_count_[i] / 64) {
      // One length that never varies is itself, and no unit; what the program or its framework
      // tells is in units already.
      const auto op = rule_ ? static_cast<abi::Op>(rule_->rule.length[i].pattern.op) : abi::Op{};
      const bool told = op == abi::Op::kFeature || op == abi::Op::kMark;
      unit_[i] = observed_[i].size() > 1 && !told ? NaturalUnit(observed_[i]) : 1;
      unit_count_[i] = observed_count_[i];
    }
    units.unit[i] = map_.factor[i] > 0 ? map_.factor[i] : unit_[i];
  }
  units.swapped = map_.swapped;
  units.given = map_.factor[0] > 0;
  return units;
}

std::vector<int64_t> Job::UserLengths(const int64_t length[2], int count) const {
  return Units().Of(length, count);
}

}  // namespace seqpoint::jobs
