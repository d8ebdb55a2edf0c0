// The ideals of a precedence: sets of classes with all their predecessors. The first stages of a
// contiguous placement together are one.
//
// Threading: free functions; a const object may be read by any number of threads.
#ifndef SEQPOINT_DAEMON_PLACEMENT_IDEALS_H_
#define SEQPOINT_DAEMON_PLACEMENT_IDEALS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace seqpoint::placement {

// Numbered by size: 0 is the empty one, the last one has all classes. Memory: a bit for each class
// and 8 bytes for each step of each ideal.
class Ideals {
 public:
  // Taking a class away that none of the others in the ideal needs.
  struct Step {
    int32_t taken = 0;
    int32_t left = 0;  // the ideal without it
  };

  // `predecessors` of each class have lower numbers. Nothing where there are more than `most`
  // ideals, or where `stop`, which may be null and is asked now and then, says so.
  static std::optional<Ideals> List(const std::vector<std::vector<int>>& predecessors, int64_t most,
                                    const std::function<bool()>& stop);

  // The ideals of a chain: its first classes, by their number.
  static Ideals OfChain(int classes);

  int classes() const { return classes_; }
  int size() const { return static_cast<int>(first_step_.size()) - 1; }
  bool Contains(int ideal, int c) const {
    if (bits_.empty()) return c < ideal;  // a chain
    return (bits_[static_cast<size_t>(ideal) * words_ + c / 64] >> (c % 64) & 1) != 0;
  }
  // Highest class first.
  const Step* begin(int ideal) const { return steps_.data() + first_step_[ideal]; }
  const Step* end(int ideal) const { return steps_.data() + first_step_[ideal + 1]; }
  // The first ideal with this many classes or more; size() where there is none.
  int FirstOfSize(int classes) const { return first_of_size_[classes]; }

 private:
  Ideals() = default;

  int classes_ = 0;
  size_t words_ = 0;                // of the bits of one ideal
  std::vector<uint64_t> bits_;      // none of a chain
  std::vector<size_t> first_step_;  // of each ideal, and one behind the last
  std::vector<Step> steps_;
  std::vector<int> first_of_size_;  // for 0 to classes + 1
};

}  // namespace seqpoint::placement

#endif  // SEQPOINT_DAEMON_PLACEMENT_IDEALS_H_
