// CoordinatedWindows: traces one iteration on all ranks at a time, and keeps what its windows say
// of each rank.
//
//   windows.Want(number, {0, 1, 2, 3});                       // control blocks name wanted()
//   windows.AddBoundary(0, number, boundary_ns, lengths, false);  // of each iteration that is over
//   windows.AddWork(0, number, records, names);               // of the traced one
//   windows.AddCollective(0, record); windows.SetTimed(0, number);   // the GPU's times
//   if (windows.TakeFinished()) Use(windows.iterations());
//
// A rank's iteration is compared by its profile of a few kilobytes, which is kept when the trace is
// gone. An iteration that some rank could not trace is given up, and so is one in which too many
// collectives are of one rank alone. Those in which the lengths are new to all ranks, or to all but
// one, are kept apart.
//
// Threading: one thread at a time. Memory: the records of one iteration of all ranks, and
// kMostKept iterations, and a few. Not stored: after a restart windows are wanted anew.
#ifndef DAEMON_JOBS_COORDINATED_WINDOWS_H_
#define DAEMON_JOBS_COORDINATED_WINDOWS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/jobs/process_names.h"
#include "daemon/ranks/rank_question.h"
#include "daemon/ranks/window_join.h"
#include "injection/abi/records.h"

namespace seqpoint::jobs {

class CoordinatedWindows {
 public:
  static constexpr int kMostKept = 24, kMostFirstTimes = 8;
  // Calls of OnTime, which are 0.2 s apart: so long TakeFinished waits for the records of an
  // iteration that is over, and for the times of its collectives, without which the windows are
  // joined by the kernels alone. A node's batches are 0.25 s apart.
  static constexpr int kPatience = 4;

  // Nothing is wanted now.
  bool idle() const { return wanted_ < 0; }
  // The iteration that all ranks are to trace, by its number in the job; -1: none.
  int64_t wanted() const { return wanted_; }
  void Want(int64_t number, std::set<int32_t> ranks);

  // `disturbed`: as RankWindow.
  void AddBoundary(int32_t rank, int64_t number, int64_t boundary_ns,
                   std::array<int64_t, 2> lengths, bool disturbed);
  void AddWork(int32_t rank, int64_t number, const std::vector<abi::DataRecord>& records,
               const ProcessNames& names);
  void AddCollective(int32_t rank, ranks::CollectiveRecord record);
  // All its collectives were added.
  void SetTimed(int32_t rank, int64_t number);

  // Now and then, by the clock.
  void OnTime() { waited_ += IsOver() ? 1 : 0; }
  // The iteration is over on all ranks: it is joined, or given up. True when it was joined.
  bool TakeFinished();

  // Oldest first.
  const std::vector<ranks::IterationProfiles>& iterations() const { return iterations_; }
  const std::vector<ranks::IterationProfiles>& first_times() const { return first_times_; }
  int64_t given_up() const { return given_up_; }

 private:
  struct Rank {
    int64_t begin_ns = 0, end_ns = 0;  // 0: not known yet
    int64_t newest = -1;               // number of its newest iteration
    std::array<int64_t, 2> lengths = {};
    bool disturbed = false;
    std::optional<trace::Trace> trace;
    std::vector<abi::DataRecord> records;
    std::vector<std::pair<uint32_t, std::string>> names;
    std::vector<ranks::CollectiveRecord> collectives;
    bool timed = false;
  };
  bool IsOver() const;
  bool Join();

  int64_t wanted_ = -1;
  int waited_ = 0;  // since it was over
  std::map<int32_t, Rank> ranks_;
  std::vector<ranks::IterationProfiles> iterations_, first_times_;
  int64_t given_up_ = 0;
};

}  // namespace seqpoint::jobs

#endif  // DAEMON_JOBS_COORDINATED_WINDOWS_H_
