#include "tests/workloads/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/workloads/histograms.h"

namespace seqpoint::workload {
namespace {

const std::map<std::string, Order> kOrders = {
    {"shuffle", Order::kShuffle}, {"bucket", Order::kBucket}, {"sorted", Order::kSorted}};
const std::map<std::string, ZeroGrad> kZeroGrads = {
    {"memset", ZeroGrad::kMemset}, {"kernel", ZeroGrad::kKernel}, {"none", ZeroGrad::kNone}};

const std::map<std::string, Parallel> kParallels = {{"none", Parallel::kNone},
                                                    {"data", Parallel::kData},
                                                    {"sharded", Parallel::kSharded},
                                                    {"pipeline", Parallel::kPipeline},
                                                    {"tensor", Parallel::kTensor}};

template <typename T>
std::string NameOf(const std::map<std::string, T>& names, T value) {
  for (const auto& [name, named] : names) {
    if (named == value) return name;
  }
  return "";
}

std::string DefaultHistogram(const std::string& model) {
  if (model == "gnmt") return "multi30k";
  if (model == "ds2") return "librispeech";
  return "alpaca";
}

// Adds an option that may be given several times, each a fault.
void AddFaults(CLI::App* app, const std::string& name, const std::string& text,
               absl::StatusOr<Fault> (*parse)(const std::string&), std::vector<Fault>* faults) {
  app->add_option_function<std::vector<std::string>>(
         name,
         [=](const std::vector<std::string>& values) {
           for (const std::string& value : values) {
             const absl::StatusOr<Fault> fault = parse(value);
             if (!fault.ok())
               throw CLI::ValidationError(name, std::string(fault.status().message()));
             faults->push_back(*fault);
           }
         },
         text)
      ->allow_extra_args(false)
      ->group("Faults");
}

// Empty, or why the ranks cannot share this.
std::string CheckParallel(const Options& options, const std::string& model) {
  if (options.parallel == Parallel::kNone) {
    for (const Fault& fault : options.faults) {
      if (fault.kind == Fault::Kind::kHang || fault.kind == Fault::Kind::kDie) {
        return "--hang and --die need the collectives of several ranks";
      }
    }
    return "";
  }
  if (options.graphs || !options.operations_file.empty())
    return "not with --graphs or --operations";
  if (options.parallel == Parallel::kSharded && options.foreach) {
    return "not with --optimizer foreach: the optimiser has one flat part of all parameters";
  }
  if (options.parallel == Parallel::kTensor && model != "transformer" && model != "fixed") {
    return absl::StrCat(model, " cannot be split; only transformer and fixed can");
  }
  if (options.parallel != Parallel::kPipeline) return "";
  if (model != "transformer") return absl::StrCat(model, " cannot be split; only transformer can");
  if (options.prefetch || options.backward_thread || options.eval_every > 0) {
    return "not with --prefetch, --backward-thread or --eval-every";
  }
  return "";
}

// The corpus behind a model's usual batch, so that an iteration takes 5 to 100 ms on a large GPU.
int DefaultBatch(const std::string& model) { return model == "gnmt" ? 64 : 32; }

}  // namespace

std::variant<Options, Usage> ParseOptions(int argc, const char* const* argv) {
  Options options;
  CLI::App app{
      "Trains a model whose iterations depend on the sequence length. Kernels compute on a real "
      "GPU; "
      "on the software GPU only their time passes.",
      "seqpoint_workload"};
  std::string model = "gnmt";
  std::string readback = "1";
  std::string order = "shuffle";
  std::string zero_grad = "memset";
  std::string optimizer = "fused";
  std::string parallel = "none";
  std::string rank_lengths;
  int hidden = 0, layers = 0, vocabulary = 0, batch = 0, rnn_chunk = 0, accumulate = 0;
  app.add_option("--model", model, "what to train")
      ->check(CLI::IsMember({"gnmt", "ds2", "transformer", "fixed"}))
      ->capture_default_str();
  app.add_option("--hidden", hidden, "width of the layers")->check(CLI::Range(8, 4096));
  app.add_option("--layers", layers, "layers (gnmt: of encoder and of decoder)")
      ->check(CLI::Range(1, 64));
  app.add_option("--vocabulary", vocabulary, "words (not ds2)")->check(CLI::Range(16, 1 << 20));
  app.add_option("--rnn-chunk", rnn_chunk, "ds2: time steps per recurrent launch")
      ->check(CLI::Range(1, 10000));
  auto* file = app.add_option("--lengths", options.lengths_file,
                              "CSV with a header and one or two length columns per example");
  app.add_option("--histogram", options.histogram, "built-in lengths of a real corpus")
      ->check(CLI::IsMember(HistogramNames()))
      ->excludes(file);
  app.add_option("--examples", options.examples,
                 "examples drawn from the histogram; default: as many as its corpus has")
      ->check(CLI::Range(1, 100000000));
  app.add_option("--max-length", options.max_example_length, "leaves longer examples out")
      ->check(CLI::Range(1, kMaxLength));
  app.add_option("--batch", batch, "examples per (micro-)batch")->check(CLI::Range(1, 65536));
  app.add_option("--order", order, "order of the examples")
      ->check(CLI::IsMember(kOrders))
      ->capture_default_str();
  app.add_option("--pad-multiple", options.pad_multiple, "rounds batch lengths up")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag("--drop-last", options.drop_last, "leaves an epoch's last, smaller batch out");
  app.add_option("--epochs", options.epochs, "passes over the examples")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--max-iterations", options.max_iterations, "stops early")
      ->check(CLI::Range(1, 1000000000));
  app.add_option("--seed", options.model.seed, "of lengths, order, contents and parameters")
      ->capture_default_str();
  app.add_option("--readback", readback, "reads the loss back every N iterations, or never")
      ->check(CLI::Range(1, 1000000) | CLI::IsMember({"never"}))
      ->capture_default_str();
  app.add_flag("--prefetch", options.prefetch, "copies the next batch while this one trains");
  app.add_option(
         "--accumulate", accumulate,
         "micro-batches per iteration; default: 1, in a pipeline two for each rank, at most 8")
      ->check(CLI::Range(1, 1024));
  app.add_option("--eval-every", options.eval_every, "evaluates every N iterations")
      ->check(CLI::Range(1, 1000000000));
  app.add_option("--eval-batches", options.eval_batches, "batches per evaluation")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "copies the model's state to the host every N iterations")
      ->check(CLI::Range(1, 1000000000));
  app.add_option(
         "--resume-at", options.resume_at,
         "leaves the first N iterations out, as a run does that continues after a checkpoint")
      ->check(CLI::Range(0, 1000000000));
  app.add_flag("--backward-thread", options.backward_thread,
               "launches the backward pass from a second thread");
  app.add_flag("--nvtx,!--no-nvtx", options.nvtx,
               "NVTX ranges iteration, forward, backward, optimizer");
  app.add_flag("--fork-helper", options.fork_helper,
               "forks a helper process once CUDA is up; it works a little and exits");
  app.add_flag("--second-context", options.second_context,
               "a small kernel in another context after each iteration");
  app.add_flag("--graphs", options.graphs, "transformer, fixed: one CUDA graph per batch shape");
  app.add_option("--zero-grad", zero_grad, "how gradients are cleared; none: overwritten")
      ->check(CLI::IsMember(kZeroGrads))
      ->capture_default_str();
  app.add_option("--optimizer", optimizer, "one launch for all tensors, or one for each")
      ->check(CLI::IsMember({"fused", "foreach"}))
      ->capture_default_str();
  app.add_option("--launch-us", options.launch_us, "framework time before each launch")
      ->check(CLI::Range(0.0, 10000.0))
      ->capture_default_str();
  app.add_option("--load-us", options.load_us, "data loading time per batch")
      ->check(CLI::Range(0.0, 10000000.0))
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "of Adam")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  app.add_option("--parallel", parallel, "how the ranks of a job share the work")
      ->check(CLI::IsMember(kParallels))
      ->capture_default_str();
  app.add_option("--bucket-mb", options.bucket_mb, "data: gradients reduced at once, in MiB")
      ->check(CLI::Range(0.001, 100000.0))
      ->capture_default_str();
  app.add_option("--rank-lengths", rank_lengths,
                 "own: each rank draws batches of its own; shared: all have the same. Default: own "
                 "where the ranks share no batch")
      ->check(CLI::IsMember({"own", "shared"}));
  AddFaults(&app, "--slow",
            "RANK:kernels:FACTOR[@N-M], or a part of kernels' names: they are slower", ParseSlow,
            &options.faults);
  AddFaults(&app, "--late", "RANK:host:FACTOR[@N-M]: the host is slower", ParseLate,
            &options.faults);
  AddFaults(&app, "--loader", "RANK:MILLISECONDS[@N-M]: the batch comes later", ParseLoader,
            &options.faults);
  AddFaults(&app, "--link", "RANK-RANK:FACTOR[@N-M]: the share of its bandwidth that a link has",
            ParseLink, &options.faults);
  AddFaults(&app, "--hang", "RANK@N: comes to no collective of iteration N", ParseHang,
            &options.faults);
  AddFaults(&app, "--die", "RANK@N: is killed in a collective of iteration N", ParseDie,
            &options.faults);
  app.add_option("--write-lengths", options.lengths_out,
                 "writes the examples' lengths as CSV, and trains nothing");
  app.add_option("--truth", options.truth_file,
                 "writes what really happened, as JSON lines; %r is the rank");
  app.add_option("--operations", options.operations_file,
                 "writes which launches are of which operation, a line for each batch shape");
  app.add_flag("--quiet", options.quiet, "prints nothing");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    const int code = app.exit(error, text, text);
    return Usage{code == 0 ? 0 : 2, text.str()};
  }

  const uint64_t seed = options.model.seed;
  options.model = DefaultConfig(model);
  options.model.seed = seed;
  options.model.batch = batch > 0 ? batch : DefaultBatch(model);
  options.model.pinned_pool = options.prefetch;
  if (hidden > 0) options.model.hidden = hidden;
  if (layers > 0) options.model.layers = layers;
  if (vocabulary > 0) options.model.vocabulary = vocabulary;
  if (rnn_chunk > 0) options.model.rnn_chunk = rnn_chunk;
  if (options.histogram.empty()) options.histogram = DefaultHistogram(model);
  options.order = kOrders.at(order);
  options.zero_grad = kZeroGrads.at(zero_grad);
  options.foreach = optimizer == "foreach";
  options.parallel = kParallels.at(parallel);
  const bool pipeline = options.parallel == Parallel::kPipeline;
  options.accumulate = accumulate > 0 ? accumulate : 1;
  options.micro_batches_per_rank = pipeline && accumulate == 0 ? 2 : 0;
  options.layers_given = layers > 0;
  const bool shares_batch = pipeline || options.parallel == Parallel::kTensor;
  options.own_lengths =
      options.parallel != Parallel::kNone && !shares_batch && rank_lengths != "shared";
  options.readback_every = readback == "never" ? 0 : std::stoi(readback);

  if (shares_batch && rank_lengths == "own") {
    return Usage{2, absl::StrCat("--rank-lengths: the ranks of --parallel ", parallel,
                                 " share each batch\n")};
  }
  if (const std::string error = CheckParallel(options, model); !error.empty()) {
    return Usage{2, absl::StrCat("--parallel ", parallel, ": ", error, "\n")};
  }
  const bool transformer = model == "transformer" || model == "fixed";
  if (model == "gnmt" && options.model.layers < 2) {
    return Usage{2, "--layers: gnmt needs 2 or more: attention feeds the second decoder layer\n"};
  }
  if (options.graphs && !transformer) {
    return Usage{2, absl::StrCat("--graphs: ", model,
                                 " launches per time step; only transformer and fixed can be "
                                 "captured\n")};
  }
  if (options.graphs && !options.operations_file.empty()) {
    return Usage{2, "--operations: not with --graphs: a graph is one launch\n"};
  }
  if (transformer && options.model.hidden > 64 && options.model.hidden % 64 != 0) {
    return Usage{2, absl::StrCat("--hidden: ", options.model.hidden,
                                 " is not a multiple of 64, the width of an attention head\n")};
  }
  if (model == "ds2" && options.model.hidden > 1024) {
    return Usage{2, absl::StrCat("--hidden: ", options.model.hidden,
                                 " is above 1024, which the recurrent kernel can hold\n")};
  }
  return options;
}

absl::StatusOr<LengthTable> LoadLengths(const Options& options) {
  Random random(options.model.seed);
  absl::StatusOr<LengthTable> table =
      options.lengths_file.empty() ? DrawLengths(options.histogram, options.examples, &random)
                                   : ReadLengths(options.lengths_file);
  if (!table.ok()) return table;
  SetLengthCount(LengthsPerExample(options.model.name), &*table);
  if (options.max_example_length > 0) {
    std::erase_if(*table, [&](const std::vector<int>& row) {
      return *std::max_element(row.begin(), row.end()) > options.max_example_length;
    });
  }
  if (table->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-length: every example is longer than ", options.max_example_length));
  }
  return table;
}

std::string ToJson(const Options& o) {
  auto flag = [](bool value) { return value ? "true" : "false"; };
  return absl::StrFormat(
      R"({"model":"%s","hidden":%d,"layers":%d,"vocabulary":%d,"batch":%d,"seed":%d,)"
      R"("lengths":"%s","order":"%s","pad_multiple":%d,"epochs":%d,"readback_every":%d,)"
      R"("prefetch":%s,"accumulate":%d,"eval_every":%d,"eval_batches":%d,"checkpoint_every":%d,"resume_at":%d,)"
      R"("backward_thread":%s,)"
      R"("nvtx":%s,"second_context":%s,"graphs":%s,"zero_grad":"%s","optimizer":"%s",)"
      R"("parallel":"%s","bucket_mb":%g,"rank_lengths":"%s"})",
      o.model.name, o.model.hidden, o.model.layers, o.model.vocabulary, o.model.batch, o.model.seed,
      o.lengths_file.empty() ? absl::StrCat("histogram ", o.histogram) : "file",
      NameOf(kOrders, o.order), o.pad_multiple, o.epochs, o.readback_every, flag(o.prefetch),
      o.accumulate, o.eval_every, o.eval_batches, o.checkpoint_every, o.resume_at,
      flag(o.backward_thread), flag(o.nvtx), flag(o.second_context), flag(o.graphs),
      NameOf(kZeroGrads, o.zero_grad), o.foreach ? "foreach" : "fused",
      NameOf(kParallels, o.parallel), o.bucket_mb, o.own_lengths ? "own" : "shared");
}

}  // namespace seqpoint::workload
