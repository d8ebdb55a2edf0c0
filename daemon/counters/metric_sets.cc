#include "daemon/counters/metric_sets.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "daemon/base/status_macros.h"
#include "daemon/counters/metric_file.h"
#include "daemon/counters/shipped_sets.h"

namespace seqpoint::counters {
namespace {

// A family of chips, and what it offers (shipped_sets.txt has the words).
struct Chip {
  absl::string_view prefix;
  absl::string_view example;
  absl::string_view words;
};

const std::vector<Chip>& Chips() {
  static const auto* const kChips = [] {
    auto* chips = new std::vector<Chip>;
    for (absl::string_view line : absl::StrSplit(kShippedSets, '\n')) {
      if (!absl::ConsumePrefix(&line, "chip ")) continue;
      const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 3));
      chips->push_back({parts[0], parts[1], /*words=*/parts[3]});
    }
    return chips;
  }();
  return *kChips;
}

// Only what every chip has, where the family is not known.
Chip ChipOf(absl::string_view name) {
  for (const Chip& chip : Chips()) {
    if (absl::StartsWith(name, chip.prefix)) return chip;
  }
  return {};
}

// The words that tell the offer of a chip to a backend.
class Words {
 public:
  Words(absl::string_view chip, Backend backend) {
    const std::string name(BackendName(backend));
    words_.insert(name);
    for (const absl::string_view word : absl::StrSplit(chip, ' ')) {
      const std::vector<std::string> parts = absl::StrSplit(word, ':');
      if (parts.size() == 1 || parts[0] == name) words_.insert(parts.back());
    }
  }
  bool Have(absl::string_view word) const { return words_.contains(std::string(word)); }
  // Whether there are all of the conditions, and none of those with a "!".
  bool Meet(absl::string_view conditions) const {
    for (absl::string_view word : absl::StrSplit(conditions, ' ', absl::SkipEmpty())) {
      const bool wanted = !absl::ConsumePrefix(&word, "!");
      if (Have(word) != wanted) return false;
    }
    return true;
  }

 private:
  std::set<std::string> words_;
};

constexpr char kPeak[] = ".sum.peak_sustained_elapsed";

// Operations of the CUDA cores and the tensor cores, together and apart.
void AddOperations(MetricSet* flops) {
  std::vector<Term> all, tensor;
  std::vector<Ratio> by_precision;
  for (const auto& [letter, name] :
       {std::pair{'f', "FP32"}, std::pair{'h', "FP16"}, std::pair{'d', "FP64"}}) {
    const std::vector<Term> terms = CudaCoreOperations(letter);
    all.insert(all.end(), terms.begin(), terms.end());
    by_precision.push_back({absl::StrCat(name, " operations, CUDA cores"), "FLOP", terms, {}});
  }
  for (const OnePassConfig& config : flops->configs) {
    for (const Metric& metric : config.metrics) {
      if (metric.unit == "operations") tensor.push_back({metric.name});
    }
  }
  all.insert(all.end(), tensor.begin(), tensor.end());
  flops->ratios = {{"floating point operations", "FLOP", all, {}}};
  flops->ratios.insert(flops->ratios.end(), by_precision.begin(), by_precision.end());
  // A rate needs a time, which only the tensor configurations have.
  if (tensor.empty()) return;
  flops->ratios.push_back({"operations, tensor cores", "FLOP", tensor, {}});
  for (Term& term : all) term.weight *= 1e-3;
  flops->ratios.push_back({"rate", "TFLOP/s", all, {{kRangeTime}}});
}

// Takes a line of a set that is "KEY = VALUE". False: nothing else of the set counts.
bool TakeLine(absl::string_view key, absl::string_view value, MetricSet* set) {
  if (key == "description") {
    set->description = std::string(value);
  } else if (key == "missing" || key == "nothing") {
    set->missing = std::string(value);
  } else if (key == "without") {
    absl::StrAppend(&set->missing, set->missing.empty() ? "without " : ", ", value);
  } else if (key == "ratio") {
    set->ratios.push_back(*ParseRatio(value));
  } else {  // "config ID", or "more" of the last one
    if (int id = 0; absl::ConsumePrefix(&key, "config ") && absl::SimpleAtoi(key, &id)) {
      set->configs.push_back({static_cast<uint16_t>(id), {}, set->name});
    }
    for (const absl::string_view metric : absl::StrSplit(value, ", ")) {
      set->configs.back().metrics.push_back(*OwnMetric({metric.data(), metric.size()}));
    }
  }
  return key != "nothing";
}

void Append(const MetricSet& from, MetricSet* to) {
  absl::StrAppend(&to->name, to->name.empty() ? "" : ",", from.name);
  absl::StrAppend(&to->description, to->description.empty() ? "" : "; ", from.description);
  if (!from.missing.empty()) {
    absl::StrAppend(&to->missing, to->missing.empty() ? "" : "; ", from.name, ": ", from.missing);
  }
  to->configs.insert(to->configs.end(), from.configs.begin(), from.configs.end());
  for (const Ratio& ratio : from.ratios) {
    const bool known = std::any_of(to->ratios.begin(), to->ratios.end(),
                                   [&](const Ratio& other) { return other.name == ratio.name; });
    if (!known) to->ratios.push_back(ratio);
  }
}

// Sums of a run, of 1e20 and more, times this are numbers still.
constexpr double kMostWeight = 1e18;

absl::Status Wrong(const OwnSet& set, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("metric set \"", set.name, "\": ", what));
}

}  // namespace

std::string_view BackendName(Backend backend) { return backend == Backend::kPm ? "pm" : "range"; }

const std::vector<std::string>& KnownChips() {
  static const auto* const kNames = [] {
    auto* names = new std::vector<std::string>;
    for (const Chip& chip : Chips()) names->emplace_back(chip.example);
    return names;
  }();
  return *kNames;
}

bool IsKnownChip(std::string_view chip) {
  return !ChipOf({chip.data(), chip.size()}).prefix.empty();
}

std::vector<MetricSet> MetricSets(std::string_view name, Backend backend) {
  const Words words(ChipOf({name.data(), name.size()}).words, backend);
  std::vector<MetricSet> sets;
  bool more = false;  // lines of the set count
  for (absl::string_view line : absl::StrSplit(kShippedSets, '\n')) {
    if (absl::ConsumePrefix(&line, "[")) {
      sets.push_back({.name = std::string(absl::StripSuffix(line, "]"))});
      more = true;
      continue;
    }
    const size_t behind = line.find(" ? ");
    const absl::string_view conditions =
        line.substr(0, behind == absl::string_view::npos ? 0 : behind);
    if (!conditions.empty()) line.remove_prefix(behind + 3);
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    if (!more || parts.second.empty() || line[0] == '#' || !words.Meet(conditions)) continue;
    more = TakeLine(parts.first, parts.second, &sets.back());
  }
  for (MetricSet& set : sets) {
    if (set.name == "flops" && !set.configs.empty()) AddOperations(&set);
    if (backend == Backend::kRange || !words.Have("no-sampling")) continue;
    set.configs.clear();
    set.ratios.clear();
    set.missing = "this chip has no PM sampling; use the range backend";
  }
  return sets;
}

absl::StatusOr<MetricSet> FindMetricSet(std::string_view name, std::string_view chip,
                                        Backend backend) {
  std::vector<std::string> names;
  for (MetricSet& set : MetricSets(chip, backend)) {
    if (set.name == name) return std::move(set);
    names.push_back(std::move(set.name));
  }
  return absl::NotFoundError(absl::StrCat("no metric set \"", std::string(name),
                                          "\"; there are: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<MetricSet> CombineMetricSets(const std::vector<std::string>& names,
                                            const std::vector<OwnSet>& own, std::string_view chip,
                                            Backend backend) {
  MetricSet all;
  std::set<std::string> taken;
  uint16_t own_id = kFirstOwnConfigId;
  for (const std::string& name : names) {
    const auto mine =
        std::find_if(own.begin(), own.end(), [&](const OwnSet& set) { return set.name == name; });
    if (mine != own.end()) {
      SEQPOINT_RETURN_IF_ERROR(CheckOwnSet(*mine));
      if (!taken.insert(name).second) continue;
      MetricSet set{.name = mine->name, .description = mine->description, .ratios = mine->ratios};
      for (const std::vector<std::string>& metrics : mine->configs) {
        OnePassConfig config{.config_id = own_id++, .set = name};
        for (const std::string& metric : metrics) config.metrics.push_back(*OwnMetric(metric));
        set.configs.push_back(std::move(config));
      }
      Append(set, &all);
      continue;
    }
    SEQPOINT_ASSIGN_OR_RETURN(const MetricSet set, FindMetricSet(name, chip, backend));
    if (taken.insert(name).second) Append(set, &all);
  }
  if (all.configs.size() > kMaxConfigsOfJob) {
    return absl::InvalidArgumentError(
        absl::StrCat("the metric sets ", all.name, " have ", all.configs.size(),
                     " configurations on ", std::string(chip), ", and a job collects at most ",
                     kMaxConfigsOfJob, "; ask for fewer sets"));
  }
  return all;
}

std::vector<Term> CudaCoreOperations(char format) {
  const double values = format == 'h' ? 2 : 1;
  std::vector<Term> terms;
  for (const auto& [operation, weight] :
       {std::pair{"fma", 2.0}, std::pair{"add", 1.0}, std::pair{"mul", 1.0}}) {
    terms.push_back({absl::StrCat("sm__sass_thread_inst_executed_op_",
                                  absl::string_view(&format, 1), operation, "_pred_on.sum"),
                     weight * values});
  }
  return terms;
}

bool CountsElapsedTime(std::string_view metric) {
  const absl::string_view name(metric.data(), metric.size());
  return absl::EndsWith(name, kPeak) || absl::StrContains(name, "time_duration") ||
         absl::StrContains(name, "cycles_elapsed");
}

absl::StatusOr<Metric> OwnMetric(std::string_view text) {
  const absl::string_view name(text.data(), text.size());
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("metric \"", name.substr(0, 200), "\" ", why));
  };
  if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_.") != absl::string_view::npos) {
    return wrong("is not a name of CUPTI's, as dram__bytes_read.sum");
  }
  const bool peak = absl::EndsWith(name, kPeak);
  if (!peak && !absl::EndsWith(name, ".sum")) {
    return wrong(
        "does not end in .sum: only sums add up over iterations. Collect the sums, and "
        "let a ratio line divide them");
  }
  Metric metric{.name = std::string(name)};
  const auto has = [&](absl::string_view word) { return absl::StrContains(name, word); };
  metric.unit = has("time_duration")   ? "ns"
                : has("bytes")         ? "bytes"
                : has("cycles")        ? "cycles"
                : has("sectors")       ? "sectors"
                : has("ops_path")      ? "operations"
                : has("inst_executed") ? "instructions"
                                       : "";
  metric.follows_time = CountsElapsedTime(text) || absl::EndsWith(name, "__cycles_active.sum");
  return metric;
}

absl::Status CheckOwnSet(const OwnSet& set) {
  if (set.name.empty() ||
      set.name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789_.-") != std::string::npos) {
    return Wrong(set, "a name has letters, digits, and -, _ and . only");
  }
  if (set.configs.empty()) return Wrong(set, "has no line \"config = METRIC, METRIC, ...\"");
  if (set.configs.size() > kMaxConfigsOfJob) {
    return Wrong(set, absl::StrCat("has ", set.configs.size(),
                                   " configurations, and a job "
                                   "collects at most ",
                                   kMaxConfigsOfJob));
  }
  std::set<std::string> collected;
  for (const std::vector<std::string>& config : set.configs) {
    if (config.empty()) return Wrong(set, "a configuration names no metric");
    if (config.size() > kMaxMetricsOfConfig) {
      return Wrong(set, absl::StrCat("a configuration names ", config.size(), " metrics, and ",
                                     kMaxMetricsOfConfig, " can be read; split it"));
    }
    std::set<std::string> names;
    size_t bytes = 0;
    for (const std::string& metric : config) {
      if (const auto parsed = OwnMetric(metric); !parsed.ok()) {
        return Wrong(set, parsed.status().message());
      }
      if (!names.insert(metric).second) {
        return Wrong(set, absl::StrCat("a configuration names \"", metric, "\" twice"));
      }
      bytes += metric.size() + 1;
      collected.insert(metric);
    }
    if (bytes > kMaxNameBytes) {
      return Wrong(set, absl::StrCat("the names of a configuration have ", bytes, " characters, ",
                                     "and there is room for ", kMaxNameBytes, "; split it"));
    }
  }
  std::set<std::string> ratios;
  for (const Ratio& ratio : set.ratios) {
    if (ratio.name.empty() || ratio.numerator.empty()) return Wrong(set, "a ratio has no terms");
    if (!ratios.insert(ratio.name).second) {
      return Wrong(set, absl::StrCat("has the ratio \"", ratio.name, "\" twice"));
    }
    for (const auto* terms : {&ratio.numerator, &ratio.denominator}) {
      for (const Term& term : *terms) {
        if (!(std::abs(term.weight) <= kMostWeight)) {
          return Wrong(set, absl::StrCat("the ratio \"", ratio.name, "\" has a number beyond ",
                                         kMostWeight));
        }
        if (collected.contains(term.metric)) continue;
        return Wrong(set, absl::StrCat("the ratio \"", ratio.name, "\" names \"", term.metric,
                                       "\", which no configuration collects"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace seqpoint::counters
