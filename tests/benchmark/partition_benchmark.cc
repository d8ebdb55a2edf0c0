// The figures of docs/using/partition-accuracy.md: ./dev bench partition [--json OUT] [--quick].
//
// Measures the program `seqpoint-partition` in a process of its own: its answer (as JSON), its
// time, its memory; and `seqpoint-sgd` on ranks of mpirun. The published network's
// permutations come from the shared data folder.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "client/planners/sparse_input.h"
#include "daemon/sparse/baselines.h"
#include "daemon/sparse/owners_text.h"
#include "simdjson.h"
#include "tests/support/figure_table.h"
#include "tests/support/shared_traces.h"
#include "tests/support/temp_folder.h"

namespace seqpoint {
namespace {

using Bound = FigureTable::Bound;

struct Answer {
  double words = 0;
  double random = 0, blocks = 0;
  std::optional<double> layer_by_layer;
  double imbalance = 0;
  double seconds = 0;
  double processor_seconds = 0;  // of the whole process
  double peak_mib = 0;           // of the whole process
};

// One variant that seqpoint-sgd ran; its numbers are those of one step.
struct Executed {
  double median = 0, lower = 0, upper = 0;  // seconds of a step of the slowest rank
  double words = 0, messages = 0;           // of one sample, all ranks
  double sender_words = 0, sender_messages = 0;
  bool as_predicted = false;
};

constexpr int kSamples = 32;
constexpr double kMegabytesOfWord = 4e-6;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The median round: step times by the medians of their quartiles, the rest is the same in each.
Executed Summary(const std::vector<Executed>& rounds) {
  const auto median = [&](double Executed::*field) {
    std::vector<double> values;
    for (const Executed& round : rounds) values.push_back(round.*field);
    return Median(values);
  };
  Executed summary = rounds.front();
  summary.median = median(&Executed::median);
  summary.lower = median(&Executed::lower);
  summary.upper = median(&Executed::upper);
  for (const Executed& round : rounds) summary.as_predicted &= round.as_predicted;
  return summary;
}

class PartitionBenchmark {
 public:
  explicit PartitionBenchmark(bool quick) : quick_(quick) {}

  // Words of a forward pass, 1,024 neurons x 60 published layers; to reach: the better of Zoltan's
  // two ways for each layer, README.md of the data folder.
  void PublishedNetwork() {
    const std::string table = SharedData() + "/radixnet/n1024_block_residues_00_09.txt";
    if (!std::filesystem::exists(table)) {
      table_.Leave("1,024 x 60 layers, published", table + " is not there");
      return;
    }
    for (const auto& [parts, zoltan] :
         {std::pair(4, 42381), {8, 51825}, {16, 60634}, {32, 76724}, {64, 108894}}) {
      const std::string name = "1,024 x 60 layers, published, " + std::to_string(parts) + " parts";
      const auto answer =
          Run({"--radixnet", "1024x60", "--permutations", table, "--parts", std::to_string(parts)});
      if (Failed(name, answer)) continue;
      table_.Compare(name + ": words", answer->words, "words", Bound::kBelow, zoltan);
      TellOthers(name, *answer);
    }
  }

  // The whole depth, to reach: what a prototype sends, and 100,000 words for 8 parts; with drawn
  // permutations: those of layers 61 to 120 are not published.
  void WholeDepth() {
    if (quick_) return;
    for (const auto& [parts, to_reach] :
         {std::pair(4, 88075), {8, 100000}, {16, 124532}, {32, 156267}, {64, 222562}}) {
      const std::string name = "1,024 x 120 layers, drawn, " + std::to_string(parts) + " parts";
      const auto answer = Run({"--radixnet", "1024x120", "--parts", std::to_string(parts)});
      if (Failed(name, answer)) continue;
      table_.Compare(name + ": words", answer->words, "words",
                     parts == 8 ? Bound::kAtMost : Bound::kBelow, to_reach);
      table_.Tell(name + ": largest imbalance", 100 * answer->imbalance, "%");
      TellOthers(name, *answer);
    }
  }

  // Without structure: never worse than the published way.
  void RandomNetworks() {
    const TempFolder folder;
    const std::vector<std::string> files = WriteRandomNetwork(folder.path(), quick_ ? 3 : 12);
    for (const int parts : {8, 32}) {
      const std::string name = "random, 1,024 x " + std::to_string(files.size()) + " layers, " +
                               std::to_string(parts) + " parts";
      std::vector<std::string> arguments = files;
      arguments.insert(arguments.end(), {"--parts", std::to_string(parts)});
      const auto answer = Run(arguments);
      if (Failed(name, answer)) continue;
      if (answer->layer_by_layer.has_value()) {
        table_.Compare(name + ": words", answer->words, "words", Bound::kAtMost,
                       *answer->layer_by_layer);
      }
      TellOthers(name, *answer);
    }
  }

  // Time grows with the nonzeros.
  void Cost() {
    for (const char* size : {"1024x30", "1024x60", "1024x120", "4096x30", "4096x120"}) {
      if (quick_ && size != std::string("1024x30")) break;
      const std::string name = std::string("cost, ") + size + ", 8 parts";
      const auto answer = Run({"--radixnet", size, "--parts", "8"});
      if (Failed(name, answer)) continue;
      int neurons = 0, layers = 0;
      sscanf(size, "%dx%d", &neurons, &layers);
      const double nonzeros = 32.0 * neurons * layers;
      table_.Tell(name + ": words", answer->words, "words");
      table_.Tell(name + ": processor time", answer->processor_seconds, "s");
      table_.Tell(name + ": processor time of a nonzero",
                  1e6 * answer->processor_seconds / nonzeros, "us");
      table_.Tell(name + ": memory", answer->peak_mib, "MiB");
    }
  }

#ifdef SGD_BINARY
  // Plans as they are executed: this one, blocks and random, in turns, so that whatever else the
  // machine does meets all of them.
  void StepTimes() {
    SetMpi();
    if (system("mpirun -n 2 true >/dev/null 2>&1 </dev/null") != 0) {
      table_.Leave("step times", "mpirun cannot start two processes here: mpirun -n 2 true");
      return;
    }
    printf(
        "step times: %ld processors; where there are more ranks they share them, but words and "
        "messages are the same anywhere\n",
        sysconf(_SC_NPROCESSORS_ONLN));
    StepTimesOf(quick_ ? "1024x12" : "1024x120", {"--radixnet", quick_ ? "1024x12" : "1024x120"});
    const TempFolder folder;
    StepTimesOf("random, 1,024 x 12", WriteRandomNetwork(folder.path(), 12));
    WeightsOfRanks();
  }
#endif

  FigureTable& table() { return table_; }

 private:
  bool Failed(const std::string& name, const std::optional<Answer>& answer) {
    if (!answer.has_value()) table_.Leave(name, "seqpoint-partition gave no answer");
    return !answer.has_value();
  }

  void TellOthers(const std::string& name, const Answer& answer) {
    if (answer.layer_by_layer.has_value()) {
      table_.Tell(name + ": layer by layer", *answer.layer_by_layer, "words");
    }
    table_.Tell(name + ": blocks", answer.blocks, "words");
    table_.Tell(name + ": random", answer.random, "words");
    table_.Tell(name + ": time", answer.seconds, "s");
  }

#ifdef SGD_BINARY
  // Open MPI as tests need it: as root, in a container, with more ranks than cores.
  static void SetMpi() {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
  }

  void StepTimesOf(const std::string& network, const std::vector<std::string>& arguments) {
    for (const int ranks : {2, 4, 8}) {
      const TempFolder plan;
      std::vector<std::string> planning = arguments;
      planning.insert(planning.end(), {"--parts", std::to_string(ranks), "-o", plan.path()});
      const std::string random = plan.path() / "random.txt";
      if (!Run(planning).has_value() || !WriteRandomOwners(arguments, ranks, random)) {
        table_.Leave("step times, " + network, "seqpoint-partition gave no answer");
        return;
      }
      for (const char* mode : {"training", "inference"}) {
        const std::string name = network + ", " + std::to_string(ranks) + " ranks, " + mode;
        StepTimesOf(name, ranks, Concatenate(arguments, mode == std::string("inference")),
                    {{"this", plan.path() / "owners.txt"}, {"blocks", ""}, {"random", random}});
      }
    }
  }

  void StepTimesOf(const std::string& name, int ranks, const std::vector<std::string>& arguments,
                   const std::vector<std::pair<std::string, std::string>>& plans) {
    std::vector<std::vector<Executed>> rounds(plans.size());
    for (int round = 0; round < (quick_ ? 1 : kRounds); ++round) {
      for (size_t p = 0; p < plans.size(); ++p) {
        std::vector<std::string> words = arguments;
        if (!plans[p].second.empty()) words.insert(words.end(), {"--owners", plans[p].second});
        const auto executed = Execute(ranks, words, quick_ ? 5 : kSteps);
        if (!executed.has_value()) {
          table_.Leave(name + ", " + plans[p].first, "seqpoint-sgd gave no answer");
          return;
        }
        rounds[p].push_back(*executed);
      }
    }
    std::map<std::string, double> step;
    for (size_t p = 0; p < plans.size(); ++p) {
      const Executed executed = Summary(rounds[p]);
      const std::string row = name + ", " + plans[p].first;
      step[plans[p].first] = executed.median;
      table_.Tell(row + ": step", 1e3 * executed.median, "ms");
      table_.Tell(row + ": lower quartile", 1e3 * executed.lower, "ms");
      table_.Tell(row + ": upper quartile", 1e3 * executed.upper, "ms");
      table_.Tell(row + ": sent", kMegabytesOfWord * kSamples * executed.words, "MB");
      table_.Tell(row + ": messages", executed.messages, "messages");
      table_.Tell(row + ": largest sender", executed.sender_words, "words");
      table_.Tell(row + ": messages of the largest sender", executed.sender_messages, "messages");
      table_.Compare(row + ": sent as predicted, in every layer", executed.as_predicted ? 1 : 0, "",
                     Bound::kEqual, 1);
    }
    table_.Tell(name + ": step, this by random", step["this"] / step["random"], "");
  }

  static std::vector<std::string> Concatenate(std::vector<std::string> arguments, bool inference) {
    if (inference) arguments.emplace_back("--inference");
    return arguments;
  }

  // As seqpoint-partition deals them out for its comparison.
  static bool WriteRandomOwners(const std::vector<std::string>& arguments, int parts,
                                const std::string& path) {
    client::SparseInputOptions input;
    if (arguments.front() == "--radixnet") {
      input.radixnet = arguments.back();
    } else {
      input.files = arguments;
    }
    const auto network = client::ReadSparseInput(input);
    if (!network.ok()) return false;
    std::ofstream(path) << sparse::WriteOwners(sparse::RandomParts(*network, parts, kSeed));
    return true;
  }

  // The weights after 100 steps, of many ranks and of one.
  void WeightsOfRanks() {
    const TempFolder folder;
    std::vector<double> one;
    for (const int ranks : {1, 2, 4, 8}) {
      const std::string weights = folder.path() / std::to_string(ranks);
      const auto executed = Execute(
          ranks, {"--radixnet", "1024x12", "--rate", "0.5", "--write", weights}, quick_ ? 10 : 100);
      const std::string name = "weights after " + std::string(quick_ ? "10" : "100") + " steps, " +
                               std::to_string(ranks) + " ranks against one, by the largest";
      if (!executed.has_value()) {
        table_.Leave(name, "seqpoint-sgd gave no answer");
        return;
      }
      const std::vector<double> many = ReadWeights(weights, 12);
      if (ranks == 1) {
        one = many;
        continue;
      }
      double largest = 0, worst = one.size() == many.size() ? 0 : HUGE_VAL;
      for (size_t i = 0; i < std::min(one.size(), many.size()); ++i) {
        largest = std::max(largest, std::abs(one[i]));
        worst = std::max(worst, std::abs(one[i] - many[i]));
      }
      table_.Compare(name, worst / largest, "", Bound::kAtMost, 1e-5);
    }
  }

  static std::vector<double> ReadWeights(const std::string& folder, int layers) {
    std::vector<double> weights;
    for (int layer = 1; layer <= layers; ++layer) {
      std::ifstream file(folder + "/layer" + std::to_string(layer) + ".tsv");
      int row = 0, column = 0;
      double weight = 0;
      while (file >> row >> column >> weight) weights.push_back(weight);
    }
    return weights;
  }

  static std::optional<Executed> Execute(int ranks, const std::vector<std::string>& arguments,
                                         int steps) {
    const TempFolder folder;
    const std::string out = folder.path() / "figures.json";
    std::string command = "mpirun -n " + std::to_string(ranks) + " '" SGD_BINARY "' --steps " +
                          std::to_string(steps) + " --samples " + std::to_string(kSamples) +
                          " --json '" + out + "'";
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    if (system((command + " >/dev/null </dev/null").c_str()) != 0) return std::nullopt;
    simdjson::dom::parser parser;
    simdjson::dom::element json;
    if (parser.load(out).get(json) != simdjson::SUCCESS) return std::nullopt;
    return Executed{
        .median = json["step_seconds"]["median"],
        .lower = json["step_seconds"]["lower_quartile"],
        .upper = json["step_seconds"]["upper_quartile"],
        .words = double{json["forward"]["words"]} + double{json["backward"]["words"]},
        .messages = double{json["forward"]["messages"]} + double{json["backward"]["messages"]},
        .sender_words = json["largest_sender"]["words"],
        .sender_messages = json["largest_sender"]["messages"],
        .as_predicted = json["as_predicted"]};
  }
#endif

  static std::vector<std::string> WriteRandomNetwork(const std::filesystem::path& folder,
                                                     int layers) {
    constexpr int kNeurons = 1024;
    constexpr int kConsumers = 32;  // as many as a RadiX-Net has
    std::mt19937_64 random(3);
    std::vector<std::string> files;
    for (int l = 1; l <= layers; ++l) {
      files.push_back(folder / ("random-l" + std::to_string(l) + ".tsv"));
      std::ofstream file(files.back());
      for (int source = 1; source <= kNeurons; ++source) {
        std::vector<int> targets;
        while (targets.size() < kConsumers) {
          const int target = 1 + static_cast<int>(random() % kNeurons);
          if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
            targets.push_back(target);
          }
        }
        for (const int target : targets) file << source << '\t' << target << "\t1\n";
      }
    }
    return files;
  }

  std::optional<Answer> Run(std::vector<std::string> arguments) {
    const TempFolder folder;
    const std::string out = folder.path() / "answer.json";
    arguments.insert(arguments.begin(), PARTITION_BINARY);
    arguments.push_back("--json");
    if (quick_) arguments.insert(arguments.end(), {"--effort", "0.1"});
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const int file = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (file < 0 || dup2(file, 1) < 0) _exit(99);
      execv(words[0], words.data());
      _exit(99);
    }
    int status = 0;
    rusage usage = {};
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) return std::nullopt;
    simdjson::dom::parser parser;
    simdjson::dom::element json;
    if (parser.load(out).get(json) != simdjson::SUCCESS) return std::nullopt;
    Answer answer{.words = json["words"],
                  .random = json["baselines"]["random"],
                  .blocks = json["baselines"]["blocks"],
                  .imbalance = json["imbalance"],
                  .seconds = json["seconds"],
                  .processor_seconds = static_cast<double>(usage.ru_utime.tv_sec) +
                                       1e-6 * static_cast<double>(usage.ru_utime.tv_usec),
                  .peak_mib = static_cast<double>(usage.ru_maxrss) / 1024};
    if (!json["baselines"]["layer_by_layer"].is_null()) {
      answer.layer_by_layer = double{json["baselines"]["layer_by_layer"]};
    }
    return answer;
  }

  // Enough for quartiles; five rounds bring a disturbance of half a minute to one of five medians.
  static constexpr int kRounds = 5;
  static constexpr int kSteps = 20;
  static constexpr uint64_t kSeed = 1;

  bool quick_;
  FigureTable table_;
};

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  CLI::App app("How few words seqpoint partition sends, what it costs, and what steps take.",
               "partition_benchmark");
  std::string json;
  bool quick = false;
  app.add_option("--json", json, "write the figures there")->type_name("OUT");
  app.add_flag("--quick", quick, "a tenth of the search, the small networks alone: a few minutes");
  CLI11_PARSE(app, argc, argv);
  seqpoint::PartitionBenchmark benchmark(quick);
  benchmark.PublishedNetwork();
  benchmark.RandomNetworks();
#ifdef SGD_BINARY
  benchmark.StepTimes();
#else
  printf("step times are left out: seqpoint-sgd was not built\n");
#endif
  benchmark.WholeDepth();
  benchmark.Cost();
  if (!json.empty() && !benchmark.table().WriteJson(json)) {
    fprintf(stderr, "cannot write %s: %s\n", json.c_str(), strerror(errno));
    return 1;
  }
  return 0;
}
