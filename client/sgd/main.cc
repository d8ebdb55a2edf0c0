// seqpoint-sgd: runs a sparse network on MPI ranks, each with the neurons that a plan gives it.
// docs/using/partition.md, "Execution".
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/options.h"
#include "client/files/whole_file.h"
#include "client/planners/planner_program.h"
#include "client/planners/sparse_input.h"
#include "client/sgd/cusparse_product.h"
#include "client/sgd/data.h"
#include "client/sgd/local_layer.h"
#include "client/sgd/report.h"
#include "client/sgd/step_line.h"
#include "client/sgd/training.h"
#include "client/text/plain_text.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/volume.h"
#include "injection/seqpoint.h"
#include "proto/status_macros.h"

namespace seqpoint::sgd {
namespace {

constexpr const char* kProgram = "seqpoint-sgd";
constexpr double kMostNumber = std::numeric_limits<float>::max();

struct Options {
  client::SparseInputOptions input;
  std::string owners;
  bool inference = false;
  bool weights_as_read = false;
  bool gpu = false;
  std::string activation;
  std::string loss = "squares";
  Training::Options step;
  int steps = 100;
  std::string json;
  std::string write;
};

// mpirun sends its ranks SIGTERM for Ctrl-C and for SIGTERM alike.
void CatchSignals() {
  client::CatchInterrupt();
  struct sigaction action = {};
  sigaction(SIGINT, nullptr, &action);
  sigaction(SIGTERM, &action, nullptr);
}

struct Ranks {
  int rank = 0;
  int size = 1;
};

// A rank of many reads the same files as the others, but not always the same bytes.
absl::Status OfAllRanks(const absl::Status& status, const Ranks& ranks) {
  int first = status.ok() ? ranks.size : ranks.rank;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == ranks.size) return absl::OkStatus();
  if (first == ranks.rank) return status;
  return absl::CancelledError();  // that rank says it
}

absl::StatusOr<sparse::Owners> ReadPlan(const Options& options, const sparse::Network& network,
                                        int ranks) {
  if (options.owners.empty()) return sparse::BlockParts(network, ranks);
  SEQPOINT_ASSIGN_OR_RETURN(const auto text, client::ReadWhole(options.owners));
  SEQPOINT_ASSIGN_OR_RETURN(auto owners, sparse::ReadOwners(text, options.owners));
  absl::Status fits = sparse::CheckOwners(network, owners, ranks);
  if (fits.ok()) return owners;
  return absl::InvalidArgumentError(
      absl::StrCat(options.owners, ": ", fits.message(), "; there are ", ranks,
                   " ranks, and the plan must be of this network for as many parts"));
}

// Where a class has no output, nothing tells its samples right from wrong.
absl::Status CheckLoss(const Options& options, const sparse::Network& network) {
  const int32_t outputs = network.layers.back().rows;
  if (options.inference || options.step.loss != Loss::kCrossEntropy || outputs >= kClasses) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--loss cross-entropy needs an output for each of the ", kClasses,
                   " classes of the samples, and the last layer has ",
                   client::FormatCount(outputs, "neuron"), "; take --loss squares"));
}

std::string LayerFile(const Options& options, size_t layer) {
  return absl::StrCat(options.write, "/layer", layer + 1, ".tsv");
}

// Before the first step, so that no run is lost for an output that cannot be written.
absl::Status CheckOutputs(const Options& options, size_t layers) {
  std::vector<std::string> written;
  if (!options.json.empty() && options.json != "-") written.push_back(options.json);
  if (!options.write.empty()) {
    mkdir(options.write.c_str(), 0777);  // where it fails, opening a file there says why
    for (size_t l = 0; l < layers; ++l) written.push_back(LayerFile(options, l));
  }
  std::error_code error;
  std::set<std::filesystem::path> taken;
  for (const std::string& file : options.input.files) {
    taken.insert(std::filesystem::canonical(file, error));
  }
  for (const std::string& file : {options.owners, options.input.permutations}) {
    taken.insert(std::filesystem::canonical(file, error));
  }
  for (const std::string& file : written) {
    if (!taken.insert(std::filesystem::weakly_canonical(file, error)).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cannot write ", file, ": it is read, or written already; name another place"));
    }
    // A pipe or a device waits until there is something to write.
    if (std::filesystem::exists(file, error) && !std::filesystem::is_regular_file(file, error) &&
        !std::filesystem::is_directory(file, error)) {
      continue;
    }
    SEQPOINT_RETURN_IF_ERROR(client::WholeFile::Open(file).status());
  }
  return absl::OkStatus();
}

// MPI counts what a message holds in an int.
absl::Status CheckMessages(const LocalLayer& layer, size_t index, int samples) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  for (const Peer& peer : layer.peers) {
    const int64_t neurons = std::max<int64_t>(peer.send.size(), peer.receive_count);
    if (neurons * samples <= kMost) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "in layer ", index + 1, " ", client::FormatCount(neurons), " neurons of ",
        client::FormatCount(samples), " samples would travel in one message, and MPI takes ",
        client::FormatCount(kMost), " numbers at most; take --samples ", kMost / neurons,
        " or fewer"));
  }
  return absl::OkStatus();
}

struct Job {
  sparse::Network network;
  sparse::Owners owners;
  std::vector<LocalLayer> layers;
};

absl::StatusOr<Job> Prepare(const Options& options, const Ranks& ranks) {
  Job job;
  SEQPOINT_ASSIGN_OR_RETURN(job.network, client::ReadSparseInput(options.input));
  SEQPOINT_RETURN_IF_ERROR(CheckLoss(options, job.network));
  SEQPOINT_ASSIGN_OR_RETURN(job.owners, ReadPlan(options, job.network, ranks.size));
  if (!options.inference && !options.weights_as_read) {
    DrawWeights(options.input.seed, job.network);
  }
  for (size_t l = 0; l < job.network.layers.size(); ++l) {
    job.layers.push_back(
        MakeLocalLayer(job.network.layers[l], job.owners[l], job.owners[l + 1], ranks.rank));
    SEQPOINT_RETURN_IF_ERROR(CheckMessages(job.layers.back(), l, options.step.samples));
  }
  if (ranks.rank == 0) {
    SEQPOINT_RETURN_IF_ERROR(CheckOutputs(options, job.layers.size()));
  }
  return job;
}

std::vector<Traffic> OfAllRanks(std::vector<Traffic> layers, int64_t steps) {
  static_assert(sizeof(Traffic) == 2 * sizeof(int64_t));
  MPI_Allreduce(MPI_IN_PLACE, layers.data(), static_cast<int>(2 * layers.size()), MPI_INT64_T,
                MPI_SUM, MPI_COMM_WORLD);
  for (Traffic& layer : layers) layer = {layer.words / steps, layer.messages / steps};
  return layers;
}

Traffic LargestSender(const Training& training, int64_t steps) {
  const Traffic forward = Sum(training.forward_traffic());
  const Traffic backward = Sum(training.backward_traffic());
  int64_t most[2] = {forward.words + backward.words, forward.messages + backward.messages};
  MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  return {most[0] / steps, most[1] / steps};
}

// The module stays open until the program ends.
absl::StatusOr<MakeProduct> OpenGpu() {
  // First what all ranks do together: some may return early.
  MPI_Comm machine = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &rank);
  MPI_Comm_free(&machine);
  void* module = dlopen(kCusparseModule, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("--gpu needs the module with cuSPARSE, which cannot be loaded: ", dlerror(),
                     "; build it with the CUDA Toolkit, or leave --gpu out"));
  }
  const auto open =
      reinterpret_cast<decltype(&seqpoint_sgd_open_gpu)>(dlsym(module, "seqpoint_sgd_open_gpu"));
  const auto make = reinterpret_cast<decltype(&seqpoint_sgd_cusparse_product)>(
      dlsym(module, "seqpoint_sgd_cusparse_product"));
  if (open == nullptr || make == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("--gpu: ", kCusparseModule, " is of another version; build both together"));
  }
  if (const char* why = open(rank)) {
    return absl::UnavailableError(
        absl::StrCat("--gpu: no GPU can be used here: ", why, "; leave --gpu out"));
  }
  return [make](Weights* weights) { return std::unique_ptr<LocalProduct>(make(weights)); };
}

std::string StepText(const Report& report) {
  std::string text =
      absl::StrCat("seqpoint-sgd: step ", report.step_seconds.size(), " of ", report.steps_wanted);
  if (!report.losses.empty()) absl::StrAppendFormat(&text, ", loss %.4g", report.losses.back());
  absl::StrAppendFormat(&text, ", %.3g ms (Ctrl-C: end after this step)",
                        1e3 * report.step_seconds.back());
  return text;
}

Report Run(const Options& options, const Ranks& ranks, const Job& job, Training& training) {
  Report report{.ranks = ranks.size,
                .inference = options.inference,
                .steps_wanted = options.steps,
                .samples = options.step.samples};
  const std::vector<int32_t> inputs = Owned(job.owners.front(), ranks.rank);
  const std::vector<int32_t> outputs = Owned(job.owners.back(), ranks.rank);
  const int samples = options.step.samples;
  const uint64_t seed = options.input.seed;
  StepLine line(/*wanted=*/ranks.rank == 0);
  CatchSignals();
  for (int step = 0; step < options.steps && !report.stopped; ++step) {
    const int64_t first = int64_t{1} * step * samples;
    const Batch input = Inputs(seed, first, samples, inputs);
    const Batch target = options.inference
                             ? Batch()
                             : Targets(seed, first, samples, outputs,
                                       job.network.layers.back().rows, options.step.loss);
    MPI_Barrier(MPI_COMM_WORLD);
    if (seqpoint_iteration_begin) seqpoint_iteration_begin(samples);
    const double begin = MPI_Wtime();
    const Batch& output = training.Forward(input);
    if (!options.inference) report.losses.push_back(training.Backward(target));
    // A signal reaches ranks at different times; whoever has it stops all after the same step.
    double of_slowest[2] = {MPI_Wtime() - begin, client::Interrupted() ? 1.0 : 0.0};
    MPI_Allreduce(MPI_IN_PLACE, of_slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    report.step_seconds.push_back(of_slowest[0]);
    report.stopped = of_slowest[1] > 0 && step + 1 < options.steps;
    report.output_sum = output.cast<double>().sum();
    if (!report.losses.empty() && !std::isfinite(report.losses.back())) break;
    if (line.Due()) line.Say(StepText(report));
  }
  MPI_Allreduce(MPI_IN_PLACE, &report.output_sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const auto steps = static_cast<int64_t>(report.step_seconds.size());
  report.forward = OfAllRanks(training.forward_traffic(), steps);
  report.backward = OfAllRanks(training.backward_traffic(), steps);
  report.largest_sender = LargestSender(training, steps);
  return report;
}

// The weights of all ranks, in rank 0's `network`.
void Gather(const Ranks& ranks, const sparse::Owners& owners, const std::vector<LocalLayer>& layers,
            sparse::Network& network) {
  for (size_t l = 0; l < layers.size(); ++l) {
    const std::vector<float> mine = RowWeights(layers[l]);
    if (ranks.rank != 0) {
      MPI_Send(mine.data(), static_cast<int>(mine.size()), MPI_FLOAT, 0, static_cast<int>(l),
               MPI_COMM_WORLD);
      continue;
    }
    sparse::Layer& layer = network.layers[l];
    for (int from = 0; from < ranks.size; ++from) {
      const std::vector<int32_t> rows = Owned(owners[l + 1], from);
      std::vector<float> weights = mine;
      if (from != 0) {
        int64_t count = 0;
        for (const int32_t row : rows) count += layer.row_begin[row + 1] - layer.row_begin[row];
        weights.resize(count);
        MPI_Recv(weights.data(), static_cast<int>(count), MPI_FLOAT, from, static_cast<int>(l),
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      auto next = weights.begin();
      for (const int32_t row : rows) {
        const int64_t count = layer.row_begin[row + 1] - layer.row_begin[row];
        std::copy_n(next, count, layer.weight.begin() + layer.row_begin[row]);
        next += count;
      }
    }
  }
}

absl::Status Write(const Options& options, const sparse::Network& network, const Report& report) {
  absl::Status status =
      client::WriteWhole("-", options.json == "-" ? ReportJson(report) : ReportText(report));
  if (!report.as_predicted) return absl::InternalError("what was sent is not what was predicted");
  if (status.ok() && !options.json.empty() && options.json != "-") {
    status = client::WriteWhole(options.json, ReportJson(report));
  }
  for (size_t l = 0; status.ok() && !options.write.empty() && l < network.layers.size(); ++l) {
    status = client::WriteWhole(LayerFile(options, l), sparse::WriteTsv(network.layers[l]));
  }
  // The last word: a run that was killed while it wrote lacks it.
  if (status.ok() && !options.write.empty() && options.json != "-") {
    status = client::WriteWhole("-", absl::StrCat("weights:  written to ", options.write, "\n"));
  }
  return status;
}

absl::Status Main(const Options& options, const Ranks& ranks) {
  auto prepared = Prepare(options, ranks);
  SEQPOINT_RETURN_IF_ERROR(OfAllRanks(prepared.status(), ranks));
  Job job = *std::move(prepared);
  auto product = options.gpu ? OpenGpu() : absl::StatusOr<MakeProduct>(&MakeEigenProduct);
  SEQPOINT_RETURN_IF_ERROR(OfAllRanks(product.status(), ranks));
  Training training(MPI_COMM_WORLD, std::move(job.layers), options.step, *product);
  Report report = Run(options, ranks, job, training);
  // The same on all ranks.
  if (!report.losses.empty() && !std::isfinite(report.losses.back())) {
    return OfAllRanks(absl::InvalidArgumentError(absl::StrCat(
                          "the loss is no finite number any more in step ", report.losses.size(),
                          "; try a smaller --rate than ", options.step.rate)),
                      ranks);
  }

  if (!options.write.empty()) Gather(ranks, job.owners, training.Layers(), job.network);
  if (ranks.rank != 0) return OfAllRanks(absl::OkStatus(), ranks);
  const sparse::Volume predicted = sparse::CountVolume(job.network, job.owners, ranks.size);
  report.as_predicted = report.forward == predicted.layers &&
                        (options.inference || report.backward == predicted.layers);
  return OfAllRanks(Write(options, job.network, report), ranks);
}

void AddOptions(CLI::App& app, Options* options) {
  client::SetUpProgram(&app);
  client::AddSparseInput(app, &options->input);
  client::AddValue(&app, "--owners FILE", &options->owners,
                   "owners.txt of seqpoint partition; default: each layer is cut into blocks of "
                   "consecutive rows");
  app.add_flag(
      "--inference", options->inference,
      "GraphChallenge's inference: weights as read, clipped ReLU, a bias; default: training");
  app.add_flag("--weights-as-read", options->weights_as_read,
               "start from the weights of the files; default: drawn with --seed");
  app.add_flag("--gpu", options->gpu, "local products with cuSPARSE; untested on a GPU");
  client::AddChoice(&app, "--activation", &options->activation, {"sigmoid", "relu", "clipped"},
                    "activation; default: sigmoid, with --inference clipped");
  client::AddChoice(&app, "--loss", &options->loss, {"squares", "cross-entropy"},
                    "loss; default: squares");
  client::AddValue(&app, "--bias B", &options->step.bias,
                   "added to every weighted sum; default 0, with --inference -0.3",
                   client::Number(-kMostNumber, kMostNumber));
  client::AddValue(&app, "--rate R", &options->step.rate, "learning rate; default 0.1",
                   client::Number(0, kMostNumber));
  client::AddValue(&app, "--samples N", &options->step.samples,
                   "samples in a minibatch; default 32", client::WholeNumber(1, 1 << 16));
  client::AddValue(&app, "--steps N", &options->steps, "number of minibatches; default 100",
                   client::WholeNumber(1, 1 << 30));
  client::AddValue(&app, "--json FILE", &options->json,
                   "write the figures to this file; -: print them and nothing else");
  client::AddValue(&app, "--write DIR", &options->write,
                   "write the weights after the last step to this folder, as .tsv");
  app.footer(R"(
Ctrl-C ends the run after the current step, with the figures and weights so far. mpirun passes it on
after a second and kills remaining ranks after another second. pkill -INT -x seqpoint-sgd has no such
limit; mpirun --mca odls_base_sigkill_timeout 10 waits 10 seconds both times.

Exit codes: 0 ok, also after a signal; 1 no answer; 2 wrong usage. mpirun itself returns 1 then.
docs/using/partition.md, "Execution", has the method and the fields of the JSON.)");
}

void Settle(const CLI::App& app, Options* options) {
  if (options->activation.empty()) options->activation = options->inference ? "clipped" : "sigmoid";
  options->step.activation = options->activation == "sigmoid" ? Activation::kSigmoid
                             : options->activation == "relu"  ? Activation::kRelu
                                                              : Activation::kClipped;
  options->step.loss = options->loss == "squares" ? Loss::kSquares : Loss::kCrossEntropy;
  if (options->inference && app.count("--bias") == 0) options->step.bias = -0.3f;
}

int RunProgram(const std::vector<std::string>& words, const Ranks& ranks) {
  Options options;
  CLI::App app(
      "Runs a sparse network on MPI ranks: mpirun -n 8 seqpoint-sgd --radixnet 1024x120 "
      "--owners plan/owners.txt",
      kProgram);
  AddOptions(app, &options);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 wants them
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    if (ranks.rank != 0) return asked ? 0 : client::kExitUsage;
    if (asked) return app.exit(error);
    const std::string message =
        client::UsageMessage(app, error, /*separated=*/false, words) + "; see seqpoint-sgd --help";
    return client::FailProgram(kProgram, absl::InvalidArgumentError(message), client::kExitUsage,
                               options.json == "-");
  }
  Settle(app, &options);
  if (seqpoint_rank) seqpoint_rank(ranks.rank, ranks.size);
  if (seqpoint_attach) seqpoint_attach(/*uses_gpu=*/0);
  const absl::Status status = Main(options, ranks);
  if (status.ok()) return 0;
  const bool said_elsewhere = absl::IsCancelled(status);
  if (said_elsewhere) return client::kExitError;
  return client::FailProgram(kProgram, status, client::kExitError, options.json == "-");
}

}  // namespace
}  // namespace seqpoint::sgd

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  seqpoint::sgd::Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  const int code = seqpoint::client::FinishProgram(
      seqpoint::sgd::kProgram,
      seqpoint::sgd::RunProgram(std::vector<std::string>(argv + 1, argv + argc), ranks));
  MPI_Finalize();
  return code;
}
