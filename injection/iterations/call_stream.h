// The stream of the application's calls: learn records, the matcher, and what follows from it:
// iteration events, the plan, and the switching of levels.
//
// Every watched call of any thread passes OnCall. Under one short lock it takes its number and goes
// through the matcher; events of an iteration are written there, in order. What needs CUPTI (a
// window, a counter range, a new level) is done after the lock is released, by the thread that met
// the boundary, one thread at a time (`acting_`): the lock is never held across a CUDA or CUPTI
// call, so no thread is ever kept from launching by another one that waits for the GPU.
//
// Cost: at *learn* a call takes one clock read, one ring record and two atomic exchanges; at *mark*
// only the operations that the rule names get here at all.
//
// Threading: any thread. Ownership: refers to the Guest's other parts.
#ifndef SEQPOINT_INJECTION_ITERATIONS_CALL_STREAM_H_
#define SEQPOINT_INJECTION_ITERATIONS_CALL_STREAM_H_

#include <cuda.h>
#include <stdint.h>

#include <atomic>

#include "injection/abi/control.h"
#include "injection/abi/matcher.h"
#include "injection/base/system.h"
#include "injection/cupti/activity.h"
#include "injection/iterations/plan.h"
#include "injection/iterations/step_watch.h"
#include "injection/iterations/wait_watch.h"
#include "injection/ring/writer.h"

namespace seqpoint::inject {

// One call of the application.
struct Call {
  abi::Op op;
  uint8_t flags;         // abi::CallFlags
  uint16_t context_uid;  // CUPTI's number of the context; 0: not a CUDA call
  uint32_t correlation_id;
  const char* name;  // null: none
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint64_t stream;
  uint64_t event;  // recorded, or waited for
  uint64_t bytes;
  uint64_t begin_ns;  // 0: read the clock when it is needed
  uint64_t end_ns;    // of a call that blocked the host; else 0
  CUcontext context;  // null: not a CUDA call
};

class CallStream {
 public:
  explicit CallStream(const injection::RingWriter* ring) : control_(ring) {}

  // What of CUPTI is ours. Records only: another tool keeps the one subscription to itself, but has
  // stopped recording; then no calls are seen.
  enum class Hold : uint8_t { kNothing, kRecords, kAll };

  // Begins at level *learn*. `hold`: for the benchmark, which plays CUPTI itself.
  static constexpr uint32_t kDefaultFlushMs = 100;
  void Start(Hold hold = Hold::kNothing);

  // Is this operation of interest now? One relaxed load: the price of a call that is not.
  bool Watches(abi::Op op) const {
    return (watched_.load(std::memory_order_relaxed) >> static_cast<uint32_t>(op) & 1) != 0;
  }
  bool learning() const { return learning_.load(std::memory_order_relaxed); }

  void OnCall(const Call& call);
  // A blocking copy, already reported by OnCall, returned.
  void OnBlocked(const Call& call);
  // Stream captures under way in the process: nothing of ours may synchronise then.
  void OnCaptureBegin(CUcontext context);
  void OnCaptureEnd();
  uint32_t captures() const { return captures_.load(std::memory_order_relaxed); }
  // The same, and for a second after CUPTI was another's: captures may have begun that nobody saw.
  bool may_capture() const;
  // Measuring has held captures up for too long, too often.
  bool HoldsCaptures() const {
    return captures_held_.load(std::memory_order_relaxed) >= kMostCapturesHeld;
  }
  // For the thread that meets an event.
  bool GraphsAreHidden() const;
  // A context is about to go: ends an open measurement while that is still possible.
  void OnContextDestroy(CUcontext context);

  // Called by the helper thread now and then: applies what the daemon wants when no boundary comes
  // by, and falls back to *mark* while the daemon gives no sign of life.
  void Tick();
  // Gives CUPTI back to the process: nothing is recorded, nobody subscribes. `may_wait`: the
  // calling thread is one of the application's and may wait for the GPU. False: another thread
  // acts, or something of ours is under way; try again.
  bool ReleaseCupti(bool may_wait);
  // Takes it, unless the program or the daemon wants it left alone, or another tool has it: hold()
  // tells. False: another thread acts; try again.
  bool TakeCupti(bool may_wait);
  Hold hold() const { return hold_.load(); }
  // Asks the driver something, unless CUPTI is somebody else's: such calls would be in that tool's
  // trace. False: not now.
  template <typename Ask>
  bool AskDriver(const Ask& ask) {
    if (!BeginActing()) return false;
    const bool ours = hold() != Hold::kNothing;
    if (ours) ask();
    EndActing();
    return ours;
  }
  // False: another tool ended CUPTI behind our back, and TakeCupti may take it anew.
  bool StillHeld();
  // CUPTI may be there for us later: nobody tried yet, or another tool had it.
  bool may_be_had() const { return may_be_had_.load(std::memory_order_relaxed); }
  bool stopped() {
    LockGuard lock(&lock_);
    return stopped_;
  }
  // Stops watching, for good: orderly exit, end of CUPTI. Ends an open measurement as aborted.
  void Stop();

  // Events so far whose activity records the daemon waits for.
  uint64_t clocked() const { return clocked_.load(std::memory_order_relaxed); }
  uint32_t flush_interval_ms() const { return flush_interval_ms_.load(std::memory_order_relaxed); }
  // The daemon wants CUPTI released; only the helper thread can do that.
  bool release_wanted() const { return release_.load(std::memory_order_relaxed); }
  // Tells the daemon what watching took so far, if it took more. `callback_ns`: of a call.
  void ReportCost(uint32_t callback_ns);
  // Tells the daemon when the system's clock was set; boundaries look for themselves.
  void CheckClock();
  // Tells the daemon which iterations may be evaluation, if any. Again and again, as the ring may
  // be full; what was told is not told twice.
  void ReportEvaluation();
  // Is there a measurement of counters, or does an entry of the plan want one that can be had?
  bool WantsCounters();
  // Shall the operators of the open iteration be recorded? Answers how many lengths it has, and
  // writes them; kNotWanted: no, or its lengths are not known yet.
  static constexpr int kNotWanted = -1;
  int WantsOperators(int64_t length[2]);
  // The time of the open iteration is of no use: somebody slows it down.
  void Distort();
  // Copies the metric configurations of the control block; returns their generation.
  uint32_t CopyConfigs(abi::MetricConfig configs[abi::kMaxConfigs], abi::CounterBackend* backend);

 private:
  enum class Kind : uint8_t { kNone, kTrace, kCounters };
  // When the lengths of an iteration are known, seen from the work of the GPU.
  enum class Decided : uint8_t { kUnknown, kBeforeWork, kAfterWork };
  struct Measurement {
    Kind kind;
    bool ahead;     // opened before the lengths were known
    bool chosen;    // its lengths are known and wanted
    bool stepped;   // its optimiser step was seen
    bool unwanted;  // the lengths turned out not to be wanted
    bool kernels;   // counters of single kernels
    bool captured;  // a stream capture ended it
    uint16_t config_id;
    uint32_t valid;
    uint64_t iteration;
    uint64_t begin_ns;
    uint64_t stopped_ns;
    uint64_t usual_ns;  // how long the iteration before it took
    int64_t length[2];
    Activity::Seen seen;  // when the window was opened
    abi::PlanEntry entry;
  };
  // What the thread that met an event does after it released the lock.
  struct Todo {
    bool close;
    bool open;
    bool poll;
    bool boundary;  // the iteration begins with this very call
    bool any() const { return close || open || poll; }
  };

  void EndUnwatched(const Call& call, const abi::MatchEvent& event, uint64_t sequence, Todo* todo);
  void CountStep();
  bool WatchesSteps() const;
  void OnMatched(const Call& call, uint64_t sequence, uint32_t flags, Todo* todo);
  bool WaitedForWork(const Call& call) const;
  void NoteClock(uint64_t call);
  void WriteSync(abi::Op op, uint64_t begin_ns, uint64_t end_ns);
  void Decide(const abi::MatchResult& result, uint32_t flags, Todo* todo);
  void LearnWhenDecided(bool boundary);
  bool ChooseAhead(const int64_t length[2], uint32_t valid);
  const abi::PlanEntry* EntryAhead();
  void BeginRule(const abi::Rule& rule);
  void EndMeasurement(Todo* todo);
  void WriteDecision(const abi::MatchResult& result, uint64_t now_ns, uint16_t config_id);
  void WriteWindow(const Measurement& measurement, uint64_t end_ns, uint32_t status);
  void Act(const Call* call, const Todo& todo);
  void Open(const Call* call);
  void WatchLaunches();
  void Close(CUcontext known);
  void ReportFailure(uint32_t status);
  uint32_t NextRandom();
  uint32_t WantedOps() const;
  bool BeginActing();
  void EndActing();
  void ApplyControl(bool on_application_thread, bool at_boundary = false);
  void SwitchWatching(bool on_application_thread);
  uint32_t WantedKinds() const;
  void TakeNow(bool may_wait);
  void NoteStandDown(bool down);
  void BeginStandDown(uint64_t since_ns);
  uint64_t AwaitActing();
  void DropMeasurement();
  void WriteStandDown(uint64_t end_ns);
  uint32_t KindsOfTrace() const;
  bool NamesLaunches() const;
  abi::Level WantedLevel() const;

  SpinLock lock_;
  // Guarded by lock_.
  abi::Matcher matcher_;
  Plan plan_;
  Measurement measurement_ = {};
  bool acting_ = false;
  bool acting_too_long_ = false;  // a capture gave up waiting for it
  bool after_hole_ = false;       // the next call is the first after nothing was watched
  bool distorted_ = false;        // something was switched in the open iteration
  bool first_decision_ = false;   // the open candidate has none yet
  int operators_ = kNotWanted;    // lengths of the open iteration, if its operators are wanted
  int64_t operators_length_[2] = {};
  bool stopped_ = false;
  abi::Level level_ = abi::Level::kOff;
  uint64_t calls_ = 0;
  uint64_t calls_at_[4] = {};  // by level: learn, mark, trace
  uint64_t held_ns_ = 0;       // how long we held the application since the last boundary
  uint64_t boundary_monotonic_ns_ = 0;
  uint64_t boundary_ns_ = 0;   // API time of the last boundary
  uint64_t iteration_ns_ = 0;  // between the last two
  uint64_t ticked_calls_ = 0;
  uint64_t polled_ns_ = 0;
  Decided decided_ = Decided::kUnknown;
  Decided probed_ = Decided::kUnknown;  // of the last iteration
  uint32_t decided_probes_ = 0;         // iterations in a row that were like it
  bool worked_ = false;                 // work reached the GPU since the candidate
  uint32_t ahead_backoff_ = 0;          // most iterations to wait after a window that nobody wanted
  uint32_t ahead_wait_ = 0;
  uint64_t ahead_not_before_ns_ = 0;
  uint32_t random_ = 0;
  StepWatch step_watch_;
  WaitWatch wait_watch_;
  uint32_t boundary_thread_ = 0;  // that met the last boundary; 0: none did
  uint64_t doubtful_until_ = 0;   // an iteration without a step came behind this one; 0: none did
  bool steps_watched_ = false;    // since the last boundary
  bool stepped_ = false;          // since the last boundary
  bool orphaned_ = false;         // no sign of the daemon for 2 s

  // Used only by the thread that has acting_.
  injection::ControlReader control_;
  Measurement closing_ = {};
  abi::Control incoming_ = {};
  abi::Control wanted_ = {};
  uint32_t applied_kinds_ = 0;
  uint64_t stand_down_ns_ = 0;  // since when; 0: not
  char holder_[64] = {};        // for whom
  bool anothers_ = false;       // CUPTI was refused to us, at some time
  bool early_graphs_ = false;   // there may be some, of a time when graphs were not recorded
  bool stood_down_ = false;     // since CUPTI was ours: who had it may keep its subscription

  SpinLock configs_lock_;
  abi::MetricConfig configs_[abi::kMaxConfigs] = {};
  abi::CounterBackend backend_ = abi::CounterBackend::kRange;
  uint32_t configs_generation_ = 0;

  uint64_t reported_calls_ = 0;  // helper thread: of ReportCost
  std::atomic<bool> may_be_had_{true};
  std::atomic<Hold> hold_{Hold::kNothing};  // changed by the thread that has acting_
  std::atomic<uint32_t> watched_{0};        // bit per Op
  std::atomic<bool> learning_{false};
  std::atomic<bool> matching_{false};  // there is a rule
  std::atomic<uint32_t> captures_{0};
  static constexpr uint32_t kMostCapturesHeld = 3;
  std::atomic<uint32_t> captures_held_{0};   // that waited in vain
  std::atomic<bool> captured_{false};        // there was a capture
  std::atomic<uint64_t> blind_until_ns_{0};  // monotonic; captures are not known before
  std::atomic<bool> release_{false};
  std::atomic<uint64_t> clocked_{0};
  std::atomic<uint32_t> flush_interval_ms_{kDefaultFlushMs};
  uint64_t start_monotonic_ns_ = 0;
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_CALL_STREAM_H_
