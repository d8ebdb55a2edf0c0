// LinkTest: when the transfers of a communicator, or those between two ranks, become slow.
//
// Each kind of operations of a communicator or pair has a baseline, the mean logarithm of its
// transfer time. The time of all transfers of an iteration over what the baselines say is tested
// as a rank's excess is (straggler_test.h): against the link's own past alone, so that a link that
// is slow from the start is not known.
//
// Threading: one thread. Ownership: values. Memory: at most kMostKinds baselines.
#ifndef SEQPOINT_DAEMON_RANKS_LINK_TEST_H_
#define SEQPOINT_DAEMON_RANKS_LINK_TEST_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "daemon/ranks/noise_estimate.h"
#include "daemon/ranks/sequential_test.h"
#include "daemon/ranks/straggler_test.h"
#include "daemon/ranks/verdict.h"

namespace seqpoint::ranks {

// A communicator, or the two ranks of transfers in one.
struct Link {
  uint64_t communicator = 0;
  int32_t low = -1, high = -1;  // -1: all its ranks
  auto operator<=>(const Link&) const = default;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(communicator, low, high);
  }
};

class LinkTest {
 public:
  // True where the verdicts about a link changed: one became slow or has recovered.
  bool Add(const JoinedIteration& iteration, std::vector<LinkVerdict>& verdicts);
  bool wants_more() const;
  // A link is slow.
  bool slow() const;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive(links_);
  }

  static constexpr size_t kMostKinds = 4096;

 private:
  struct Baseline {
    double count = 0, mean = 0;  // of the logarithm of ns
    template <typename Archive>
    void Visit(Archive& archive) {
      archive(count, mean);
    }
  };
  struct State {
    std::map<uint32_t, Baseline> kinds;
    NoiseEstimate noise;
    SequentialTest rise, fall;
    bool slow = false;
    ExcessMean excess;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive(kinds, noise, rise, fall, slow, excess);
    }
  };
  bool Test(const Link& link, State& state, const JoinedIteration& iteration,
            const std::vector<const TransferPart*>& parts, std::vector<LinkVerdict>& verdicts);

  std::map<Link, State> links_;
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_LINK_TEST_H_
