// Learning: finds the iterations of one process in its launch stream, until its library marks
// boundaries alone.
//
// The learner listens until it has a rule. The rule is published: the library now sends boundaries,
// and still its calls. The same matcher runs here over all calls since the start, which recovers
// the iterations before the rule was known. As soon as both have the same whole iteration (same
// boundary call, same step), the offset between the library's numbers and the job's is known, and
// calls are no longer needed:
//
//   calls    |b0....s0|b1....s1|b2....s2|b3....s3|        our matcher, job numbers
//   library                 rule ^   |b0'...s0'|b1'...     its matcher, numbers from 0
//                                     same call => offset 3
//
// Threading: one thread at a time. Ownership: keeps the calls (64 bytes each) while it learns, at
// most kMaxCalls of them.
#ifndef DAEMON_JOBS_LEARNING_H_
#define DAEMON_JOBS_LEARNING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/learner.h"
#include "daemon/jobs/iteration_builder.h"
#include "daemon/jobs/state.pb.h"
#include "injection/abi/matcher.h"

namespace seqpoint::jobs {

using iterations::LearnedRule;

// Hands one event of the lane to the builder, its iteration number raised by `offset`. False when
// the payload is too short or the type is not the builder's.
bool FeedBuilder(abi::EventType type, absl::Span<const uint8_t> payload, int64_t offset,
                 IterationBuilder& builder);

class Learning {
 public:
  void OnName(uint32_t name_id, std::string_view text);
  void OnCall(const abi::CallRecord& call);
  void OnGpuStart(uint32_t correlation_id, uint64_t start_ns);
  // Boundary, decision, micro-batch, step, clock or sync of the library; kept until both sides
  // agree.
  void OnLibraryEvent(abi::EventType type, absl::Span<const uint8_t> payload);

  // The job's number of this process' first iteration. Before the first call.
  void SetFirstNumber(int64_t number) { state_.set_first_number(number); }

  // The learner's rule, once it is sure enough; null before, and when the rule was given.
  const LearnedRule* learned() const;

  // Whether `rule` finds iterations in the later half of the calls, and more than half of them with
  // the rule's micro-batches.
  bool Fits(const abi::Rule& rule) const;

  // Since it learned a rule, half as many calls came as before, and other processes may be expected
  // to have learned theirs.
  bool waited() const;

  // The rule to verify: ours, or one that another process of the job learned.
  void SetRule(const abi::Rule& rule);

  // Once both sides agree: hands everything so far to `builder`, in the job's numbers, and returns
  // the offset for the library's later events. This object is then done.
  std::optional<int64_t> Agree(IterationBuilder& builder);

  // The process ended before that: hands over what our own matcher saw.
  void Finish(IterationBuilder& builder);

  // Calls are missing: the number of the first iteration behind the last gap; it and all later
  // ones are too small by what is unknown. Nothing: the process was heard from its start on.
  std::optional<int64_t> after_hole() const { return after_hole_; }

  // Under the rule, the calls so far hold a whole iteration.
  bool iterates() const { return iterations_ > 0; }

  // The rule of the calls so far, sure or not: for a run that ended before the learner was sure.
  std::optional<LearnedRule> Analyse() const;

  bool has_calls() const { return !calls_.empty(); }
  // False when learning was given up: no rule in kMaxCalls calls.
  bool wants_calls() const { return !gave_up_; }
  // Why there is no rule; empty when there is one.
  std::string Explanation() const;

  // With the queued library events; the calls are in the store's learn log.
  const LearningState& state() const { return state_; }
  void Load(const LearningState& state) { state_ = state; }

  static constexpr size_t kMaxCalls = 2'000'000;  // 128 MB
  static constexpr int kMaxLibraryEvents = 1 << 14;

 private:
  void Segment(const abi::CallRecord& call);
  // All calls so far; `first`: as iterations::FirstCall says.
  void SegmentAll(const abi::Rule& rule, std::optional<size_t> first);
  void FindFirstCall();

  iterations::IterationLearner learner_;
  iterations::NameTable names_;
  std::vector<abi::CallRecord> calls_;
  size_t learned_at_ = 0;  // calls of which the learner made its rule
  bool has_rule_ = false;
  bool gave_up_ = false;
  // Since the last boundary calls are missing, or nothing was watched for a while.
  bool hole_ = false;
  std::optional<int64_t> after_hole_;
  bool first_call_known_ = false;      // FindFirstCall was done
  uint32_t boundary_thread_ = 0;       // of the last boundary
  std::optional<uint64_t> last_call_;  // its sequence number
  uint64_t iterations_ = 0;            // whole ones of our matcher
  abi::Matcher matcher_;
  google::protobuf::RepeatedPtrField<MatchedEvent> ours_;  // of our matcher, job numbers
  LearningState state_;  // its events are of the library's matcher, with its numbers
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_LEARNING_H_
