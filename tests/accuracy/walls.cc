#include "tests/accuracy/walls.h"

#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/files/csv.h"

namespace seqpoint::accuracy {
namespace {

// The rows of these columns, as numbers.
std::optional<std::vector<std::vector<double>>> ReadColumns(const std::string& path,
                                                            const std::vector<std::string>& names) {
  absl::StatusOr<client::CsvReader> csv = client::CsvReader::Open(path);
  if (!csv.ok()) return std::nullopt;
  absl::StatusOr<std::vector<size_t>> columns = csv->Find(names);
  if (!columns.ok()) return std::nullopt;
  std::vector<std::vector<double>> rows;
  std::vector<std::string> fields;
  while (csv->Next(&fields)) {
    std::vector<double> row;
    for (size_t c : *columns) {
      double value = 0;
      if (c >= fields.size() || !absl::SimpleAtod(fields[c], &value)) return std::nullopt;
      row.push_back(value);
    }
    rows.push_back(row);
  }
  return rows;
}

struct Mean {
  double sum = 0, count = 0;
  void Add(double value) {
    sum += value;
    count += 1;
  }
  double value() const { return count > 0 ? sum / count : 0; }
};

}  // namespace

std::vector<Result> JudgeWalls(const std::string& iterations) {
  const size_t at = iterations.find("_iters.csv");
  if (at == std::string::npos) return {};
  const std::string stem = iterations.substr(0, at);
  const auto rows = ReadColumns(iterations, {"run", "epoch", "iter", "time_ms", "lenpair_est"});
  const auto epochs =
      ReadColumns(stem + "_epochs.csv", {"run", "epoch", "iters_in_epoch", "epoch_wall_ms"});
  if (!rows || !epochs) return {};
  struct Epoch {
    Mean all;
    std::map<int64_t, Mean> by_length;
    double start_up = 0;
  };
  std::map<std::pair<double, double>, Epoch> logged;
  std::map<int64_t, Mean> everywhere;  // of all epochs: which lengths there are
  double count = 0;
  for (const auto& row : *rows) {
    Epoch& epoch = logged[{row[0], row[1]}];
    if (row[2] == 0) {
      epoch.start_up = row[3];
      continue;
    }
    const int64_t length = std::llround(row[4]);
    epoch.all.Add(row[3]);
    epoch.by_length[length].Add(row[3]);
    everywhere[length].Add(row[3]);
    count += 1;
  }
  Tally plain, standardised;
  Mean loop_share, start_up_share;
  for (const auto& row : *epochs) {
    const auto it = logged.find({row[0], row[1]});
    if (it == logged.end() || !(row[3] > 0)) continue;
    const Epoch& epoch = it->second;
    // A length that the epoch's tenth lacks counts with what it takes elsewhere.
    double mean = 0;
    for (const auto& [length, times] : everywhere) {
      const auto own = epoch.by_length.find(length);
      mean += times.count / count *
              (own == epoch.by_length.end() ? times.value() : own->second.value());
    }
    const double loop = mean * (row[2] - 1);
    plain.Add((epoch.all.value() * (row[2] - 1) + epoch.start_up) / row[3] - 1);
    standardised.Add((loop + epoch.start_up) / row[3] - 1);
    loop_share.Add(loop / row[3]);
    start_up_share.Add(epoch.start_up / row[3]);
  }
  std::vector<Result> results;
  for (bool is_plain : {true, false}) {
    Result result;
    result.file = stem.substr(stem.find_last_of('/') + 1);
    result.protocol = "walls";
    result.method = is_plain ? "plain mean" : "at equal lengths";
    result.statistic = "wall time";
    result.iterations = static_cast<int>(count);
    result.note = absl::StrCat("loop ", std::round(1e4 * loop_share.value()) / 100, " %, start-up ",
                               std::round(1e4 * start_up_share.value()) / 100, " % of the wall");
    (is_plain ? plain : standardised).Fill(&result);
    results.push_back(result);
  }
  return results;
}

}  // namespace seqpoint::accuracy
