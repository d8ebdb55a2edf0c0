// One rank's iterations against a reference: by how much each part of its work is longer.
//
// The reference of an iteration is that of the rank's peers, or the rank's own earlier ones. The
// parts sum to the difference of the work. How much peers differ among each other is the noise.
//
// Threading: free functions. Ownership: refers to the profiles, which outlive the values.
#ifndef DAEMON_RANKS_WINDOW_COMPARE_H_
#define DAEMON_RANKS_WINDOW_COMPARE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "daemon/ranks/length_line.h"
#include "daemon/ranks/rank_question.h"
#include "daemon/ranks/window_profile.h"

namespace seqpoint::ranks {

enum class WorkPart : uint8_t {
  kSameKernels,  // kernels that both have take longer
  kMoreKernels,  // there are more of them, or others
  kLengths,      // the reference would take as much longer for these lengths
  kLaunch,
  kLoader,
  kTransfer,
  kRest,  // copies, gaps on the GPU
  kCount,
};
inline constexpr size_t kWorkParts = static_cast<size_t>(WorkPart::kCount);

struct WorkDifference {
  std::array<double, kWorkParts> part_ns = {};  // the rank's minus the reference's
  double total_ns() const;
  double operator[](WorkPart part) const { return part_ns[static_cast<size_t>(part)]; }
};

// What the reference tells of kernels at any length: a line through its iterations, where they have
// three lengths or more; else the median.
class KernelReference {
 public:
  explicit KernelReference(absl::Span<const Compared> compared);

  // Expected of a rank with these lengths, nanoseconds.
  double BusyNs(const RankProfile& profile) const;
  // The mean duration of one kernel; 0: the reference has none of these.
  double MeanNs(const KernelKey& key, const RankProfile& profile) const;
  // How much the means of a kernel differ in the reference, relative to their median; robust.
  double SpreadOf(const KernelKey& key) const;
  bool Varies() const { return varies_; }  // the lengths

 private:
  LengthLine busy_;
  std::map<KernelKey, LengthLine> means_;
  bool varies_ = false;
};

WorkDifference DifferenceOf(const Compared& compared, const KernelReference& reference);

// The mean difference of several iterations, and its standard deviation, by part and of the total.
struct MeanDifference {
  WorkDifference mean;
  std::array<double, kWorkParts> error_ns = {};
  double total_error_ns = 0;
  double work_ns = 0;  // of the reference
};
MeanDifference MeanDifferenceOf(const Comparisons& comparisons, const KernelReference& reference);

// The kernels of one name.
struct NameDifference {
  std::string name;
  double log_factor = 0;  // of their duration
  double error = 0;       // of that, a standard deviation
  double count = 0;       // in an iteration
  double time_ns = 0;     // that they would take in an iteration as the reference
  double excess_ns = 0;
};
// Of names that both have, most excess first.
std::vector<NameDifference> NameDifferencesOf(absl::Span<const Compared> compared,
                                              const KernelReference& reference);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_COMPARE_H_
