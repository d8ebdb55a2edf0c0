#include "daemon/whatif/graph/phases.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace seqpoint::whatif {
namespace {

constexpr const char* kPhaseNames[] = {"unknown",   "forward", "backward",
                                       "optimizer", "loading", "other"};

class Phases {
 public:
  Phases(const Trace& trace, Graph* graph) : trace_(trace), graph_(*graph) {}

  void Set() {
    by_label_.resize(graph_.names.size());
    FindAutogradOperators();
    autograd_.resize(graph_.order.size());
    for (uint32_t thread = 0; thread < graph_.order.size(); ++thread) {
      autograd_[thread] = SetByMarks(thread);
    }
    if (!has_operators_) FindAutogradByThreads();
    for (uint32_t thread = 0; thread < graph_.order.size(); ++thread) {
      if (autograd_[thread]) {
        for (const uint32_t t : graph_.order[thread]) {
          if (graph_.cpu[t].phase == Phase::kUnknown) graph_.cpu[t].phase = Phase::kBackward;
        }
      } else {
        SetByOrder(graph_.order[thread]);
      }
      SetBetween(graph_.order[thread]);
    }
  }

 private:
  struct Label {
    bool known = false;  // looked at
    bool zero_grad = false, profiler_step = false;
    Phase phase = Phase::kUnknown;
  };
  const Label& LabelOf(const CpuTask& task) {
    Label& label = by_label_[task.label];
    if (std::exchange(label.known, true)) return label;
    absl::string_view text = graph_.names[task.label];
    label.profiler_step = absl::StartsWith(text, "ProfilerStep");
    while (!text.empty() && label.phase == Phase::kUnknown) {
      const size_t line = text.rfind('\n');
      const absl::string_view name = line == absl::string_view::npos ? text : text.substr(line + 1);
      text = line == absl::string_view::npos ? "" : text.substr(0, line);
      const std::string lower = absl::AsciiStrToLower(name);
      const auto has = [&](const char* word) { return absl::StrContains(lower, word); };
      const bool forward = has("forward"), backward = has("backward");
      label.zero_grad = has("zero_grad");
      if (has("optimizer") || label.zero_grad) {
        label.phase = Phase::kOptimizer;
      } else if (has("dataloader") || has("data_loading")) {
        label.phase = Phase::kLoading;
      } else if (forward != backward) {  // "forward_backward" says nothing
        label.phase = forward ? Phase::kForward : Phase::kBackward;
      }
    }
    return label;
  }

  // The times in which operators of autograd run, by thread, merged.
  void FindAutogradOperators() {
    std::vector<int8_t> named(trace_.names.size(), -1);
    in_autograd_.resize(trace_.threads.size());
    for (const Span& span : trace_.spans) {
      if (span.kind != SpanKind::kOperator) continue;
      has_operators_ = true;
      int8_t& is = named[span.name];
      if (is < 0) {
        absl::string_view name = trace_.names[span.name];
        is = absl::StartsWith(name, "autograd::engine::") ? 1 : 0;
        while (!name.empty() && absl::ascii_isdigit(static_cast<unsigned char>(name.back()))) {
          name.remove_suffix(1);
        }
        if (absl::EndsWith(name, "Backward")) is = 1;
      }
      if (is == 1) in_autograd_[span.thread].emplace_back(span.begin_ns, span.end_ns);
    }
    for (auto& intervals : in_autograd_) {
      std::sort(intervals.begin(), intervals.end());
      size_t kept = 0;
      for (const auto& [begin_ns, end_ns] : intervals) {
        if (kept > 0 && begin_ns <= intervals[kept - 1].second) {
          intervals[kept - 1].second = std::max(intervals[kept - 1].second, end_ns);
        } else {
          intervals[kept++] = {begin_ns, end_ns};
        }
      }
      intervals.resize(kept);
    }
  }

  // Sets phases by annotations and operators. Returns whether the thread is autograd's.
  bool SetByMarks(uint32_t thread) {
    const auto& intervals = in_autograd_[thread];
    size_t next = 0, calls = 0, inside = 0;
    for (const uint32_t t : graph_.order[thread]) {
      CpuTask& task = graph_.cpu[t];
      task.phase = LabelOf(task).phase;
      if (task.call == kNone) continue;
      const int64_t begin_ns = trace_.calls[task.call].begin_ns;
      while (next < intervals.size() && intervals[next].second <= begin_ns) ++next;
      ++calls;
      if (next == intervals.size() || intervals[next].first > begin_ns) continue;
      ++inside;
      if (task.phase == Phase::kUnknown) task.phase = Phase::kBackward;
    }
    return absl::StrContains(graph_.threads[thread], "pt_autograd") || inside * 2 > calls;
  }

  // A thread is autograd's when it has no marks of its own, launches kernels, and waits for a
  // thread with marks.
  void FindAutogradByThreads() {
    std::vector<bool> marked(graph_.order.size());
    for (const CpuTask& task : graph_.cpu) {
      if (LabelOf(task).phase != Phase::kUnknown) marked[task.thread] = true;
    }
    for (uint32_t thread = 0; thread < graph_.order.size(); ++thread) {
      size_t handed_over = 0, kernels = 0, others = 0;
      for (const uint32_t t : graph_.order[thread]) {
        const CpuTask& task = graph_.cpu[t];
        if (task.after != kNone && marked[graph_.cpu[task.after].thread]) ++handed_over;
        if (task.first_work == kNone) continue;
        ++(graph_.gpu[task.first_work].kind == WorkKind::kKernel ? kernels : others);
      }
      if (handed_over > 0 && kernels > others && !marked[thread]) {
        autograd_[thread] = true;
      }
    }
  }

  void SetByOrder(const std::vector<uint32_t>& order) {
    enum class Stage { kUnknown, kAhead, kForward, kBehind } stage = Stage::kUnknown;
    std::vector<uint32_t> pending;
    for (const uint32_t t : order) {
      CpuTask& task = graph_.cpu[t];
      if (task.phase == Phase::kForward || task.phase == Phase::kBackward) return;  // said by marks
      if (task.after != kNone && autograd_[graph_.cpu[task.after].thread]) {
        for (const uint32_t each : pending) {
          graph_.cpu[each].phase = stage == Stage::kForward ? Phase::kForward : Phase::kUnknown;
        }
        pending.clear();
        stage = Stage::kBehind;
      }
      if (task.phase == Phase::kOptimizer || task.phase == Phase::kLoading) {
        const bool step = !LabelOf(task).zero_grad && task.phase == Phase::kOptimizer;
        if (step && stage == Stage::kBehind) {
          for (const uint32_t each : pending) graph_.cpu[each].phase = Phase::kOther;
        }
        if (step || stage == Stage::kUnknown) {
          pending.clear();
          stage = Stage::kAhead;
        }
        continue;
      }
      if (stage == Stage::kUnknown && LabelOf(task).profiler_step) stage = Stage::kAhead;
      if (stage == Stage::kAhead && task.first_work != kNone &&
          graph_.gpu[task.first_work].kind == WorkKind::kKernel) {
        stage = Stage::kForward;
      }
      if (stage == Stage::kForward || stage == Stage::kBehind) pending.push_back(t);
    }
  }

  void SetBetween(const std::vector<uint32_t>& order) {
    size_t since = 0;  // position behind the last task of a known phase
    for (size_t i = 0; i < order.size(); ++i) {
      const Phase phase = graph_.cpu[order[i]].phase;
      if (phase == Phase::kUnknown) {
        // A call of no phase may belong to neither phase.
        if (graph_.cpu[order[i]].kind != CpuKind::kGap) since = order.size();
        continue;
      }
      if (since > 0 && since < i && graph_.cpu[order[since - 1]].phase == phase) {
        for (size_t k = since; k < i; ++k) graph_.cpu[order[k]].phase = phase;
      }
      since = i + 1;
    }
  }

  const Trace& trace_;
  Graph& graph_;
  bool has_operators_ = false;
  std::vector<Label> by_label_;
  std::vector<std::vector<std::pair<int64_t, int64_t>>> in_autograd_;  // by thread
  std::vector<bool> autograd_;                                         // by thread
};

}  // namespace

const char* PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
std::optional<Phase> PhaseOf(std::string_view name) {
  for (size_t i = 0; i < std::size(kPhaseNames); ++i) {
    if (name == kPhaseNames[i]) return static_cast<Phase>(i);
  }
  return std::nullopt;
}

void SetPhases(const Trace& trace, Graph* graph) { Phases(trace, graph).Set(); }

}  // namespace seqpoint::whatif
