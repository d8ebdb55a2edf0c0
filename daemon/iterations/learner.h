// IterationLearner: learns from one process' launch stream where an iteration starts and which
// early feature is its sequence length. The result is a rule that the injected library can follow.
//
//   IterationLearner learner;
//   learner.AddName(1, "embedding_forward");
//   learner.AddCall(call);                       // in sequence order
//   learner.AddGpuStart(correlation_id, start_ns);   // where stamps exist, any time
//   if (const LearnedRule* rule = learner.rule()) Publish(rule->rule);
//
// A call costs a few table look-ups. Now and then (in geometric steps of the stream's length) one
// call also pays for an analysis of the whole buffer, so that the average stays low. A rule is
// published when two analyses in a row agree on it. Method and limits:
// docs/internals/iteration-rules.md.
//
// The state is the calls themselves. They restore a learner when they are added again (the daemon's
// store keeps them while learning).
//
// Threading: one thread. Ownership: values only. Memory: at most LearnerOptions::max_calls calls of
// about 80 bytes, names and stamps bounded as well. No I/O and no clock: the same calls give the
// same rule.
#ifndef DAEMON_ITERATIONS_LEARNER_H_
#define DAEMON_ITERATIONS_LEARNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/iterations/launch_log.h"
#include "daemon/iterations/length_choice.h"
#include "daemon/iterations/loop.h"
#include "daemon/iterations/rule_choice.h"
#include "injection/abi/control.h"

namespace seqpoint::iterations {

struct LearnerOptions {
  size_t max_calls = 1 << 19;
  // Iterations that must have been seen before a rule is published.
  size_t min_iterations = 12;
  size_t min_iterations_nvtx = 10;  // when the boundary is an NVTX range or mark
  size_t min_marks = 4;             // when the job marks its iterations itself
  size_t min_steps = 12;            // when its framework marks them
  // When its lengths explain less than this (only noisy times could choose between them), more
  // steps are waited for: at most this many, and no longer than this time.
  double clear_lengths = 0.9;
  size_t more_steps = 64;
  uint64_t more_steps_ns = 120'000'000'000;
  // Calls that a loop of equal launches alone must have before it is taken for more than the time
  // steps of a long first iteration: where nothing else happens, and where something else was seen
  // too few times. A loop of fewer than kWholeNetwork different calls is never taken for more.
  uint64_t min_launch_only_calls = 1 << 18;
  uint64_t min_launch_only_calls_unsure = 1'500'000;
};

struct LearnedRule {
  abi::Rule rule{};            // complete, lengths included; generation 1
  double confidence = 0;       // in [0, 1]: probability that the boundaries are exact
  std::string boundary_words;  // "host-to-device copy of the batch"
  std::string evidence;        // why an iteration starts there
  std::string length_words;    // "bytes of the 2nd host-to-device copy / 512"
  LengthChoice lengths;
  FeatureTable features;
  Loop loop;  // where neither the job nor its framework marks iterations
  // These may be the layers or time steps of an iteration, and the stream does not show which.
  bool open = false;
  uint64_t iterations = 0;     // complete ones in the buffered stream
  uint32_t micro_batches = 1;  // per optimiser step
  bool evaluation_seen = false;
};

class IterationLearner {
 public:
  explicit IterationLearner(LearnerOptions options = {});

  void AddName(uint32_t id, std::string_view text) { stream_.AddName(id, text); }
  // True when the call completed an analysis, whether it found a rule or not.
  bool AddCall(const abi::CallRecord& call);
  // `start_ns`: GPU start of the copy, memset or graph that the call with this correlation id
  // caused. Unknown ids are kept for later calls; at most kMaxStamps are kept.
  void AddGpuStart(uint32_t correlation_id, uint64_t start_ns);

  // The published rule; null until there is one.
  const LearnedRule* rule() const { return published_ ? &*published_ : nullptr; }
  // The rule of the buffered stream as it is now, sure or not. Nothing when no loop is found, or
  // one of many loop iterations that may be the time steps of a single iteration. It serves at the
  // end of a short run, and to choose lengths again after late stamps.
  std::optional<LearnedRule> Analyse() const;

  // Why there is no rule yet, in one sentence; empty when there is one.
  std::string Explanation() const;

  const LaunchLog& stream() const { return stream_; }
  // Forgets calls and rule, keeps the names, and starts learning again.
  void Restart();

  static constexpr size_t kMaxStamps = 1 << 18;

 private:
  std::optional<LearnedRule> FindRule(size_t min_iterations,
                                      std::vector<ReplayedIteration>* iterations) const;
  void AddLengths(const std::vector<ReplayedIteration>& iterations, LearnedRule* learned) const;
  bool SameIterations(const abi::Rule& rule,
                      const std::vector<ReplayedIteration>& iterations) const;
  uint64_t Seen() const { return stream_.size() + stream_.dropped(); }
  bool MayBeTimeSteps(const LearnedRule& learned) const;
  bool MayTellMore(const LearnedRule& learned) const;
  bool Due() const { return Seen() >= next_analysis_; }
  void RunAnalysis();

  LearnerOptions options_;
  LaunchLog stream_;
  GpuStarts gpu_starts_;
  std::optional<LearnedRule> published_;
  std::optional<LearnedRule> last_found_;
  std::vector<uint64_t> last_starts_;  // sequence numbers of last_found_'s iterations
  // Calls that must have been seen for another analysis to confirm last_found_, and for the next
  // analysis.
  uint64_t confirm_at_ = 0;
  uint64_t next_analysis_;
  size_t marks_ = 0;
  size_t steps_ = 0;  // marks of a framework
};

}  // namespace seqpoint::iterations

#endif  // DAEMON_ITERATIONS_LEARNER_H_
