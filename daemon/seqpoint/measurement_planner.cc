#include "daemon/seqpoint/measurement_planner.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "daemon/seqpoint/engine_state.h"
#include "daemon/seqpoint/fitted_model.h"
#include "daemon/seqpoint/interval.h"
#include "daemon/seqpoint/selection.h"

namespace seqpoint {
namespace {

constexpr int kPlanGroups = 48;
// The selection is made again when the run grew by this share: a constant cost per iteration.
constexpr double kRefreshGrowth = 1.0 / 8;
// ... or, where samples wait for lengths that have yet to occur, by this one.
constexpr double kWaitingGrowth = 1.0 / 64;
// Measurements released so far: a few at once, then one for every second iteration. Further ones of
// a stratum: one for every second draw of lengths, as more lengths may be still to come.
constexpr int kFirstMeasurements = 4;
constexpr int kIterationsPerMeasurement = 2;
// Share of the budget kept for strata that are not known yet, while the lengths of the rest are
// unknown; given back until half of a run of known length, else slowly.
constexpr double kReserve = 0.25;
constexpr double kReserveUntil = 0.5;
constexpr double kReserveIterations = 1000;
// How much the first measurement of a stratum matters against its second.
constexpr double kFirstOfStratum = 8;

// The values of one dimension, and which of them have occurred.
class Axis {
 public:
  // Once or several times; quick where they come in order.
  void Add(int64_t value, bool seen) {
    if (expected_.empty() || expected_.back() != value) expected_.push_back(value);
    if (seen && (seen_.empty() || seen_.back() != value)) seen_.push_back(value);
  }

  void Finish(bool all_known) {
    for (std::vector<int64_t>* v : {&seen_, &expected_}) {
      if (!std::is_sorted(v->begin(), v->end())) std::sort(v->begin(), v->end());
      v->erase(std::unique(v->begin(), v->end()), v->end());
    }
    int64_t step = 0;
    for (size_t i = 1; i < seen_.size() && step != 1; ++i) {
      step = std::gcd(step, seen_[i] - seen_[i - 1]);
    }
    auto next = expected_.begin();
    for (size_t i = 1; i < seen_.size(); ++i) {
      while (next != expected_.end() && *next <= seen_[i - 1]) ++next;
      const bool between = next != expected_.end() && *next < seen_[i];
      adjacent_.push_back(!between && (all_known || seen_[i] - seen_[i - 1] == step));
    }
  }

  // The widest range around `value` within [low, high] in which nothing new can occur.
  std::pair<int64_t, int64_t> SeenAround(int64_t value, int64_t low, int64_t high) const {
    size_t left = std::lower_bound(seen_.begin(), seen_.end(), value) - seen_.begin();
    size_t right = left;
    while (left > 0 && seen_[left - 1] >= low && adjacent_[left - 1]) --left;
    while (right + 1 < seen_.size() && seen_[right + 1] <= high && adjacent_[right]) ++right;
    return {seen_[left], seen_[right]};
  }

 private:
  std::vector<int64_t> seen_, expected_;
  std::vector<char> adjacent_;  // whether nothing new can occur between it and the next
};

// Some of the whole run's iterations.
struct Member {
  Key key;
  double seen = 0, expected = 0;
  bool occurred[2] = {false, false};  // the value of either dimension
};

// Puts them in key order. Spread over as many places by their first value before, which leaves
// little to sort.
void SortByKey(std::vector<Member>& members) {
  const auto before = [](const Member& a, const Member& b) { return a.key < b.key; };
  if (members.empty()) return;
  const auto [low, high] = std::minmax_element(
      members.begin(), members.end(),
      [](const Member& a, const Member& b) { return a.key.first < b.key.first; });
  const int64_t lowest = low->key.first;
  const double scale = static_cast<double>(members.size() - 1) /
                       std::max(1.0, static_cast<double>(high->key.first - lowest));
  const auto place = [&](const Member& m) {
    return static_cast<size_t>(static_cast<double>(m.key.first - lowest) * scale);
  };
  std::vector<uint32_t> ends(members.size() + 1);
  for (const Member& m : members) ++ends[place(m) + 1];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  std::vector<Member> spread(members.size());
  for (const Member& m : members) spread[ends[place(m)]++] = m;
  members = std::move(spread);
  if (!std::is_sorted(members.begin(), members.end(), before)) {
    std::sort(members.begin(), members.end(), before);
  }
}

uint64_t MixInto(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

uint32_t StratumOf(const PlanBasis& plan, double order) {
  for (const PlannedSample& sample : plan.samples) {
    if (sample.begin <= order && order < sample.end) return sample.stratum;
  }
  return UINT32_MAX;
}

// For each place, the nearest that holds something, or itself where none does.
std::vector<size_t> NearestWith(const std::vector<int>& counts) {
  std::vector<size_t> nearest(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    nearest[i] = i;
    for (size_t distance = 0; distance < counts.size(); ++distance) {
      if (i >= distance && counts[i - distance] > 0) {
        nearest[i] = i - distance;
        break;
      }
      if (i + distance < counts.size() && counts[i + distance] > 0) {
        nearest[i] = i + distance;
        break;
      }
    }
  }
  return nearest;
}

bool Contains(const PlannedSample& sample, const Key& key) {
  return KeyBox{sample.low, sample.high}.Contains(key);
}

double OrderOf(const PlanBasis& basis, const Key& key) {
  return basis.two_dimensional ? basis.curve(key) : static_cast<double>(key.first);
}

bool BudgetIsSpent(const EngineState& state, const PlanOptions& options) {
  return static_cast<int64_t>(state.measurements.spent.size()) >= options.budget;
}

// The samples as they are, with the iterations that the run has in them now.
void WeighSamples(EngineState& state, const FittedModel& fitted) {
  PlanBasis& plan = state.plan;
  const Horizon& horizon = state.horizon;
  const bool lengths_known = !horizon.histogram.empty() && !fitted.forecast.mismatch;
  const bool same_run = plan.horizon_version == state.horizon_version;
  plan.iterations = static_cast<int64_t>(state.log.iterations);
  plan.horizon_version = state.horizon_version;
  if (lengths_known && same_run) return;
  std::vector<double> weights(plan.samples.size());
  const auto add = [&](const Key& key, int64_t count) {
    // A key with many iterations may be in several samples.
    const double order = OrderOf(plan, key);
    const auto holds = [&](const PlannedSample& s) { return s.begin <= order && order < s.end; };
    double shared = 0;
    for (const PlannedSample& sample : plan.samples) shared += holds(sample) ? sample.weight : 0;
    for (size_t s = 0; s < plan.samples.size() && shared > 0; ++s) {
      if (!holds(plan.samples[s])) continue;
      weights[s] += static_cast<double>(count) * plan.samples[s].weight / shared;
    }
  };
  if (lengths_known) {
    for (const KeyCount& k : horizon.histogram) add(k.key, k.count);
  } else {
    for (const auto& [key, record] : state.log.keys.Sorted()) {
      if (!state.log.keys.LengthUnknown(key)) add(key, record.iterations);
    }
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0)) return;
  for (size_t s = 0; s < plan.samples.size(); ++s) plan.samples[s].weight = weights[s] / total;
}

// Which samples a set has measured: the one whose box holds the key, else the one it belongs to by
// order, else another of that one's stratum; each at most once. `started` count as measured.
std::vector<bool> FilledSamples(const EngineState& state, uint32_t set,
                                const std::vector<StartedMeasurement>& started) {
  const PlanBasis& plan = state.plan;
  std::vector<bool> filled(plan.samples.size(), false);
  const auto fill = [&](const Key& key) {
    const double order = OrderOf(plan, key);
    int choice = -1;
    double best = 0;
    for (size_t s = 0; s < plan.samples.size(); ++s) {
      const PlannedSample& sample = plan.samples[s];
      if (filled[s]) continue;
      double fit = 0;
      if (sample.begin <= order && order < sample.end) fit = 2;
      if (sample.measurable && Contains(sample, key)) fit = 3;
      if (fit == 0 && sample.stratum == StratumOf(plan, order)) fit = 1;
      if (fit <= best) continue;
      best = fit;
      choice = static_cast<int>(s);
    }
    if (choice >= 0) filled[choice] = true;
  };
  for (const Measurement& m : state.measurements.Of(set)) fill(m.key);
  for (const StartedMeasurement& m : started) {
    if (m.set == set) fill(m.key);
  }
  return filled;
}

}  // namespace

void RefreshPlan(EngineState& state, const PlanOptions& options,
                 absl::FunctionRef<const FittedModel&()> fitted) {
  PlanBasis& plan = state.plan;
  const Horizon& horizon = state.horizon;
  const int sets = static_cast<int>(options.sets.size());
  const int points = sets == 0 ? 0 : std::max(1, std::min(options.budget, 4096) / sets);
  const int64_t n = static_cast<int64_t>(state.log.iterations);
  const bool same_options = plan.iterations >= 0 && plan.points == points && plan.sets == sets &&
                            plan.target_error == options.target_error &&
                            plan.confidence == options.confidence &&
                            plan.two_dimensional == state.log.two_dimensional;
  // Sorted lengths are met once and soon gone.
  const bool waits = std::any_of(plan.samples.begin(), plan.samples.end(),
                                 [](const PlannedSample& sample) { return sample.awaited; });
  const double growth = waits ? kWaitingGrowth : kRefreshGrowth;
  if (same_options && plan.horizon_version == state.horizon_version &&
      static_cast<double>(n - plan.iterations) <= growth * static_cast<double>(plan.iterations)) {
    return;
  }
  // The measurements of other SeqPoints are spent: these SeqPoints stay.
  if (same_options && !plan.samples.empty() && BudgetIsSpent(state, options)) {
    WeighSamples(state, fitted());
    return;
  }
  plan = {};
  plan.iterations = n;
  plan.horizon_version = state.horizon_version;
  plan.points = points;
  plan.sets = sets;
  plan.target_error = options.target_error;
  plan.confidence = options.confidence;
  plan.two_dimensional = state.log.two_dimensional;
  if (n == 0 || points == 0) return;

  // The whole run by key, as far as it is known, and what of it is still to come.
  const FittedModel& now = fitted();
  plan.curve = now.time.curve;
  const bool lengths_known = !horizon.histogram.empty() && !now.forecast.mismatch;
  const bool exact = lengths_known && horizon.kind == Horizon::Kind::kHistogram;
  const bool cold_ordinary = now.time.warm_up == TimeModel::WarmUp::kOrdinary;
  std::vector<Member> members(state.log.keys.size());
  size_t met = 0;
  absl::flat_hash_set<int64_t> occurred[2];  // values of keys that are sums
  for (const auto& [key, record] : state.log.keys.records()) {
    // Those whose length is not known are shared out over the others.
    if (record.iterations == 0 || state.log.keys.LengthUnknown(key)) continue;
    members[met++] = {key, static_cast<double>(record.iterations)};
  }
  members.resize(met);
  for (const auto& [key, record] : state.log.keys.records()) {
    if (!state.cold.sums) break;
    occurred[0].insert(key.first);
    occurred[1].insert(key.second);
  }
  SortByKey(members);
  if (lengths_known) {
    size_t m = 0;
    for (const KeyCount& k : horizon.histogram) {  // in key order, too
      while (m < met && members[m].key < k.key) ++m;
      if (m < met && members[m].key == k.key) {
        members[m].expected = static_cast<double>(k.count);
      } else {
        members.push_back({k.key, 0, static_cast<double>(k.count)});
      }
    }
    std::inplace_merge(members.begin(), members.begin() + met, members.end(),
                       [](const Member& a, const Member& b) { return a.key < b.key; });
  }
  std::vector<KeyTimes> key_times;
  key_times.reserve(members.size());
  Axis axes[2];
  for (Member& member : members) {
    const Key& key = member.key;
    const double expected = now.time.curve(key);
    const double noise = expected * now.time.noise;
    const double count = std::max(member.seen, member.expected);
    key_times.push_back({key, count, expected, count * noise * noise});
    for (int d = 0; d < 2; ++d) {
      const int64_t value = d == 0 ? key.first : key.second;
      member.occurred[d] =
          member.seen > 0 || (state.cold.sums ? occurred[d].contains(value)
                                              : state.cold.first_seen[d].contains(value));
      axes[d].Add(value, member.occurred[d]);
    }
  }
  for (Axis& axis : axes) axis.Finish(exact);
  std::vector<int> group_of;
  const std::vector<LengthGroup> groups =
      BuildLengthGroups(key_times, kPlanGroups, &group_of, &now.time.curve);
  StratumSelection selection = SelectStratumSamples(groups, points);
  if (options.target_error > 0) {
    const double z = NormalQuantile(options.confidence);
    for (size_t m = 0; m + 1 < selection.error_at.size(); ++m) {
      if (z * selection.error_at[m] > options.target_error) continue;
      selection = SelectStratumSamples(groups, static_cast<int>(m) + 1);
      break;
    }
  }

  // Each group's box, and its key that will be met soonest.
  struct Place {
    KeyBox box;
    Key seed;
    double coming = 0;
    bool awaited = false;
  };
  std::vector<Place> places(groups.size());
  size_t i = 0;
  for (const Member& member : members) {
    const Key& key = member.key;
    Place& place = places[group_of[i++]];
    place.box.Add(key);
    const double coming = exact ? member.expected - member.seen : member.seen;
    const bool seen = cold_ordinary || (member.occurred[0] && member.occurred[1]);
    place.awaited |= exact && !seen;
    if (seen && coming > place.coming) {
      place.coming = coming;
      place.seed = key;
    }
  }
  const auto border = [&](int group) {
    if (group == 0) return -kMaxMagnitude;
    if (group == static_cast<int>(groups.size())) return kMaxMagnitude;
    return plan.two_dimensional ? (groups[group - 1].cost + groups[group].cost) / 2
                                : static_cast<double>(places[group].box.low.first);
  };
  const double total = std::accumulate(key_times.begin(), key_times.end(), 0.0,
                                       [](double sum, const KeyTimes& g) { return sum + g.count; });
  plan.benefit = std::move(selection.benefit);
  for (const StratumSample& s : selection.samples) {
    PlannedSample sample;
    sample.key = groups[s.group].key;
    sample.weight = s.weight / total;
    sample.stratum = static_cast<uint32_t>(s.stratum);
    sample.begin = border(s.first_group);
    sample.end = border(s.last_group + 1);
    // The group that stands for the sample if it can still be met, else the one met soonest.
    int chosen = s.group;
    bool awaited = false;
    for (int a = s.first_group; a <= s.last_group; ++a) awaited |= places[a].awaited;
    for (int a = s.first_group; a <= s.last_group; ++a) {
      if (places[s.group].coming == 0 && places[a].coming > places[chosen].coming) chosen = a;
    }
    sample.measurable = places[chosen].coming > 0;
    sample.awaited = !sample.measurable && awaited;
    if (sample.measurable) {
      KeyBox box = places[chosen].box;
      if (!plan.two_dimensional) {
        box = {places[s.first_group].box.low, places[s.last_group].box.high};
      }
      const Key seed = places[chosen].seed;
      if (!cold_ordinary) {
        std::tie(box.low.first, box.high.first) =
            axes[0].SeenAround(seed.first, box.low.first, box.high.first);
        std::tie(box.low.second, box.high.second) =
            axes[1].SeenAround(seed.second, box.low.second, box.high.second);
      }
      sample.low = box.low;
      sample.high = box.high;
    }
    plan.samples.push_back(sample);
  }
}

Plan MakePlanOf(const EngineState& state, const PlanOptions& options) {
  const PlanBasis& basis = state.plan;
  Plan plan;
  plan.measured = static_cast<int>(state.measurements.spent.size());
  plan.wanted = static_cast<int>(basis.samples.size() * options.sets.size());

  const double n = static_cast<double>(state.log.iterations);
  const double draws = n / options.iterations_per_draw;
  const double total = static_cast<double>(state.horizon.iterations);
  double reserve = 0;
  if (state.horizon.kind == Horizon::Kind::kUnknown) {
    reserve = kReserve / (1 + draws / kReserveIterations);
  } else if (state.horizon.kind == Horizon::Kind::kIterations) {
    reserve = kReserve * std::max(0.0, 1 - n / (kReserveUntil * total));
  }
  const auto unreserved = [&](int all) {
    return static_cast<int64_t>(std::ceil(all * (1 - reserve)));
  };
  const auto allowed = [&](double iterations, int64_t most) {
    const auto released =
        static_cast<int64_t>(kFirstMeasurements + iterations / kIterationsPerMeasurement);
    return std::min(released, most) - options.in_flight - plan.measured;
  };
  int64_t allowance = allowed(n, options.budget);
  int64_t for_further = allowed(draws, unreserved(options.budget));
  // Of each set: what is left, what is left for strata that have one, and the strata that may yet
  // get one. The reserve is kept for strata that are not known yet.
  struct Share {
    int64_t all = 0, further = 0, strata = 0;
  };
  std::vector<Share> shares(options.sets.size());

  struct Candidate {
    double benefit;
    int sample;
    int set;       // index in options.sets
    bool further;  // its stratum has one
  };
  std::vector<Candidate> candidates;
  for (size_t set = 0; set < options.sets.size(); ++set) {
    const uint32_t id = options.sets[set];
    const std::vector<bool> filled = FilledSamples(state, id, options.started);
    // A set whose measurements fell where none was wanted has used up its share all the same.
    int64_t used =
        static_cast<int64_t>(state.measurements.Of(id).size()) +
        std::count_if(options.started.begin(), options.started.end(),
                      [&](const StartedMeasurement& started) { return started.set == id; });
    std::vector<int> in_stratum(basis.benefit.size(), 0);
    for (size_t i = 0; i < filled.size(); ++i) {
      in_stratum[basis.samples[i].stratum] += filled[i];
      used += !filled[i] && basis.samples[i].awaited;
    }
    const auto measured = static_cast<int64_t>(in_stratum.size()) -
                          std::count(in_stratum.begin(), in_stratum.end(), 0);
    shares[set] = {.all = basis.points - used,
                   .further = unreserved(basis.points) - used,
                   .strata = unreserved(basis.points) - measured};
    for (size_t i = 0; i < filled.size(); ++i) {
      const PlannedSample& sample = basis.samples[i];
      if (filled[i] || !sample.measurable) continue;
      const double k = in_stratum[sample.stratum]++;
      const double gain = k == 0 ? kFirstOfStratum : 1 / (k * (k + 1));
      candidates.push_back({basis.benefit[sample.stratum] * gain, static_cast<int>(i),
                            static_cast<int>(set), k > 0});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.benefit > b.benefit; });
  for (const Candidate& c : candidates) {
    if (allowance <= 0) break;
    Share& share = shares[static_cast<size_t>(c.set)];
    if (share.all <= 0) continue;
    if (c.further ? for_further <= 0 || share.further <= 0 : share.strata <= 0) continue;
    const PlannedSample& sample = basis.samples[c.sample];
    const uint32_t set = options.sets[c.set];
    const auto same = std::find_if(plan.entries.begin(), plan.entries.end(), [&](const auto& e) {
      return e.set == set && e.low == sample.low && e.high == sample.high;
    });
    const auto take = [&] {
      --allowance;
      --for_further;
      --share.all;
      --share.further;
      share.strata -= !c.further;
    };
    if (same != plan.entries.end()) {
      ++same->quota;
      take();
      continue;
    }
    if (static_cast<int>(plan.entries.size()) >= options.max_entries) continue;
    int64_t measured_here = 0;
    for (const Measurement& m : state.measurements.Of(set)) {
      measured_here += Contains(sample, m.key);
    }
    uint64_t id = 0;
    for (int64_t part : {sample.low.first, sample.low.second, sample.high.first, sample.high.second,
                         static_cast<int64_t>(set), measured_here}) {
      id = MixInto(id, static_cast<uint64_t>(part));
    }
    plan.entries.push_back({sample.low, sample.high, set, 1, id});
    take();
  }
  return plan;
}

std::vector<SeqPointInfo> SeqPointsOf(const EngineState& state, const PlanOptions& options) {
  const int64_t so_far = static_cast<int64_t>(state.log.iterations);
  const double total = static_cast<double>(std::max(so_far, state.horizon.iterations));
  std::map<Key, SeqPointInfo> points;
  std::vector<int> measured(state.plan.samples.size(), 0);
  std::vector<std::vector<bool>> filled;  // by set
  for (uint32_t set : options.sets) {
    filled.push_back(FilledSamples(state, set, {}));
    for (size_t i = 0; i < measured.size(); ++i) measured[i] += filled.back()[i];
  }
  // Once nothing more is measured, samples that were not are stood for by their neighbours, whose
  // `wanted` says so.
  const bool ended = state.horizon.iterations > 0 && so_far >= state.horizon.iterations;
  const std::vector<int> all(measured.size(), 1);
  const std::vector<size_t> stands_in =
      NearestWith(ended || BudgetIsSpent(state, options) ? measured : all);
  for (size_t i = 0; i < state.plan.samples.size(); ++i) {
    const PlannedSample& sample = state.plan.samples[i];
    const Key key = state.plan.samples[stands_in[i]].key;
    SeqPointInfo& point = points[key];
    point.key = key;
    point.weight += sample.weight * total;
    point.measured += measured[i];
    point.measured_by_set.resize(options.sets.size());
    for (size_t set = 0; set < filled.size(); ++set) point.measured_by_set[set] += filled[set][i];
    point.wanted += static_cast<int>(options.sets.size());
  }
  std::vector<SeqPointInfo> list;
  for (const auto& [key, point] : points) list.push_back(point);
  return list;
}

}  // namespace seqpoint
