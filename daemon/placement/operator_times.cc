#include "daemon/placement/operator_times.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/status_macros.h"

namespace seqpoint::placement {
namespace {

using trace::Span;
using trace::Trace;
using traces::ExecutedOperator;
using traces::ExecutionTrace;

// Two lists with more differences are of two programs. Finding them needs memory by its square:
// 16 MB here.
constexpr int kMostDifferences = 2000;
// The time line of two iterations has twice the operators of the graph.
constexpr double kMostOperators = 1.5;
// The loads are to add up to the iteration within 2 % (planners.md): operators without a time would
// be missing.
constexpr double kMostWithoutTime = 0.02;
// Smaller copies take as long as it takes to begin one (about 10 us on PCIe), whatever their size.
constexpr uint64_t kCopyBytes = uint64_t{1} << 20;

// Pairs of places in `a` and `b` that are the same: as many as there can be in their order. Nothing
// where there are too many differences. Source: Myers, "An O(ND) Difference Algorithm and Its
// Variations", Algorithmica 1 (1986), figure 2.
std::optional<std::vector<std::pair<int, int>>> Align(absl::Span<const int> a,
                                                      absl::Span<const int> b) {
  const auto n = static_cast<int>(a.size());
  const auto m = static_cast<int>(b.size());
  // furthest[d][k + d]: how far in `a` d differences reach on diagonal k (a's place - b's place).
  std::vector<std::vector<int>> furthest;
  const auto reach = [&](int d, int k) { return furthest[d][k + d]; };
  // Whether the d-th difference on diagonal k is one of `b`, not in `a`.
  const auto from_b = [&](int d, int k) {
    return k == -d || (k != d && reach(d - 1, k - 1) < reach(d - 1, k + 1));
  };
  for (int d = 0; d <= kMostDifferences; ++d) {
    furthest.emplace_back(2 * d + 1);
    for (int k = -d; k <= d; k += 2) {
      int x = d == 0 ? 0 : from_b(d, k) ? reach(d - 1, k + 1) : reach(d - 1, k - 1) + 1;
      while (x < n && x - k < m && x - k >= 0 && a[x] == b[x - k]) ++x;
      furthest[d][k + d] = x;
      if (x < n || x - k < m) continue;
      // The path ends there: back to the start.
      std::vector<std::pair<int, int>> pairs;
      int y = m;
      x = n;
      for (int e = d; e >= 0; --e) {
        const int diagonal = x - y;
        const bool down = e > 0 && from_b(e, diagonal);
        const int begin = e == 0 ? 0
                          : down ? reach(e - 1, diagonal + 1)
                                 : reach(e - 1, diagonal - 1) + 1;
        for (; x > begin; --x, --y) pairs.emplace_back(x - 1, y - 1);
        if (e > 0) (down ? y : x) -= 1;
      }
      return pairs;
    }
  }
  return std::nullopt;
}

// The places of a list of operators of one thread, and their names.
struct Sequence {
  std::vector<int> places;
  std::vector<int> names;
};

class Joiner {
 public:
  Joiner(const ExecutionTrace& trace, absl::Span<const int> nodes, const Trace& times)
      : trace_(trace), nodes_(nodes), times_(times), span_of_(trace.operators.size(), -1) {}

  absl::StatusOr<OperatorTimes> Join() {
    result_.by_id = JoinById();
    if (!result_.by_id) {
      SEQPOINT_RETURN_IF_ERROR(JoinByOrder());
    }
    result_.operators.resize(nodes_.size());
    AddCpuTimes();
    AddGpuTimes();
    return std::move(result_);
  }

 private:
  bool JoinById() {
    absl::flat_hash_map<uint64_t, int> spans;
    for (size_t i = 0; i < times_.spans.size(); ++i) {
      const uint32_t id = times_.spans[i].record_function;
      if (id != 0) spans.emplace(id, static_cast<int>(i));
    }
    for (const int node : nodes_) {
      const ExecutedOperator& op = trace_.operators[node];
      const auto it = spans.find(op.record_function);
      // An id of another run of the program names something else.
      if (it == spans.end() || times_.names[times_.spans[it->second].name] != trace_.NameOf(op)) {
        std::fill(span_of_.begin(), span_of_.end(), -1);
        return false;
      }
      span_of_[node] = it->second;
    }
    return true;
  }

  absl::Status JoinByOrder() {
    absl::flat_hash_map<std::string, int> names;
    const auto number = [&](const std::string& name) {
      return names.emplace(name, static_cast<int>(names.size())).first->second;
    };
    std::map<uint64_t, Sequence> graph_threads;
    for (size_t i = 0; i < trace_.operators.size(); ++i) {
      Sequence& sequence = graph_threads[trace_.operators[i].thread];
      sequence.places.push_back(static_cast<int>(i));
      sequence.names.push_back(number(trace_.NameOf(trace_.operators[i])));
    }
    std::vector<int> order(times_.spans.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const Span& left = times_.spans[a];
      const Span& right = times_.spans[b];
      return std::pair(left.begin_ns, -left.end_ns) < std::pair(right.begin_ns, -right.end_ns);
    });
    std::map<uint32_t, Sequence> time_threads;
    for (const int i : order) {
      Sequence& sequence = time_threads[times_.spans[i].thread];
      sequence.places.push_back(i);
      sequence.names.push_back(number(times_.names[times_.spans[i].name]));
    }
    const double most = kMostOperators * static_cast<double>(trace_.operators.size());
    if (static_cast<double>(times_.spans.size()) > most) {
      return absl::FailedPreconditionError(absl::StrCat(
          Names(), " has ", times_.spans.size(), " operators, the execution trace ",
          trace_.operators.size(),
          "; without record function ids the times have to be those of a single iteration"));
    }
    for (const auto& [thread, graph] : graph_threads) {
      // The thread of the time line that is most like it.
      std::vector<std::pair<int, int>> best;
      uint32_t best_thread = 0;
      for (const auto& [candidate, spans] : time_threads) {
        const auto pairs = Align(graph.names, spans.names);
        if (!pairs || pairs->size() <= best.size()) continue;
        best = *pairs;
        best_thread = candidate;
      }
      if (best.empty()) continue;
      const Sequence& spans = time_threads[best_thread];
      for (const auto& [in_graph, in_times] : best) {
        span_of_[graph.places[in_graph]] = spans.places[in_times];
      }
      time_threads.erase(best_thread);
    }
    const ExecutedOperator* first_without = nullptr;
    for (const int node : nodes_) {
      if (span_of_[node] >= 0) continue;
      ++result_.without_time;
      if (first_without == nullptr) first_without = &trace_.operators[node];
    }
    if (result_.without_time > kMostWithoutTime * static_cast<double>(nodes_.size())) {
      return absl::FailedPreconditionError(absl::StrCat(
          Names(), " is of another program, or of another length: ", result_.without_time, " of ",
          nodes_.size(), " operators of ", trace_.source, " are not in it, the first is ",
          absl::Utf8SafeCHexEscape(trace_.NameOf(*first_without).substr(0, 80)), " (node ",
          first_without->id, "); record both in iterations of the same length"));
    }
    return absl::OkStatus();
  }

  std::string Names() const { return times_.source.empty() ? "the time line" : times_.source; }

  const Span* SpanOf(size_t asked) const {
    const int span = span_of_[nodes_[asked]];
    return span < 0 ? nullptr : &times_.spans[span];
  }

  void AddCpuTimes() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (SpanOf(i) != nullptr) in_order_.push_back(static_cast<int>(i));
    }
    std::stable_sort(in_order_.begin(), in_order_.end(),
                     [&](int a, int b) { return SpanOf(a)->begin_ns < SpanOf(b)->begin_ns; });
    if (in_order_.empty()) return;
    begin_ns_ = end_ns_ = SpanOf(in_order_.front())->begin_ns;
    for (const int i : in_order_) {
      const Span& span = *SpanOf(i);
      OperatorTime& time = result_.operators[i];
      time.between_ns = static_cast<double>(std::max<int64_t>(span.begin_ns - end_ns_, 0));
      time.cpu_ns = time.between_ns + static_cast<double>(span.end_ns - span.begin_ns);
      result_.between_ns += time.between_ns;
      end_ns_ = std::max(end_ns_, span.end_ns);
    }
    result_.iteration_ns = static_cast<double>(end_ns_ - begin_ns_);
  }

  void AddGpuTimes() {
    if (times_.works.empty()) return;
    absl::flat_hash_map<uint64_t, double> launched_ns;  // by correlation
    int64_t end_ns = end_ns_;
    for (const trace::Work& work : times_.works) {
      const auto ns = static_cast<double>(work.end_ns - work.start_ns);
      result_.gpu_ns += ns;
      if (work.correlation != 0) launched_ns[work.correlation] += ns;
      end_ns = std::max(end_ns, work.end_ns);
      const bool copy =
          work.kind == trace::WorkKind::kCopyH2D || work.kind == trace::WorkKind::kCopyD2H;
      if (copy && work.bytes >= kCopyBytes) {
        result_.copied_bytes += static_cast<double>(work.bytes);
        result_.copying_ns += ns;
      }
    }
    result_.iteration_ns = static_cast<double>(end_ns - begin_ns_);
    std::map<uint32_t, std::vector<int>> by_thread;  // in order of their begins
    for (const int i : in_order_) by_thread[SpanOf(i)->thread].push_back(i);
    for (const trace::Call& call : times_.calls) {
      const auto work = launched_ns.find(call.correlation);
      const auto thread = by_thread.find(call.thread);
      if (work == launched_ns.end() || thread == by_thread.end()) continue;
      const std::vector<int>& asked = thread->second;
      const auto after = std::partition_point(
          asked.begin(), asked.end(), [&](int i) { return SpanOf(i)->begin_ns <= call.begin_ns; });
      if (after == asked.begin() || SpanOf(*(after - 1))->end_ns <= call.begin_ns) continue;
      result_.operators[*(after - 1)].gpu_ns += work->second;
      launched_ns.erase(work);
    }
  }

  const ExecutionTrace& trace_;
  absl::Span<const int> nodes_;
  const Trace& times_;
  std::vector<int> span_of_;   // of each node of the trace; -1: none
  std::vector<int> in_order_;  // the requested operators that have a time, by begin
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
  OperatorTimes result_;
};

}  // namespace

absl::StatusOr<OperatorTimes> JoinTimes(const ExecutionTrace& trace, absl::Span<const int> nodes,
                                        const Trace& times) {
  return Joiner(trace, nodes, times).Join();
}

}  // namespace seqpoint::placement
