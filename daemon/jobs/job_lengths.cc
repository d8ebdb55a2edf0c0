// The user's lengths: matched to the learned feature, made the engine's horizon.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/job_process.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kScaleRetryIterations = 50;
constexpr int64_t kMostIterations = int64_t{1} << 50;  // what an engine can count

using Lengths = std::array<int64_t, 2>;

// How often each pair of lengths comes in an epoch's iterations. The user's batches are forward
// passes: with gradient accumulation `micro_steps` of them, put together at random (by the same
// draws each time), are an iteration.
std::map<Lengths, int64_t> IterationLengths(const v1::Horizon& horizon, uint32_t micro_steps) {
  constexpr int64_t kMostDrawn = 1 << 18;
  std::map<Lengths, int64_t> counts;
  int64_t total = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) {
    const int64_t second = entry.lengths_size() > 1 ? entry.lengths(1) : 0;
    counts[{entry.lengths(0), second}] += entry.count();
    total += entry.count();
  }
  if (micro_steps <= 1) return counts;
  const double share = std::min(1.0, static_cast<double>(kMostDrawn) / std::max<int64_t>(total, 1));
  std::vector<Lengths> batches;
  for (const auto& [lengths, count] : counts) {
    const auto drawn = static_cast<size_t>(std::ceil(static_cast<double>(count) * share));
    batches.insert(batches.end(), drawn, lengths);
  }
  std::mt19937_64 random(1);
  std::shuffle(batches.begin(), batches.end(), random);
  std::map<Lengths, int64_t> sums;
  int64_t drawn = 0;
  for (size_t i = 0; i + micro_steps <= batches.size(); i += micro_steps, ++drawn) {
    Lengths sum = {0, 0};
    for (size_t j = i; j < i + micro_steps; ++j) {
      for (int d = 0; d < 2; ++d) sum[d] = std::min(sum[d] + batches[j][d], kMaxLength + 1);
    }
    ++sums[sum];
  }
  const int64_t wanted = total / micro_steps;
  const double times =
      static_cast<double>(wanted) / static_cast<double>(std::max<int64_t>(drawn, 1));
  for (auto& [sum, count] : sums) {
    count = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(count) * times));
  }
  return sums;
}

Histogram1 Marginal(const std::map<Lengths, int64_t>& lengths, int dimension) {
  Histogram1 histogram;
  for (const auto& [pair, count] : lengths) histogram[pair[dimension]] += count;
  return histogram;
}

absl::Status CheckHorizon(const v1::Horizon& horizon) {
  constexpr int kMostLengths = 1 << 18;  // what an engine can tell apart
  if (horizon.histogram_size() > kMostLengths) {
    return absl::InvalidArgumentError(absl::StrCat(
        "horizon.histogram: ", horizon.histogram_size(), " different lengths, more than ",
        kMostLengths, "; pad them to a multiple (--pad-to), or give the number of iterations"));
  }
  const int64_t epochs = std::max<int64_t>(horizon.epochs(), 1);
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
  if (horizon.iterations() > kMostIterations) {
    return absl::InvalidArgumentError(absl::StrCat("horizon: ", horizon.iterations(),
                                                   " iterations, more than ", kMostIterations));
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t Job::SummedSteps() const {
  return rule_ && abi::SumsLengths(rule_->rule) ? rule_->rule.micro_steps : 1;
}

int64_t Job::RunIterations(const v1::Horizon& horizon) const {
  if (horizon.kind() == v1::Horizon::KIND_UNKNOWN) return 0;
  if (horizon.kind() == v1::Horizon::KIND_ITERATIONS) return horizon.iterations();
  int64_t batches = 0;
  for (const v1::LengthCount& entry : horizon.histogram()) batches += entry.count();
  const int64_t micro_steps = rule_ ? std::max<int64_t>(rule_->rule.micro_steps, 1) : 1;
  return batches / micro_steps * std::max<int64_t>(horizon.epochs(), 1);
}

absl::Status Job::SetHorizon(const v1::Horizon& horizon) {
  if (!refused_.empty()) return absl::DataLossError(refused_);
  if (const absl::Status status = CheckHorizon(horizon); !status.ok()) return status;
  horizon_ = horizon;
  horizon_dirty_ = true;
  horizon_applied_ = false;
  next_match_ = 0;
  map_ = {};
  MatchLengths();
  plan_stale_ = true;
  state_dirty_ = true;
  ++generation_;
  return absl::OkStatus();
}

void Job::MatchLengths() {
  const int64_t seen = static_cast<int64_t>(engine_.current().Totals().iterations);
  if (horizon_.kind() == v1::Horizon::KIND_UNKNOWN) {
    if (horizon_applied_) return;
    engine_.SetHorizon(Horizon::Unknown()).IgnoreError();
    horizon_applied_ = plan_stale_ = engine_dirty_ = true;
    ForgetAnswers();
    return;
  }
  const bool over = row_.end_ns != 0;
  if (seen < next_match_ && !over) return;
  const bool by_length = horizon_.kind() != v1::Horizon::KIND_ITERATIONS;
  const int64_t micro_steps = rule_ ? std::max<int64_t>(rule_->rule.micro_steps, 1) : 1;
  if (by_length && ((seen * micro_steps < kScaleRetryIterations && !over) || !rule_)) {
    if (horizon_applied_) return;
    // The number of iterations is good from the start.
    engine_.SetHorizon(Horizon::Iterations(RunIterations(horizon_))).IgnoreError();
    horizon_applied_ = plan_stale_ = engine_dirty_ = true;
    ForgetAnswers();
    return;
  }
  const bool known_before = map_.factor[0] > 0;
  if (by_length) map_ = FindFactors(horizon_);
  absl::StatusOr<Horizon> horizon = EngineHorizon(horizon_, map_);
  // Looked at again and again: what fits the first lengths may not fit the later ones.
  next_match_ = horizon.ok() ? std::max<int64_t>(2 * seen, 1) : seen + kScaleRetryIterations;
  if (horizon.ok() || known_before || !horizon_applied_) {
    engine_.SetHorizon(horizon.ok() ? *horizon : Horizon::Iterations(RunIterations(horizon_)))
        .IgnoreError();
    plan_stale_ = engine_dirty_ = true;
    ForgetAnswers();
  }
  sentence_ = horizon.ok() ? ""
                           : absl::StrCat(horizon.status().message(),
                                          "; until then only the number of iterations is used");
  horizon_applied_ = true;
  ++generation_;
}

Job::LengthMap Job::FindFactors(const v1::Horizon& horizon) const {
  LengthMap map;
  if (!rule_) return map;
  const int dimensions = static_cast<int>(rule_->rule.length_count);
  const int given = horizon.histogram_size() == 0 ? 0 : horizon.histogram(0).lengths_size();
  if (imported_) {
    if (given == dimensions) map.factor[0] = map.factor[1] = 1;
    return map;
  }
  const bool sums = abi::SumsLengths(rule_->rule);
  const std::map<Lengths, int64_t> lengths = IterationLengths(horizon, SummedSteps());
  double best = 2;
  for (const bool swapped : {false, true}) {
    if (dimensions == 0 || given == 0 || (swapped && given < 2)) continue;
    double distance = 0;
    int64_t factor[2] = {0, 0};
    bool matched = true;
    for (int i = 0; i < dimensions && matched; ++i) {
      const int column = given == 1 ? 0 : (swapped ? 1 - i : i);
      const Histogram1 expected = Marginal(lengths, column);
      const auto scale =
          sums ? FindScaleOfSums(observed_[i], expected) : FindScale(observed_[i], expected);
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

absl::StatusOr<Horizon> Job::EngineHorizon(const v1::Horizon& horizon, const LengthMap& map) const {
  switch (horizon.kind()) {
    case v1::Horizon::KIND_UNKNOWN:
      return Horizon::Unknown();
    case v1::Horizon::KIND_ITERATIONS:
      return Horizon::Iterations(horizon.iterations());
    default:
      break;
  }
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  if (dimensions == 0 || map.factor[0] == 0) {
    return absl::FailedPreconditionError(
        "the given lengths do not match the length feature that was learned; check the column and "
        "the batch size");
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
    for (const auto& [key, count] : counts) histogram.push_back({key, count});
    return histogram;
  };
  auto histogram = in_features(IterationLengths(horizon, SummedSteps()));
  if (!histogram.ok()) return histogram.status();
  const int64_t epochs = std::max<int64_t>(horizon.epochs(), 1);
  const bool exact = horizon.kind() == v1::Horizon::KIND_HISTOGRAM;
  if (!abi::SumsLengths(rule_->rule)) {
    return exact ? Horizon::Histogram(*std::move(histogram), epochs)
                 : Horizon::Distribution(*std::move(histogram), epochs);
  }
  // The micro-steps are the user's batches themselves.
  auto parts = in_features(IterationLengths(horizon, 1));
  if (!parts.ok()) return parts.status();
  Horizon sums = Horizon::Distribution(*std::move(histogram), epochs);
  sums.parts = Horizon::Histogram(*std::move(parts), epochs).histogram;
  sums.parts_certain = exact;
  return sums;
}

// Whether most of the user's lengths lie between half the shortest and twice the longest that ran.
bool Job::AreAlike(const v1::Horizon& horizon) const {
  const int dimensions = rule_ ? static_cast<int>(rule_->rule.length_count) : 0;
  const LengthUnits units = Units();
  int64_t alike = 0, all = 0;
  for (const auto& [lengths, count] : IterationLengths(horizon, SummedSteps())) {
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
    return absl::InvalidArgumentError(absl::StrCat(
        "an iteration has ", given, given == 1 ? " length" : " lengths", " in what is given and ",
        dimensions, " in the job (", rule_->length_words, "); name as many columns"));
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

absl::Status Job::SetOther(const v1::Horizon& horizon, RunEngine& engine) const {
  if (const absl::Status status = CheckHorizon(horizon); !status.ok()) return status;
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
  absl::StatusOr<Horizon> wanted = EngineHorizon(horizon, map);
  if (!wanted.ok()) return wanted.status();
  wanted->another = true;
  return engine.SetHorizon(*std::move(wanted));
}

LengthUnits Job::Units() const {
  LengthUnits units;
  for (int i = 0; i < 2; ++i) {
    if (observed_count_[i] > unit_count_[i] + unit_count_[i] / 64) {
      unit_[i] = NaturalUnit(observed_[i]);
      unit_count_[i] = observed_count_[i];
    }
    units.unit[i] = map_.factor[i] > 0 ? map_.factor[i] : unit_[i];
  }
  units.swapped = map_.swapped;
  return units;
}

std::vector<int64_t> Job::UserLengths(const int64_t length[2], int count) const {
  return Units().Of(length, count);
}

}  // namespace seqpoint::jobs
