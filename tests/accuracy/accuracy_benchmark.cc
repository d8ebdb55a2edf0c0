// ./dev bench accuracy: how well chosen iterations tell what the run costs, ours and others.
#include <stdio.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/files/whole_file.h"
#include "client/text/help.h"
#include "tests/accuracy/data_set.h"
#include "tests/accuracy/gpus.h"
#include "tests/accuracy/picture.h"
#include "tests/accuracy/protocols.h"
#include "tests/accuracy/walls.h"

namespace seqpoint::accuracy {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::vector<std::string> files;
  std::vector<std::string> key, group;
  std::string time, against, json, svg;
  Seeds seeds;
  bool gpus = true;
};

using Task = std::function<std::vector<Result>()>;

std::vector<Result> RunAll(const std::vector<Task>& tasks) {
  std::vector<std::vector<Result>> results(tasks.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < tasks.size(); i = next++) results[i] = tasks[i]();
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<Result> all;
  for (auto& r : results) all.insert(all.end(), r.begin(), r.end());
  return all;
}

void AddMeasured(const std::shared_ptr<DataSet>& data, const Seeds& seeds,
                 std::vector<Task>& tasks) {
  tasks.push_back([=] { return JudgePaper(*data, seeds); });
  tasks.push_back([=] { return JudgeSampled(*data, seeds); });
  tasks.push_back([=] { return JudgeOnline(*data, seeds, "shuffled"); });
  tasks.push_back([=] { return JudgeOnline(*data, seeds, "real"); });
  tasks.push_back([=] { return JudgeExplained(*data, seeds); });
}

// Which columns a file of the shared data has, by the prefix of its name.
client::LogOptions OptionsFor(const std::string& path, const Flags& flags) {
  client::LogOptions options{.path = path,
                             .key_columns = flags.key,
                             .time_column = flags.time,
                             .group_columns = flags.group};
  const std::string name = fs::path(path).filename();
  absl::StatusOr<client::CsvReader> csv = client::CsvReader::Open(path);
  if (!csv.ok()) return options;
  const auto has = [&](const std::string& column) { return csv->Find({column}).ok(); };
  if (options.group_columns.empty()) {
    for (const char* column : {"run", "epoch", "model", "set", "session"}) {
      if (has(column)) options.group_columns.push_back(column);
    }
  }
  // A log without any length: nothing but the position could explain time.
  if (options.key_columns.empty() && has("global_step")) options.key_columns = {"global_step"};
  return options;
}

// Every file of the folder; what cannot be judged is said.
std::vector<std::string> SharedFiles() {
  std::vector<std::string> files;
  for (const fs::path& folder : {fs::path("../shared/data/seqlen"),
                                 fs::path(SEQPOINT_SOURCE_DIR) / "../shared/data/seqlen"}) {
    std::error_code error;
    for (const auto& file : fs::directory_iterator(folder, error)) {
      if (absl::StrContains(file.path().filename().string(), ".csv")) files.push_back(file.path());
    }
    if (!files.empty()) break;
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A file with times is a log, whatever its lengths are called.
bool IsLengthsOnly(const std::string& path) {
  absl::StatusOr<client::LogFile> file = client::ReadLogFile({.path = path, .lengths_only = true});
  return file.ok() && file->time_column.empty() &&
         std::all_of(file->key_columns.begin(), file->key_columns.end(),
                     [](const std::string& c) { return absl::StartsWith(c, "len_"); });
}

// A place for the results; none where `path` is empty. What cannot be written is said at once, not
// after minutes of work.
using Place = std::unique_ptr<client::WholeFile>;
bool OpenPlace(const std::string& path, Place* place) {
  if (path.empty()) return true;
  absl::StatusOr<client::WholeFile> file = client::WholeFile::Open(path);
  if (!file.ok()) {
    fprintf(stderr, "%s\n", std::string(file.status().message()).c_str());
    return false;
  }
  *place = std::make_unique<client::WholeFile>(*std::move(file));
  return true;
}

bool WriteTo(const Place& place, const std::string& text) {
  if (place == nullptr) return true;
  absl::Status status = place->Write(text);
  if (status.ok()) status = place->Close();
  if (!status.ok()) fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok();
}

int Judge(const Flags& flags) {
  Place json, svg;
  if (!OpenPlace(flags.json, &json) || !OpenPlace(flags.svg, &svg)) return 1;
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<DataSet>> measured;
  std::vector<std::string> measured_paths;
  // With the lengths of `base`, if any: columns and steps.
  const auto read = [&](const std::string& path,
                        const DataSet* base = nullptr) -> std::shared_ptr<DataSet> {
    absl::StatusOr<DataSet> data = ReadDataSet(OptionsFor(path, flags), base);
    if (!data.ok()) {
      fprintf(stderr, "%s\n", std::string(data.status().message()).c_str());
      return nullptr;
    }
    return std::make_shared<DataSet>(*std::move(data));
  };
  const bool shared = flags.files.empty();
  const std::vector<std::string> files = shared ? SharedFiles() : flags.files;
  if (shared && files.empty()) {
    fprintf(stderr, "../shared/data/seqlen is not there: only the software GPU is judged\n");
  }
  for (const std::string& path : files) {
    const std::string name = fs::path(path).filename();
    if (shared && absl::StrContains(name, "_epochs")) continue;
    if (shared && absl::StartsWith(name, "optime_")) {
      fprintf(stderr, "%s: times of operators, not of iterations: left out\n", name.c_str());
      continue;
    }
    if (flags.time.empty() && IsLengthsOnly(path)) {
      const client::LogOptions lengths{.path = path, .key_columns = flags.key};
      for (workload::Order order : {workload::Order::kShuffle, workload::Order::kBucket}) {
        absl::StatusOr<DataSet> made = MadeFromLengths(lengths, order);
        if (!made.ok()) {
          fprintf(stderr, "%s\n", std::string(made.status().message()).c_str());
          if (!shared) return 1;
          break;
        }
        auto data = std::make_shared<DataSet>(*std::move(made));
        if (order == workload::Order::kShuffle) {
          fprintf(stderr, "%s: lengths of examples (%s), times are made%s\n", name.c_str(),
                  absl::StrJoin(data->key_columns, ", ").c_str(),
                  flags.group.empty() ? "" : "; --group is for logs with times, and not used");
        }
        tasks.push_back([=] { return JudgeSampled(*data, flags.seeds); });
        tasks.push_back([=] { return JudgeExplained(*data, flags.seeds); });
        if (order == workload::Order::kShuffle) {
          tasks.push_back([=] { return JudgeOnline(*data, flags.seeds, "shuffled"); });
        }
      }
      absl::StatusOr<DataSet> sorted = MadeFromLengths(lengths, workload::Order::kSorted);
      if (sorted.ok() && absl::StartsWith(name, "speech_")) {
        auto data = std::make_shared<DataSet>(*std::move(sorted));
        tasks.push_back([=] { return JudgeOnline(*data, flags.seeds, "sorted"); });
      }
      continue;
    }
    std::shared_ptr<DataSet> data = read(path);
    if (data == nullptr) {
      if (!shared) return 1;
      continue;
    }
    fprintf(stderr, "%s: %zu iterations of %zu lengths, %d left out as start-up\n",
            data->name.c_str(), data->size(), data->log.size(), static_cast<int>(data->start_up));
    if (data->size() < 64) {
      fprintf(stderr, "%s: %zu iterations are too few to judge anything by\n", data->name.c_str(),
              data->size());
      continue;
    }
    AddMeasured(data, flags.seeds, tasks);
    tasks.push_back([=] { return JudgeWalls(path); });
    measured.push_back(data);
    measured_paths.push_back(path);
    constexpr double kPaperError = 0.0053;
    tasks.push_back([=] {
      if (data->fit.verdict != KeyVerdict::kExplained) return std::vector<Result>();
      if (const int m = MeasurementsFor(*data, kPaperError, flags.seeds); m > 0) {
        fprintf(stderr,
                "%s: a mean error of 0.53 %% with %d measurements: 1/%.0f of an epoch of %.0f\n",
                data->name.c_str(), m, data->epoch_iterations / m, data->epoch_iterations);
      }
      return std::vector<Result>();
    });
  }
  const auto compare = [&](const std::shared_ptr<DataSet>& base,
                           const std::shared_ptr<DataSet>& target) {
    tasks.push_back([=] { return JudgeSpeedup(*base, *target, flags.seeds); });
  };
  if (!flags.against.empty()) {
    if (measured.empty()) {
      fprintf(stderr, "--against %s: there is no log with times to compare it with\n",
              flags.against.c_str());
      return 1;
    }
    for (const auto& base : measured) {
      std::shared_ptr<DataSet> target = read(flags.against, base.get());
      if (target == nullptr) return 1;
      compare(base, target);
    }
  } else if (shared) {
    // The same work before and after a change.
    for (const auto& base : measured) {
      if (!absl::StartsWith(base->name, "gold_gnmt_mlperf06")) continue;
      for (size_t i = 0; i < measured.size(); ++i) {
        if (!absl::StartsWith(measured[i]->name, "gold_gnmt_mlperf07")) continue;
        if (auto target = read(measured_paths[i], base.get())) compare(base, target);
      }
    }
  }
  if (shared && flags.gpus) {
    absl::StatusOr<std::vector<GpuPair>> pairs = RunWorkloads();
    if (!pairs.ok()) {
      fprintf(stderr, "software GPU left out: %s\n", std::string(pairs.status().message()).c_str());
    } else {
      for (const GpuPair& pair : *pairs) {
        compare(std::make_shared<DataSet>(pair.base), std::make_shared<DataSet>(pair.target));
      }
    }
  }
  const std::vector<Result> results = RunAll(tasks);
  printf("%s", ToTables(results).c_str());
  const bool written = WriteTo(json, ToJson(results)) && WriteTo(svg, ErrorPicture(results));
  return written ? 0 : 1;
}

class Help : public client::HelpFormatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "\nUsage: ./dev bench accuracy [FILE ...] [OPTIONS]\n";
  }
};

}  // namespace
}  // namespace seqpoint::accuracy

int main(int argc, char** argv) {
  seqpoint::accuracy::Flags flags;
  CLI::App app(
      "How well a few chosen iterations tell what a run costs: ours, SeqPoint's rule and "
      "other baselines, on the same draws.");
  app.formatter(std::make_shared<seqpoint::accuracy::Help>());
  app.set_help_flag("-h,--help", "print this help");
  app.add_option("FILE", flags.files,
                 "logs of iterations, or lengths of examples (columns len_*), whose times are then "
                 "made; default: ../shared/data/seqlen and the software GPU");
  app.add_option("--key", flags.key, "length column, or two; default: what logs call it")
      ->delimiter(',')
      ->expected(1, 2)
      ->type_name("COL[,COL]");
  app.add_option("--time", flags.time, "time column; default: what logs call it")->type_name("COL");
  app.add_option("--group", flags.group,
                 "columns that tell runs and epochs of a log apart; default: run, epoch and the "
                 "like")
      ->delimiter(',')
      ->expected(1, 8)
      ->type_name("COL[,COL]");
  app.add_option("--against", flags.against,
                 "log of the same work elsewhere, with the same columns: the speedup")
      ->type_name("FILE");
  app.add_option("--first-seed", flags.seeds.first, "draws with other seeds than 1 to 200")
      ->type_name("N");
  app.add_option("--seeds", flags.seeds.count, "draws; default 200")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  app.add_option("--json", flags.json, "write all results there")->type_name("FILE");
  app.add_option("--svg", flags.svg, "write the picture there")->type_name("FILE");
  app.add_flag_callback(
      "--no-gpus", [&] { flags.gpus = false; }, "without the software GPU");
  CLI11_PARSE(app, argc, argv);
  return seqpoint::accuracy::Judge(flags);
}
