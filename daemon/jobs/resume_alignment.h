// ResumeAlignment: buffers the first iterations of a process until it is known which iterations of
// its rank they repeat, if any (ResumeAligner).
//
// Threading: one thread at a time. Ownership: the buffered iterations and the log.
#ifndef DAEMON_JOBS_RESUME_ALIGNMENT_H_
#define DAEMON_JOBS_RESUME_ALIGNMENT_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/resume_aligner.h"
#include "daemon/jobs/state.pb.h"

namespace seqpoint::jobs {

class ResumeAlignment {
 public:
  // Iterations; the log comes with the next commit, which a full ring may delay.
  static constexpr size_t kMostWithoutLog = 4096;
  // A daemon that comes late reads full rings, one after the other: rank 0 may be 60 iterations
  // behind rank 2. A rank without iterations is said not to fit after about as many, too.
  static constexpr size_t kMostUnmatched = 512;

  // `dimensions` of a length, here and below; 0: lengths are not known.
  void Add(const FinishedIteration& iteration, int dimensions);

  // The lengths of the rank's iterations [begin, begin + log.size()).
  void SetLog(int64_t begin, std::vector<KnownLengths> log, int dimensions);
  bool has_log() const { return aligner_.has_value(); }

  bool buffers() const { return !buffered_.empty(); }
  // A log that the store is slow to give is waited for, and so are the collectives of other ranks
  // in the first iterations that the library marked, by which ranks that were heard late are set
  // beside each other.
  bool full(const ProcessState& process) const;
  bool decided() const { return aligner_ && aligner_->decided(); }
  // How many iterations the process did again; nothing while it is not decided, or for none.
  std::optional<int64_t> Repeated() const;
  std::vector<int64_t> Places() const;  // ResumeAligner::places_found()

  // It is over. Returns the buffered iterations.
  std::vector<FinishedIteration> End();

  const std::vector<FinishedIteration>& buffered() const { return buffered_; }
  void Load(std::vector<FinishedIteration> buffered) { buffered_ = std::move(buffered); }

 private:
  void Feed(const FinishedIteration& iteration, int dimensions);

  std::vector<FinishedIteration> buffered_;
  std::optional<ResumeAligner> aligner_;  // once the log is there
  std::optional<uint64_t> fed_to_;        // number of the last iteration that the aligner has
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RESUME_ALIGNMENT_H_
