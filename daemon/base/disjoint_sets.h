// Sets of numbers from 0 on that only grow together.
//
// Threading: none. Ownership: values only.
#ifndef SEQPOINT_DAEMON_BASE_DISJOINT_SETS_H_
#define SEQPOINT_DAEMON_BASE_DISJOINT_SETS_H_

#include <cstddef>
#include <numeric>
#include <vector>

namespace seqpoint {

class DisjointSets {
 public:
  // Each number is a set of its own.
  explicit DisjointSets(size_t numbers) : parent_(numbers) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  // The number that stands for the set, the same for all of its numbers.
  int Find(int number) {
    while (parent_[number] != number) {
      parent_[number] = parent_[parent_[number]];
      number = parent_[number];
    }
    return number;
  }

  // The smaller of their numbers stands for both.
  void Join(int a, int b) {
    a = Find(a);
    b = Find(b);
    if (a < b) {
      parent_[b] = a;
    } else {
      parent_[a] = b;
    }
  }

 private:
  std::vector<int> parent_;
};

}  // namespace seqpoint

#endif  // SEQPOINT_DAEMON_BASE_DISJOINT_SETS_H_
