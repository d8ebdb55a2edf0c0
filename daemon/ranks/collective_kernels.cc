#include "daemon/ranks/collective_kernels.h"

#include <algorithm>

namespace seqpoint::ranks {

std::vector<WindowKernels> KernelsOf(absl::Span<const RankWindow> windows) {
  std::vector<WindowKernels> kernels(windows.size());
  for (uint32_t w = 0; w < windows.size(); ++w) {
    const trace::Trace& trace = *windows[w].trace;
    for (uint32_t i = 0; i < trace.works.size(); ++i) {
      const trace::Work& work = trace.works[i];
      if (work.kind != trace::WorkKind::kCollective) continue;
      kernels[w].push_back(
          {w, i, work.stream, trace.names[work.name], work.start_ns, work.end_ns, {}});
    }
    std::stable_sort(kernels[w].begin(), kernels[w].end(),
                     [](const CollectiveKernel& a, const CollectiveKernel& b) {
                       return a.start_ns < b.start_ns;
                     });
  }
  return kernels;
}

std::string FunctionOf(std::string_view kernel) {
  for (const std::string_view prefix : {"ncclDevKernel_", "ncclKernel_"}) {
    const size_t at = kernel.find(prefix);
    if (at == std::string_view::npos) continue;
    kernel.remove_prefix(at + prefix.size());
    const auto end = std::find_if_not(kernel.begin(), kernel.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    });
    return std::string(kernel.begin(), end);
  }
  return std::string(kernel.substr(0, kernel.find('(')));
}

std::pair<int64_t, size_t> Densest(const std::vector<int64_t>& times_ns, int64_t width_ns) {
  std::pair<int64_t, size_t> best = {0, 0};
  for (size_t first = 0, last = 0; last < times_ns.size(); ++last) {
    while (times_ns[last] - times_ns[first] > width_ns) ++first;
    const size_t count = last - first + 1;
    if (count > best.second) best = {times_ns[first + count / 2], count};
  }
  return best;
}

}  // namespace seqpoint::ranks
