// LinkDetector: when the transfers of a communicator, or those between two ranks, become slow.
//
// Each kind of operations of a link has a baseline, the mean logarithm of its transfer time. Where
// messages are as long as the batch, most kinds are rare: a curve over the sizes of a function's
// messages tells their time (WorkModel). The time of all transfers of an iteration over what the
// baselines say is tested as a rank's excess is (StragglerDetector), with a tolerance of 3 %:
// transfers share links and memory with others. A link that is slow from the start is its own
// baseline, and not known.
//
// Threading: one thread. Ownership: values. Memory: at most kMostKinds baselines.
#ifndef SEQPOINT_DAEMON_RANKS_LINK_DETECTOR_H_
#define SEQPOINT_DAEMON_RANKS_LINK_DETECTOR_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/straggler_detector.h"
#include "daemon/ranks/verdict.h"
#include "daemon/ranks/work_model.h"

namespace seqpoint::ranks {

// A communicator, or two ranks that transfer in one.
struct Link {
  uint64_t communicator = 0;
  int32_t low = -1, high = -1;  // -1: all its ranks

  auto operator<=>(const Link&) const = default;
  bool is_pair() const { return low >= 0; }

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(communicator, low, high);
  }
};

// What is done in an operation, and with how much.
struct KindSize {
  uint32_t function = 0;  // with the type of its elements
  uint64_t elements = 0;
};
using KindSizes = std::map<uint32_t, KindSize>;  // by kind

class LinkDetector {
 public:
  // True where a link became slow or has recovered. Their verdicts are kept up to date.
  // `sizes`: of kinds whose size is known.
  bool Add(const JoinedIteration& iteration, const KindSizes& sizes,
           std::vector<LinkVerdict>& verdicts);

  // A link is slow.
  bool slow() const;
  // As StragglerDetector.
  bool wants_more() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(links_);
  }

  static constexpr size_t kMostKinds = 4096;

 private:
  // Of one kind on one link.
  struct Baseline {
    double count = 0, mean = 0;  // of the logarithm of ns

    void Add(double value);
    template <typename Archive>
    void Visit(Archive& archive) {
      archive(count, mean);
    }
  };
  struct State {
    std::map<uint32_t, Baseline> kinds;
    std::map<uint32_t, WorkModel> functions;
    NoiseEstimate noise;
    StragglerDetector test;
    int64_t seen = 0;  // last iteration with a transfer

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(kinds, functions, noise, test, seen);
    }
  };
  using Parts = std::vector<const TransferPart*>;
  static double ExpectNs(const State& state, uint32_t kind, const KindSizes& sizes);
  static Evidence Compare(State& state, const Parts& parts, const KindSizes& sizes);
  static void Learn(State& state, const Parts& parts, const KindSizes& sizes);
  void MakeRoom(int64_t number, std::vector<LinkVerdict>& verdicts);

  std::map<Link, State> links_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LINK_DETECTOR_H_
