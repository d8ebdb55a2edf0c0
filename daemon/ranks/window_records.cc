#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/ranks/collective_kernels.h"

namespace seqpoint::ranks {
namespace {

constexpr size_t kClockSample = 256;    // records that show the difference of clocks
constexpr double kLeastAgreeing = 0.5;  // of the records, have that difference

bool IsPair(const CollectiveRecord& record) { return record.peer >= 0; }

// NCCL runs functions without a kernel of their own in others: only a collective in a kernel for
// pairs, or the reverse, contradicts.
bool Fits(const CollectiveRecord& record, const CollectiveKernel& kernel) {
  const std::string function = FunctionOf(kernel.name);
  return function == "Generic" || IsPair(record) == (function == "SendRecv");
}

// The share of the time of either in which both run.
double Overlap(const CollectiveRecord& record, const CollectiveKernel& kernel, int64_t later_ns) {
  const int64_t start_ns = record.start_ns + later_ns, end_ns = record.end_ns + later_ns;
  const int64_t both_ns = std::min(end_ns, kernel.end_ns) - std::max(start_ns, kernel.start_ns) + 1;
  const int64_t any_ns = std::max(end_ns, kernel.end_ns) - std::min(start_ns, kernel.start_ns) + 1;
  return static_cast<double>(both_ns) / static_cast<double>(any_ns);
}

std::string AssignInOrder(const RankWindow& window, WindowKernels* kernels) {
  if (window.records.size() != kernels->size()) {
    return absl::StrCat("rank ", window.rank, ": NCCL told ", window.records.size(),
                        " collectives without times, the window has ", kernels->size(),
                        " kernels of NCCL");
  }
  for (uint32_t i = 0; i < kernels->size(); ++i) {
    CollectiveKernel& kernel = (*kernels)[i];
    if (!Fits(window.records[i], kernel)) {
      return absl::StrCat("rank ", window.rank, ": NCCL told ", window.records[i].function,
                          " where the window has ", std::string(kernel.name));
    }
    kernel.records = {i};
  }
  return "";
}

}  // namespace

std::string AssignRecords(const RankWindow& window, WindowKernels* kernels) {
  if (window.records.empty()) return absl::StrCat("rank ", window.rank, ": NCCL told nothing");
  const bool timed =
      std::all_of(window.records.begin(), window.records.end(),
                  [](const CollectiveRecord& record) { return record.end_ns > record.start_ns; });
  if (!timed) return AssignInOrder(window, kernels);
  std::vector<int64_t> differences;
  const size_t sample = std::min(window.records.size(), kClockSample);
  for (size_t i = 0; i < sample; ++i) {
    for (const CollectiveKernel& kernel : *kernels) {
      // Only the first record of a kernel starts with it; the last one ends with it.
      differences.push_back(kernel.start_ns - window.records[i].start_ns);
    }
  }
  std::sort(differences.begin(), differences.end());
  const auto [later_ns, agreeing] = Densest(differences, kSameEndNs);
  if (static_cast<double>(agreeing) <
      kLeastAgreeing * static_cast<double>(std::min(sample, kernels->size()))) {
    return absl::StrCat("rank ", window.rank,
                        ": the times that NCCL told fit no kernel of the window");
  }
  for (uint32_t i = 0; i < window.records.size(); ++i) {
    CollectiveKernel* best = nullptr;
    double best_overlap = 0;
    for (CollectiveKernel& kernel : *kernels) {
      const double overlap = Overlap(window.records[i], kernel, later_ns);
      if (overlap <= best_overlap || !Fits(window.records[i], kernel)) continue;
      best = &kernel;
      best_overlap = overlap;
    }
    if (best != nullptr) best->records.push_back(i);
  }
  return "";
}

std::vector<JoinedKernels> JoinByRecords(absl::Span<const RankWindow> windows,
                                         const std::vector<WindowKernels>& kernels,
                                         WindowJoin* join) {
  // Communicator; of a pair who sends to whom; sequence number, or order.
  using Id = std::tuple<uint64_t, int32_t, int32_t, uint32_t>;
  std::map<Id, JoinedKernels> by_id;
  for (size_t w = 0; w < windows.size(); ++w) {
    std::map<std::tuple<uint64_t, int32_t, int32_t>, uint32_t> pairs;  // so far
    for (const CollectiveKernel& kernel : kernels[w]) {
      for (const uint32_t i : kernel.records) {
        const CollectiveRecord& record = windows[w].records[i];
        Id id = {record.communicator, -1, -1, record.sequence};
        if (IsPair(record)) {
          const bool sends = record.function != "Recv";
          const int32_t from = sends ? record.own : record.peer;
          const int32_t to = sends ? record.peer : record.own;
          id = {record.communicator, from, to, pairs[{record.communicator, from, to}]++};
        }
        JoinedKernels& joined = by_id[id];
        joined.kernels.push_back(&kernel);
        joined.record = &record;
        joined.bytes = std::max(joined.bytes, record.bytes);
      }
    }
  }
  // What NCCL carried out in one kernel on the same ranks is one.
  std::map<std::vector<const CollectiveKernel*>, JoinedKernels> by_kernels;
  for (auto& [id, joined] : by_id) {
    if (joined.kernels.size() < 2) continue;
    JoinedKernels& same = by_kernels[joined.kernels];
    const uint64_t bytes = same.bytes + joined.bytes;
    same = std::move(joined);
    same.bytes = bytes;
  }
  std::vector<JoinedKernels> result;
  for (auto& [all, joined] : by_kernels) result.push_back(std::move(joined));
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto without = std::count_if(kernels[w].begin(), kernels[w].end(),
                                       [](const auto& k) { return k.records.empty(); });
    if (without > 0) {
      join->mismatches.push_back(absl::StrCat("rank ", windows[w].rank, ": of ", kernels[w].size(),
                                              " kernels of NCCL it told nothing about ", without));
    }
  }
  return result;
}

}  // namespace seqpoint::ranks
