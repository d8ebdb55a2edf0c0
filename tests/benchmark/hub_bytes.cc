#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/benchmark/hub_parts.h"
#include "tests/support/rank_jobs.h"
#include "tests/support/wire.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

constexpr int kToldRanks = 4;
constexpr int kToldIterations = 6000;  // of each rank
constexpr int kAfterMark = 1000;       // until what was measured before is on the wire
constexpr double kMostBytes = 300;     // per rank and iteration, at mark

// A node's daemon with a training of real processes, and what it tells its hub.
class ToldTraining {
 public:
  ToldTraining(const HubPart& part, const std::string& parallel)
      : part_(part),
        parallel_(parallel),
        hub_(part.folder / (parallel + "-hub")),
        wire_(part.folder / (parallel + ".sock"), hub_.socket()),
        jobs_(part.folder / (parallel + "-node"), {"--hub", wire_.address()}) {}

  void Run();

 private:
  struct Reading {
    double iterations = 0, bytes = 0;
  };
  // Nothing: the hub does not answer, or had fewer iterations after a minute.
  std::optional<Reading> ReadAfter(double iterations);

  const HubPart& part_;
  const std::string parallel_;
  HubProcess hub_;
  Wire wire_;
  RankJobs jobs_;
};

std::optional<ToldTraining::Reading> ToldTraining::ReadAfter(double iterations) {
  Api api = hub_.NewApi();
  v1::GetJobRequest request;
  request.set_job(parallel_);
  for (int tenth = 0; tenth < 600; ++tenth) {
    const auto reply = api.Call(&v1::Profiler::Stub::GetJob, request);
    const double had = reply ? static_cast<double>(reply->job().iterations()) : 0;
    if (had > 0 && had >= iterations) {
      return Reading{had, static_cast<double>(wire_.up_bytes())};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return std::nullopt;
}

void ToldTraining::Run() {
  FigureTable& table = part_.table;
  const pid_t ranks =
      jobs_.Start({.name = parallel_,
                   .ranks = kToldRanks,
                   .workload = {"--model", "transformer", "--parallel", parallel_, "--epochs",
                                "1000", "--max-iterations", absl::StrCat(kToldIterations), "--seed",
                                absl::StrCat(part_.seed)},
                   .settings = {"clock.speed_cap=4"},
                   .truth = false});
  const auto all = ReadAfter(kToldIterations / 2.0);
  v1::ControlRequest mark;
  mark.set_job(parallel_);
  mark.set_action(v1::ControlRequest::ACTION_SET_LEVEL);
  mark.set_level(v1::LEVEL_MARK);
  const bool marks = hub_.NewApi().Call(&v1::Profiler::Stub::Control, mark).has_value();
  const auto from = all ? ReadAfter(all->iterations + kAfterMark) : std::nullopt;
  const auto to = from ? ReadAfter(kToldIterations - 10) : std::nullopt;
  const bool ended = WaitFor(ranks) == 0;
  if (!all || !marks || !to || !ended) {
    return table.Leave(
        absl::StrCat("bytes, ", parallel_),
        absl::StrCat("the training or its hub failed; see ", jobs_.Log(parallel_).string()));
  }
  table.Tell(absl::StrCat("bytes, ", parallel_, ": with its measurements, first ", all->iterations,
                          " iterations"),
             all->bytes / all->iterations / kToldRanks, "bytes");
  table.Compare(absl::StrCat("bytes, ", parallel_, ": of a rank and iteration at mark"),
                (to->bytes - from->bytes) / (to->iterations - from->iterations) / kToldRanks,
                "bytes", Bound::kAtMost, kMostBytes);
}

}  // namespace

void CountHubBytes(const HubPart& part) {
  for (const std::string parallel : {"data", "sharded", "pipeline", "tensor"}) {
    std::printf("\n%d ranks, %s parallel, under a node's daemon\n", kToldRanks, parallel.c_str());
    ToldTraining(part, parallel).Run();
  }
}

}  // namespace seqpoint
