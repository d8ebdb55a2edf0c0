// Which iterations are measured: takes, keeps or refuses a measurement as an iteration's boundary,
// lengths and step come. It decides only; MeasurementBorders does what is decided.
//
// A window must hold all of the iteration's work. It opens at the boundary, at a decision that
// comes before any work, or speculatively, ahead of the decision, and is then given up if nobody
// wants the lengths. An iteration that is wanted by its number is traced from its boundary on.
//
// Threading: IterationState's lock, but for WantsCounters and WantsOperators, which take it, and
// for closing(), which belongs to the thread that has the SwitchToken.
#ifndef SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_WINDOW_H_
#define SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_WINDOW_H_

#include <stdint.h>

#include "injection/abi/control.h"
#include "injection/abi/matcher.h"
#include "injection/cupti/activity_decoder.h"
#include "injection/iterations/decision_timing.h"
#include "injection/iterations/plan.h"
#include "injection/iterations/speculative_window.h"
#include "injection/iterations/state.h"

namespace seqpoint::inject {

struct Measurement {
  enum class Kind : uint8_t { kNone, kTrace, kCounters };
  Kind kind;
  bool speculative;  // opened before the lengths were known
  bool chosen;       // its lengths are known and wanted
  bool stepped;      // its optimiser step was seen
  bool unwanted;     // the lengths turned out not to be wanted
  bool kernels;      // counters of single kernels
  bool captured;     // a stream capture ended it
  uint64_t iteration;
  uint64_t begin_ns;
  uint64_t stopped_ns;
  uint64_t usual_ns;  // how long the iteration before it took
  int64_t length[2];
  ActivityDecoder::Seen seen;  // when the window was opened
  abi::PlanEntry entry;
};

// Which configurations can be measured.
class Readiness {
 public:
  // A measurement can begin now.
  virtual bool CanBegin(uint16_t config_id) = 0;
  // Counters can be had, when nothing else is under way.
  virtual bool CanCount(uint16_t config_id) = 0;
  // Its values are those of single kernels.
  virtual bool OfKernels(uint16_t config_id) = 0;

 protected:
  ~Readiness() = default;
};

class MeasurementWindow {
 public:
  using Kind = Measurement::Kind;

  MeasurementWindow(IterationState* state, Readiness* readiness)
      : state_(state), readiness_(readiness) {}

  void BeginRule(const abi::Rule& rule);
  void ApplyPlan(const abi::Control& control);

  // In the order in which a call may mean several of them. `may_switch`: nobody has the
  // SwitchToken, and no stream is being captured. True: the step told the lengths, and they are
  // wanted.
  bool OnStep(const abi::MatchResult& result);
  void OnBoundary(bool may_switch, DeferredActions* actions);
  // At a boundary or a decision (abi::MatchedFlags).
  void Decide(const abi::MatchResult& result, uint32_t flags, uint64_t now_ns, bool may_switch,
              DeferredActions* actions);
  void OnWork() { timing_.OnWork(); }

  bool open() const { return open_.kind != Kind::kNone; }
  Kind kind() const { return open_.kind; }
  bool of_kernels() const { return open_.kernels; }
  uint16_t config_id() const { return open_.entry.config_id; }
  // The iteration is measured, and its lengths are wanted.
  bool Measures(uint64_t iteration) const {
    return open() && open_.chosen && open_.iteration == iteration;
  }
  // The moment at which lengths are known is not known yet: work must be watched.
  bool probing() const { return timing_.probing() && state_->matcher.rule().length_count > 0; }

  // The measurement is worthless.
  void Spoil() { open_.unwanted = true; }
  void SpoilByCapture() { open_.captured = true; }
  // Hands the open measurement to the thread that closes it.
  void End(DeferredActions* actions);
  // The open measurement is given up, and nothing is called for it.
  void Drop();
  // The same for the last measurement of the process: nobody closes it.
  void Abort();
  Measurement* closing() { return &closing_; }

  // For MeasurementBorders: the window was opened.
  void OnOpened(uint64_t begin_ns, uint64_t end_ns, const ActivityDecoder::Seen& seen);
  // closing() came to nothing at `end_ns`.
  void OnFailed(uint64_t end_ns);

  // Is there a measurement of counters, or does an entry of the plan want one that can be had?
  bool WantsCounters() const;
  // Shall the operators of the open iteration be recorded? Answers how many lengths it has, and
  // writes them; kNotWanted: no, or its lengths are not known yet.
  static constexpr int kNotWanted = -1;
  int WantsOperators(int64_t length[2]) const;

 private:
  bool ChooseSpeculative(const int64_t length[2], uint32_t valid);
  const abi::PlanEntry* ChooseEntry(const abi::MatchResult& result, bool boundary, bool first,
                                    uint64_t now_ns, bool* speculative);

  IterationState* const state_;
  Readiness* const readiness_;
  Plan plan_;
  uint64_t traced_iteration_ = 0;  // as in abi::Control
  DecisionTiming timing_;
  SpeculativeWindow speculative_;
  Measurement open_ = {};
  Measurement closing_ = {};
  int operators_ = kNotWanted;  // lengths of the open iteration, if its operators are wanted
  int64_t operators_length_[2] = {};
};

}  // namespace seqpoint::inject

#endif  // SEQPOINT_INJECTION_ITERATIONS_MEASUREMENT_WINDOW_H_
