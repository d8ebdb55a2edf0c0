// AnswerCache: what was made of a job to answer questions, for as long as it holds.
//
//   copy      of what the job knows, shared by all who ask until something changes
//   summary   the expensive part of a description; it is made again when the job has grown by a
//             256th, when it ended, or when figures do not hold any more
//
// Threading: one thread at a time. Ownership: keeps the copy and the summary; `changes` outlives
// it.
#ifndef DAEMON_JOBS_ANSWER_CACHE_H_
#define DAEMON_JOBS_ANSWER_CACHE_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "daemon/jobs/answers.h"
#include "daemon/jobs/change_tracker.h"

namespace seqpoint::jobs {

class AnswerCache {
 public:
  using Collect = absl::FunctionRef<Answers::Facts()>;

  explicit AnswerCache(const ChangeTracker& changes) : changes_(changes) {}

  std::shared_ptr<const Answers> Copy(Collect collect);

  // The copy of which somebody else makes the summary, without the daemon's lock; null when none is
  // due, or one is under way.
  std::shared_ptr<const Answers> TakeDue(uint64_t iterations, bool live, Collect collect);
  void Set(const Answers::Summary& summary);

  // While one is under way a live job has the one before.
  const Answers::Summary& Recent(uint64_t iterations, bool live, Collect collect);

 private:
  bool Due(uint64_t iterations, bool live) const;
  bool holds() const { return summary_figures_ == changes_.figures(); }

  const ChangeTracker& changes_;
  std::shared_ptr<const Answers> copy_;
  int64_t copy_knowledge_ = 0;  // ChangeTracker::knowledge() then
  Answers::Summary summary_;
  int64_t summary_figures_ = 0;  // ChangeTracker::figures() then; 0: there is no summary
  bool under_way_ = false;
  int64_t under_way_figures_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ANSWER_CACHE_H_
