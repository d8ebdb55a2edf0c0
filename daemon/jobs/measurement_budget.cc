#include "daemon/jobs/measurement_budget.h"

#include <algorithm>
#include <map>

#include "daemon/base/saturate.h"

namespace seqpoint::jobs {
namespace {

constexpr int64_t kUnpricedMeasurements = 2;  // before the price of a stop is known

// The time for watching the calls of one rank, as ranks are watched at the same time. `growth`: the
// factor by which the time at levels mark and trace grows until the end of the run.
double WatchingNs(const ProcessTable& processes, double growth) {
  double most = 0;
  std::map<int32_t, double> per_rank;
  for (const auto& [id, process] : processes) {
    const auto& watching_ns = process->state.watching_ns();
    double& of_rank = per_rank[process->row.rank];
    of_rank += static_cast<double>(watching_ns[1]) +
               static_cast<double>(SaturatedSum(watching_ns[2], watching_ns[3])) * growth;
    most = std::max(most, of_rank);
  }
  return most;
}

}  // namespace

int64_t StoppedNs(const ProcessTable& processes) {
  int64_t stopped_ns = 0;
  for (const auto& [id, process] : processes) {
    stopped_ns = SaturatedSum(stopped_ns, process->state.stopped_duration_ns());
  }
  return stopped_ns;
}

int64_t StartedMeasurements(const Process& process) {
  return static_cast<int64_t>(process.state.measurements_started() -
                              process.state.shared_windows());
}

int64_t StartedMeasurements(const ProcessTable& processes) {
  int64_t started = 0;
  for (const auto& [id, process] : processes) started += StartedMeasurements(*process);
  return started;
}

int64_t AffordableMeasurements(const ProcessTable& processes, const Budget& budget) {
  const auto stopped_ns = static_cast<double>(StoppedNs(processes));
  int64_t stops = 0, started = 0;
  for (const auto& [id, process] : processes) {
    stops += process->state.stops();
    // The measurements that a process started and did not finish before its end never come.
    started += process->alive() ? static_cast<int64_t>(process->state.measurements_started())
                                : process->state.stops();
  }
  const auto iterations = static_cast<double>(budget.iterations);
  // Most measurements are made early. With their stops the run would seem longer than it is.
  const double undisturbed_ns =
      std::max(budget.observed_time_ns - stopped_ns, budget.observed_time_ns / 2);
  // The rest of the run is estimated from the first iterations, which are slow.
  constexpr double kCertain = 0.8;
  const double to_come = std::max(0.0, static_cast<double>(budget.run_iterations) - iterations);
  const double growth = to_come / std::max(iterations, 1.0);
  const double budget_ns = budget.share * undisturbed_ns * (1 + kCertain * growth);
  // Watching is in the budget, too. Half of the budget is for measuring in any case.
  const double stops_ns = std::max(budget_ns - WatchingNs(processes, 1 + growth), budget_ns / 2);
  const double left_ns = stops_ns - stopped_ns;
  if (left_ns <= 0) return 0;
  if (stops == 0) return kUnpricedMeasurements;
  const double price_ns = std::max(1.0, stopped_ns / static_cast<double>(stops));
  const double affordable = std::min(left_ns / price_ns, static_cast<double>(budget.most_pending));
  return static_cast<int64_t>(affordable) - std::max<int64_t>(0, started - stops);
}

bool IsAbleToMeasure(const Process& process) {
  return process.alive() && !process.learning && !process.state.aligning() &&
         !process.state.concurrent() && process.HasCupti();
}

MeasurementShares::MeasurementShares(const ProcessTable& processes, int64_t all)
    : all_(all), started_(StartedMeasurements(processes)) {
  std::vector<const Process*> able;
  for (const auto& [id, process] : processes) {
    if (!IsAbleToMeasure(*process)) continue;
    able.push_back(process.get());
    able_.push_back(process->row.rank);
    started_by_able_ += StartedMeasurements(*process);
  }
  std::sort(able_.begin(), able_.end());
  for (const Process* process : able) {
    if (StartedMeasurements(*process) < CapOf(*process)) measuring_.push_back(process->row.rank);
  }
  std::sort(measuring_.begin(), measuring_.end());
}

int64_t MeasurementShares::CapOf(const Process& process) const {
  const auto shares = static_cast<int64_t>(able_.size());
  if (shares == 0) return 0;
  const int64_t own = StartedMeasurements(process);
  const int64_t others = started_ - own;
  const int64_t place =
      std::lower_bound(able_.begin(), able_.end(), process.row.rank) - able_.begin();
  int64_t left = all_ - others + started_by_able_ - (IsAbleToMeasure(process) ? own : 0);
  left = std::max<int64_t>(left, 0);
  const int64_t share = left * (place + 1) / shares - left * place / shares;
  // A process that came late finds less.
  return std::clamp<int64_t>(all_ - others, 0, share);
}

uint64_t MeasurementShares::PlaceOf(const Process& process) const {
  return static_cast<uint64_t>(
      std::lower_bound(measuring_.begin(), measuring_.end(), process.row.rank) -
      measuring_.begin());
}

}  // namespace seqpoint::jobs
