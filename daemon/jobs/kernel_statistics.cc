#include "daemon/jobs/kernel_statistics.h"

#include <algorithm>

namespace seqpoint::jobs {
namespace {

// The name for graph launches where CUPTI records the graph and not its nodes.
constexpr char kWholeGraphs[] = "(CUDA graphs, recorded as a whole)";

// The name for all that come when there is no room for further ones.
constexpr char kFurtherKernels[] = "(kernels beyond 64 MiB of names)";
// A name takes this beside its text: two strings and their places.
constexpr size_t kNameBytes = 128;

}  // namespace

int KernelStatistics::IndexOf(const std::string& name) {
  const bool fits = bytes_ + name.size() + kNameBytes <= kMaxNamesBytes;
  if (!fits && name != kFurtherKernels && !index_.contains(name)) return IndexOf(kFurtherKernels);
  const auto [it, added] = index_.try_emplace(name, static_cast<int>(names_.size()));
  if (added) {
    names_.push_back(name);
    bytes_ += name.size() + kNameBytes;
    added_.add_names(name);
  }
  return std::min(it->second, kOtherKernels);
}

KernelStatistics::Sums KernelStatistics::SumOf(absl::Span<const abi::DataRecord> records,
                                               ProcessNames& names) {
  Sums sums;
  sums.time_ns.resize(std::min(names_.size(), kMaxValues));
  sums.launches.resize(sums.time_ns.size());
  for (const abi::DataRecord& record : records) {
    size_t kernel = 0;
    if (record.type == static_cast<uint16_t>(abi::DataType::kGraph)) {
      kernel = static_cast<size_t>(IndexOf(kWholeGraphs));
    } else if (record.type == static_cast<uint16_t>(abi::DataType::kKernel)) {
      ProcessNames::Name* const name = names.Find(record.kernel.name_id);
      if (name == nullptr) {
        ++sums.unnamed;
        continue;
      }
      if (name->kernel < 0) name->kernel = IndexOf(name->text);
      kernel = static_cast<size_t>(name->kernel);
    } else {
      continue;
    }
    if (kernel >= sums.time_ns.size()) {
      sums.time_ns.resize(kernel + 1);
      sums.launches.resize(kernel + 1);
    }
    // The times of a graph launch are at the same offset.
    sums.time_ns[kernel] +=
        static_cast<double>(record.kernel.end_ns) - static_cast<double>(record.kernel.start_ns);
    sums.launches[kernel] += 1;
  }
  return sums;
}

void KernelStatistics::Store(int64_t job_id, int32_t version, std::vector<StateRow>& rows) {
  const auto whole = [&] {
    KernelsState all;
    all.mutable_names()->Add(names_.begin(), names_.end());
    return all.SerializeAsString();
  };
  log_.Write(job_id, version, added_.SerializeAsString(), whole, rows);
  added_.Clear();
}

bool KernelStatistics::Load(const std::vector<StateRow>& rows) {
  const PartLog::Content content = log_.Load(rows);
  KernelsState state;
  if (!state.ParseFromString(content.base + content.added)) return false;
  for (const std::string& name : state.names()) IndexOf(name);
  added_.Clear();
  return true;
}

}  // namespace seqpoint::jobs
