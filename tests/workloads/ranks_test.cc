// Training programs of several ranks on the software GPU, judged by their truth files and by that
// of the software NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_program.h"
#include "tests/support/temp_folder.h"
#include "tests/workloads/truth_lines.h"

namespace seqpoint::workload {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;

// Noise is drawn from the seed, and does not drift with time: runs with and without a fault have
// the same.
constexpr char kSettings[] = "clock.speed_cap=0,noise.drift=0,nccl.truth_file=";
constexpr size_t kHidden = 512;
constexpr size_t kLayers = 6;

// A line of the software NCCL's truth file.
struct Collective {
  std::string function;
  double bytes;
  int64_t arrival_ns, start_ns, end_ns;
  int rank, last_rank;
};

struct RankResult {
  std::string header;
  std::vector<std::string> iterations;
  std::string totals;
  std::vector<Collective> collectives;

  std::vector<double> Of(const std::string& key, const std::string& after = "rank") const {
    std::vector<double> values;
    for (const std::string& line : iterations) values.push_back(Number(line, key, after));
    return values;
  }
  // The bytes of this function's operations, in their order.
  std::vector<double> Bytes(const std::string& function) const {
    std::vector<double> bytes;
    for (const Collective& collective : collectives) {
      if (collective.function == function) bytes.push_back(collective.bytes);
    }
    return bytes;
  }
};

struct JobResult {
  int status = 0;
  std::string output;
  std::vector<RankResult> ranks;
};

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

class RanksTest : public testing::Test {
 protected:
  // Starts the ranks, by `launcher` followed by their number.
  JobResult Start(std::vector<std::string> command, int ranks, const std::string& arguments,
                  const std::map<std::string, std::string>& environment = {}) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* name : {"truth.", "nccl."}) {
        std::filesystem::remove(folder_.path() / (name + std::to_string(rank)));
      }
    }
    command.insert(command.end(), {SEQPOINT_WORKLOAD, "--truth", Path("truth.%r")});
    std::istringstream words(arguments);
    for (std::string word; words >> word;) command.push_back(word);
    std::map<std::string, std::string> variables = {{"LD_LIBRARY_PATH", SEQPOINT_SOFTGPU_DIR},
                                                    {"SWGPU_SET", kSettings + Path("nccl.%r")},
                                                    {"NCCL_PROFILER_PLUGIN", "none"}};
    variables.insert(environment.begin(), environment.end());
    const ProgramResult program = RunProgram(command, variables);
    JobResult job{program.exit_status, program.output, {}};
    for (int rank = 0; rank < ranks; ++rank) job.ranks.push_back(Read(rank));
    return job;
  }
  JobResult Run(int ranks, const std::string& arguments) {
    return Start({SEQPOINT_LAUNCH, "-n", std::to_string(ranks)}, ranks, arguments);
  }
  JobResult RunWell(int ranks, const std::string& arguments) {
    JobResult job = Run(ranks, arguments);
    EXPECT_EQ(job.status, 0) << arguments << "\n" << job.output;
    for (const RankResult& rank : job.ranks) EXPECT_FALSE(rank.totals.empty()) << arguments;
    return job;
  }
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }

  RankResult Read(int number) const {
    RankResult rank;
    std::ifstream truth(Path("truth." + std::to_string(number)));
    for (std::string line; std::getline(truth, line);) {
      if (line.starts_with(R"({"kind":"header")")) rank.header = line;
      if (line.starts_with(R"({"kind":"iteration")")) rank.iterations.push_back(line);
      if (line.starts_with(R"({"kind":"totals")")) rank.totals = line;
    }
    std::ifstream nccl(Path("nccl." + std::to_string(number)));
    std::string line;
    for (std::getline(nccl, line); std::getline(nccl, line);) {
      std::replace(line.begin(), line.end(), ',', ' ');
      std::istringstream in(line);
      Collective c;
      std::string communicator, kernel, sequence;
      in >> communicator >> kernel >> c.function >> sequence >> c.bytes >> c.rank >> c.arrival_ns >>
          c.start_ns >> c.end_ns >> c.last_rank;
      EXPECT_FALSE(in.fail()) << line;
      rank.collectives.push_back(c);
    }
    return rank;
  }

  TempFolder folder_;
};

class CountsTest : public RanksTest, public testing::WithParamInterface<int> {};

TEST_P(CountsTest, DataParallelReducesEveryGradientOnceInBuckets) {
  for (const char* model : {"gnmt", "ds2", "transformer", "fixed"}) {
    SCOPED_TRACE(model);
    const JobResult job =
        RunWell(GetParam(), std::string("--parallel data --batch 4 --max-iterations 2 "
                                        "--bucket-mb 4 --model ") +
                                model);
    // "transformer on ...: 123 parameters, ..."
    const size_t at = job.output.find(": ");
    ASSERT_NE(at, std::string::npos);
    const double parameters = std::stod(job.output.substr(at + 2));
    for (const RankResult& rank : job.ranks) {
      const std::vector<double> bytes = rank.Bytes("AllReduce");
      EXPECT_EQ(bytes.size(), rank.collectives.size());
      EXPECT_EQ(Sum(bytes), 2 * 4 * parameters);
      EXPECT_EQ(Sum(rank.Of("bytes")), 2 * 4 * parameters);
      // Each bucket but an iteration's last one is full.
      const size_t buckets = bytes.size() / 2;
      EXPECT_EQ(rank.Of("collectives"), std::vector<double>(2, static_cast<double>(buckets)));
      for (size_t i = 0; i < bytes.size(); ++i) {
        if (i % buckets != buckets - 1) {
          EXPECT_GE(bytes[i], 4 << 20);
        }
        EXPECT_EQ(bytes[i], bytes[i % buckets]);
      }
    }
  }
}

TEST_P(CountsTest, ShardedGathersEachUnitTwiceAndScattersItsGradients) {
  const int ranks = GetParam();
  const JobResult job =
      RunWell(ranks, "--parallel sharded --model transformer --batch 4 --max-iterations 2");
  for (const RankResult& rank : job.ranks) {
    const std::vector<double> gathered = rank.Bytes("AllGather");
    const std::vector<double> scattered = rank.Bytes("ReduceScatter");
    EXPECT_EQ(gathered.size(), 2 * 2 * (kLayers + 2));
    EXPECT_EQ(scattered.size(), 2 * (kLayers + 2));
    EXPECT_EQ(Sum(gathered), 2 * Sum(scattered));
    // A layer: 12 h^2 weights, 9 h biases, 4 h of the layer norms.
    const double layer = 4.0 * (12 * kHidden * kHidden + 13 * kHidden) / ranks;
    EXPECT_EQ(std::count(scattered.begin(), scattered.end(), layer), 2 * kLayers);
    EXPECT_EQ(rank.Bytes("AllReduce"), std::vector<double>(2, 1024));  // the norm
  }
}

TEST_P(CountsTest, TensorParallelReducesTwiceInEachHalfOfALayer) {
  const JobResult job = RunWell(
      GetParam(), "--parallel tensor --model transformer --batch 4 --max-iterations 3 --drop-last");
  for (const RankResult& rank : job.ranks) {
    const std::vector<double> bytes = rank.Bytes("AllReduce");
    ASSERT_EQ(bytes.size(), rank.collectives.size());
    ASSERT_EQ(bytes.size(), 3 * (4 * kLayers + 1));
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t per_iteration = 4 * kLayers + 1;
      const std::string& line = rank.iterations[i / per_iteration];
      const double activations = Lengths(line)[0] * 4.0 * kHidden * 4;
      EXPECT_EQ(bytes[i], i % per_iteration == per_iteration - 1 ? 1024 : activations) << i;
    }
  }
}

TEST_P(CountsTest, PipelineStagesExchangeWithTheirNeighbours) {
  const int ranks = GetParam();
  const JobResult job = RunWell(
      ranks, "--parallel pipeline --model transformer --batch 4 --accumulate 5 --max-iterations 2");
  for (int r = 0; r < ranks; ++r) {
    SCOPED_TRACE(r);
    const RankResult& rank = job.ranks[static_cast<size_t>(r)];
    const int neighbours = (r > 0) + (r + 1 < ranks);
    EXPECT_EQ(rank.Of("transfers"), std::vector<double>(2, 2 * 5 * neighbours));
    EXPECT_EQ(rank.Of("collectives"), std::vector<double>(2, 1));  // the norm
    for (const char* function : {"Send", "Recv"}) {
      double expected = 0;
      for (const std::string& line : rank.iterations) {
        expected += Lengths(line)[0] * 4.0 * kHidden * 4 * neighbours;
      }
      EXPECT_EQ(rank.Bytes(function).size(), static_cast<size_t>(2 * 5 * neighbours));
      EXPECT_EQ(Sum(rank.Bytes(function)), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CountsTest, testing::Values(2, 4));

struct Parallelism {
  const char* name;
  bool shares_batch;
};

void PrintTo(const Parallelism& parallelism, std::ostream* out) { *out << parallelism.name; }

class EachTest : public RanksTest, public testing::WithParamInterface<Parallelism> {
 protected:
  std::string Arguments(const std::string& rest) const {
    return std::string("--model transformer --quiet --batch 16 --parallel ") + GetParam().name +
           " " + rest;
  }
};

TEST_P(EachTest, TheSeedFixesTheWorkAndItsTimes) {
  const auto run = [this](const char* seed) {
    return RunWell(2, Arguments("--max-iterations 4 --seed ") + seed);
  };
  const JobResult first = run("5"), second = run("5"), other = run("6");
  for (size_t r = 0; r < 2; ++r) {
    const auto digest = [r](const JobResult& job) { return Field(job.ranks[r].totals, "digest"); };
    EXPECT_EQ(digest(first), digest(second));
    EXPECT_NE(digest(first), digest(other));
    for (const char* key : {"work_ns", "exposed_wait_ns", "wait_ns", "transfer_ns"}) {
      EXPECT_EQ(first.ranks[r].Of(key), second.ranks[r].Of(key)) << key;
    }
  }
}

TEST_P(EachTest, TheTruthOfTheRanksAgreesWithThatOfTheirCollectives) {
  const JobResult job = RunWell(2, Arguments("--max-iterations 5"));
  const std::vector<double> times = job.ranks[0].Of("gpu_time_ns", "");
  for (const RankResult& rank : job.ranks) {
    int64_t waited_ns = 0, transferred_ns = 0;
    std::map<int64_t, bool> last;  // kernels by their end
    for (const Collective& c : rank.collectives) {
      if (!last.emplace(c.end_ns, c.last_rank == c.rank).second) continue;
      waited_ns += c.start_ns - c.arrival_ns;
      transferred_ns += c.end_ns - c.start_ns;
    }
    const auto waited = static_cast<double>(waited_ns);
    EXPECT_EQ(Sum(rank.Of("wait_ns")), waited);
    EXPECT_EQ(Sum(rank.Of("transfer_ns")), static_cast<double>(transferred_ns));
    EXPECT_EQ(Sum(rank.Of("communication_kernels")), static_cast<double>(last.size()));
    double last_arrivals = 0;
    for (const auto& [end, is_last] : last) last_arrivals += is_last;
    EXPECT_EQ(Sum(rank.Of("last_arrivals")), last_arrivals);
    const std::vector<double> work = rank.Of("work_ns"), exposed = rank.Of("exposed_wait_ns");
    for (size_t i = 0; i < work.size(); ++i) {
      EXPECT_NEAR(work[i] + exposed[i], rank.Of("gpu_time_ns", "")[i], 20);
      EXPECT_GT(work[i], 0);
      // All ranks go through the iteration together.
      EXPECT_NEAR(work[i] + exposed[i], times[i], 0.2 * times[i]);
    }
    EXPECT_LE(Sum(exposed), waited + 1);
    // Blocking operations hide no wait.
    if (GetParam().shares_batch) {
      EXPECT_NEAR(Sum(exposed), waited, 1 + 0.01 * waited);
    }
  }
  // Somebody is last each time.
  EXPECT_GE(Sum(job.ranks[0].Of("last_arrivals")) + Sum(job.ranks[1].Of("last_arrivals")),
            Sum(job.ranks[0].Of("communication_kernels")));
}

TEST_P(EachTest, RanksHaveOneSetOfLengthsOrTheirOwn) {
  for (const char* which : {"own", "shared"}) {
    const JobResult job =
        Run(2, Arguments(std::string("--max-iterations 6 --rank-lengths ") + which));
    const bool own = std::string(which) == "own";
    if (own && GetParam().shares_batch) {
      EXPECT_EQ(job.status, 2);
      EXPECT_THAT(job.output, HasSubstr("share each batch"));
      continue;
    }
    EXPECT_EQ(job.status, 0) << job.output;
    std::vector<std::vector<int>> lengths[2];
    for (size_t r = 0; r < 2; ++r) {
      for (const std::string& line : job.ranks[r].iterations) lengths[r].push_back(Lengths(line));
    }
    ASSERT_EQ(lengths[0].size(), 6u);
    EXPECT_EQ(lengths[0] != lengths[1], own);
  }
}

// A fault changes the work of its rank in its iterations, and nothing else.
TEST_P(EachTest, SlowKernelsMakeTheirRanksWorkLonger) {
  const std::string arguments = Arguments("--max-iterations 8 --launch-us 0.5 ");
  const JobResult usual = RunWell(2, arguments);
  const JobResult slow = RunWell(2, arguments + "--slow 1:kernels:1.5@3-5");
  for (size_t r = 0; r < 2; ++r) {
    const std::vector<double> before = usual.ranks[r].Of("work_ns");
    const std::vector<double> after = slow.ranks[r].Of("work_ns");
    for (size_t i = 0; i < 8; ++i) {
      const bool acts = r == 1 && i >= 3 && i <= 5;
      EXPECT_EQ(after[i] > 1.1 * before[i], acts) << "rank " << r << " iteration " << i;
      if (acts) continue;
      EXPECT_NEAR(after[i], before[i], 0.01 * before[i]) << "rank " << r << " iteration " << i;
    }
  }
  // What it costs: the other rank waits.
  const double cost =
      Sum(slow.ranks[0].Of("gpu_time_ns", "")) - Sum(usual.ranks[0].Of("gpu_time_ns", ""));
  EXPECT_GT(cost, 0);
  EXPECT_NEAR(Sum(slow.ranks[0].Of("exposed_wait_ns")) - Sum(usual.ranks[0].Of("exposed_wait_ns")),
              cost, 0.1 * cost);
}

INSTANTIATE_TEST_SUITE_P(All, EachTest,
                         testing::Values(Parallelism{"data", false}, Parallelism{"sharded", false},
                                         Parallelism{"pipeline", true},
                                         Parallelism{"tensor", true}),
                         [](const auto& info) { return std::string(info.param.name); });

// Iterations in which a rank's figure differs from the usual run's by more than a hundredth, and by
// what factor in the mean.
struct Change {
  std::vector<size_t> iterations;
  double factor = 1;
};

Change Compare(const std::vector<double>& usual, const std::vector<double>& now) {
  Change change;
  double factors = 0;
  for (size_t i = 0; i < usual.size(); ++i) {
    if (std::abs(now[i] - usual[i]) <= 0.01 * usual[i]) continue;
    change.iterations.push_back(i);
    factors += now[i] / usual[i];
  }
  if (!change.iterations.empty()) {
    change.factor = factors / static_cast<double>(change.iterations.size());
  }
  return change;
}

const std::vector<size_t> kFaulty = {3, 4, 5};
const std::vector<size_t> kNever = {};

class FaultTest : public RanksTest {
 protected:
  // The change of each rank's work, or of another figure.
  std::vector<Change> Changes(const std::string& arguments, const std::string& fault,
                              const std::string& key = "work_ns") {
    const std::string all = "--parallel data --quiet --max-iterations 8 " + arguments;
    const JobResult usual = RunWell(2, all), now = RunWell(2, all + " " + fault);
    std::vector<Change> changes;
    for (size_t r = 0; r < 2; ++r) {
      changes.push_back(Compare(usual.ranks[r].Of(key), now.ranks[r].Of(key)));
    }
    return changes;
  }
};

TEST_F(FaultTest, KernelsOfAName) {
  const auto changes =
      Changes("--batch 16 --model transformer --launch-us 0.5", "--slow 0:gemm_:2@3-5");
  EXPECT_EQ(changes[0].iterations, kFaulty);
  EXPECT_GT(changes[0].factor, 1.2);
  EXPECT_EQ(changes[1].iterations, kNever);
}

TEST_F(FaultTest, ALateHostWhereLaunchesAreTheLimit) {
  const auto changes = Changes("--model gnmt --batch 4", "--late 1:host:1.2@3-5");
  EXPECT_EQ(changes[1].iterations, kFaulty);
  EXPECT_NEAR(changes[1].factor, 1.2, 0.03);
  EXPECT_EQ(changes[0].iterations, kNever);
}

TEST_F(FaultTest, ALoaderThatIsSlow) {
  for (const char* feeding : {"", " --prefetch"}) {
    SCOPED_TRACE(feeding);
    const auto changes = Changes(
        std::string("--batch 16 --model transformer --readback 1") + feeding, "--loader 0:30@3-5");
    // A batch that is copied ahead makes the iteration before its own longer.
    const std::vector<size_t> before = {2, 3, 4};
    EXPECT_EQ(changes[0].iterations, *feeding == '\0' ? kFaulty : before);
    EXPECT_EQ(changes[1].iterations, kNever);
  }
}

TEST_F(FaultTest, ALinkWithHalfItsBandwidth) {
  const auto changes =
      Changes("--batch 16 --model transformer", "--link 0-1:0.5@3-5", "transfer_ns");
  for (const Change& change : changes) {
    EXPECT_EQ(change.iterations, kFaulty);
    EXPECT_GT(change.factor, 1.7);
    EXPECT_LT(change.factor, 2);
  }
}

TEST_F(FaultTest, SeveralAtOnce) {
  const auto changes = Changes("--batch 16 --model transformer --launch-us 0.5",
                               "--slow 0:kernels:1.5@3 --slow 1:kernels:1.5@3-5");
  EXPECT_EQ(changes[0].iterations, (std::vector<size_t>{3, 4, 5, 6, 7}));
  EXPECT_EQ(changes[1].iterations, kFaulty);
}

TEST_F(FaultTest, ARankThatDiesInACollectiveLeavesTheOthersInIt) {
  const JobResult job = Run(2, "--parallel data --quiet --batch 4 --max-iterations 8 --die 1@3");
  EXPECT_EQ(job.status, 128 + SIGKILL);
  EXPECT_THAT(job.output, HasSubstr("rank 1 (pid "));
  for (const RankResult& rank : job.ranks) EXPECT_EQ(rank.totals, "");
  const size_t per_iteration = job.ranks[0].collectives.size() / 3;
  EXPECT_EQ(job.ranks[0].collectives.size(), 3 * per_iteration);
  EXPECT_EQ(job.ranks[1].collectives.size(), 3 * per_iteration);
}

TEST_F(FaultTest, ARankThatHangsIsWaitedFor) {
  const std::string arguments = "--parallel data --quiet --batch 4 --max-iterations ";
  const size_t per_iteration = RunWell(2, arguments + "1").ranks[0].collectives.size();
  ASSERT_GT(per_iteration, 0u);
  // Ends them when both have written a header and what comes before iteration 3.
  const std::string lines = std::to_string(2 * (1 + 3 * per_iteration));
  const std::string script = "\"$@\" & while [ $(cat " + Path("nccl.0") + " " + Path("nccl.1") +
                             " 2>/dev/null | wc -l) -lt " + lines +
                             " ]; do sleep 0.05; done; sleep 0.3; kill $!; wait $!";
  const JobResult job = Start({"/bin/sh", "-c", script, "sh", SEQPOINT_LAUNCH, "-n", "2"}, 2,
                              arguments + "8 --hang 0@3");
  EXPECT_EQ(job.status, 128 + SIGTERM);
  for (const RankResult& rank : job.ranks) {
    EXPECT_EQ(rank.collectives.size(), 3 * per_iteration);
    EXPECT_EQ(rank.totals, "");
  }
}

TEST_F(RanksTest, OneRankAloneSharesNothing) {
  const auto digest = [this](const std::string& arguments) {
    const JobResult job = RunWell(1, "--quiet --batch 8 --max-iterations 4 " + arguments);
    EXPECT_TRUE(job.ranks[0].collectives.empty());
    return Field(job.ranks[0].totals, "digest");
  };
  const std::string alone = digest("--model transformer");
  for (const char* parallel : {"data", "sharded", "tensor"}) {
    EXPECT_EQ(digest(std::string("--model transformer --parallel ") + parallel), alone) << parallel;
  }
}

TEST_F(RanksTest, MoreWorkIsSharedToo) {
  for (const char* more :
       {"--parallel data --accumulate 3", "--parallel data --eval-every 2 --checkpoint-every 2",
        "--parallel data --backward-thread --prefetch", "--parallel sharded --accumulate 3",
        "--parallel sharded --eval-every 2 --checkpoint-every 2 --prefetch",
        "--parallel tensor --eval-every 2 --checkpoint-every 2 --prefetch --accumulate 2",
        "--parallel pipeline --checkpoint-every 2 --accumulate 1",
        "--parallel pipeline --readback never --zero-grad none"}) {
    const JobResult job =
        RunWell(2, std::string("--model transformer --quiet --batch 4 --max-iterations 4 ") + more);
    for (const RankResult& rank : job.ranks) EXPECT_EQ(rank.iterations.size(), 4u) << more;
  }
}

TEST_F(RanksTest, RanksDrawNoiseOfTheirOwn) {
  const JobResult job =
      RunWell(2, "--parallel tensor --model fixed --hidden 512 --quiet --max-iterations 3");
  EXPECT_NE(job.ranks[0].Of("work_ns"), job.ranks[1].Of("work_ns"));
}

TEST_F(RanksTest, MistakesAreSaidBeforeTraining) {
  const struct {
    const char* arguments;
    const char* message;
  } mistakes[] = {
      {"--parallel pipeline --model gnmt", "gnmt cannot be split"},
      {"--parallel tensor --model transformer --hidden 192", "3 attention heads"},
      {"--parallel pipeline --model transformer --layers 1",
       "--layers 1 are fewer than the 2 ranks"},
      {"--parallel data --slow 2:kernels:1.5", "a fault of rank 2: there are 2 ranks"},
      {"--parallel data --slow 0:kernels", "\"0:kernels\" is not RANK:kernels:FACTOR"},
      {"--parallel data --link 0-0:0.5", "is not RANK-RANK:FACTOR"},
      {"--parallel data --graphs --model transformer", "not with --graphs"},
      {"--hang 0@3", "need the collectives of several ranks"},
  };
  for (const auto& [arguments, message] : mistakes) {
    const JobResult job = Run(2, arguments);
    EXPECT_EQ(job.status, 2) << arguments;
    EXPECT_THAT(job.output, HasSubstr(message)) << arguments;
    EXPECT_TRUE(job.ranks[0].iterations.empty());
  }
}

TEST_F(RanksTest, OpenMpiStartsThemToo) {
  if (access("/usr/bin/mpirun", X_OK) != 0)
    GTEST_SKIP() << "Open MPI (openmpi-bin) is not installed";
  const JobResult job =
      Start({"/usr/bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"}, 2,
            "--parallel data --model transformer --quiet --batch 4 --max-iterations 3");
  EXPECT_EQ(job.status, 0) << job.output;
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(Number(job.ranks[r].header, "rank"), static_cast<double>(r));
    EXPECT_EQ(job.ranks[r].iterations.size(), 3u);
    EXPECT_FALSE(job.ranks[r].collectives.empty());
  }
}

}  // namespace
}  // namespace seqpoint::workload
