#include "daemon/iterations/graph_loop.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/iterations/graph_period.h"

namespace seqpoint::iterations {
namespace {

using abi::Op;

Positions GraphsFrom(const LogWindow& window, uint32_t begin) {
  return window.occurrences.Of(
      Alphabet::kSized, window.log.SymbolOf(Alphabet::kSized, Op::kGraphLaunch), begin, window.end);
}

}  // namespace

bool FindGraphIterations(const KernelGroup& group, LogWindow* log_window, Loop* loop) {
  LogWindow& window = *log_window;
  const Positions anchors = group.at();
  Positions at = GraphsFrom(window, window.begin);
  if (at.size() * 10 < anchors.size() * 9 || at.size() * 9 > anchors.size() * 10) return false;
  uint32_t single = 0;
  for (size_t i = 0; i + 1 < anchors.size(); ++i) {
    single += CountIn(at, anchors[i], anchors[i + 1]) == 1;
  }
  if (single * 10 < (anchors.size() - 1) * 9) return false;
  at = GraphsFrom(window, static_cast<uint32_t>(window.log.after_hole()));
  GraphLaunches launches;
  launches.from_start = window.log.from_process_start() && window.log.after_hole() == 0;
  for (uint32_t i = 0; i < at.size(); ++i) {
    launches.graphs.push_back(window.KindAt(at[i]));
    for (uint32_t call = i == 0 ? at[0] : at[i - 1] + 1; call < at[i]; ++call) {
      const Op op = window.OpAt(call);
      launches.prefetched |=
          op == Op::kCopyH2D && window.calls()[call].stream != window.calls()[at[i]].stream;
      if (!BlocksHost(op) && op != Op::kCopyD2H && !IsLaunch(window.calls()[call].op)) continue;
      if (launches.waits.empty() || launches.waits.back() != i) launches.waits.push_back(i);
    }
  }
  const GraphPeriod period = FindGraphPeriod(launches);
  const uint32_t n = loop->graph_period = period.period;
  if (n == 1) {
    // A job that waits for each of them waits for its iterations.
    loop->graph_period_unsure =
        period.unsure && launches.waits.size() * 10 < (launches.graphs.size() - 1) * 9;
    return false;
  }
  const auto best = std::max_element(period.start_scores.begin(), period.start_scores.end());
  loop->start_margin = *best;
  for (auto it = period.start_scores.begin(); it != period.start_scores.end(); ++it) {
    if (it != best) loop->start_margin = std::min(loop->start_margin, *best - *it);
  }
  window.begin = static_cast<uint32_t>(window.log.after_hole());
  loop->evidence = absl::StrCat("of ", n,
                                " graph launches the last, or the first, has graphs of "
                                "its own");
  for (size_t i = static_cast<size_t>(best - period.start_scores.begin()); i < at.size(); i += n) {
    loop->iterations.push_back({at[i], window.SegmentOf(at[i]), true});
  }
  loop->inner_iterations = n;
  return true;
}

}  // namespace seqpoint::iterations
