// The figures of docs/using/placement-accuracy.md: ./dev bench placement [--json OUT] [--whole-run]
// [FILE...].
//
// The published problems and what is known of them come from the shared data folder
// (placement/expected.json, with the values that other programs reached). FILES are problems beyond
// these. Whoever is measured runs in a process of its own, so that its memory is its own.
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/placement/planner.h"
#include "daemon/placement/problem_json.h"
#include "simdjson.h"
#include "tests/placement/gnmt_figures.h"
#include "tests/support/figure_table.h"
#include "tests/support/shared_traces.h"

namespace seqpoint::placement {
namespace {

using Bound = FigureTable::Bound;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Measured {
  bool found = false;
  bool optimal = false;
  double value = 0;
  double lower_bound = 0;
  double seconds = 0;
  double peak_mib = 0;  // of the whole process
};

// In a child process; nothing: it ended otherwise.
std::optional<Measured> Measure(const std::string& path, const PlannerOptions& options) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    Measured measured;
    const auto begin = std::chrono::steady_clock::now();
    const auto problem = ReadProblem(ReadText(path), path);
    if (!problem.ok()) {
      fprintf(stderr, "%s\n", std::string(problem.status().message()).c_str());
      _exit(1);
    }
    const auto plan = MakePlan(*problem, options);
    measured.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (plan.ok()) {
      measured.found = true;
      measured.optimal = plan->optimal;
      measured.value = plan->value;
      measured.lower_bound = plan->lower_bound;
    }
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    measured.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
    const bool told = write(ends[1], &measured, sizeof(measured)) == sizeof(measured);
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  Measured measured;
  const bool told = read(ends[0], &measured, sizeof(measured)) == sizeof(measured);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return told ? std::optional(measured) : std::nullopt;
}

// The values of one problem in expected.json.
struct Known {
  std::optional<double> contiguous;  // the optimum; nothing: there is no placement
  std::optional<double> any;         // the best that is known
  bool any_is_optimal = false;
  std::map<std::string, double> others;  // programs that others wrote, and people
};

std::map<std::string, Known> ReadKnown(const std::string& path) {
  std::map<std::string, Known> all;
  simdjson::dom::parser parser;
  simdjson::dom::object files;
  if (parser.load(path).get(files) != simdjson::SUCCESS) return all;
  for (const auto file : files) {
    Known known;
    double value = 0;
    if (file.value["maxLoad"].get(value) == simdjson::SUCCESS) known.contiguous = value;
    if (file.value["noncontiguous"]["value"].get(value) == simdjson::SUCCESS) known.any = value;
    std::string_view status;
    if (file.value["noncontiguous"]["status"].get(status) == simdjson::SUCCESS) {
      known.any_is_optimal = status.starts_with("optimal");
    }
    simdjson::dom::object others;
    if (file.value["baselines"].get(others) == simdjson::SUCCESS) {
      for (const auto other : others) {
        if (other.value.get(value) == simdjson::SUCCESS)
          known.others[std::string(other.key)] = value;
      }
    }
    for (const char* other :
         {"greedy_latency", "human_expert_latency", "latency_of_maxload_split"}) {
      if (file.value[other].get(value) == simdjson::SUCCESS) known.others[other] = value;
    }
    all[std::string(file.key)] = known;
  }
  return all;
}

void Contiguous(const std::string& folder, const std::map<std::string, Known>& known,
                FigureTable& table) {
  for (const auto& [file, expected] : known) {
    const auto measured = Measure(folder + "/" + file, {.threads = 2});
    if (!measured.has_value()) {
      table.Leave(file, "it could not be read");
    } else if (!expected.contiguous.has_value()) {
      table.Compare(file + ": placements that are not there", measured->found, "", Bound::kEqual,
                    0);
    } else {
      table.Compare(file + ": largest load, contiguous", measured->value, "ms", Bound::kEqual,
                    *expected.contiguous);
      for (const auto& [other, value] : expected.others) {
        if (other.find("latency") != std::string::npos) continue;
        table.Tell("    the same by " + other, value, "ms");
      }
    }
  }
}

void Speed(const std::string& folder, FigureTable& table) {
  const std::string gnmt = folder + "/throughput/LayerGraphs/gnmt_training.json";
  if (const auto one = Measure(gnmt, {.threads = 1})) {
    table.Compare("GNMT training, exact, one thread", one->seconds, "s", Bound::kBelow, 1);
    table.Compare("GNMT training, exact: memory of the process", one->peak_mib, "MiB",
                  Bound::kBelow, 100 * 1e6 / (1 << 20));
  }
}

void Anywhere(const std::string& folder, const std::map<std::string, Known>& known,
              FigureTable& table) {
  for (const auto& [file, expected] : known) {
    if (!expected.any.has_value()) continue;
    const auto measured =
        Measure(folder + "/" + file, {.contiguous = false, .threads = 2, .proof_seconds = 10});
    if (!measured.has_value()) continue;
    const std::string name = file + ": largest load, not contiguous";
    // Cbc's default tolerance, with which the known values were proved, is above our 1e-6.
    table.Compare(name, measured->value, "ms", Bound::kAtMost, *expected.any * (1 + 1e-6));
    table.Tell("    its lower bound", measured->lower_bound, "ms");
    table.Compare("    its time", measured->seconds, "s", Bound::kBelow, 60);
    if (expected.any_is_optimal) {
      table.Compare("    proved the best (1: yes)", measured->optimal, "", Bound::kEqual, 1);
    }
  }
}

void OneSample(const std::string& folder, const std::map<std::string, Known>& known,
               FigureTable& table) {
  for (const auto& [file, expected] : known) {
    const auto greedy = expected.others.find("greedy_latency");
    if (greedy == expected.others.end()) continue;
    const auto measured =
        Measure(folder + "/" + file, {.objective = Objective::kLatency, .threads = 2});
    if (!measured.has_value()) continue;
    double best = greedy->second;
    for (const char* other : {"latency_of_maxload_split"}) {
      const auto found = expected.others.find(other);
      if (found != expected.others.end()) best = std::min(best, found->second);
    }
    table.Compare(file + ": one sample", measured->value, "ms", Bound::kAtMost, best);
    table.Tell("    its lower bound", measured->lower_bound, "ms");
    table.Tell("    its time", measured->seconds, "s");
  }
}

void Others(const std::vector<std::string>& files, FigureTable& table) {
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename();
    const auto measured = Measure(file, {.threads = 2});
    if (!measured.has_value()) {
      table.Leave(name, "it could not be read");
      continue;
    }
    table.Tell(name + ": largest load, contiguous", measured->value, "ms");
    table.Tell("    its lower bound", measured->lower_bound, "ms");
    table.Tell("    its time on two threads", measured->seconds, "s");
    table.Tell("    memory of the process", measured->peak_mib, "MiB");
  }
}

int Main(int argc, char** argv) {
  std::string json;
  bool only_whole_run = false;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (argument == "--whole-run") {
      only_whole_run = true;
    } else if (argument.starts_with("-")) {
      printf(
          "./dev bench placement [--json OUT] [--whole-run] [FILE...]\n"
          "--whole-run leaves the published problems out\n"
          "FILEs are further problems (docs/using/placement.md)\n");
      return argument == "-h" || argument == "--help" ? 0 : 2;
    } else {
      files.push_back(argument);
    }
  }
  FigureTable table;
  const std::string folder = SharedData() + "/placement";
  const auto known = ReadKnown(folder + "/expected.json");
  if (only_whole_run) {
    table.Leave("published problems", "only the whole run was asked for");
  } else if (known.empty()) {
    table.Leave("published problems",
                folder + " is not there; SEQPOINT_SHARED_DATA names the folder that holds it");
  } else {
    Contiguous(folder, known, table);
    Contiguous(folder + "/synthetic", ReadKnown(folder + "/synthetic/expected.json"), table);
    Speed(folder, table);
    Anywhere(folder, known, table);
    OneSample(folder, known, table);
  }
#ifdef SEQPOINT_WITH_SOFTWARE_RUNS
  GnmtFigures(table);
#else
  table.Leave("GNMT of the software GPU", "built without nvcc or gRPC");
#endif
  Others(files, table);
  if (!json.empty() && !table.WriteJson(json)) {
    perror(json.c_str());
    return 1;
  }
  return table.missed() > 0 ? 1 : 0;
}

}  // namespace
}  // namespace seqpoint::placement

int main(int argc, char** argv) { return seqpoint::placement::Main(argc, argv); }
