// `seqpoint-partition`: shares the rows of a sparse network out among ranks
// (docs/using/partition.md). `seqpoint partition` starts it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/commands/options.h"
#include "client/files/whole_file.h"
#include "client/partition/partition_text.h"
#include "client/planners/planner_program.h"
#include "client/planners/sparse_input.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/planner.h"
#include "proto/status_macros.h"
#ifdef SEQPOINT_WITH_ZOLTAN
#include "daemon/sparse/zoltan_partitioner.h"
#endif

namespace seqpoint::client {
namespace {

using sparse::Network;
using Clock = std::chrono::steady_clock;

constexpr const char* kStoppedNote =
    "stopped: this is the best so far, a longer search finds better";

#ifdef SEQPOINT_WITH_ZOLTAN
absl::StatusOr<sparse::HypergraphPartitioner> Partitioner() {
  return sparse::MakeZoltanPartitioner();
}
#else
absl::StatusOr<sparse::HypergraphPartitioner> Partitioner() {
  return sparse::HypergraphPartitioner();
}
constexpr const char* kNoZoltanNote =
    "no layer-by-layer partition: this program was built without Zoltan; install "
    "libtrilinos-zoltan-dev and libopenmpi-dev and build it again";
#endif

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (std::filesystem::is_directory(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot make the folder ", path, ": ",
                                                 error ? error.message() : "a file has this name"));
}

class Partition : public PlannerProgram {
 public:
  Partition()
      : PlannerProgram(
            "Choose which rank owns which rows of a sparse network, so that little is sent.",
            "seqpoint partition") {
    AddSparseInput(app_, &input_);
    AddValue(&app_, "--parts P", &options_.parts, "number of ranks",
             WholeNumber(1, sparse::kMostParts));
    AddValue(&app_, "--imbalance SHARE", &options_.imbalance,
             "how many more nonzeros than the mean a part of a layer may have; default 1%",
             Share());
    app_.add_flag("--training", options_.training, "count the backward pass, too");
    AddValue(&app_, "--effort F", &options_.effort, "multiplies the time of the search; default 1",
             Number(0.001, 1000));
    AddValue(&app_, "-o,--output DIR", &output_, "write owners.txt and sends.txt to this folder");
    AddValue(&app_, "--write DIR", &write_,
             "write the network to this folder, as GraphChallenge .tsv, one file per layer");
    app_.add_flag("--json", json_, "print the answer as JSON");
    app_.footer(R"(
WORDS           numbers sent for one sample: each activation once to each part that needs it; with
                --training equally many partial sums back
LARGEST SENDER  words of the part that sends most
IMBALANCE       how many more nonzeros than the mean the fullest part has, in the worst layer
OF WORDS        this partition's words as a share of the row's words
layer by layer  the published method, with Zoltan; blocks: consecutive rows

Exit codes: 0 ok, also when Ctrl-C ended the search with the best so far; 1 no answer; 2 wrong
usage. More: docs/using/partition.md.)");
  }

 private:
  absl::Status CheckUsage() const override {
    if (app_.count("--parts") > 0 || !write_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--parts is missing; see seqpoint partition --help");
  }

  absl::Status Run() override {
    std::vector<std::string> notes;
    SEQPOINT_ASSIGN_OR_RETURN(const Network network, ReadSparseInput(input_, &notes));
    if (!write_.empty()) {
      SEQPOINT_RETURN_IF_ERROR(WriteNetwork(network));
    }
    if (app_.count("--parts") == 0) return absl::OkStatus();

    PartitionAnswer answer{.options = options_};
    answer.options.seed = input_.seed;
    SEQPOINT_RETURN_IF_ERROR(MakePlan(network, &answer));
    if (answer.plan.stopped) notes.insert(notes.begin(), kStoppedNote);
    answer.plan.notes.insert(answer.plan.notes.begin(), notes.begin(), notes.end());
    if (!output_.empty()) {
      SEQPOINT_RETURN_IF_ERROR(WritePlan(network, answer));
    }
    return WriteWhole("-", json_ ? PartitionJson(answer) : PartitionText(network, answer));
  }

  absl::Status MakePlan(const Network& network, PartitionAnswer* answer) const {
    SEQPOINT_ASSIGN_OR_RETURN(const auto partitioner, Partitioner());
    PlanProgress progress(name_);
    sparse::PlannerOptions options = answer->options;
    options.stop = &Interrupted;
    options.progress = [&](const std::string& what) { progress.Say(what); };
    CatchInterrupt();
    const Clock::time_point begin = Clock::now();
    SEQPOINT_ASSIGN_OR_RETURN(answer->plan, sparse::MakePlan(network, options, partitioner));
    answer->seconds = std::chrono::duration<double>(Clock::now() - begin).count();
#ifndef SEQPOINT_WITH_ZOLTAN
    answer->plan.notes.push_back(kNoZoltanNote);
#endif
    return absl::OkStatus();
  }

  absl::Status WriteNetwork(const Network& network) const {
    SEQPOINT_RETURN_IF_ERROR(MakeFolder(write_));
    for (size_t l = 0; l < network.layers.size(); ++l) {
      const sparse::Layer& layer = network.layers[l];
      SEQPOINT_RETURN_IF_ERROR(WriteWhole(
          absl::StrCat(write_, "/n", layer.columns, "-l", l + 1, ".tsv"), sparse::WriteTsv(layer)));
    }
    return absl::OkStatus();
  }

  absl::Status WritePlan(const Network& network, const PartitionAnswer& answer) const {
    SEQPOINT_RETURN_IF_ERROR(MakeFolder(output_));
    SEQPOINT_RETURN_IF_ERROR(
        WriteWhole(output_ + "/owners.txt", sparse::WriteOwners(answer.plan.owners)));
    return WriteWhole(output_ + "/sends.txt",
                      sparse::WriteSendLists(
                          sparse::SendLists(network, answer.plan.owners, answer.options.parts)));
  }

  SparseInputOptions input_;
  sparse::PlannerOptions options_;
  std::string output_, write_;
};

}  // namespace
}  // namespace seqpoint::client

int main(int argc, char** argv) {
  return seqpoint::client::Partition().Main(std::vector<std::string>(argv + 1, argv + argc));
}
