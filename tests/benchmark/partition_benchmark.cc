// The figures of docs/partition-accuracy.md: ./dev bench partition [--json OUT] [--quick].
//
// Whoever is measured is `seqpoint-partition` itself, in a process of its own: its answer (as
// JSON), its time, its memory. The published network's permutations come from the shared data
// folder.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

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

  bool quick_;
  FigureTable table_;
};

}  // namespace
}  // namespace seqpoint

int main(int argc, char** argv) {
  CLI::App app("How few words seqpoint partition sends, and what it costs.", "partition_benchmark");
  std::string json;
  bool quick = false;
  app.add_option("--json", json, "write the figures there")->type_name("OUT");
  app.add_flag("--quick", quick,
               "a tenth of the search, the small networks alone: a minute or two");
  CLI11_PARSE(app, argc, argv);
  seqpoint::PartitionBenchmark benchmark(quick);
  benchmark.PublishedNetwork();
  benchmark.RandomNetworks();
  benchmark.WholeDepth();
  benchmark.Cost();
  if (!json.empty() && !benchmark.table().WriteJson(json)) {
    fprintf(stderr, "cannot write %s: %s\n", json.c_str(), strerror(errno));
    return 1;
  }
  return 0;
}
