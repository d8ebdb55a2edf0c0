// How honest the engine's intervals are: simulates epochs, asks for projections on the way, counts
// how often the interval holds the truth.
//
//   seqpoint_coverage [--seeds N] [--first-seed N] [--fraction F]... [--lengths
//   exact|distribution|unknown]
//                     [--drift none|line|sine|walk|warmup|step|mixed]... [--amplitude A]
//                     [--cpu] [--sorted] [--counters] [--json]
//
// The simulated job has 2,000 to 10,000 iterations of padded batches, with one or two lengths, and
// this noise: 0.3 % per iteration (2 % per kernel, averaged over a few dozen), correlated from one
// iteration to the next; 1 % of iterations take 30 % longer; host jitter; the first occurrence of a
// length pays for algorithm search; and times at equal length drift. Each shape of drift with its
// usual amplitude is a line of the result, or the amplitude given; "mixed" draws shape and
// amplitude (0.2 to 1.6 %, evenly in its logarithm) for each seed. Without --drift: all of them.
//
// --cpu: a training on a CPU that others use, too. 80 to 800 iterations, 2.5 % noise, 3 % of
// iterations take up to twice as long, the first one five times; drifts are ten times as large, and
// there is no warm-up cost. The engine is asked for the times of a host.
//
// --sorted: the shortest batches come first.
//
// With --counters it measures at most 64 iterations in four one-pass configurations, as the plan
// says, with 0.3 % noise, and projects the epoch's totals. The fourth follows the iteration's time,
// its slowness and drift included.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/statistics.h"
#include "daemon/seqpoint/engine.h"

namespace seqpoint {
namespace {

struct Flags {
  int seeds = 1000;
  uint64_t first_seed = 0;
  std::vector<double> fractions;
  std::string lengths = "exact";
  std::vector<std::string> drifts;
  double amplitude = 0;  // 0 = the shape's usual one
  bool cpu = false;
  bool sorted = false;
  bool counters = false;
  bool json = false;
};

struct Epoch {
  std::vector<Key> keys;
  std::vector<double> times_ns;
  std::vector<double> device_ns;  // without host jitter and first occurrences
  std::vector<KeyCount> histogram;
};

constexpr int kCounters = 4;
constexpr double kCounterNoise = 0.003;

// DRAM bytes, instructions, tensor cycles, active cycles of one iteration.
double TrueCounter(int counter, const Epoch& epoch, size_t iteration) {
  const Key& key = epoch.keys[iteration];
  const double source = static_cast<double>(key.first), target = static_cast<double>(key.second);
  // Tensor kernels work on whole tiles: 128 rows are two steps of a batch of 64.
  const double tiles = std::ceil(source / 2) * 2 + std::ceil(target / 2) * 2;
  switch (counter) {
    case 0:
      return 2.5e9 + 4.0e7 * source + 6.0e7 * target + 2.0e5 * source * target;
    case 1:
      return 1e8 + 8e7 * (source + target) + 9e5 * source * target;
    case 2:
      return 3e5 * tiles + 1e3 * source * target;
    default:
      return 1.7 * epoch.device_ns[iteration];
  }
}

StatisticKind KindOf(int counter) {
  return counter < 3 ? StatisticKind::kAmount : StatisticKind::kTimeLike;
}

double TrueTime(const Key& key) {
  const double source = static_cast<double>(key.first), target = static_cast<double>(key.second);
  return 1e6 * (8 + 0.9 * source + 1.2 * target + 0.15 * std::ceil(target / 8) * 8 +
                0.004 * source * target);
}

struct Shape {
  const char* name;
  double amplitude;
};
constexpr Shape kShapes[] = {{"none", 0},     {"line", 0.007},   {"sine", 0.01},
                             {"walk", 0.007}, {"warmup", 0.007}, {"step", 0.007}};

// Factors on the times of `n` iterations. The amplitude is from end to end for a line, a warm-up
// (downwards) and a step, from peak to peak for a sine, a walk's standard deviation at the end.
std::vector<double> DriftOf(std::mt19937_64& random, std::string shape, double amplitude, int n,
                            bool cpu) {
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  const double scale = amplitude == 0 && cpu ? 10 : 1;
  if (shape == "mixed") {
    shape = kShapes[static_cast<size_t>(uniform(random) * std::size(kShapes))].name;
    amplitude = 0.002 * std::pow(8.0, uniform(random));
  } else if (amplitude == 0) {
    for (const Shape& s : kShapes) {
      if (shape == s.name) amplitude = s.amplitude;
    }
  }
  amplitude *= scale;
  const double period = 0.5 + 1.5 * uniform(random);
  const double phase = 2 * M_PI * uniform(random);
  const double warm_up = 0.02 * std::pow(15.0, uniform(random));
  const double step_at = uniform(random);
  const double sign = uniform(random) < 0.5 ? -1 : 1;
  double walk = 0;
  std::vector<double> level(n, 1.0);
  for (int i = 0; i < n; ++i) {
    const double t = (i + 0.5) / n;
    walk += normal(random) / std::sqrt(n);
    if (shape == "line") level[i] += amplitude * t;
    if (shape == "sine") level[i] += amplitude / 2 * std::sin(2 * M_PI * t / period + phase);
    if (shape == "walk") level[i] += amplitude * walk;
    if (shape == "warmup") level[i] += amplitude * std::exp(-t / warm_up);
    if (shape == "step") level[i] += t > step_at ? sign * amplitude : 0;
  }
  return level;
}

Epoch Simulate(std::mt19937_64& random, const Flags& flags, const std::string& drift) {
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  Epoch epoch;
  const int iterations = flags.cpu ? static_cast<int>(80 * std::pow(10, uniform(random)))
                                   : 2000 + static_cast<int>(uniform(random) * 8000);
  const bool two_lengths = uniform(random) < 0.5;
  // Batches of similar lengths: the centre is that of the bucket, the padded lengths scatter.
  for (int i = 0; i < iterations; ++i) {
    const double centre = 24 * std::exp(0.45 * normal(random));
    const auto length = [&](double mean) {
      return std::clamp<int64_t>(std::llround(mean * (1 + 0.06 * normal(random)) + 1), 3, 100);
    };
    epoch.keys.push_back({length(centre), two_lengths ? length(1.05 * centre) : 0});
  }
  if (flags.sorted) std::sort(epoch.keys.begin(), epoch.keys.end());
  const std::vector<double> level = DriftOf(random, drift, flags.amplitude, iterations, flags.cpu);
  double correlated = 0;
  std::set<int64_t> sources, targets;
  for (int i = 0; i < iterations; ++i) {
    correlated = 0.3 * correlated + std::sqrt(1 - 0.09) * normal(random);
    double time =
        TrueTime(epoch.keys[i]) * level[i] * std::exp((flags.cpu ? 0.025 : 0.003) * correlated);
    if (uniform(random) < (flags.cpu ? 0.03 : 0.01)) time *= flags.cpu ? 1 + uniform(random) : 1.3;
    if (flags.cpu && i == 0) time *= 5;
    epoch.device_ns.push_back(time);
    time += -3e4 * std::log1p(-uniform(random));
    const bool new_source = sources.insert(epoch.keys[i].first).second;
    const bool new_target = targets.insert(epoch.keys[i].second).second;
    if (!flags.cpu && (new_source || new_target)) time += 4e6 + 8e6 * uniform(random);
    epoch.times_ns.push_back(std::round(time));
  }
  std::vector<Key> sorted = epoch.keys;
  std::sort(sorted.begin(), sorted.end());
  for (const Key& key : sorted) {
    if (epoch.histogram.empty() || epoch.histogram.back().key != key) {
      epoch.histogram.push_back({key, 0});
    }
    ++epoch.histogram.back().count;
  }
  return epoch;
}

struct Tally {
  std::vector<double> half_widths, errors, signed_errors;
  int covered = 0;

  void Add(const Estimate& e, double truth) {
    covered += e.low <= truth && truth <= e.high;
    half_widths.push_back((e.high - e.low) / 2 / truth);
    errors.push_back(std::abs(e.value / truth - 1));
    signed_errors.push_back(e.value / truth - 1);
  }
};

double MeanOf(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// The plan as the injected library carries it out: quotas are counted down per entry.
class Measurer {
 public:
  // The set to measure this key with, or -1.
  int Match(const Key& key) {
    for (PlanEntry& e : plan_.entries) {
      if (e.quota > 0 && e.low.first <= key.first && key.first <= e.high.first &&
          e.low.second <= key.second && key.second <= e.high.second) {
        --e.quota;
        return static_cast<int>(e.set);
      }
    }
    return -1;
  }
  void Update(const OnlineEngine& engine) { plan_ = engine.MakePlan({.sets = {0, 1, 2, 3}}); }

 private:
  Plan plan_;
};

Horizon HorizonOf(const Epoch& epoch, const std::string& lengths) {
  if (lengths == "exact") return Horizon::Histogram(epoch.histogram);
  if (lengths == "distribution") return Horizon::Distribution(epoch.histogram);
  return Horizon::Iterations(static_cast<int64_t>(epoch.keys.size()));
}

void Print(const Flags& flags, const std::string& drift, double fraction, const std::string& what,
           double confidence, const Tally& tally, bool first) {
  const int n = static_cast<int>(tally.errors.size());
  const double coverage = static_cast<double>(tally.covered) / n;
  const double half_width = Quantile(tally.half_widths, 0.5);
  const double mean_error = MeanOf(tally.errors);
  const double bias = MeanOf(tally.signed_errors);
  const double p95 = Quantile(tally.errors, 0.95);
  if (flags.json) {
    printf(
        "%s{\"statistic\":\"%s\",\"fraction\":%g,\"confidence\":%g,\"seeds\":%d,"
        "\"lengths\":\"%s\",\"drift\":\"%s\",\"coverage\":%.4f,\"median_half_width\":%.6f,"
        "\"mean_error\":%.6f,\"p95_error\":%.6f,\"max_error\":%.6f,\"bias\":%.6f}",
        first ? "" : ",\n ", what.c_str(), fraction, confidence, n, flags.lengths.c_str(),
        drift.c_str(), coverage, half_width, mean_error, p95, Quantile(tally.errors, 1), bias);
  } else {
    printf(
        "%-13s %-6s at %4.1f %%: %.1f %% interval covers %5.1f %%, median half-width %.3f %%, "
        "error mean %.3f %%, p95 %.3f %%, max %.3f %%, bias %+.3f %%\n",
        what.c_str(), drift.c_str(), 100 * fraction, 100 * confidence, 100 * coverage,
        100 * half_width, 100 * mean_error, 100 * p95, 100 * Quantile(tally.errors, 1), 100 * bias);
  }
}

int Run(const Flags& flags, const std::string& drift, bool& first) {
  const size_t asked = flags.fractions.size();
  std::vector<std::vector<Tally>> tallies(asked, std::vector<Tally>(kCounters));
  int most_measured = 0, refused = 0;
  for (int seed = 0; seed < flags.seeds; ++seed) {
    std::mt19937_64 random(flags.first_seed + seed + 1);
    std::normal_distribution<double> normal;
    const Epoch epoch = Simulate(random, flags, drift);
    const size_t n = epoch.keys.size();
    double true_time = 0, true_counters[kCounters] = {};
    for (size_t i = 0; i < n; ++i) {
      true_time += epoch.times_ns[i];
      for (int c = 0; c < kCounters; ++c) true_counters[c] += TrueCounter(c, epoch, i);
    }
    OnlineEngine engine;
    if (!engine.SetHorizon(HorizonOf(epoch, flags.lengths)).ok()) return 1;
    Measurer measurer;
    int measured = 0;
    size_t next = 0;
    for (size_t i = 0; i < n && next < asked; ++i) {
      const int set = flags.counters ? measurer.Match(epoch.keys[i]) : -1;
      engine.AddIteration({.iteration = i,
                           .key = epoch.keys[i],
                           .time_ns = static_cast<int64_t>(epoch.times_ns[i]),
                           .measured = set >= 0});
      if (set >= 0) {
        ++measured;
        const double value = TrueCounter(set, epoch, i) * (1 + kCounterNoise * normal(random));
        // Refused on a first occurrence that the plan took for an ordinary one.
        refused += !engine.AddMeasurement(set, i, epoch.keys[i], {&value, 1}).ok();
      }
      if (flags.counters && (set >= 0 || i % 16 == 0)) measurer.Update(engine);
      while (next < asked && i + 1 >= static_cast<size_t>(flags.fractions[next] * n)) {
        if (flags.counters) {
          for (int c = 0; c < kCounters; ++c) {
            const auto p = engine.ProjectStatistic(c, 0, 0.999, KindOf(c));
            if (p.ok() && p->total) tallies[next][c].Add(*p->total, true_counters[c]);
          }
        } else {
          tallies[next][0].Add(*engine.ProjectTime(0.95, flags.cpu).total, true_time);
        }
        ++next;
      }
    }
    most_measured = std::max(most_measured, measured);
  }
  for (size_t f = 0; f < asked; ++f) {
    for (int c = 0; c < (flags.counters ? kCounters : 1); ++c) {
      constexpr const char* kNames[] = {"dram_bytes", "instructions", "tensor_cycles",
                                        "active_cycles"};
      if (tallies[f][c].errors.empty()) continue;
      Print(flags, drift, flags.fractions[f], flags.counters ? kNames[c] : "epoch_time",
            flags.counters ? 0.999 : 0.95, tallies[f][c], first);
      first = false;
    }
  }
  if (flags.counters && !flags.json) {
    printf("at most %d measured iterations, %d refused in %d runs\n", most_measured, refused,
           flags.seeds);
  }
  return 0;
}

int Usage(std::string_view problem) {
  fprintf(stderr,
          "%.*s\nusage: seqpoint_coverage [--seeds N] [--first-seed N] [--fraction F]... "
          "[--lengths exact|distribution|unknown] "
          "[--drift none|line|sine|walk|warmup|step|mixed]... [--amplitude A] [--sorted] "
          "[--cpu] [--counters] [--json]\n",
          static_cast<int>(problem.size()), problem.data());
  return 2;
}

}  // namespace

int Main(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--counters") {
      flags.counters = true;
      continue;
    }
    if (flag == "--cpu") {
      flags.cpu = true;
      continue;
    }
    if (flag == "--sorted") {
      flags.sorted = true;
      continue;
    }
    if (flag == "--json") {
      flags.json = true;
      continue;
    }
    if (i + 1 == argc) return Usage("no such flag, or no value: " + std::string(flag));
    const std::string value = argv[++i];
    if (flag == "--seeds") {
      flags.seeds = atoi(value.c_str());
      if (flags.seeds < 1) return Usage("--seeds " + value + " is not a positive number");
    } else if (flag == "--first-seed") {
      flags.first_seed = strtoull(value.c_str(), nullptr, 10);
    } else if (flag == "--fraction") {
      flags.fractions.push_back(atof(value.c_str()));
      if (!(flags.fractions.back() > 0 && flags.fractions.back() <= 1)) {
        return Usage("--fraction " + value + " is not in (0, 1]");
      }
    } else if (flag == "--lengths") {
      flags.lengths = value;
      if (value != "exact" && value != "distribution" && value != "unknown") {
        return Usage("--lengths " + value + " is not one of the three");
      }
    } else if (flag == "--drift") {
      const bool known = value == "mixed" || std::any_of(std::begin(kShapes), std::end(kShapes),
                                                         [&](auto& s) { return value == s.name; });
      if (!known) return Usage("--drift " + value + " is not one of the seven");
      flags.drifts.push_back(value);
    } else if (flag == "--amplitude") {
      flags.amplitude = atof(value.c_str());
      if (!(flags.amplitude > 0 && flags.amplitude < 1)) {
        return Usage("--amplitude " + value + " is not in (0, 1)");
      }
    } else {
      return Usage("no such flag: " + std::string(flag));
    }
  }
  if (flags.fractions.empty()) flags.fractions = {0.05, 0.25};
  std::sort(flags.fractions.begin(), flags.fractions.end());
  if (flags.drifts.empty()) {
    for (const Shape& shape : kShapes) flags.drifts.push_back(shape.name);
    flags.drifts.push_back("mixed");
  }
  if (flags.json) printf("[");
  bool first = true;
  for (const std::string& drift : flags.drifts) {
    if (const int status = Run(flags, drift, first); status != 0) return status;
  }
  if (flags.json) printf("]\n");
  return 0;
}

}  // namespace seqpoint

int main(int argc, char** argv) { return seqpoint::Main(argc, argv); }
