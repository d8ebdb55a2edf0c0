// The ranks of one synchronous training on several nodes, as their nodes would report them to a hub
// (docs/formats/ingest.md): lengths and times are drawn, the reports are written by the product's
// own ReportWriter, and everything that was reported is kept, to be compared with what the hub has.
//
//   ReportedRanks training({.job = "load", .nodes = 8, .ranks_of_node = 8});
//   training.Start(/*node=*/0, now_ns, writer);
//   training.Report(/*node=*/0, until_ns, writer);    // the iterations that are over by then
//   training.End(/*node=*/0, writer);
//   training.log(/*rank=*/3)
//
// A step lasts as long as the longest batch of all ranks takes. The ranks of a node have numbers
// that follow each other.
//
// Threading: one thread. Ownership: values.
#ifndef TESTS_SUPPORT_REPORTED_RANKS_H_
#define TESTS_SUPPORT_REPORTED_RANKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/jobs/report_codec.h"

namespace seqpoint {

struct ReportedRanksOptions {
  std::string job;
  int nodes = 1;
  int ranks_of_node = 8;
  double step_ms = 100;  // the mean
  uint64_t seed = 1;
  int collectives = 0;  // of each iteration
  // The node's numbers of its processes: those of several trainings on one node are different.
  int64_t first_process = 1;
  // The GPU's times of the collectives of each such iteration; as often as the library tells them.
  int64_t between_timed = 8;
};

class ReportedRanks {
 public:
  struct Iteration {
    int64_t length = 0;
    int64_t boundary_ns = 0, start_ns = 0, duration_ns = 0;
  };

  // Its first iteration begins at `begin_ns` of CLOCK_REALTIME.
  ReportedRanks(ReportedRanksOptions options, int64_t begin_ns);

  void Start(int node, jobs::ReportWriter& to);
  // The iterations of the node's ranks that are over by `until_ns`. Returns their number.
  int64_t Report(int node, int64_t until_ns, jobs::ReportWriter& to);
  // The next iterations of the node's ranks, so many of each.
  int64_t ReportNext(int node, int64_t count, jobs::ReportWriter& to);
  void End(int node, jobs::ReportWriter& to);

  const ReportedRanksOptions& options() const { return options_; }
  int ranks() const { return options_.nodes * options_.ranks_of_node; }
  const std::vector<Iteration>& log(int rank) const { return logs_[static_cast<size_t>(rank)]; }
  // Of all ranks.
  int64_t reported() const { return reported_; }

 private:
  int64_t ProcessOf(int rank) const {
    return options_.first_process + rank % options_.ranks_of_node;
  }
  int64_t Length(int rank, int64_t step) const;
  int64_t StartNs(int rank, int64_t step);
  int64_t BeginNs(int64_t step);  // of all ranks
  void ReportIteration(int rank, jobs::ReportWriter& to);
  void ReportCollectives(int rank, int64_t number, const Iteration& iteration,
                         jobs::ReportWriter& to);

  const ReportedRanksOptions options_;
  std::vector<int64_t> begins_ns_;  // of the steps that were drawn
  std::vector<std::vector<Iteration>> logs_;
  int64_t reported_ = 0;
};

}  // namespace seqpoint

#endif  // TESTS_SUPPORT_REPORTED_RANKS_H_
