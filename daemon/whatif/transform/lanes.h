// Work that a what-if puts into execution lanes other than the streams: communication, copies to
// the host.
//
//   LaneInserter network("network", /*with=*/false, optimizer, /*reversed=*/false, &graph);
//   for (const Transfer& transfer : *Transfers(graph, backward, 102e6, 25e6)) {
//     network.Insert(transfer, task);
//   }
//   network.Finish();
//   Prefer(inserted, /*first=*/false, &graph);
//
// Threading: free functions and plain values. Ownership: the graph is the caller's.
#ifndef DAEMON_WHATIF_TRANSFORM_LANES_H_
#define DAEMON_WHATIF_TRANSFORM_LANES_H_

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

struct Transfer {
  uint32_t after = 0;  // the GPU task that makes its data
  double bytes = 0;
  double behind = 0;  // share of the time of the iteration's selected tasks that follows it
};
// One for each selected task, with its bytes. Where the tasks of an iteration share `bytes`, each
// has a part in proportion to its time; with `transfer_bytes` the shared bytes are cut into
// transfers of that size, and the rest. InvalidArgument: too many of them, or bytes.
absl::StatusOr<std::vector<Transfer>> Transfers(const Graph& graph,
                                                const std::vector<uint32_t>& selected,
                                                std::optional<double> bytes,
                                                std::optional<double> transfer_bytes);

class LaneInserter {
 public:
  // `with`: a transfer's work can start when the task can, else when the task is over. The next
  // task of `needed_by` waits for it. `reversed`: the task that waits is the one, in the iteration
  // of the next, with as much time before it as the transfer has behind it.
  LaneInserter(const std::string& lane, bool with, const std::vector<uint32_t>& needed_by,
               bool reversed, Graph* graph);

  // Transfers come in order of launch. InvalidArgument: one task would wait for too many, or all
  // together.
  absl::Status Insert(const Transfer& transfer, GpuTask task);
  // Call it when all are inserted.
  void Finish();

 private:
  struct Consumer {
    uint32_t place = 0;  // in order of launch
    uint32_t task = 0;
    double until = 0;          // share of its iteration's time up to its end
    size_t iteration_end = 0;  // index
  };
  uint32_t ConsumerOf(const Transfer& transfer) const;
  void AddDependency(uint32_t other, GpuTask* task);

  Graph& graph_;
  const bool with_, reversed_;
  uint32_t lane_ = 0;
  std::vector<uint32_t> places_;  // of GPU tasks, in order of launch
  std::vector<uint32_t> before_;  // the task before each in its lane
  std::vector<Consumer> consumers_;
  std::map<uint32_t, std::vector<uint32_t>> needed_;  // by consumer, until Finish
  uint32_t last_ = kNone, last_after_ = kNone;        // inserted last; after which
};

// Lets the lanes of the selected tasks choose what runs next: the task that the earliest task in
// order of launch needs, or (`first`) the selected tasks before all others.
void Prefer(const std::vector<uint32_t>& selected, bool first, Graph* graph);

}  // namespace seqpoint::whatif

#endif  // DAEMON_WHATIF_TRANSFORM_LANES_H_
