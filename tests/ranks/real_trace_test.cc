// The join on two ranks of a recorded step of eight (V100, DLRM). Both traces were recorded on one
// machine by one clock, so their stamps tell who arrived last; the join does not look at them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/ranks/collective_match.h"
#include "tests/support/shared_traces.h"
#include "tests/support/trace_file.h"

namespace seqpoint::ranks {
namespace {

// By how much the ends of one collective differ between the ranks by the clock.
constexpr int64_t kEndsNs = 10'000;

std::string Folder() { return SharedTraces() + "/dlrm_v100x8_two_ranks"; }

// NCCL's kernels of a trace, in their order. Names of kernels are the same on all ranks, so that a
// name's number is a kind.
RankIteration ReadRank(int32_t rank, std::vector<std::string>& kinds) {
  const auto trace = ReadTraceFile(Folder() + "/rank" + std::to_string(rank) + ".json.gz");
  EXPECT_TRUE(trace.ok()) << trace.status();
  RankIteration report;
  report.rank = rank;
  if (!trace.ok()) return report;
  std::vector<trace::Work> works = trace->works;
  std::sort(works.begin(), works.end(),
            [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  for (const trace::Work& work : works) {
    const std::string& name = trace->names[work.name];
    if (name.find("nccl") == std::string::npos) continue;
    const auto kind = std::find(kinds.begin(), kinds.end(), name) - kinds.begin();
    if (kind == static_cast<int64_t>(kinds.size())) kinds.push_back(name);
    Collective& c = report.collectives.emplace_back();
    c.communicator = 1;
    c.kind = static_cast<uint32_t>(kind);
    c.sequence = static_cast<uint32_t>(report.collectives.size());
    c.start_ns = work.start_ns;
    c.end_ns = work.end_ns;
  }
  report.duration_ns = works.empty() ? 0 : works.back().end_ns - works.front().start_ns;
  return report;
}

class RealTrace : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Folder()))
      GTEST_SKIP() << Folder()
                   << " is not there; set SEQPOINT_SHARED_DATA to the folder with traces/";
    std::vector<std::string> kinds;
    for (const int32_t rank : {1, 6}) ranks_.push_back(ReadRank(rank, kinds));
  }

  std::vector<RankIteration> ranks_;
};

TEST_F(RealTrace, TheRankThatArrivesLastIsTheOneThatTheStampsSay) {
  ASSERT_EQ(ranks_[0].collectives.size(), 8U);
  ASSERT_EQ(ranks_[1].collectives.size(), 8U);
  int compared = 0;
  for (size_t i = 0; i < 8; ++i) {
    const Collective &first = ranks_[0].collectives[i], &second = ranks_[1].collectives[i];
    EXPECT_NEAR(static_cast<double>(first.end_ns), static_cast<double>(second.end_ns), kEndsNs);
    std::vector<RankIteration> one = ranks_;
    one[0].collectives = {first};
    one[1].collectives = {second};
    // Another instant for the second clock: nothing may depend on it.
    one[1].collectives[0].start_ns += 123'456'789;
    one[1].collectives[0].end_ns += 123'456'789;
    const JoinedIteration joined = MatchCollectives(one, {}, {});
    const int64_t later_ns = first.start_ns - second.start_ns;  // of rank 1
    EXPECT_NEAR(static_cast<double>(joined.ranks[1].wait_ns - joined.ranks[0].wait_ns),
                static_cast<double>(later_ns), kEndsNs)
        << i;
    // Where they arrive together, neither is the last.
    if (std::abs(later_ns) <= kEndsNs) continue;
    ++compared;
    EXPECT_EQ(joined.ranks[0].last, later_ns > 0) << i;
    EXPECT_EQ(joined.ranks[1].last, later_ns < 0) << i;
  }
  EXPECT_EQ(compared, 4);
}

TEST_F(RealTrace, AllCollectivesOfTheStepAreMatched) {
  const JoinedIteration joined = MatchCollectives(ranks_, {{1, 8}}, {});
  for (const RankPart& part : joined.ranks) {
    EXPECT_EQ(part.matched, 8);
    EXPECT_EQ(part.unmatched + part.missed, 0);
  }
  // Six ranks are not seen: each transfer may contain the wait for one of them.
  for (const TransferPart& transfers : joined.transfers) EXPECT_FALSE(transfers.complete);
  // Rank 6 was 7.1 ms later than rank 1 to the first all-to-all.
  EXPECT_GT(joined.ranks[0].wait_ns, 7'000'000);
  EXPECT_LT(joined.ranks[1].wait_ns, 500'000);
}

}  // namespace
}  // namespace seqpoint::ranks
