// RunEngine: the engine of a job whose rule may change.
//
// The keys of an engine belong to one rule. When another rule is learned, the engine is closed: its
// iterations stay part of the run so far, and a new engine with keys of its own projects the rest.
// Totals and sums are over all engines, with independent errors. The cost of one iteration, the
// SeqPoints and the plan are those of the current engine.
//
// Threading: one thread at a time. Ownership: its engines.
#ifndef DAEMON_JOBS_RUN_ENGINE_H_
#define DAEMON_JOBS_RUN_ENGINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/seqpoint/engine.h"
#include "daemon/seqpoint/engine_codec.h"

namespace seqpoint::jobs {

class RunEngine {
 public:
  // The current engine notes its calls (OnlineEngine::TakeCalls) from its start.
  RunEngine() { current_.KeepCalls(); }

  OnlineEngine& current() { return current_; }
  const OnlineEngine& current() const { return current_; }

  // Another rule holds from here on. The horizon must be set again.
  void Close();
  int closed() const { return static_cast<int>(closed_.size()); }
  int64_t closed_iterations() const { return closed_iterations_; }

  // `horizon`: of the whole run; the current engine gets the rest of it.
  absl::Status SetHorizon(Horizon horizon);

  EngineTotals Totals() const;  // unique keys: of the current rule
  Projection ProjectTime(double confidence, bool host_times = false) const;
  // FailedPrecondition also when a closed engine has no measurement of it.
  absl::StatusOr<Projection> ProjectStatistic(uint32_t set, int index, double confidence,
                                              StatisticKind kind = StatisticKind::kTimeLike) const;
  absl::StatusOr<Projection> ProjectStatistics(uint32_t set, absl::Span<const int> indices,
                                               double confidence,
                                               StatisticKind kind = StatisticKind::kTimeLike) const;
  std::vector<double> MeasuredSums(uint32_t set) const;

  RunEngine Copy() const;  // to be asked; it keeps no log

  // The state of the current engine, and of closed engine `index`, which never changes.
  std::string Serialize() const { return SerializeEngine(current_); }
  std::string SerializeClosed(int index) const { return SerializeEngine(closed_[index]); }
  // In order: the closed engines, then the current one, which keeps no log from there.
  absl::Status Restore(std::string_view state);
  absl::Status RestoreClosed(std::string_view state);

 private:
  void AddClosed(Projection& sum, const Projection& part) const;

  OnlineEngine current_;
  std::vector<OnlineEngine> closed_;
  int64_t closed_iterations_ = 0;
  bool another_ = false;  // the horizon is of another run
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_RUN_ENGINE_H_
