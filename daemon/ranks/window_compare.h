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

// A difference counts from so many standard deviations on: 1 in 30,000 is larger without a fault.
inline constexpr double kSure = 4;

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
  // Beyond what the lengths explain.
  double excess_ns() const { return total_ns() - (*this)[WorkPart::kLengths]; }
  double operator[](WorkPart part) const { return part_ns[static_cast<size_t>(part)]; }
};

// The time that the reference takes for a rank's kernels. Where it has the rank's lengths in the
// same iteration, that is the time there. Otherwise a line through its iterations tells, where they
// have shorter and longer lengths, three in all.
class KernelReference {
 public:
  explicit KernelReference(absl::Span<const Compared> compared);

  // Expected of a rank with these lengths, nanoseconds.
  double BusyNs(const RankProfile& profile) const;
  bool Varies() const { return busy_.shortest < busy_.longest; }  // the lengths

  // The kernels of one name in an iteration, beside what the reference takes for as many.
  struct Named {
    double count = 0, own_ns = 0, expected_ns = 0;
    double variance_ns2 = 0;  // of own_ns - expected_ns
  };
  // Those that can be compared.
  std::map<std::string, Named> Compare(const Compared& compared) const;

 private:
  // The mean duration of one kernel, and how much that differs, relative. 0: not known.
  struct Mean {
    double ns = 0, spread = 0;
  };
  static Mean MeanAt(const LengthLine& line, double length);
  Mean MeanOf(const KernelKey& key, const Compared& compared) const;
  static void Add(const KernelUse& use, const Mean& mean, Named* named);

  LengthLine busy_;
  std::map<KernelKey, LengthLine> means_;
  std::map<std::string, LengthLine> names_;  // of all grids together
};

WorkDifference DifferenceOf(const Compared& compared, const KernelReference& reference);

// The difference of most of several iterations: medians, so that one that something else disturbed
// does not decide; and their standard deviations.
struct UsualDifference {
  struct Value {
    double ns = 0, error_ns = 0;
    bool in_most = false;  // iterations, each by itself, it is above the noise for sure
  };
  std::array<Value, kWorkParts> parts = {};
  Value excess;        // beyond what the lengths explain
  double work_ns = 0;  // of the reference
  const Value& operator[](WorkPart part) const { return parts[static_cast<size_t>(part)]; }
};
UsualDifference UsualDifferenceOf(const Comparisons& comparisons, const KernelReference& reference);

// The kernels of one name.
struct NameDifference {
  std::string name;
  double log_factor = 0;  // of their duration
  double error = 0;       // of that, a standard deviation
  double count = 0;       // in an iteration
  double time_ns = 0;     // that they take in an iteration of the reference
  double excess_ns = 0;
};
// Of names that both have, most excess first.
std::vector<NameDifference> NameDifferencesOf(absl::Span<const Compared> compared,
                                              const KernelReference& reference);

}  // namespace seqpoint::ranks

#endif  // DAEMON_RANKS_WINDOW_COMPARE_H_
