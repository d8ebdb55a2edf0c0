#include "daemon/queries/step_rows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace seqpoint {
namespace {

constexpr size_t kPageRows = 4096;

void Widen(const IterationRow& row, IterationRow& step) {
  for (int i = 0; i < 2; ++i) step.length[i] = std::max(step.length[i], row.length[i]);
  step.duration_ns = std::max(step.duration_ns, row.duration_ns);
  step.config_id = std::max(step.config_id, row.config_id);
  step.flags |= row.flags;
  step.phase = std::max(step.phase, row.phase);
}

}  // namespace

absl::StatusOr<bool> StepRows::Read(std::vector<IterationRow>& steps) {
  steps.clear();
  if (done_) return false;
  std::map<int64_t, IterationRow> rows;
  std::map<int64_t, size_t> ranks;
  std::vector<int64_t> pages;                          // of ranks that have any: the first number
  int64_t last = std::numeric_limits<int64_t>::max();  // that every rank's page has
  for (const int32_t rank : ranks_) {
    const auto page = store_.ReadIterations(job_id_, rank, next_, kPageRows);
    if (!page.ok()) return page.status();
    if (page->size() >= kPageRows) last = std::min(last, page->back().number);
    int64_t before = -1;
    if (!page->empty()) pages.push_back(page->front().number);
    for (const IterationRow& row : *page) {
      // The same iteration of a later incarnation; the first one counts.
      if (std::exchange(before, row.number) == row.number) continue;
      ++ranks[row.number];
      const auto [it, added] = rows.try_emplace(row.number, row);
      if (!added) Widen(row, it->second);
    }
  }
  const auto working = static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [&](int64_t first) { return first <= last; }));
  for (const auto& [number, row] : rows) {
    if (number <= last && ranks[number] == working) steps.push_back(row);
  }
  done_ = last == std::numeric_limits<int64_t>::max();
  next_ = last + (done_ ? 0 : 1);
  return true;
}

}  // namespace seqpoint
