// RankAgreement: whether two ranks mean the same iteration by a number. Sends and receives of a
// pair have no numbers in common, and are matched in their order; that is wrong where a rank counts
// iterations otherwise, as by a rule that does not fit its program. Collectives show it: two ranks
// agree while the latest ones of each communicator that both use came in the same iteration, and
// are the same.
//
// Threading: one thread. Ownership: values. Memory: kMostCommunicators of each rank.
#ifndef SEQPOINT_DAEMON_RANKS_RANK_AGREEMENT_H_
#define SEQPOINT_DAEMON_RANKS_RANK_AGREEMENT_H_

#include <cstdint>
#include <map>

#include "daemon/ranks/rank_iteration.h"

namespace seqpoint::ranks {

class RankAgreement {
 public:
  // Takes each report of a rank before its iteration is matched.
  void Add(const RankIteration& report);
  // Where no communicator tells, they do.
  bool Agree(int32_t rank, int32_t other) const;

  static constexpr size_t kMostCommunicators = 64;

 private:
  struct Latest {
    int64_t iteration = 0;
    uint64_t collectives = 0;  // their kinds and numbers, in any order
    bool operator==(const Latest&) const = default;
  };
  std::map<int32_t, std::map<uint64_t, Latest>> ranks_;  // by rank and communicator
};

}  // namespace seqpoint::ranks

#endif  // SEQPOINT_DAEMON_RANKS_RANK_AGREEMENT_H_
