#include "daemon/counters/metric_sets.h"

#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace seqpoint::counters {
namespace {

const Metric kDuration = {"gpu__time_duration.sum", "ns", "time between range start and end", true};
const Metric kDramRead = {"dram__bytes_read.sum", "bytes", "bytes read from device memory"};
const Metric kDramWrite = {"dram__bytes_write.sum", "bytes", "bytes written to device memory"};

std::vector<MetricSet> BuildMetricSets() {
  return {
      {.name = "utilisation",
       .sentence = "how busy the multiprocessors, tensor pipes and device memory are",
       .configs = {{2,
                    {kDuration,
                     kDramRead,
                     kDramWrite,
                     {"sm__inst_executed.sum", "instructions", "warp instructions executed"},
                     {"sm__pipe_tensor_cycles_active.sum", "cycles",
                      "cycles with a tensor pipe active, summed over multiprocessors"},
                     {"sm__cycles_active.sum", "cycles",
                      "cycles with a warp resident, summed over multiprocessors", true},
                     {"sm__cycles_elapsed.sum", "cycles", "cycles, summed over multiprocessors",
                      true}}}},
       .ratios =
           {{"tensor pipes active", "%", "sm__pipe_tensor_cycles_active.sum",
             "sm__cycles_elapsed.sum", 100},
            {"multiprocessors active", "%", "sm__cycles_active.sum", "sm__cycles_elapsed.sum", 100},
            {"device memory read", "GB/s", "dram__bytes_read.sum", "gpu__time_duration.sum", 1},
            {"device memory write", "GB/s", "dram__bytes_write.sum", "gpu__time_duration.sum", 1},
            {"instructions per active cycle", "", "sm__inst_executed.sum", "sm__cycles_active.sum",
             1}}},
      {.name = "cache",
       .sentence = "traffic through the second-level cache, beside device memory",
       .configs = {{3,
                    {kDuration,
                     kDramRead,
                     kDramWrite,
                     {"lts__t_sectors.sum", "sectors", "32-byte sectors through the L2 cache"},
                     {"lts__t_bytes.sum", "bytes", "bytes through the L2 cache"}}}},
       .ratios = {{"L2 traffic", "GB/s", "lts__t_bytes.sum", "gpu__time_duration.sum", 1}}},
  };
}

}  // namespace

const std::vector<MetricSet>& MetricSets() {
  static const auto* const kSets = new std::vector<MetricSet>(BuildMetricSets());
  return *kSets;
}

absl::StatusOr<const MetricSet*> FindMetricSet(std::string_view name) {
  std::vector<std::string> names;
  for (const MetricSet& set : MetricSets()) {
    if (set.name == name) return &set;
    names.emplace_back(set.name);
  }
  return absl::NotFoundError(absl::StrCat("no metric set \"", std::string(name),
                                          "\"; there are: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<MetricSet> CombineMetricSets(const std::vector<std::string>& names) {
  MetricSet all;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    const absl::StatusOr<const MetricSet*> set = FindMetricSet(name);
    if (!set.ok()) return set.status();
    if (!taken.insert(name).second) continue;
    absl::StrAppend(&all.name, all.name.empty() ? "" : ",", name);
    absl::StrAppend(&all.sentence, all.sentence.empty() ? "" : "; ", (*set)->sentence);
    all.configs.insert(all.configs.end(), (*set)->configs.begin(), (*set)->configs.end());
    all.ratios.insert(all.ratios.end(), (*set)->ratios.begin(), (*set)->ratios.end());
  }
  return all;
}

}  // namespace seqpoint::counters
