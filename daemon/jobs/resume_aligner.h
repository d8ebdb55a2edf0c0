// ResumeAligner: finds the iteration of the job from which a new incarnation goes on.
//
// A run that is started again from a checkpoint repeats the iterations since that checkpoint, and
// sends nothing about it. The data order is the same, so that the log of the earlier incarnations
// has the lengths of its first iterations:
//
//   log            12 40 33  7 25 61 18 | killed here
//   new                       7 25 61 18 90 ...      => its first iteration is number 3, again
//
// A place counts when so many lengths in a row hardly agree by chance: from how often each length
// occurs, less than one such place in 1,000 is expected. The last of several places (the same order
// in each epoch) is taken, as checkpoints are recent. Without a place the incarnation goes on where
// the log ends.
//
// Threading: one thread at a time. Ownership: keeps the log until it is decided.
#ifndef DAEMON_JOBS_RESUME_ALIGNER_H_
#define DAEMON_JOBS_RESUME_ALIGNER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace seqpoint::jobs {

// The lengths of an iteration; absent when they are not known.
using KnownLengths = std::optional<std::pair<int64_t, int64_t>>;

class ResumeAligner {
 public:
  // The lengths of the iterations [begin, begin + log.size()).
  ResumeAligner(int64_t begin, std::vector<KnownLengths> log);

  // The next iteration of the new incarnation.
  void Add(const KnownLengths& lengths);

  bool decided() const { return decided_; }
  // Once decided: the number of the first iteration that was added; nothing: no repetition.
  std::optional<int64_t> first_number() const {
    return places_found_.empty() ? std::nullopt : std::optional(places_found_.back());
  }
  // ... and all numbers that it may have.
  const std::vector<int64_t>& places_found() const { return places_found_; }

  // It is decided after so many iterations at the latest.
  static constexpr size_t kMaxIterations = 64;

 private:
  struct Place {
    size_t index;  // in the log, of the first iteration
    double log_chance = 0;
  };
  void Decide(std::vector<int64_t> places_found);

  int64_t begin_;
  std::vector<KnownLengths> log_;
  std::map<std::pair<int64_t, int64_t>, double> log_share_;  // of a length, among the known ones
  std::vector<Place> places_;
  size_t added_ = 0;
  bool decided_ = false;
  std::vector<int64_t> places_found_;  // in ascending order
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RESUME_ALIGNER_H_
