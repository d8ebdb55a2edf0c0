// PacedNodes: the nodes of a training that goes on in real time, each of which tells a hub every
// 250 ms what its ranks did (IngestNode, ReportedRanks); and what the hub has of it afterwards, row
// by row.
//
//   PacedNodes nodes({.job = "load", .nodes = 8}, {.address = "unix:/tmp/hub/run/api.sock"});
//   ...                                       // the training goes on
//   nodes.End();
//   nodes.AwaitAcknowledged(absl::Minutes(1));
//   const LogDifferences found = Compare(nodes.training(), api);
//
// Threading: one thread; one of its own writes the reports. Ownership: the nodes.
#ifndef TESTS_SUPPORT_PACED_NODES_H_
#define TESTS_SUPPORT_PACED_NODES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/api.h"
#include "tests/support/ingest_node.h"
#include "tests/support/reported_ranks.h"

namespace seqpoint {

class PacedNodes {
 public:
  // `hub.host` is the beginning of the nodes' names. With `addresses` nodes go to these in turn.
  PacedNodes(ReportedRanksOptions training, const IngestNodeOptions& hub,
             const std::vector<std::string>& addresses = {});
  ~PacedNodes();

  // The training ends now.
  void End();
  // The hub has everything. False: not within `timeout`.
  bool AwaitAcknowledged(absl::Duration timeout);

  const ReportedRanks& training() const { return training_; }  // after End
  IngestNode& node(int index) { return *nodes_[static_cast<size_t>(index)]; }
  int64_t frame_bytes() const;
  // Batches that the hub has not acknowledged, of all nodes.
  int64_t waiting() const;

 private:
  void Run();
  void Write(int node);

  ReportedRanks training_;
  std::vector<std::unique_ptr<IngestNode>> nodes_;
  std::vector<jobs::ReportWriter> writers_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

// What a hub has of a training, beside what its nodes reported.
struct LogDifferences {
  int64_t reported = 0;
  int64_t lost = 0, twice = 0, invented = 0;
  int64_t wrong = 0;  // another length or time
  bool exact() const { return lost == 0 && twice == 0 && invented == 0 && wrong == 0; }
};
// Nothing: the hub did not answer.
std::optional<LogDifferences> Compare(const ReportedRanks& training, Api& hub);

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_PACED_NODES_H_
