// The parts of ranks_benchmark that judge more than verdicts: one file each.
//
// Threading: one thread. Ownership: the caller's jobs and table.
#ifndef SEQPOINT_TESTS_BENCHMARK_RANKS_PARTS_H_
#define SEQPOINT_TESTS_BENCHMARK_RANKS_PARTS_H_

#include <cstdint>
#include <set>
#include <string>

#include "tests/support/figure_table.h"
#include "tests/support/rank_jobs.h"

namespace seqpoint {

struct RanksPart {
  RankJobs& jobs;
  FigureTable& table;
  uint64_t seed;
};

// Eight passes shared by eight ranks: after how many occurrences of a length they are all there,
// and whether the values are those of one rank.
void MeasureCounters(const RanksPart& part);

// Kills a rank, the daemon or both at random moments, and starts the ranks again from a checkpoint:
// which iterations are lost, repeated or wrong, and whether somebody is called slow.
void SoakRanks(const RanksPart& part, int rounds);

// What-ifs of jobs of so many iterations, against the changed job without the profiler. `changes`:
// their names.
void JudgeRanksWhatIf(const RanksPart& part, int iterations, const std::set<std::string>& changes);

// Memory and CPU of daemon and ranks while a job runs as fast as it can for so many minutes.
void WatchRanksMemory(const RanksPart& part, double minutes);

}  // namespace seqpoint

#endif  // SEQPOINT_TESTS_BENCHMARK_RANKS_PARTS_H_
