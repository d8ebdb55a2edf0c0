#include "daemon/counters/roofline.h"

#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace seqpoint::counters {
namespace {

constexpr char kCycles[] = "sm__cycles_elapsed.sum";
constexpr char kPeakSuffix[] = ".peak_sustained_elapsed";
constexpr double kSectorBytes = 32;

// Fused multiply-adds of values that a multiprocessor begins in a cycle, of the CUDA cores:
// "Throughput of native arithmetic instructions" in NVIDIA's CUDA C++ programming guide. Longer
// beginnings first.
struct Lanes {
  absl::string_view chip;
  double fp32, fp16, fp64;
};
constexpr Lanes kLanes[] = {
    {"GV100", 64, 128, 32}, {"TU", 64, 128, 2},      {"GA100", 64, 256, 32},  {"GA10", 128, 128, 2},
    {"AD10", 128, 128, 2},  {"GH100", 128, 256, 64}, {"GB100", 128, 256, 64}, {"GB20", 128, 128, 2},
};

double Sum(const std::vector<Term>& terms, const MetricSums& sums) {
  double sum = 0;
  for (const Term& term : terms) {
    const auto found = sums.find(term.metric);
    if (found != sums.end()) sum += term.weight * found->second;
  }
  return sum;
}

double Value(const std::string& metric, const MetricSums& sums) {
  const auto found = sums.find(metric);
  return found == sums.end() ? 0 : found->second;
}

// The most operations of the format in the time; 0: not known.
double PeakOf(const RooflineFormat& format, const MetricSums& sums) {
  if (!format.peak.empty()) return Value(format.peak, sums);
  return format.per_cycle * Value(kCycles, sums);
}

}  // namespace

Roofline MakeRoofline(std::string_view chip) {
  Roofline roofline;
  const auto memory = FindMetricSet("memory", chip, Backend::kRange);
  const auto flops = FindMetricSet("flops", chip, Backend::kRange);
  if (!memory.ok() || !flops.ok() || memory->configs.empty() || flops->configs.empty()) {
    return roofline;
  }
  uint16_t id = kFirstRooflineConfigId;
  const auto add = [&](std::vector<Metric> metrics) {
    roofline.configs.push_back({id++, std::move(metrics), std::string(kRooflineSet)});
  };
  std::vector<Metric> metrics = memory->configs[0].metrics;
  for (const Metric& metric : metrics) {
    if (absl::EndsWith(metric.name, kPeakSuffix)) {
      roofline.bytes_peak = metric.name;
    } else if (metric.name != kRangeTime) {
      roofline.bytes.push_back({metric.name, metric.unit == "sectors" ? kSectorBytes : 1});
    }
  }
  metrics.push_back({kCycles, "cycles", true});
  add(std::move(metrics));

  Lanes lanes = {};
  for (const Lanes& candidate : kLanes) {
    if (!absl::StartsWith({chip.data(), chip.size()}, candidate.chip)) continue;
    lanes = candidate;
    break;
  }
  for (const auto& [letter, name, fused] :
       {std::tuple{'f', "FP32", lanes.fp32}, std::tuple{'h', "FP16", lanes.fp16},
        std::tuple{'d', "FP64", lanes.fp64}}) {
    RooflineFormat& format = roofline.formats.emplace_back();
    format.name = name;
    format.per_cycle = 2 * fused;
    format.operations = CudaCoreOperations(letter);
  }
  add(flops->configs[0].metrics);
  for (size_t i = 1; i < flops->configs.size(); ++i) {
    std::vector<Metric> tensor;
    for (const Metric& metric : flops->configs[i].metrics) {
      tensor.push_back(metric);
      if (metric.name == kRangeTime) continue;
      const std::string peak = absl::StrCat(metric.name, kPeakSuffix);
      tensor.push_back({peak, metric.unit, true});
      absl::string_view base = absl::StripSuffix(metric.name, ".sum");
      absl::ConsumePrefix(&base, "sm__ops_path_tensor_");
      roofline.formats.push_back({absl::StrCat("tensor ", base), {{metric.name}}, peak, 0});
    }
    add(std::move(tensor));
  }
  return roofline;
}

RooflinePosition PlaceOnRoofline(const Roofline& roofline, const MetricSums& sums) {
  RooflinePosition position = {.duration_ns = Value(kRangeTime, sums),
                               .bytes = Sum(roofline.bytes, sums)};
  if (const double peak = Value(roofline.bytes_peak, sums); peak > 0) {
    position.memory_share = position.bytes / peak;
  }
  bool known = true;
  double share = 0;
  for (const RooflineFormat& format : roofline.formats) {
    const double operations = Sum(format.operations, sums);
    if (operations <= 0) continue;
    position.operations += operations;
    const double peak = PeakOf(format, sums);
    known &= peak > 0;
    if (peak > 0) share += operations / peak;
  }
  if (known) position.compute_share = share;
  return position;
}

std::vector<Roof> RoofsOf(const Roofline& roofline, const MetricSums& sums) {
  const double seconds = Value(kRangeTime, sums) * 1e-9;
  std::vector<Roof> roofs = {{.name = "device memory", .unit = "B/s"}};
  if (seconds <= 0) return roofs;
  roofs[0].per_second = Value(roofline.bytes_peak, sums) / seconds;
  for (const RooflineFormat& format : roofline.formats) {
    if (Sum(format.operations, sums) <= 0) continue;
    roofs.push_back({format.name, "FLOP/s", PeakOf(format, sums) / seconds});
  }
  return roofs;
}

}  // namespace seqpoint::counters
