// IterationBuilder: makes finished iterations of the matcher's events of one process (boundary
// candidates, decisions, steps, clock marks) and of GPU stamps.
//
//   builder.OnBoundary(event); builder.OnClock(clock); builder.OnStep(step);   // in lane order
//   builder.OnGpuStart(correlation_id, start_ns);                              // any time later
//   for (const FinishedIteration& iteration : builder.TakeFinished()) ...
//
// Start and end. An iteration starts at the last candidate before its step. It ends at the next
// candidate, which may open an evaluation phase. The last iteration of a process has no end.
//
// Time. The CPU may run far ahead of the GPU, so the time is the difference of the two GPU stamps.
// Where a stamp never comes, the difference of the API stamps is used if the host waited for the
// GPU in this iteration and in the one before.
//
// Stretches. Some programs wait only now and then, for example to read the loss in each tenth
// iteration. Their single iterations have no time. The last iteration of a stretch has the time of
// the whole stretch, which lasts from one candidate that follows a wait to the next one.
//
// Host times. Where the host does the work itself, the last iteration has a time until its step. At
// most `rest_ns` is missing: after the last step (reading a loss) and before the first boundary
// (fetching a batch).
//
// Clock steps. Where the system's clock was set, the iteration and its neighbours have no time and
// are distorted. So are the iterations that still waited for stamps: the GPU may have been busy
// with one of them.
//
// Threading: one thread. Ownership: values only. Memory: bounded by kMaxPending iterations,
// kMaxStamps stamps and kMaxClockSteps steps, whatever arrives.
#ifndef DAEMON_JOBS_ITERATION_BUILDER_H_
#define DAEMON_JOBS_ITERATION_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "daemon/jobs/state.pb.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

class IterationBuilder {
 public:
  void OnBoundary(const abi::BoundaryEvent& event);
  void OnDecision(const abi::DecisionEvent& event);
  void OnClock(const abi::ClockEvent& event);
  void OnMicroBatch(const abi::MicroBatchEvent& event);
  void OnStep(const abi::StepEvent& event);
  void OnSync(const abi::SyncEvent& event);
  // May come before or after the boundaries on either side of it.
  void OnClockStep(const abi::ClockStepEvent& event);
  void OnGpuStart(uint32_t correlation_id, uint64_t start_ns);

  // The process is gone: iterations that wait for stamps are finished without them. `open_counts`:
  // the open iteration counts, too, though it had no step.
  void Finish(bool open_counts = false);
  // The events of another matcher follow.
  void Reset();

  // One that another daemon built, the next one of its process.
  void Add(FinishedIteration iteration);
  // Finished since the last call, in order.
  std::vector<FinishedIteration> TakeFinished();

  // Number of the open iteration, or of the one to come.
  int64_t next_number() const { return static_cast<int64_t>(state_.number()); }
  // A candidate came, and no step after it.
  bool has_begun() const { return state_.has_start(); }

  // Iterations whose boundary or step was lost with the ring. Their time is not guessed.
  uint64_t lost_iterations() const { return state_.lost_iterations(); }

  // With the stamps that arrived.
  BuilderState Save() const;
  void Load(const BuilderState& state);

  // An iteration waits for stamps until kMinPending others and kPatienceNs have passed, and never
  // longer than kMaxPending others.
  static constexpr size_t kMinPending = 64;
  static constexpr uint64_t kPatienceNs = 5'000'000'000;
  static constexpr size_t kMaxPending = 1 << 14;
  static constexpr size_t kMaxUnstamped = 4;  // when no clock event came at all
  static constexpr size_t kMaxStamps = 1 << 16;
  static constexpr size_t kMaxMicroBatchs = 64;
  static constexpr uint32_t kMaxStretch = 4096;
  static constexpr int kMaxClockSteps = 16;

 private:
  // The open iteration has no start, or no number that follows: it is dropped.
  void DropOpen();
  void DropUnended();
  void Close(const BoundaryCandidate& end);
  int64_t LongestRest() const;
  void Resolve(bool give_up);
  void SetTimes(const PendingIteration& done, bool complete, FinishedIteration& iteration) const;
  void NoteStretch(const PendingIteration& done, FinishedIteration& iteration);
  bool ClockSetBetween(const BoundaryCandidate& start, const BoundaryCandidate& end) const;
  void Stamp(PendingIteration& pending) const;
  void Stamp(BoundaryCandidate* candidate) const;

  BuilderState state_;  // without its pending iterations
  std::deque<PendingIteration> pending_;
  std::vector<FinishedIteration> finished_;
  std::unordered_map<uint32_t, int64_t> stamps_;
  std::deque<uint32_t> stamp_order_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ITERATION_BUILDER_H_
