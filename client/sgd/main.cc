// seqpoint-sgd: runs a sparse network on MPI ranks, each with the neurons that a plan gives it.
// docs/partition.md, "Execution".
#include <mpi.h>
#include <stdio.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/sgd/data.h"
#include "client/sgd/local_layer.h"
#include "client/sgd/training.h"
#include "client/sparse_input.h"
#include "client/whole_file.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/matrix_text.h"
#include "daemon/sparse/owners_text.h"
#include "daemon/sparse/volume.h"
#include "injection/seqpoint.h"

namespace seqpoint::sgd {
namespace {

struct Options {
  client::SparseInputOptions input;
  std::string owners;
  bool inference = false;
  bool weights_as_read = false;
  std::string activation;
  std::string loss = "squares";
  Training::Options step;
  int steps = 100;
  std::string json;
  std::string write;
};

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
  const auto text = client::ReadWhole(options.owners);
  if (!text.ok()) return text.status();
  auto owners = sparse::ReadOwners(*text, options.owners);
  if (!owners.ok()) return owners;
  absl::Status fits = sparse::CheckOwners(network, *owners, ranks);
  if (fits.ok()) return owners;
  return absl::InvalidArgumentError(
      absl::StrCat(options.owners, ": ", fits.message(), "; there are ", ranks,
                   " ranks, and the plan must be of this network for as many parts"));
}

struct Job {
  sparse::Network network;
  sparse::Owners owners;
  std::vector<LocalLayer> layers;
};

absl::StatusOr<Job> Prepare(const Options& options, const Ranks& ranks) {
  Job job;
  auto network = client::ReadSparseInput(options.input);
  if (!network.ok()) return network.status();
  job.network = *std::move(network);
  auto owners = ReadPlan(options, job.network, ranks.size);
  if (!owners.ok()) return owners.status();
  job.owners = *std::move(owners);
  if (!options.inference && !options.weights_as_read) {
    DrawWeights(options.input.seed, job.network);
  }
  for (size_t l = 0; l < job.network.layers.size(); ++l) {
    job.layers.push_back(
        MakeLocalLayer(job.network.layers[l], job.owners[l], job.owners[l + 1], ranks.rank));
  }
  return job;
}

struct Outcome {
  std::vector<double> step_seconds;  // of the slowest rank
  std::vector<double> losses;
  double output_sum = 0;                   // of the last step's outputs; inference
  std::vector<Traffic> forward, backward;  // of all ranks, of one step
};

std::vector<Traffic> OfAllRanks(const std::vector<Traffic>& mine, int steps) {
  std::vector<int64_t> sums;
  for (const Traffic& traffic : mine) {
    sums.push_back(traffic.words);
    sums.push_back(traffic.messages);
  }
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_INT64_T, MPI_SUM,
                MPI_COMM_WORLD);
  std::vector<Traffic> all(mine.size());
  for (size_t l = 0; l < mine.size(); ++l) {
    all[l] = {sums[2 * l] / steps, sums[2 * l + 1] / steps};
  }
  return all;
}

Outcome Run(const Options& options, const Ranks& ranks, const sparse::Network& network,
            const sparse::Owners& owners, Training& training) {
  Outcome outcome;
  std::vector<int32_t> inputs, outputs;
  for (size_t i = 0; i < owners.front().size(); ++i) {
    if (owners.front()[i] == ranks.rank) inputs.push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < owners.back().size(); ++i) {
    if (owners.back()[i] == ranks.rank) outputs.push_back(static_cast<int32_t>(i));
  }
  const int samples = options.step.samples;
  const uint64_t seed = options.input.seed;
  for (int step = 0; step < options.steps; ++step) {
    const int64_t first = int64_t{1} * step * samples;
    const Batch input = Inputs(seed, first, samples, inputs);
    const Batch target = options.inference ? Batch()
                                           : Targets(seed, first, samples, outputs,
                                                     network.layers.back().rows, options.step.loss);
    MPI_Barrier(MPI_COMM_WORLD);
    if (seqpoint_iteration_begin) seqpoint_iteration_begin(samples);
    const double begin = MPI_Wtime();
    const Batch& output = training.Forward(input);
    if (!options.inference) outcome.losses.push_back(training.Backward(target));
    double seconds = MPI_Wtime() - begin;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    outcome.step_seconds.push_back(seconds);
    outcome.output_sum = output.cast<double>().sum();
    if (!outcome.losses.empty() && !std::isfinite(outcome.losses.back())) break;
  }
  MPI_Allreduce(MPI_IN_PLACE, &outcome.output_sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  const int steps = static_cast<int>(outcome.step_seconds.size());
  outcome.forward = OfAllRanks(training.forward_traffic(), steps);
  outcome.backward = OfAllRanks(training.backward_traffic(), steps);
  return outcome;
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
      std::vector<float> weights = mine;
      int64_t expected = 0;
      for (int32_t row = 0; row < layer.rows; ++row) {
        if (owners[l + 1][row] == from) expected += layer.row_begin[row + 1] - layer.row_begin[row];
      }
      if (from != 0) {
        weights.resize(expected);
        MPI_Recv(weights.data(), static_cast<int>(expected), MPI_FLOAT, from, static_cast<int>(l),
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      }
      int64_t next = 0;
      for (int32_t row = 0; row < layer.rows; ++row) {
        if (owners[l + 1][row] != from) continue;
        const int64_t count = layer.row_begin[row + 1] - layer.row_begin[row];
        std::copy_n(weights.begin() + next, count, layer.weight.begin() + layer.row_begin[row]);
        next += count;
      }
    }
  }
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Traffic Sum(const std::vector<Traffic>& layers) {
  Traffic sum;
  for (const Traffic& traffic : layers) {
    sum.words += traffic.words;
    sum.messages += traffic.messages;
  }
  return sum;
}

// Whether what was sent is what the judge says of the plan, layer by layer.
bool AsPredicted(const std::vector<Traffic>& sent, const sparse::Volume& predicted) {
  for (size_t l = 0; l < sent.size(); ++l) {
    if (sent[l].words != predicted.layers[l].words) return false;
    if (sent[l].messages != predicted.layers[l].messages) return false;
  }
  return true;
}

std::string Json(const Options& options, const Ranks& ranks, const Outcome& outcome,
                 bool as_predicted) {
  std::string layers;
  for (size_t l = 0; l < outcome.forward.size(); ++l) {
    absl::StrAppendFormat(
        &layers,
        "%s\n  {\"forward_words\": %d, \"forward_messages\": %d, \"backward_words\": %d, "
        "\"backward_messages\": %d}",
        l == 0 ? "" : ",", outcome.forward[l].words, outcome.forward[l].messages,
        outcome.backward[l].words, outcome.backward[l].messages);
  }
  const auto [least, most] =
      std::minmax_element(outcome.step_seconds.begin(), outcome.step_seconds.end());
  std::string text = absl::StrFormat(
      "{\"ranks\": %d, \"mode\": \"%s\", \"steps\": %d, \"samples\": %d,\n"
      " \"step_seconds\": {\"median\": %.9g, \"least\": %.9g, \"most\": %.9g},\n"
      " \"forward\": {\"words\": %d, \"messages\": %d}, \"backward\": {\"words\": %d, "
      "\"messages\": %d},\n \"as_predicted\": %s,\n",
      ranks.size, options.inference ? "inference" : "training", options.steps, options.step.samples,
      Median(outcome.step_seconds), *least, *most, Sum(outcome.forward).words,
      Sum(outcome.forward).messages, Sum(outcome.backward).words, Sum(outcome.backward).messages,
      as_predicted ? "true" : "false");
  if (outcome.losses.empty()) {
    absl::StrAppendFormat(&text, " \"output_sum\": %.9g,\n", outcome.output_sum);
  } else {
    absl::StrAppendFormat(&text, " \"loss\": {\"first\": %.9g, \"last\": %.9g},\n",
                          outcome.losses.front(), outcome.losses.back());
  }
  absl::StrAppend(&text, " \"layers\": [", layers, "]}\n");
  return text;
}

void Print(const Options& options, const Ranks& ranks, const Outcome& outcome, bool as_predicted) {
  const auto line = [&](const char* name, const std::vector<Traffic>& traffic) {
    const Traffic sum = Sum(traffic);
    printf("%s %lld words of each sample, %s a step, in %lld messages\n", name,
           static_cast<long long>(sum.words),
           absl::StrFormat("%.1f MB", 4e-6 * static_cast<double>(sum.words) * options.step.samples)
               .c_str(),
           static_cast<long long>(sum.messages));
  };
  printf("%s on %d rank%s, %d steps of %d samples\n", options.inference ? "inference" : "training",
         ranks.size, ranks.size == 1 ? "" : "s", options.steps, options.step.samples);
  printf("step:     %.3f ms in the median, of the slowest rank\n",
         1e3 * Median(outcome.step_seconds));
  line("forward: ", outcome.forward);
  if (!options.inference) line("backward:", outcome.backward);
  if (!outcome.losses.empty()) {
    printf("loss:     %.6g, then %.6g\n", outcome.losses.front(), outcome.losses.back());
  }
  printf("%s\n", as_predicted ? "sent as the plan says, in every layer"
                              : "NOT what the plan says was sent: please report this");
}

absl::Status Main(const Options& options, const Ranks& ranks) {
  auto prepared = Prepare(options, ranks);
  absl::Status status = OfAllRanks(prepared.status(), ranks);
  if (!status.ok()) return status;
  Job job = *std::move(prepared);
  Training training(MPI_COMM_WORLD, std::move(job.layers), options.step);
  const Outcome outcome = Run(options, ranks, job.network, job.owners, training);
  // The same on all ranks.
  if (!outcome.losses.empty() && !std::isfinite(outcome.losses.back())) {
    return OfAllRanks(absl::InvalidArgumentError(absl::StrCat(
                          "the loss is no finite number any more in step ", outcome.losses.size(),
                          "; try a smaller --rate than ", options.step.rate)),
                      ranks);
  }

  if (!options.write.empty()) Gather(ranks, job.owners, training.layers(), job.network);
  if (ranks.rank != 0) return OfAllRanks(absl::OkStatus(), ranks);
  const sparse::Volume predicted = sparse::CountVolume(job.network, job.owners, ranks.size);
  const bool as_predicted = AsPredicted(outcome.forward, predicted) &&
                            (options.inference || AsPredicted(outcome.backward, predicted));
  Print(options, ranks, outcome, as_predicted);
  if (!as_predicted) status = absl::InternalError("what was sent is not what was predicted");
  if (status.ok() && !options.json.empty()) {
    status = client::WriteWhole(options.json, Json(options, ranks, outcome, as_predicted));
  }
  for (size_t l = 0; status.ok() && !options.write.empty() && l < job.network.layers.size(); ++l) {
    mkdir(options.write.c_str(), 0777);  // where it fails, writing says why
    status = client::WriteWhole(absl::StrCat(options.write, "/layer", l + 1, ".tsv"),
                                sparse::WriteTsv(job.network.layers[l]));
  }
  return OfAllRanks(status, ranks);
}

void AddOptions(CLI::App& app, Options* options) {
  client::AddSparseInput(app, &options->input);
  app.add_option("--owners", options->owners,
                 "owners.txt of seqpoint partition; without it each layer is cut into blocks");
  app.add_flag("--inference", options->inference,
               "GraphChallenge's: weights as read, clipped ReLU, a bias; else it trains");
  app.add_flag("--weights-as-read", options->weights_as_read,
               "train from the weights of the files; else they are drawn with --seed");
  app.add_option("--activation", options->activation, "sigmoid, relu or clipped")
      ->check(CLI::IsMember({"sigmoid", "relu", "clipped"}));
  app.add_option("--loss", options->loss, "squares or cross-entropy")
      ->check(CLI::IsMember({"squares", "cross-entropy"}))
      ->capture_default_str();
  app.add_option("--bias", options->step.bias, "added to every weighted sum");
  app.add_option("--rate", options->step.rate, "step size of the descent")->capture_default_str();
  app.add_option("--samples", options->step.samples, "of a minibatch")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--steps", options->steps, "minibatches")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--json", options->json, "write the figures there");
  app.add_option("--write", options->write, "write the weights after the last step there, as .tsv");
}

void Settle(const CLI::App& app, Options* options) {
  if (options->activation.empty()) options->activation = options->inference ? "clipped" : "sigmoid";
  options->step.activation = options->activation == "sigmoid" ? Activation::kSigmoid
                             : options->activation == "relu"  ? Activation::kRelu
                                                              : Activation::kClipped;
  options->step.loss = options->loss == "squares" ? Loss::kSquares : Loss::kCrossEntropy;
  if (options->inference && app.count("--bias") == 0) options->step.bias = -0.3f;
}

}  // namespace
}  // namespace seqpoint::sgd

int main(int argc, char** argv) {
  using seqpoint::sgd::Options;
  Options options;
  CLI::App app(
      "Runs a sparse network on MPI ranks: mpirun -n 8 seqpoint-sgd --radixnet 1024x120 "
      "--owners plan/owners.txt",
      "seqpoint-sgd");
  seqpoint::sgd::AddOptions(app, &options);
  MPI_Init(&argc, &argv);
  seqpoint::sgd::Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  int exit_status = 0;
  try {
    app.parse(argc, argv);
    seqpoint::sgd::Settle(app, &options);
    if (seqpoint_rank) seqpoint_rank(ranks.rank, ranks.size);
    if (seqpoint_attach) seqpoint_attach(/*uses_gpu=*/0);
    const absl::Status status = seqpoint::sgd::Main(options, ranks);
    if (!status.ok()) {
      exit_status = 1;
      const bool said_elsewhere = absl::IsCancelled(status);
      if (!said_elsewhere) {
        fprintf(stderr, "seqpoint-sgd: %s\n", std::string(status.message()).c_str());
      }
    }
  } catch (const CLI::ParseError& error) {
    exit_status = error.get_exit_code() == 0 ? 0 : 2;
    if (ranks.rank == 0) app.exit(error);
  }
  MPI_Finalize();
  return exit_status;
}
