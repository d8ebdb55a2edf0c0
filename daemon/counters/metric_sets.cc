#include "daemon/counters/metric_sets.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::counters {
namespace {

enum class Dram { kNone, kReadWrite, kOpReadWrite };
enum class Links { kNone, kPcie, kNvlink, kBoth };

// The differences between chips. Longer prefixes come first.
struct Chip {
  absl::string_view prefix;
  absl::string_view example;  // empty: an exception within a family
  Dram dram;
  bool peak_beside_dram;  // dram__bytes and its peak share a pass
  Links links;
  Links links_pm;
  bool pm;
  bool tensor_pm;                // tensor pipes in one pass
  bool all_in_one_pm;            // ... and in the same as everything of "utilisation"
  bool fma_pm;                   // the FMA pipe, too
  absl::string_view tensor_ops;  // one-pass configurations: formats; "+" within one, " " between
  absl::string_view uncounted;   // number formats of the tensor pipes that are left out
};

constexpr absl::string_view kTensorAmpere =
    "src_fp64+src_fp16_dst_fp16 src_tf32_dst_fp32 src_bf16_dst_fp32 src_fp16_dst_fp32";
constexpr absl::string_view kTensorHopper =
    "src_fp64+op_hgmma_src_fp16+op_hmma_src_fp16_dst_fp16+src_fp8 src_tf32_dst_fp32 "
    "src_bf16_dst_fp32 op_hmma_src_fp16_dst_fp32";
constexpr absl::string_view kTensorBlackwell =
    "src_fp64+op_utchmma_src_tf32_dst_fp32_sparsity_off+op_hmma_src_fp16_dst_fp16+"
    "src_fp4_fp6_fp8_dst_fp16 "
    "op_hmma_src_tf32_dst_fp32+op_utchmma_src_tf32_dst_fp32_sparsity_on+src_fp4_dst_fp32 "
    "src_bf16_dst_fp32+op_utchmma_src_fp16_dst_fp16_sparsity_off "
    "src_fp16_dst_fp32+op_utchmma_src_fp16_dst_fp16_sparsity_on "
    "op_utcqmma_src_fp4_fp6_fp8_dst_fp32_sparsity_off "
    "op_utcqmma_src_fp4_fp6_fp8_dst_fp32_sparsity_on";
constexpr absl::string_view kTensorBlackwellUltra =
    "src_fp64+op_utchmma_src_tf32_dst_fp32_sparsity_off+op_hmma_src_fp16_dst_fp16 "
    "op_hmma_src_tf32_dst_fp32+op_utchmma_src_tf32_dst_fp32_sparsity_on "
    "src_bf16_dst_fp32+op_utchmma_src_fp16_dst_fp16_sparsity_off "
    "src_fp16_dst_fp32+op_utchmma_src_fp16_dst_fp16_sparsity_on";
constexpr absl::string_view kTensorAda =
    "src_fp64+src_fp16_dst_fp16 src_tf32_dst_fp32 src_bf16_dst_fp32 src_fp16_dst_fp32 src_fp8";
constexpr absl::string_view kTensorGb20x =
    "src_fp64+src_fp16_dst_fp16 src_tf32_dst_fp32 src_bf16_dst_fp32 src_fp16_dst_fp32 "
    "src_fp8_dst_fp16 src_fp8_dst_fp32";

// clang-format off
constexpr Chip kChips[] = {
    {"GV100", "GV100", Dram::kReadWrite, false, Links::kBoth, Links::kNone,
     false, false, false, false, "src_fp16_dst_fp16+src_fp16_dst_fp32", ""},
    {"TU11", "TU116", Dram::kReadWrite, false, Links::kPcie, Links::kPcie,
     true, true, false, true, "", ""},
    {"TU", "TU102", Dram::kReadWrite, false, Links::kBoth, Links::kBoth,
     true, false, false, true, "src_fp16_bf16_tf32_dst_fp32+src_fp16_dst_fp16", ""},
    {"GA100", "GA100", Dram::kReadWrite, true, Links::kBoth, Links::kBoth,
     true, true, false, true, kTensorAmpere, ""},
    {"GA10B", "GA10B", Dram::kNone, false, Links::kNone, Links::kNone,
     true, true, true, true, kTensorAmpere, ""},
    {"GA10", "GA102", Dram::kReadWrite, true, Links::kBoth, Links::kBoth,
     true, true, true, true, kTensorAmpere, ""},
    {"GH100", "GH100", Dram::kReadWrite, true, Links::kBoth, Links::kBoth,
     true, true, true, true, kTensorHopper, ""},
    {"AD10", "AD102", Dram::kReadWrite, true, Links::kPcie, Links::kPcie,
     true, true, true, true, kTensorAda, ""},
    {"GB10B", "GB10B", Dram::kNone, false, Links::kNone, Links::kNone,
     true, true, true, true, kTensorBlackwell, ""},
    {"GB110", "GB110", Dram::kReadWrite, true, Links::kBoth, Links::kNvlink,
     true, true, true, true, kTensorBlackwellUltra, "FP8, FP6 and FP4"},
    {"GB10", "GB100", Dram::kReadWrite, true, Links::kBoth, Links::kNvlink,
     true, true, true, true, kTensorBlackwell, ""},
    {"GB20B", "GB20B", Dram::kNone, false, Links::kNone, Links::kNone,
     true, true, true, false, kTensorGb20x, "FP6 and FP4"},
    {"GB20", "GB202", Dram::kOpReadWrite, true, Links::kPcie, Links::kPcie,
     true, true, true, false, kTensorGb20x, "FP6 and FP4"},
};
// clang-format on
// Only what every chip has.
constexpr Chip kUnknownChip = {"",   "",    Dram::kNone, false, Links::kNone, Links::kNone,
                               true, false, false,       false, "",           ""};

const Chip& ChipOf(absl::string_view name) {
  for (const Chip& chip : kChips) {
    if (absl::StartsWith(name, chip.prefix)) return chip;
  }
  return kUnknownChip;
}

constexpr char kPeak[] = ".sum.peak_sustained_elapsed";

Metric Sum(absl::string_view base, absl::string_view unit, bool follows_time = false) {
  return {absl::StrCat(base, ".sum"), std::string(unit), follows_time};
}
// The most that the unit could have done in the time: adds up like a counter.
Metric Peak(absl::string_view base, absl::string_view unit) {
  return {absl::StrCat(base, kPeak), std::string(unit), true};
}

const Metric& Duration() {
  static const auto* const kDuration = new Metric{kRangeTime, "ns", true};
  return *kDuration;
}

// Builds one set: every configuration but those of instruction counts begins with the time.
class Builder {
 public:
  Builder(absl::string_view name, absl::string_view description, uint16_t first_id)
      : next_id_(first_id) {
    set_.name = std::string(name);
    set_.description = std::string(description);
  }
  void AddConfig(std::vector<Metric> metrics, bool with_time = true) {
    if (with_time) metrics.insert(metrics.begin(), Duration());
    set_.configs.push_back({next_id_++, std::move(metrics), set_.name});
  }
  void AddRatio(absl::string_view name, absl::string_view unit, std::vector<Term> numerator,
                std::vector<Term> denominator) {
    set_.ratios.push_back(
        {std::string(name), std::string(unit), std::move(numerator), std::move(denominator)});
  }
  void SetNextId(uint16_t id) { next_id_ = id; }
  MetricSet Done(std::string missing = "") {
    set_.missing = std::move(missing);
    return std::move(set_);
  }

 private:
  MetricSet set_;
  uint16_t next_id_;
};

std::string ReadName(const Chip& chip) {
  return chip.dram == Dram::kOpReadWrite ? "dram__bytes_op_read" : "dram__bytes_read";
}
std::string WriteName(const Chip& chip) {
  return chip.dram == Dram::kOpReadWrite ? "dram__bytes_op_write" : "dram__bytes_write";
}
std::vector<Metric> DramMetrics(const Chip& chip) {
  if (chip.dram == Dram::kNone) return {};
  return {Sum(ReadName(chip), "bytes"), Sum(WriteName(chip), "bytes")};
}
void AddDramRatios(const Chip& chip, Builder* set) {
  if (chip.dram == Dram::kNone) return;
  set->AddRatio("device memory read", "GB/s", {{ReadName(chip) + ".sum"}}, {{kRangeTime}});
  set->AddRatio("device memory write", "GB/s", {{WriteName(chip) + ".sum"}}, {{kRangeTime}});
}

const char kTensorCycles[] = "sm__pipe_tensor_cycles_active";
const char kElapsed[] = "sm__cycles_elapsed.sum";

MetricSet Utilisation(const Chip& chip, Backend backend) {
  Builder set("utilisation", "how busy the multiprocessors, tensor pipes and device memory are", 2);
  const bool range = backend == Backend::kRange;
  const bool known = !chip.prefix.empty();
  const bool tensor = known && (range || chip.tensor_pm);
  const bool together = range || chip.all_in_one_pm;
  std::vector<Metric> metrics = DramMetrics(chip);
  metrics.push_back(Sum("sm__inst_executed", "instructions"));
  if (tensor && together) metrics.push_back(Sum(kTensorCycles, "cycles"));
  metrics.push_back(Sum("sm__cycles_active", "cycles", true));
  metrics.push_back(Sum("sm__cycles_elapsed", "cycles", true));
  set.AddConfig(std::move(metrics));
  if (tensor && !together) {
    set.SetNextId(15);  // those behind the first are others'
    set.AddConfig({Sum(kTensorCycles, "cycles"), Sum("sm__cycles_elapsed", "cycles", true)});
  }
  if (tensor) {
    set.AddRatio("tensor pipes active", "%", {{absl::StrCat(kTensorCycles, ".sum"), 100}},
                 {{kElapsed}});
  }
  set.AddRatio("multiprocessors active", "%", {{"sm__cycles_active.sum", 100}}, {{kElapsed}});
  AddDramRatios(chip, &set);
  set.AddRatio("instructions per active cycle", "", {{"sm__inst_executed.sum"}},
               {{"sm__cycles_active.sum"}});
  std::vector<std::string> missing;
  if (!tensor) missing.push_back("tensor pipes");
  if (chip.dram == Dram::kNone) missing.push_back("device memory");
  return set.Done(missing.empty() ? "" : absl::StrCat("without ", absl::StrJoin(missing, ", ")));
}

MetricSet Flops(const Chip& chip, Backend backend) {
  Builder set("flops", "floating point operations, of the CUDA cores and the tensor cores", 16);
  if (chip.prefix.empty()) return set.Done("the tensor formats of this chip are not known");
  if (backend == Backend::kPm) {
    return set.Done("PM sampling has no counters of operations; use the range backend");
  }
  // Instructions by opcode take a pass of their own, in which nothing else is counted.
  std::vector<Metric> instructions;
  std::vector<Term> all, tensor_terms;
  struct Precision {
    char letter;
    absl::string_view name;
  };
  std::vector<std::pair<std::string, std::vector<Term>>> by_precision;
  for (const Precision& precision :
       {Precision{'f', "FP32"}, Precision{'h', "FP16"}, Precision{'d', "FP64"}}) {
    std::vector<Term> terms = CudaCoreOperations(precision.letter);
    for (const Term& term : terms) instructions.push_back({term.metric, "instructions"});
    all.insert(all.end(), terms.begin(), terms.end());
    by_precision.emplace_back(absl::StrCat(precision.name, " operations, CUDA cores"), terms);
  }
  set.AddConfig(std::move(instructions), /*with_time=*/false);
  std::vector<Metric> config;
  for (size_t begin = 0; begin < chip.tensor_ops.size();) {
    const size_t end = std::min(chip.tensor_ops.find_first_of("+ ", begin), chip.tensor_ops.size());
    config.push_back(
        Sum(absl::StrCat("sm__ops_path_tensor_", chip.tensor_ops.substr(begin, end - begin)),
            "operations"));
    tensor_terms.push_back({config.back().name});
    if (end == chip.tensor_ops.size() || chip.tensor_ops[end] == ' ') {
      set.AddConfig(std::exchange(config, {}));
    }
    begin = end + 1;
  }
  all.insert(all.end(), tensor_terms.begin(), tensor_terms.end());
  set.AddRatio("floating point operations", "FLOP", all, {});
  for (auto& [name, terms] : by_precision) set.AddRatio(name, "FLOP", std::move(terms), {});
  // A rate needs a time, which only the tensor configurations have.
  if (tensor_terms.empty()) return set.Done("without tensor cores, of which it has none");
  set.AddRatio("operations, tensor cores", "FLOP", std::move(tensor_terms), {});
  std::vector<Term> tera;
  for (Term& term : all) tera.push_back({term.metric, term.weight * 1e-3});
  set.AddRatio("rate", "TFLOP/s", std::move(tera), {{kRangeTime}});
  return set.Done(chip.uncounted.empty()
                      ? ""
                      : absl::StrCat("without ", chip.uncounted, " of the tensor cores"));
}

MetricSet Memory(const Chip& chip, Backend backend) {
  Builder set("memory", "traffic to memory, and how much of the peak bandwidth it is", 28);
  if (chip.dram == Dram::kNone) {
    if (chip.prefix.empty()) return set.Done("the memory counters of this chip are not known");
    if (backend == Backend::kPm) {
      return set.Done(
          "the chip shares the host's memory, which PM sampling does not count; use "
          "the range backend");
    }
    // An integrated GPU: its memory is the host's.
    set.AddConfig({Sum("lts__t_sectors_aperture_sysmem_op_read", "sectors"),
                   Sum("lts__t_sectors_aperture_sysmem_op_write", "sectors")});
    set.AddRatio("memory read", "GB/s", {{"lts__t_sectors_aperture_sysmem_op_read.sum", 32}},
                 {{kRangeTime}});
    set.AddRatio("memory write", "GB/s", {{"lts__t_sectors_aperture_sysmem_op_write.sum", 32}},
                 {{kRangeTime}});
    return set.Done("without the peak: the memory is the host's");
  }
  std::vector<Metric> metrics = DramMetrics(chip);
  if (chip.peak_beside_dram) metrics.push_back(Peak("dram__bytes", "bytes"));
  set.AddConfig(std::move(metrics));
  AddDramRatios(chip, &set);
  if (!chip.peak_beside_dram) return set.Done("without the peak, which needs another pass");
  set.AddRatio("of the peak bandwidth", "%",
               {{ReadName(chip) + ".sum", 100}, {WriteName(chip) + ".sum", 100}},
               {{"dram__bytes.sum.peak_sustained_elapsed"}});
  return set.Done();
}

MetricSet Tensor(const Chip& chip, Backend backend) {
  Builder set("tensor", "how much of the time, and of the instructions, the tensor pipes have", 32);
  const bool range = backend == Backend::kRange;
  if (chip.prefix.empty() || (!range && !chip.tensor_pm)) {
    return set.Done(
        "PM sampling counts this chip's tensor pipes only in several passes; use the "
        "range backend");
  }
  set.AddConfig({Sum(kTensorCycles, "cycles"), Sum("sm__cycles_elapsed", "cycles", true)});
  set.AddRatio("tensor pipes active", "%", {{absl::StrCat(kTensorCycles, ".sum"), 100}},
               {{kElapsed}});
  if (!range) return set.Done("without tensor instructions, which PM sampling does not count");
  set.AddConfig({Sum("sm__inst_executed_pipe_tensor", "instructions"),
                 Sum("sm__inst_executed", "instructions")});
  set.AddRatio("tensor instructions", "%", {{"sm__inst_executed_pipe_tensor.sum", 100}},
               {{"sm__inst_executed.sum"}});
  return set.Done();
}

MetricSet Cache(const Chip&, Backend backend) {
  Builder set("cache", "traffic through the caches, and how much of it they answer", 3);
  const char l1_hit[] = "l1tex__t_sectors_lookup_hit";
  const char l1_miss[] = "l1tex__t_sectors_lookup_miss";
  const char l2_hit[] = "lts__t_sectors_lookup_hit";
  const char l2_miss[] = "lts__t_sectors_lookup_miss";
  const auto sum = [](absl::string_view base) { return absl::StrCat(base, ".sum"); };
  const std::vector<Term> l1 = {{sum(l1_hit)}, {sum(l1_miss)}};
  if (backend == Backend::kPm) {
    set.AddConfig(
        {Sum(l1_hit, "sectors"), Sum(l1_miss, "sectors"), Sum("lts__t_sectors", "sectors")});
    set.AddRatio("L1 hits", "%", {{sum(l1_hit), 100}}, l1);
    set.AddRatio("L2 traffic", "GB/s", {{"lts__t_sectors.sum", 32}}, {{kRangeTime}});
    return set.Done("without L2 hits, which PM sampling does not count");
  }
  // Hits and misses of L2 never share a pass.
  set.AddConfig({Sum(l1_hit, "sectors"), Sum(l1_miss, "sectors"), Sum(l2_hit, "sectors")});
  set.AddConfig({Sum(l2_miss, "sectors")});
  const std::vector<Term> l2 = {{sum(l2_hit)}, {sum(l2_miss)}};
  set.AddRatio("L1 hits", "%", {{sum(l1_hit), 100}}, l1);
  set.AddRatio("L2 hits", "%", {{sum(l2_hit), 100}}, l2);
  set.AddRatio("L2 traffic", "GB/s", {{sum(l2_hit), 32}, {sum(l2_miss), 32}}, {{kRangeTime}});
  return set.Done();
}

MetricSet LinksSet(const Chip& chip, Backend backend) {
  Builder set("links", "traffic over NVLink and PCIe, of the whole GPU", 36);
  const Links links = backend == Backend::kRange ? chip.links : chip.links_pm;
  if (links == Links::kNone) return set.Done("this chip offers no counters of links");
  std::vector<Metric> metrics;
  const auto add = [&](absl::string_view base, absl::string_view ratio) {
    metrics.push_back(Sum(base, "bytes"));
    set.AddRatio(ratio, "GB/s", {{metrics.back().name}}, {{kRangeTime}});
  };
  const bool nvlink = links != Links::kPcie, pcie = links != Links::kNvlink;
  if (nvlink) {
    add("nvlrx__bytes", "NVLink received");
    add("nvltx__bytes", "NVLink sent");
  }
  if (pcie) {
    add("pcie__read_bytes", "PCIe read");
    add("pcie__write_bytes", "PCIe written");
  }
  set.AddConfig(std::move(metrics));
  return set.Done(nvlink && pcie ? "" : nvlink ? "without PCIe" : "without NVLink");
}

MetricSet SpeedOfLight(const Chip& chip, Backend backend) {
  Builder set("speed-of-light", "what each unit did, as a share of the most it could have done",
              40);
  const bool range = backend == Backend::kRange;
  if (chip.prefix.empty()) return set.Done("the peaks of this chip are not known");
  std::vector<std::string> missing;
  const auto both = [](absl::string_view base, absl::string_view unit, std::vector<Metric>* to) {
    to->push_back(Sum(base, unit));
    to->push_back(Peak(base, unit));
  };
  const auto share = [&](absl::string_view name, absl::string_view base) {
    set.AddRatio(name, "%", {{absl::StrCat(base, ".sum"), 100}},
                 {{absl::StrCat(base, ".sum.peak_sustained_elapsed")}});
  };
  std::vector<Metric> metrics;
  const bool tensor = range || chip.tensor_pm;
  both("sm__inst_executed", "instructions", &metrics);
  share("instructions", "sm__inst_executed");
  if (tensor && (range || chip.all_in_one_pm)) both(kTensorCycles, "cycles", &metrics);
  set.AddConfig(std::exchange(metrics, {}));
  if (tensor && !range && !chip.all_in_one_pm) {
    both(kTensorCycles, "cycles", &metrics);
    set.AddConfig(std::exchange(metrics, {}));
  }
  set.SetNextId(42);
  if (tensor) {
    share("tensor pipes", kTensorCycles);
  } else {
    missing.push_back("tensor pipes");
  }
  if (range || chip.fma_pm) {
    both("sm__pipe_fma_cycles_active", "cycles", &metrics);
    share("FMA pipes", "sm__pipe_fma_cycles_active");
  } else {
    missing.push_back("FMA pipes");
  }
  both("lts__t_sectors", "sectors", &metrics);
  share("L2 cache", "lts__t_sectors");
  set.AddConfig(std::exchange(metrics, {}));
  both("l1tex__t_sectors", "sectors", &metrics);
  share("L1 cache", "l1tex__t_sectors");
  if (chip.peak_beside_dram) {
    both("dram__bytes", "bytes", &metrics);
    share("device memory", "dram__bytes");
  } else {
    missing.push_back("device memory");
  }
  set.AddConfig(std::move(metrics));
  return set.Done(missing.empty() ? "" : absl::StrCat("without ", absl::StrJoin(missing, ", ")));
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
    for (const Chip& chip : kChips) {
      if (!chip.example.empty()) names->emplace_back(chip.example);
    }
    return names;
  }();
  return *kNames;
}

bool IsKnownChip(std::string_view chip) {
  return !ChipOf({chip.data(), chip.size()}).prefix.empty();
}

std::vector<MetricSet> MetricSets(std::string_view name, Backend backend) {
  const Chip& chip = ChipOf({name.data(), name.size()});
  std::vector<MetricSet> sets = {Utilisation(chip, backend), Flops(chip, backend),
                                 Memory(chip, backend),      Tensor(chip, backend),
                                 Cache(chip, backend),       LinksSet(chip, backend),
                                 SpeedOfLight(chip, backend)};
  if (backend == Backend::kPm && !chip.pm) {
    for (MetricSet& set : sets) {
      set.configs.clear();
      set.ratios.clear();
      set.missing = "this chip has no PM sampling; use the range backend";
    }
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
