#include "tests/accuracy/data_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/files/csv.h"
#include "tests/workloads/lengths.h"
#include "tests/workloads/random.h"

namespace seqpoint::accuracy {
namespace {

constexpr int kBatch = 32;
constexpr int kStep = 8;
constexpr double kNoise = 0.015;
constexpr double kSlowShare = 0.01;
constexpr double kSlowFactor = 1.3;
constexpr size_t kEnoughStarts = 30;

void Index(DataSet& data) {
  data.log = GroupByKey(data.run.keys, data.run.times);
  std::map<Key, int> entries;
  for (size_t i = 0; i < data.log.size(); ++i) entries[data.log[i].key] = static_cast<int>(i);
  data.of_key.assign(data.log.size(), {});
  data.entry.clear();
  data.total = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    data.entry.push_back(entries[data.run.keys[i]]);
    data.of_key[data.entry.back()].push_back(static_cast<int>(i));
    data.total += data.run.times[i];
  }
  double squares = 0;
  for (const KeyTimes& g : data.log) squares += g.m2;
  const auto freedom = static_cast<double>(data.size() - data.log.size());
  data.noise = freedom > 0 ? std::sqrt(squares / freedom) / data.mean() : 0;
  data.fit = FitKey(data.run.keys, data.run.times);
  data.epoch_iterations = static_cast<double>(data.size());
}

double MadeNoise(std::mt19937_64& random) {
  const double noise = std::exp(kNoise * std::normal_distribution<double>()(random));
  const bool slow = std::uniform_real_distribution<double>()(random) < kSlowShare;
  return noise * (slow ? kSlowFactor : 1);
}

std::string NameOf(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  return name.substr(0, name.find(".csv"));
}

}  // namespace

int DataSet::EntryOf(const Key& key) const {
  const auto at = std::lower_bound(log.begin(), log.end(), key,
                                   [](const KeyTimes& g, const Key& k) { return g.key < k; });
  if (at != log.end() && at->key == key) return static_cast<int>(at - log.begin());
  const auto distance = [&](const KeyTimes& g) {
    return std::abs(static_cast<double>(g.key.first - key.first)) +
           std::abs(static_cast<double>(g.key.second - key.second));
  };
  return static_cast<int>(std::min_element(log.begin(), log.end(),
                                           [&](const KeyTimes& a, const KeyTimes& b) {
                                             return distance(a) < distance(b);
                                           }) -
                          log.begin());
}

DataSet MakeDataSet(std::string name, const RunLog& run) {
  CleanLog clean = CleanUp(run);
  DataSet data;
  data.name = std::move(name);
  data.start_up = clean.start_up;
  data.run = std::move(clean.log);
  if (data.run.groups.empty()) data.run.groups.assign(data.run.size(), 0);
  Index(data);
  return data;
}

DataSet PartOf(const DataSet& whole, absl::Span<const int> iterations) {
  DataSet part;
  part.name = whole.name;
  for (int i : iterations) {
    part.run.keys.push_back(whole.run.keys[i]);
    part.run.times.push_back(whole.run.times[i]);
    part.run.groups.push_back(whole.run.groups[i]);
  }
  Index(part);
  return part;
}

std::vector<int> Starts(const DataSet& data) {
  std::vector<int> starts;
  for (size_t i = 0; i < data.size(); ++i) {
    if (i == 0 || data.run.groups[i] != data.run.groups[i - 1]) {
      starts.push_back(static_cast<int>(i));
    }
  }
  if (starts.size() >= kEnoughStarts) return starts;
  starts.clear();
  for (size_t s = 0; s < kEnoughStarts; ++s) {
    starts.push_back(static_cast<int>(s * data.size() / kEnoughStarts));
  }
  return starts;
}

absl::StatusOr<DataSet> ReadDataSet(client::LogOptions options, const DataSet* base) {
  if (base != nullptr) {
    options.key_columns = base->key_columns;
    options.length_step = base->length_step;
  }
  absl::StatusOr<client::LogFile> file = client::ReadLogFile(options);
  if (!file.ok()) return file.status();
  RunLog run;
  for (const auto& lengths : file->lengths) run.keys.push_back({lengths[0], lengths[1]});
  run.times = std::move(file->times);
  run.groups.assign(file->groups.begin(), file->groups.end());
  DataSet data = MakeDataSet(NameOf(options.path), run);
  data.key_columns = file->key_columns;
  data.length_step = file->length_step;
  // A log of every tenth iteration may say how long the epoch was.
  absl::StatusOr<client::CsvReader> csv = client::CsvReader::Open(options.path);
  absl::StatusOr<std::vector<size_t>> column = csv->Find({"iters_in_epoch"});
  std::vector<std::string> fields;
  if (column.ok() && csv->Next(&fields) && (*column)[0] < fields.size()) {
    double value = 0;
    if (absl::SimpleAtod(fields[(*column)[0]], &value)) data.epoch_iterations = value;
  }
  return data;
}

absl::StatusOr<DataSet> MadeFromLengths(client::LogOptions options, workload::Order order) {
  options.lengths_only = true;
  absl::StatusOr<client::LogFile> file = client::ReadLogFile(options);
  if (!file.ok()) return file.status();
  const bool two = file->key_columns.size() == 2;
  workload::LengthTable table;
  for (const auto& lengths : file->lengths) {
    std::vector<int> row = {std::max(1, static_cast<int>(lengths[0]))};
    if (two) row.push_back(std::max(1, static_cast<int>(lengths[1])));
    table.push_back(row);
  }
  workload::Random shuffle(1);
  const std::vector<workload::Batch> batches =
      workload::MakeEpoch(table, kBatch, order, 1, /*drop_last=*/true, 0, &shuffle);
  double mean[2] = {0, 0};
  for (const workload::Batch& b : batches) {
    for (size_t d = 0; d < b.lengths.size(); ++d) {
      mean[d] += b.lengths[d] / static_cast<double>(batches.size());
    }
  }
  const auto cost = [&](const Key& key) {
    const auto steps = [&](int64_t length, int d) {
      const double step = mean[d] < kStep * kStep ? 1 : kStep;
      return std::ceil(static_cast<double>(length) / step) * step / mean[d];
    };
    const double x = steps(key.first, 0), y = two ? steps(key.second, 1) : x;
    return (0.15 + 0.35 * x + 0.35 * y + 0.15 * x * y) * 1e8;
  };
  std::mt19937_64 random(1);
  RunLog run;
  for (const workload::Batch& b : batches) {
    run.keys.push_back({b.lengths[0], two ? b.lengths[1] : 0});
    run.times.push_back(cost(run.keys.back()) * MadeNoise(random));
  }
  const char* how = order == workload::Order::kShuffle  ? "shuffled"
                    : order == workload::Order::kBucket ? "bucketed"
                                                        : "sorted";
  DataSet data = MakeDataSet(absl::StrCat(NameOf(options.path), "/", how), run);
  data.key_columns = file->key_columns;
  for (const KeyTimes& g : data.log) data.cost.push_back(cost(g.key));
  return data;
}

DataSet Redrawn(const DataSet& data, uint64_t seed) {
  DataSet fresh = data;
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < data.size(); ++i) {
    fresh.run.times[i] = data.cost[data.entry[i]] * MadeNoise(random);
  }
  Index(fresh);
  return fresh;
}

Draws::Draws(const DataSet& data, uint64_t seed)
    : data_(data),
      seed_(seed),
      random_(seed),
      order_(data.of_key.size()),
      next_(data.of_key.size()) {}

int Draws::Draw(int entry) {
  std::vector<int>& order = order_[entry];
  if (order.empty()) {
    order = data_.of_key[entry];
    workload::Random random(workload::Mix(seed_) ^ static_cast<uint64_t>(entry));
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
  }
  return order[next_[entry]++ % order.size()];
}

double Draws::Mean(int entry, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    sum +=
        data_.cost.empty() ? data_.run.times[Draw(entry)] : data_.cost[entry] * MadeNoise(random_);
  }
  return sum / count;
}

double Draws::TimeOf(int iteration) {
  return data_.cost.empty() ? data_.run.times[iteration]
                            : data_.cost[data_.entry[iteration]] * MadeNoise(random_);
}

}  // namespace seqpoint::accuracy
