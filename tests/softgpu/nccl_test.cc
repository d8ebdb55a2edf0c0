// The software NCCL between processes: each case starts a puppet per rank and compares what the
// ranks wrote with what the settings say.

#include "tests/softgpu/nccl_abi.h"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>

#include "tests/softgpu/nccl_ranks.h"
#include "tests/softgpu/test_support.h"

namespace seqpoint::softgpu {
namespace {

constexpr double kBaseNs = 4000;
constexpr double kHopNs = 1000;
constexpr double kBusGbps = 360;
constexpr double kNetworkGbps = 48;
constexpr double kTreeGbps = kBusGbps * 0.92;

// Settings: the law of one node without noise, written down again.
double RingNs(double steps, double share, double bytes, double gbps = kBusGbps) {
  return kBaseNs + steps * kHopNs + share * bytes / gbps;
}

double TreeNs(int ranks, double bytes) {
  return kBaseNs + 2 * std::ceil(std::log2(ranks)) * kHopNs + 2 * bytes / kTreeGbps;
}

TEST(Nccl, CollectivesEndTogetherAfterTheTimeOfTheLaw) {
  for (int n : {2, 4, 8}) {
    SCOPED_TRACE(n);
    Ranks ranks(n, kQuiet,
                {"init", "1=host:50000", "allreduce:1000", "allreduce:4000000", "0=host:70000",
                 "reducescatter:1000000", "allgather:1000000", "broadcast:300000:1",
                 "reduce:300000:0", "sync", "destroy"});
    ranks.Finish();
    const double m = n - 1;
    const double f = m / n;
    const double small = 4000, large = 16e6, part = 4e6 * n, middle = 1.2e6;
    const double expected[] = {
        std::min(RingNs(2 * m, 2 * f, small), TreeNs(n, small)),
        std::min(RingNs(2 * m, 2 * f, large), TreeNs(n, large)),
        RingNs(m, f, part),
        RingNs(m, f, part),
        RingNs(m, 1, middle),
        RingNs(m, 1, middle),
    };
    std::vector<std::vector<Truth>> all;
    for (int rank = 0; rank < n; ++rank) {
      all.push_back(ranks.TruthOf(rank));
      ASSERT_EQ(all.back().size(), std::size(expected));
    }
    for (size_t i = 0; i < std::size(expected); ++i) {
      uint64_t last_ns = 0;
      for (const auto& rank : all) last_ns = std::max(last_ns, rank[i].arrival_ns);
      for (const auto& rank : all) {
        EXPECT_EQ(rank[i].start_ns, last_ns);
        EXPECT_EQ(rank[i].end_ns, last_ns + static_cast<uint64_t>(expected[i]));
        EXPECT_EQ(all[static_cast<size_t>(rank[i].last_rank)][i].arrival_ns, last_ns);
        EXPECT_EQ(rank[i].communicator, all[0][0].communicator);
      }
    }
    EXPECT_EQ(all[0][0].last_rank, 1) << "its host was late";
  }
}

TEST(Nccl, AlgorithmLinksAndNodesChangeTheTime) {
  const auto duration = [](const std::string& settings, int n) {
    Ranks ranks(n, kQuiet + settings + ",", {"init", "allreduce:4000000"});
    ranks.Finish();
    const Truth truth = ranks.TruthOf(0).at(0);
    return truth.end_ns - truth.start_ns;
  };
  const double bytes = 16e6;
  EXPECT_EQ(duration("nccl.algorithm=tree", 4), static_cast<uint64_t>(TreeNs(4, bytes)));
  EXPECT_EQ(duration("nccl.algorithm=ring", 4), static_cast<uint64_t>(RingNs(6, 1.5, bytes)));
  EXPECT_EQ(duration("nccl.algorithm=ring,nccl.link=2-1:0.5+3-0:0.75", 4),
            static_cast<uint64_t>(RingNs(6, 1.5, bytes, kBusGbps / 2)));
  EXPECT_EQ(duration("nccl.algorithm=ring,nccl.ranks_per_node=2", 4),
            static_cast<uint64_t>(RingNs(6, 1.5, bytes, kNetworkGbps)));
}

TEST(Nccl, TheTruthSaysWhoWaitedAndForWhom) {
  Ranks ranks(
      2, kQuiet,
      {"init", "allreduce:1000", "sync", "1=host:1000000", "allreduce:1000", "sync", "totals"});
  ranks.Finish();
  const Truth early = ranks.TruthOf(0).at(1);
  const Truth late = ranks.TruthOf(1).at(1);
  EXPECT_EQ(early.last_rank, 1);
  EXPECT_EQ(late.start_ns, late.arrival_ns);
  EXPECT_GT(early.start_ns - early.arrival_ns, 990000u);
  const std::string totals = Only(ranks.Output(0), "totals").at(0);
  EXPECT_EQ(Field(totals, "kernels"), 2u);
  EXPECT_EQ(Field(totals, "collectives"), 2u);
  EXPECT_EQ(Field(totals, "bytes"), 8000u);
  uint64_t wait_ns = 0, transfer_ns = 0;
  const std::vector<Truth> all = ranks.TruthOf(0);
  for (const Truth& truth : all) {
    wait_ns += truth.start_ns - truth.arrival_ns;
    transfer_ns += truth.end_ns - truth.start_ns;
  }
  EXPECT_EQ(Field(totals, "wait"), wait_ns);
  EXPECT_EQ(Field(totals, "transfer"), transfer_ns);
  EXPECT_EQ(Field(totals, "work"), all[1].arrival_ns - all[0].end_ns);
  const std::string sums = ReadFile(ranks.Path("sums", 0));
  EXPECT_NE(sums.find("\"nccl\": {\"kernels\": 2, \"collectives\": 2,"), std::string::npos) << sums;
}

// A collective needs few SMs: it runs beside kernels that fill the GPU.
// The cost of waiting so far, at each "mark" of a rank.
std::vector<uint64_t> CostOfWaiting(const Ranks& ranks, int rank) {
  std::vector<uint64_t> costs;
  for (const std::string& line : Only(ranks.Output(rank), "mark")) {
    costs.push_back(Field(line, "ns") - Field(line, "alone"));
  }
  return costs;
}

TEST(Nccl, WaitingCostsWhatComputationDoesNotHide) {
  Ranks ranks(2, kQuiet,
              {"init", "mark",
               // Seen in full.
               "1=host:300000", "follow", "allreduce:1000", "lead", "mark",
               // Hidden in full.
               "1=host:300000", "follow", "allreduce:1000", "0=compute:1000000", "lead", "mark",
               // Hidden in part: the host of rank 0 has run ahead.
               "sync", "1=host:3000000", "follow", "allreduce:1000", "0=compute:400000", "lead",
               "mark", "sync"});
  ranks.Finish();
  EXPECT_EQ(CostOfWaiting(ranks, 1), std::vector<uint64_t>(4, 0));
  const std::vector<Truth> truth = ranks.TruthOf(0);
  const auto wait_ns = [&truth](size_t i) { return truth[i].start_ns - truth[i].arrival_ns; };
  const std::vector<uint64_t> costs = CostOfWaiting(ranks, 0);
  ASSERT_EQ(costs.size(), 4u);
  EXPECT_EQ(costs[0], 0u);
  EXPECT_EQ(costs[1], wait_ns(0));
  EXPECT_GT(wait_ns(1), 250000u);
  // Alone, the GPU would have waited for its launches, which the host has made long ago.
  EXPECT_LE(costs[2], costs[1]);
  EXPECT_GT(costs[2] + 5000, costs[1]);
  EXPECT_GT(costs[3] - costs[2], wait_ns(2) - 420000);
  EXPECT_LT(costs[3] - costs[2], wait_ns(2) - 380000);
}

TEST(Nccl, ProgramsSlowTheGpuTheHostAndLinksWhileTheyRun) {
  Ranks ranks(2, std::string(kQuiet) + "nccl.algorithm=ring,",
              {"init",
               "allreduce:4000000",
               "link:50",
               "allreduce:4000000",
               "link:100",
               "allreduce:4000000",
               "sync",
               "mark",
               "compute:100000",
               "mark",
               "slow:150",
               "compute:100000",
               "mark",
               "slow:100",
               "compute:100000",
               "mark",
               "now",
               "host:100000",
               "now",
               "slow_host:200",
               "host:100000",
               "now"});
  ranks.Finish();
  const auto times = [&ranks](const std::string& name) {
    std::vector<uint64_t> between;
    const Strings lines = Only(ranks.Output(0), name);
    for (size_t i = 1; i < lines.size(); ++i) {
      const auto at = [&](size_t line) {
        return strtoull(lines[line].c_str() + lines[line].find_first_of("0123456789"), nullptr, 10);
      };
      between.push_back(at(i) - at(i - 1));
    }
    return between;
  };
  const std::vector<Truth> truth = ranks.TruthOf(0);
  const uint64_t usual = static_cast<uint64_t>(RingNs(2, 1, 16e6));
  EXPECT_EQ(truth[0].end_ns - truth[0].start_ns, usual);
  EXPECT_EQ(truth[1].end_ns - truth[1].start_ns,
            static_cast<uint64_t>(RingNs(2, 1, 16e6, kBusGbps / 2)));
  EXPECT_EQ(truth[2].end_ns - truth[2].start_ns, usual);
  const std::vector<uint64_t> kernels = times("mark ns="), host = times("now ");
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_NEAR(static_cast<double>(kernels[1] - kernels[2]), 50000, 10);
  ASSERT_EQ(host.size(), 2u);
  EXPECT_EQ(host[0], 100000u);
  EXPECT_EQ(host[1], 200000u);
}

TEST(Nccl, CollectivesOverlapWithComputation) {
  Ranks ranks(2, kQuiet,
              {"cupti", "init", "compute:1000000", "allreduce:4000000", "compute:1000000", "sync",
               "flush"});
  ranks.Finish();
  const Strings computed = Only(ranks.Output(0), "record compute");
  const Strings communicated = Only(ranks.Output(0), "record _Z");
  ASSERT_EQ(computed.size(), 2u);
  ASSERT_EQ(communicated.size(), 1u);
  for (const std::string& line : computed) {
    EXPECT_EQ(Field(line, "end") - Field(line, "start"), 1000000u);
  }
  EXPECT_EQ(Field(computed[1], "start"), Field(computed[0], "end") + 700)
      << "held up by the collective";
  EXPECT_LT(Field(communicated[0], "start"), Field(computed[0], "end"))
      << "waited for the computation";
}

TEST(Nccl, ComputationCanBeSlowerUnderACollective) {
  // Computation is submitted while the collective runs: its time there counts half.
  Ranks ranks(2, std::string(kQuiet) + "nccl.compute_slowdown=2,nccl.algorithm=ring,",
              {"cupti", "init", "allreduce:40000000", "compute:1000000", "sync", "flush"});
  ranks.Finish();
  const std::string computed = Only(ranks.Output(0), "record compute").at(0);
  const std::string communicated = Only(ranks.Output(0), "record _Z").at(0);
  const uint64_t slow_ns = Field(communicated, "end") - Field(computed, "start");
  EXPECT_GT(slow_ns, 400000u);
  EXPECT_NEAR(static_cast<double>(Field(computed, "end") - Field(computed, "start")),
              1000000 + static_cast<double>(slow_ns) / 2, 2);
}

TEST(Nccl, AGroupOfCollectivesIsOneKernel) {
  Ranks ranks(2, kQuiet,
              {"cupti", "init", "group", "allreduce:1000", "broadcast:5000:0", "allreduce:2000",
               "end", "sync", "flush"});
  ranks.Finish();
  const std::vector<Truth> truth = ranks.TruthOf(1);
  ASSERT_EQ(truth.size(), 3u);
  // NCCL sorts by traffic: an AllReduce counts twice.
  EXPECT_EQ(truth[0].bytes, 20000u);
  EXPECT_EQ(truth[1].bytes, 8000u);
  EXPECT_EQ(truth[2].bytes, 4000u);
  EXPECT_EQ(truth[1].sequence, 0u) << "numbers follow the order of the kernel";
  EXPECT_EQ(truth[2].sequence, 1u);
  for (const Truth& t : truth) {
    EXPECT_EQ(t.kernel, 0u);
    EXPECT_EQ(t.end_ns, truth[0].end_ns);
  }
  EXPECT_EQ(truth[0].end_ns - truth[0].start_ns,
            static_cast<uint64_t>(kBaseNs + (kHopNs + 20000 / kBusGbps) + 2 * (2 * kHopNs) +
                                  12000 / kBusGbps));
  EXPECT_EQ(Only(ranks.Output(1), "record _Z").size(), 1u);
}

TEST(Nccl, StreamsOfAGroupMeetInItsKernel) {
  Ranks ranks(
      2, kQuiet,
      {"init", "stream:1", "compute:500000", "follow", "stream:0", "group", "allreduce:1000",
       "stream:1", "allreduce:1000", "end", "lead", "small:1000", "sync"});
  ranks.Finish();
  const std::vector<Truth> truth = ranks.TruthOf(0);
  ASSERT_EQ(truth.size(), 2u);
  EXPECT_EQ(truth[0].end_ns, truth[1].end_ns);
}

TEST(Nccl, SendsAndReceivesOfAGroupEndWithTheirLastPair) {
  Ranks ranks(
      3, kQuiet,
      {"init", "0=host:40000", "2=host:90000",
       // 0 sends to 1 and 2, 2 sends to 1.
       "0=group", "0=send:1:1000000", "0=send:2:10", "0=end", "1=group", "1=recv:0:1000000",
       "1=recv:2:2000000", "1=end", "2=group", "2=recv:0:10", "2=send:1:2000000", "2=end", "sync"});
  ranks.Finish();
  const auto pair_ns = [](double floats) {
    return static_cast<uint64_t>(kBaseNs + kHopNs + floats * 4 / kBusGbps);
  };
  const Truth zero = ranks.TruthOf(0).at(0);
  const Truth one = ranks.TruthOf(1).at(0);
  const Truth two = ranks.TruthOf(2).at(0);
  ASSERT_LT(zero.arrival_ns, two.arrival_ns);
  ASSERT_LT(one.arrival_ns, zero.arrival_ns);
  EXPECT_EQ(zero.end_ns,
            std::max(zero.arrival_ns + pair_ns(1000000), two.arrival_ns + pair_ns(10)));
  EXPECT_EQ(one.end_ns, two.arrival_ns + pair_ns(2000000));
  EXPECT_EQ(two.end_ns, two.arrival_ns + pair_ns(2000000));
  EXPECT_EQ(one.last_rank, 2);
  EXPECT_EQ(two.function, "Recv");
  EXPECT_EQ(one.function, "Recv");
  EXPECT_EQ(zero.function, "Send");
}

TEST(Nccl, APipelineIsInOrderAndAllToAllMeets) {
  Ranks ranks(
      3, kQuiet,
      {"init", "0=compute:100000", "0=follow", "0=send:1:1000", "1=recv:0:1000", "1=lead",
       "1=compute:100000", "1=follow", "1=send:2:1000", "2=recv:1:1000", "alltoall:500", "sync"});
  ranks.Finish();
  const Truth sent = ranks.TruthOf(0).at(0);
  const Truth received = ranks.TruthOf(1).at(0);
  const Truth passed = ranks.TruthOf(1).at(1);
  EXPECT_EQ(sent.end_ns, received.end_ns);
  EXPECT_GT(passed.arrival_ns, received.end_ns + 100000);
  EXPECT_EQ(ranks.TruthOf(2).at(0).end_ns, passed.end_ns);
  EXPECT_EQ(ranks.TruthOf(2).size(), 7u) << "three sends and three receives";
}

TEST(Nccl, SplitMakesCommunicatorsOfColoursInTheOrderOfKeys) {
  Ranks ranks(4, std::string(kQuiet) + "nccl.algorithm=ring,nccl.link=1-3:0.5,",
              {"init", "0=split:0:5", "1=split:1:1", "2=split:0:4", "3=split:1:2",
               "allreduce:4000000", "use:0", "3=split:-1", "0=split:2", "1=split:2", "2=split:2",
               "0=allreduce:10", "1=allreduce:10", "2=allreduce:10", "sync"});
  ranks.Finish();
  EXPECT_EQ(Only(ranks.Output(0), "part"), (Strings{"part rank=1 ranks=2", "part rank=0 ranks=3"}));
  EXPECT_EQ(Only(ranks.Output(2), "part"), (Strings{"part rank=0 ranks=2", "part rank=2 ranks=3"}));
  EXPECT_EQ(Only(ranks.Output(3), "part"), (Strings{"part rank=1 ranks=2"}));
  EXPECT_EQ(Only(ranks.Output(3), "no part").size(), 1u);
  std::vector<Truth> first;
  for (int rank = 0; rank < 4; ++rank) first.push_back(ranks.TruthOf(rank).at(0));
  EXPECT_EQ(first[0].communicator, first[2].communicator);
  EXPECT_EQ(first[1].communicator, first[3].communicator);
  EXPECT_NE(first[0].communicator, first[1].communicator);
  EXPECT_EQ(first[0].end_ns, first[2].end_ns);
  EXPECT_EQ(first[0].end_ns - first[0].start_ns, static_cast<uint64_t>(RingNs(2, 1, 16e6)));
  EXPECT_EQ(first[1].end_ns - first[1].start_ns,
            static_cast<uint64_t>(RingNs(2, 1, 16e6, kBusGbps / 2)))
      << "links are between ranks of the first communicator";
}

TEST(Nccl, ARankThatNeverComesIsWaitedForUntilAnAbort) {
  Ranks ranks(2, std::string(kQuiet) + "nccl.never=1:1,nccl.async_error=6,nccl.async_error_ms=100,",
              {"init", "allreduce:10", "0=abort_after:400", "allreduce:10", "0=sleep:100"});
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Output(0), (Strings{"async error 6", "abort gives 0", "done"}));
  EXPECT_EQ(ranks.TruthOf(0).size(), 1u);
  EXPECT_EQ(ranks.TruthOf(1).size(), 1u);
  EXPECT_EQ(waitpid(ranks.pid(1), nullptr, WNOHANG), 0) << "its call does not return";
  ranks.ExpectNoLeftovers();
}

TEST(Nccl, ARankThatIsKilledHasArrivedAndComesNoMore) {
  Ranks ranks(2, std::string(kQuiet) + "nccl.kill=1:1,",
              {"init", "allreduce:10", "allreduce:20", "0=abort_after:300", "0=allreduce:30",
               "0=sleep:100"});
  const int status = ranks.Wait(1);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Output(0), (Strings{"async error 0", "abort gives 0", "done"}));
  EXPECT_EQ(ranks.TruthOf(0).size(), 2u);
  EXPECT_EQ(ranks.TruthOf(1).size(), 1u);
  ranks.ExpectNoLeftovers();
}

TEST(Nccl, ARankThatDiesInACollectiveNeverArrives) {
  Ranks ranks(2, kQuiet,
              {"init", "allreduce:1000", "1=die", "0=abort_after:300", "allreduce:1000"});
  const int status = ranks.Wait(1);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.TruthOf(0).size(), 1u);
}

TEST(Nccl, LaunchesAndRecordsAreTheDriversOwn) {
  Ranks ranks(2, kQuiet,
              {"cupti", "init", "allreduce:1000", "allgather:1000000", "group", "0=send:1:10",
               "1=recv:0:10", "end", "sync", "flush"});
  ranks.Finish();
  const Strings names = {
      "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
      "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE",
      "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"};
  for (int rank : {0, 1}) {
    const Strings out = ranks.Output(rank);
    const std::vector<Truth> truth = ranks.TruthOf(rank);
    const Strings records = Only(out, "record ");
    ASSERT_EQ(records.size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      EXPECT_TRUE(records[i].starts_with("record " + names[i] + " ")) << records[i];
      EXPECT_EQ(Field(records[i], "start"), truth[i].arrival_ns);
      EXPECT_EQ(Field(records[i], "end"), truth[i].end_ns);
      const std::string id = " correlation=" + std::to_string(Field(records[i], "correlation"));
      const std::string kernel = records[i].substr(7, records[i].find(' ', 7) - 7);
      EXPECT_EQ(std::count(out.begin(), out.end(), "callback enter " + kernel + id + " cbid=652"),
                1);
      EXPECT_EQ(std::count(out.begin(), out.end(), "callback exit " + kernel + id + " cbid=652"),
                1);
    }
    EXPECT_EQ(Field(records[1], "grid"), 16u) << "8 MB on as many channels as there are";
  }
}

TEST(Nccl, AGraphLaunchesItsCollectivesAgain) {
  Ranks ranks(2, kQuiet,
              {"cupti", "init", "allreduce:10", "capture", "allreduce:1000", "allreduce:2000",
               "instantiate", "1=host:30000", "replay", "replay", "sync", "flush"});
  ranks.Finish();
  const std::vector<Truth> zero = ranks.TruthOf(0);
  const std::vector<Truth> one = ranks.TruthOf(1);
  ASSERT_EQ(zero.size(), 5u);
  ASSERT_EQ(one.size(), 5u);
  for (size_t i = 0; i < zero.size(); ++i) EXPECT_EQ(zero[i].end_ns, one[i].end_ns);
  EXPECT_EQ(zero[1].last_rank, 1);
  EXPECT_EQ(zero[3].bytes, 4000u);
  EXPECT_EQ(zero[4].bytes, 8000u);
  EXPECT_EQ(Only(ranks.Output(0), "record _Z").size(), 5u);
}

// The ranks' calls, in times since they met. With all noise, and a seed for each rank.
TEST(Nccl, RunsOfOneSeedAreEqualSinceTheRanksMet) {
  const auto run = [] {
    Strings steps = {"init", "now"};
    for (int i = 0; i < 12; ++i) {
      for (const char* step : {"compute:200000", "follow", "allreduce:100000", "compute:300000",
                               "small:50000", "follow", "reducescatter:5000", "sync"}) {
        steps.push_back(step);
      }
    }
    Ranks ranks(3, "noise.drift_period_s=0.01,", steps);
    ranks.Finish();
    std::vector<uint64_t> times;
    for (int rank = 0; rank < 3; ++rank) {
      const uint64_t met_ns = strtoull(Only(ranks.Output(rank), "now")[0].c_str() + 4, nullptr, 10);
      for (const Truth& t : ranks.TruthOf(rank)) {
        times.insert(times.end(), {std::hash<std::string>()(t.communicator), t.arrival_ns - met_ns,
                                   t.start_ns - met_ns, t.end_ns - met_ns});
      }
    }
    return times;
  };
  const auto first = run();
  EXPECT_EQ(first.size(), 3u * 24 * 4);
  EXPECT_EQ(first, run());
}

TEST(Nccl, AMistakeInASettingEndsTheProcess) {
  for (const char* setting : {"nccl.link=0-1,", "nccl.kill=1,", "nccl.algorithm=star,",
                              "nccl.profiler_version=7,", "nccl.channels=65,"}) {
    Ranks ranks(1, setting, {"init"});
    const int status = ranks.Wait(0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 2) << setting;
  }
}

TEST(NcclApi, SaysItsVersionAndRefusesWhatIsWrong) {
  InProcess("", [] {
    int version = 0;
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, 23007);
    EXPECT_STREQ(ncclGetErrorString(ncclInvalidUsage),
                 "invalid usage (run with NCCL_DEBUG=WARN for details)");
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr), "AllReduce : comm argument is no communicator");
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    ncclUniqueId id{};
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidArgument);
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
    ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
    void* memory = nullptr;
    EXPECT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
    EXPECT_EQ(ncclBroadcast(memory, memory, 1, ncclFloat32, 1, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(memory, memory, 1, ncclFloat32, 0, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  });
  InProcess("nccl.profiler_version=3", [] {
    int version = 0;
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, 22606);
  });
}

TEST(NcclApi, DevicesOfOneProcessAreRanksOfOneThread) {
  InProcess(std::string(kQuiet) + "gpu.count=2", [] {
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
    CU_OK(cuInit(0));
    CUstream streams[2] = {};
    for (int device : {0, 1}) {
      int actual = -1;
      EXPECT_EQ(ncclCommCuDevice(comms[device], &actual), ncclSuccess);
      EXPECT_EQ(actual, device);
      CUcontext context = nullptr;
      CU_OK(cuDevicePrimaryCtxRetain(&context, device));
      CU_OK(cuCtxSetCurrent(context));
      CU_OK(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
    }
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int device : {0, 1}) {
        EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 1000, ncclBfloat16, ncclAvg, comms[device],
                                streams[device]),
                  ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    }
    SwgpuNcclTotals totals{};
    swgpu_nccl_totals(&totals);
    EXPECT_EQ(totals.kernels, 40u);
    EXPECT_EQ(totals.last_arrivals, 20u);
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  });
}

TEST(NcclApi, EveryFunctionHasItsSecondName) {
  static constexpr const char* kNames[] = {"GetVersion",
                                           "GetUniqueId",
                                           "CommInitRank",
                                           "CommInitRankConfig",
                                           "CommInitRankScalable",
                                           "CommInitAll",
                                           "CommSplit",
                                           "CommFinalize",
                                           "CommDestroy",
                                           "CommAbort",
                                           "CommGetAsyncError",
                                           "CommCount",
                                           "CommCuDevice",
                                           "CommUserRank",
                                           "GetErrorString",
                                           "GetLastError",
                                           "MemAlloc",
                                           "MemFree",
                                           "CommRegister",
                                           "CommDeregister",
                                           "CommWindowRegister",
                                           "CommWindowDeregister",
                                           "RedOpCreatePreMulSum",
                                           "RedOpDestroy",
                                           "AllReduce",
                                           "Broadcast",
                                           "Bcast",
                                           "Reduce",
                                           "AllGather",
                                           "ReduceScatter",
                                           "AlltoAll",
                                           "Gather",
                                           "Scatter",
                                           "Send",
                                           "Recv",
                                           "GroupStart",
                                           "GroupEnd"};
  for (const char* name : kNames) {
    void* first = dlsym(RTLD_DEFAULT, (std::string("nccl") + name).c_str());
    EXPECT_NE(first, nullptr) << name;
    EXPECT_EQ(first, dlsym(RTLD_DEFAULT, (std::string("pnccl") + name).c_str())) << name;
  }
  for (const char* absent : {"ncclCommShrink", "ncclCommGrow", "ncclPutSignal", "ncclParamBind"}) {
    EXPECT_EQ(dlsym(RTLD_DEFAULT, absent), nullptr)
        << "the page says that it is absent: " << absent;
  }
}

}  // namespace
}  // namespace seqpoint::softgpu
