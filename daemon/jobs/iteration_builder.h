// IterationBuilder: turns the matcher's events of one process (boundary candidates, decisions,
// steps, clock marks) and GPU stamps into finished iterations.
//
//   builder.OnBoundary(event); builder.OnClock(clock); builder.OnStep(step);   // in lane order
//   builder.OnGpuStart(correlation_id, start_ns);                              // any time later
//   for (const FinishedIteration& iteration : builder.TakeFinished()) ...
//
// An iteration lasts from its begin (the last candidate before its step) to the next candidate,
// which may open an evaluation phase. Its time is the difference of the GPU stamps of the two,
// since the CPU may run far ahead; where a stamp never comes, the difference of API stamps is used
// if the host waited for the GPU in this iteration and in the one before. Where it waits only now
// and then (it reads the loss in each tenth iteration), the times of single ones stay unknown, and
// the last of a stretch says what all of it took together, from the first candidate that a wait
// came before to the next such. The last iteration of a process has no end. Where the host does the
// work itself, its time is known until its step, and at most `rest_ns` is missing at either end of
// the process: behind the last step (reading a loss) and before the first boundary (fetching a
// batch).
//
// Where the system's clock was set, the iteration and its neighbours have no time and are
// distorted, and so are those that still waited for stamps: the GPU may have been busy with one of
// them.
//
// Threading: one thread. Ownership: values only. Memory: bounded by kMaxPending iterations,
// kMaxStamps stamps and kMaxClockSteps steps, whatever arrives.
#ifndef DAEMON_JOBS_ITERATION_BUILDER_H_
#define DAEMON_JOBS_ITERATION_BUILDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "injection/abi/records.h"

namespace seqpoint::jobs {

struct FinishedIteration {
  uint64_t number = 0;  // as the matcher counted it
  int64_t length[2] = {0, 0};
  uint32_t valid = 0;       // bit i: length[i] is known
  int64_t boundary_ns = 0;  // API time of the boundary
  int64_t start_ns = 0;     // GPU stamp where known
  int64_t duration_ns = 0;  // 0: unknown
  int64_t rest_ns = 0;      // of one that is known until its step: the most that is missing
  uint64_t call_sequence = 0;
  uint16_t config_id = 0;  // measurement taken
  uint32_t micro_batches = 1;
  // Where `length` is their sum: each micro-batch's own lengths; empty where one is not known.
  std::vector<std::array<int64_t, 2>> micro_lengths;
  bool distorted = false;
  bool gpu_time = false;  // duration is from GPU stamps
  bool ended = true;      // another candidate came; false of the last one of a process
  // More than 0: so many iterations without a time, this one the last, took so much together.
  uint32_t stretch = 0;
  int64_t stretch_ns = 0;
  // What ran between the end of the iteration before and this one's begin: an evaluation phase.
  uint32_t other_batches = 0;
  int64_t other_duration_ns = 0;
};

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

  // The process is gone: what waits for stamps is finished as it is. `begun_counts`: so does the
  // iteration that has begun, without a step of its own.
  void Finish(bool begun_counts = false);
  // Another matcher's events come from here on.
  void Reset() { state_ = {.clock_steps = std::move(state_.clock_steps)}; }

  // Finished since the last call, in order.
  std::vector<FinishedIteration> TakeFinished();

  // Number of the open iteration, or of the one to come.
  int64_t next_number() const { return static_cast<int64_t>(state_.number); }
  // Something has begun that may be an iteration, and has had no step.
  bool has_begun() const { return state_.has_begin; }

  // Iterations whose boundary or step was lost with the ring; counted, never guessed.
  uint64_t lost_iterations() const { return lost_iterations_; }

  // Everything above as plain values, for the store.
  struct Candidate {
    uint64_t api_ns = 0;
    uint64_t call_sequence = 0;
    uint32_t correlation_id = 0;
    int64_t gpu_ns = 0;   // 0: not known yet
    bool waited = false;  // the host waited for the GPU since the candidate before
  };
  struct Pending {
    FinishedIteration iteration;
    Candidate begin;
    Candidate end;
    Candidate other;         // first candidate after the previous step, when it is not the begin
    uint64_t step_ns = 0;    // API time of its step
    bool host_time = false;  // the host does the work itself
    uint32_t micro_valid = ~0u;  // lengths that all micro-batches so far have
    bool has_end = false;
    bool clock_set = false;  // while it waited for stamps
  };
  // Watched calls (BoundaryEvent::call_sequence) between which the system's clock was set.
  struct ClockStep {
    uint64_t first_call = 0, last_call = 0;
  };
  struct State {
    bool has_number = false;
    uint64_t number = 0;  // of the open iteration
    bool has_begin = false;
    Candidate begin;
    Candidate other;
    uint32_t candidates = 0;   // since the last step
    uint32_t early_clock = 0;  // correlation id of a clock event between step and first candidate
    Pending open;              // lengths, config and flags gathered for the open iteration
    bool waited = false;       // the host, since the last candidate
    bool host_time = false;
    // Where the host does the work itself: the longest time from a step to the next iteration; the
    // time of the first iteration, and of the others.
    uint64_t longest_rest_ns = 0, first_ns = 0, others = 0, others_ns = 0;
    std::deque<Pending> pending;
    uint64_t lost_iterations = 0;
    // Finished iterations that may become a stretch: where the first begins (0: there are none),
    // the number of the next one, and how many they are.
    uint64_t stretch_begin_ns = 0, stretch_next = 0;
    uint32_t stretch = 0;
    std::deque<ClockStep> clock_steps;  // the last kMaxClockSteps
  };
  State SaveState() const;
  void LoadState(State state);

  // Iterations that wait for stamps: at least so many and so long, and never more than the last.
  static constexpr size_t kMinPending = 64;
  static constexpr uint64_t kPatienceNs = 5'000'000'000;
  static constexpr size_t kMaxPending = 1 << 14;
  static constexpr size_t kMaxUnstamped = 4;  // when no clock event came at all
  static constexpr size_t kMaxStamps = 1 << 16;
  static constexpr size_t kMaxMicroBatches = 64;
  static constexpr uint32_t kMaxStretch = 4096;
  static constexpr size_t kMaxClockSteps = 16;

 private:
  void Close(const Candidate& end);
  void DropUnended();
  int64_t LongestRest() const;
  void Resolve(bool give_up);
  void NoteStretch(const Pending& done, FinishedIteration& iteration);
  bool ClockSetBetween(const Candidate& begin, const Candidate& end) const;
  int64_t StampOf(uint32_t correlation_id) const;

  State state_;
  uint64_t lost_iterations_ = 0;
  std::vector<FinishedIteration> finished_;
  std::unordered_map<uint32_t, int64_t> stamps_;
  std::deque<uint32_t> stamp_order_;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_ITERATION_BUILDER_H_
