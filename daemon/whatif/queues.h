// Work that a what-if puts into queues beside the streams: communication, copies to the host.
//
//   QueueInserter network("network", /*with=*/false, optimizer, /*reversed=*/false, &graph);
//   for (const Piece& piece : Pieces(graph, backward, 102e6, 25e6)) network.Insert(piece, task);
//   Prefer(inserted, /*first=*/false, &graph);
//
// Threading: free functions and plain values. Ownership: the graph is the caller's.
#ifndef DAEMON_WHATIF_QUEUES_H_
#define DAEMON_WHATIF_QUEUES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/whatif/graph.h"

namespace seqpoint::whatif {

// GPU tasks that a call of the trace launches, in this order.
std::vector<uint32_t> LaunchOrder(const Graph& graph);

struct Piece {
  uint32_t after = 0;  // the GPU task with which it is there
  double bytes = 0;
  double behind = 0;  // share of the time of the iteration's selected tasks that comes after that
};
// One of each selected task, with its bytes; or, where the tasks of an iteration share `bytes` in
// proportion to their times, with its part of them; or as many of `piece_bytes` as there are, and
// the rest. InvalidArgument: too many of them, or bytes.
absl::StatusOr<std::vector<Piece>> Pieces(const Graph& graph, const std::vector<uint32_t>& selected,
                                          std::optional<double> bytes,
                                          std::optional<double> piece_bytes);

class QueueInserter {
 public:
  // `with`: a piece's work can start when the task can, else when it is over. Of `needed_by` the
  // next task waits for it; `reversed`: of the iteration of that, the one with as much time before
  // it as the piece has behind it.
  QueueInserter(const std::string& queue, bool with, const std::vector<uint32_t>& needed_by,
                bool reversed, Graph* graph);

  // Pieces in order of launch. InvalidArgument: one task would wait for too many, or all together.
  absl::Status Insert(const Piece& piece, GpuTask task);
  // When all are inserted.
  void Finish();

 private:
  struct Consumer {
    uint32_t place = 0;  // in order of launch
    uint32_t task = 0;
    double until = 0;          // share of its iteration's time up to its end
    size_t iteration_end = 0;  // index
  };
  uint32_t ConsumerOf(const Piece& piece) const;
  void AddDependency(uint32_t other, GpuTask* task);

  Graph& graph_;
  const bool with_, reversed_;
  uint32_t queue_ = 0;
  std::vector<uint32_t> places_;  // of GPU tasks, in order of launch
  std::vector<uint32_t> before_;  // the task before each in its queue
  std::vector<Consumer> consumers_;
  std::map<uint32_t, std::vector<uint32_t>> needed_;  // by consumer, until Finish
  uint32_t last_ = kNone, last_after_ = kNone;        // inserted last; after which
};

// Lets the queues of the selected tasks choose: what is needed by the earliest task in order of
// launch, or (`first`) all that is selected before all else.
void Prefer(const std::vector<uint32_t>& selected, bool first, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_QUEUES_H_
