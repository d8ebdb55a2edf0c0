// LinkDetector: when the transfers of a communicator, or those between two ranks, become slow.
//
// Each kind of operations of a link has a baseline, the mean logarithm of its transfer time. Where
// messages are as long as the batch, most kinds are rare: a curve over the sizes of a function's
// messages tells their time (WorkModel), within the sizes that it has learned. The time of all
// transfers of an iteration over what the baselines say is tested as a rank's excess is
// (StragglerDetector), with a tolerance of 3 %: transfers share links and memory with others. A
// link that is slow from the start is its own baseline, and not known.
//
// Threading: one thread. Ownership: values. Memory: at most kMostKinds baselines and curves.
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

// The function of a kind of operations and the size of its messages.
struct KindSize {
  uint64_t function = 0;  // with the type of its elements
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
  // One function on one link. A curve that is fitted to some sizes says nothing of others, where
  // NCCL may take another protocol: once enough of those came, a new curve of all sizes that came
  // with them takes its place.
  struct Curve {
    WorkModel model, next;
    uint64_t smallest = 0, largest = 0;  // elements of what the model learned
    uint64_t next_smallest = 0, next_largest = 0;
    double beyond = 0;  // what `next` learned outside of the model's sizes

    // True where a new curve has taken the place.
    bool Learn(uint64_t elements, double ns);
    double ExpectNs(uint64_t elements) const;
    template <typename Archive>
    void Visit(Archive& archive) {
      archive(model, next, smallest, largest, next_smallest, next_largest, beyond);
    }
  };
  struct State {
    std::map<uint32_t, Baseline> kinds;
    std::map<uint64_t, Curve> functions;
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
  void Learn(State& state, const Parts& parts, const KindSizes& sizes) const;
  void MakeRoom(int64_t number, std::vector<LinkVerdict>& verdicts);

  // Kinds of a link that have baselines: 16 bytes each, 4 KB of a link. In models of fixed sizes,
  // one for each size of a bucket or layer (DLRM's recorded step: 8). Fewer where there are many
  // links.
  static constexpr size_t kMostOfLink = 256;
  // Functions of a link that have curves: five collectives, sends, receives, in two types of
  // elements.
  static constexpr size_t kMostFunctions = 16;
  static constexpr size_t kMostLinks = kMostKinds / 2;  // a baseline and a curve of each

  std::map<Link, State> links_;
  size_t most_of_link_ = kMostOfLink;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LINK_DETECTOR_H_
