#include "daemon/iterations/length_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/iterations/rule_choice.h"

namespace seqpoint::iterations {
namespace {

using abi::CallRecord;
using abi::LengthField;
using abi::LengthFold;
using abi::LengthSource;
using abi::Op;

constexpr uint32_t kMaxCopies = 8;
constexpr const char* kLagWords[] = {"", " of the iteration before", " two iterations before"};
constexpr uint32_t kMaxLaunches = 24;
constexpr uint32_t kMaxCounted = 6;
constexpr size_t kMaxRows = 256;
constexpr double kExactVaries = 0.005;  // the same for what is known without noise
constexpr size_t kWarmUpRows = 2;
constexpr size_t kFewRows = 5;  // fewer say nothing
constexpr size_t kRowsForPairs = 7;
constexpr size_t kManyRows = 64;        // as many times average out the noise of first occurrences
constexpr double kHardlyVaries = 0.03;  // robust variation below which there is nothing to explain

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double MedianDeviation(const std::vector<double>& values, double median) {
  std::vector<double> deviations;
  for (double value : values) deviations.push_back(std::abs(value - median));
  return 1.4826 * Median(std::move(deviations));
}

double RobustVariation(const std::vector<double>& values) {
  const double median = Median(values);
  return median > 0 ? MedianDeviation(values, median) / median : 0;
}

// Reads one source in one micro-step.
class Reader {
 public:
  Reader(const LaunchLog& stream, const std::vector<LengthSource>& sources)
      : stream_(stream), sources_(sources) {
    for (size_t s = 0; s < sources.size(); ++s) {
      const bool count = sources[s].field == static_cast<uint8_t>(LengthField::kCallCount);
      (count ? counted_ : read_).push_back(s);
      ops_ |= 1u << sources[s].pattern.op;
    }
  }

  // Values of [begin, end), as the matcher reads them.
  std::vector<int64_t> Read(uint32_t begin, uint32_t end, uint32_t step) const {
    std::vector<int64_t> values(sources_.size(), -1);
    std::vector<uint32_t> occurrences(sources_.size(), 0);
    for (size_t s : counted_) values[s] = 0;
    uint32_t launches = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const CallRecord& call = stream_.calls()[i];
      if ((ops_ >> (call.op & 31) & 1) == 0) continue;
      const bool launch = call.op == static_cast<uint8_t>(Op::kLaunch);
      // Almost all calls are launches behind those whose grids are read.
      if (launch && launches++ >= kMaxLaunches && (counted_.empty() || i >= step)) continue;
      const abi::MatchEvent event = ToMatchEvent(call, stream_.names());
      if (launch && i < step) {
        for (size_t s : counted_) values[s] += Matches(sources_[s], event);
      }
      if (launch && launches > kMaxLaunches) continue;
      for (size_t s : read_) {
        if (!Matches(sources_[s], event)) continue;
        if (occurrences[s]++ == sources_[s].ordinal) values[s] = Field(sources_[s], event);
      }
    }
    return values;
  }

 private:
  static bool Matches(const LengthSource& source, const abi::MatchEvent& event) {
    return source.pattern.op == event.op &&
           (source.pattern.match == 0 || source.pattern.name_hash == event.name_hash);
  }
  static int64_t Field(const LengthSource& source, const abi::MatchEvent& event) {
    switch (static_cast<LengthField>(source.field)) {
      case LengthField::kBytes:
        return static_cast<int64_t>(event.bytes);
      case LengthField::kGridX:
        return event.grid_x;
      case LengthField::kGridY:
        return event.grid_y;
      case LengthField::kGridZ:
        return event.grid_z;
      case LengthField::kNamePayload:
        return event.has_payload ? static_cast<int64_t>(event.bytes) : -1;
      case LengthField::kNameDigits:
        return source.digit_run < event.digit_runs ? event.digits[source.digit_run] : -1;
      default:
        return -1;
    }
  }

  const LaunchLog& stream_;
  const std::vector<LengthSource>& sources_;
  std::vector<size_t> counted_;  // sources that count launches
  std::vector<size_t> read_;     // the others
  uint32_t ops_ = 0;
};

struct MicroStep {
  uint32_t begin, end, step;
};

// Proposes sources by looking at a few iterations.
class Proposer {
 public:
  Proposer(const LaunchLog& stream, const std::vector<MicroStep>& micro_steps, bool accumulates,
           FeatureTable* table)
      : stream_(stream), micro_steps_(micro_steps), accumulates_(accumulates), table_(table) {}

  void Propose() {
    Marks();
    Framework();
    Nvtx();
    const uint8_t likely = LikelyLag();
    for (int lag = 0; lag < 3; ++lag) Copies(static_cast<uint8_t>((likely + lag) % 3));
    Grids();
    Counts();
  }

 private:
  void Add(LengthSource source, std::string words) {
    source.fold = static_cast<uint8_t>(accumulates_ ? LengthFold::kSum : LengthFold::kFirst);
    if (accumulates_) absl::StrAppend(&words, ", summed over micro-steps");
    table_->sources.push_back(source);
    table_->words.push_back(std::move(words));
  }
  static LengthSource Source(Op op, LengthField field) {
    LengthSource source{};
    source.pattern.op = static_cast<uint8_t>(op);
    source.field = static_cast<uint8_t>(field);
    return source;
  }
  // The last few micro-steps.
  absl::Span<const MicroStep> Studied() const {
    const size_t n = std::min<size_t>(micro_steps_.size(), 8);
    return absl::Span<const MicroStep>(micro_steps_).subspan(micro_steps_.size() - n);
  }
  uint32_t FewestCalls(Op op) const {
    uint32_t fewest = UINT32_MAX;
    for (const MicroStep& m : Studied()) {
      uint32_t n = 0;
      for (uint32_t i = m.begin; i < m.end; ++i) {
        n += stream_.calls()[i].op == static_cast<uint8_t>(op);
      }
      fewest = std::min(fewest, n);
    }
    return fewest == UINT32_MAX ? 0 : fewest;
  }

  void Marks() {
    if (FewestCalls(Op::kMark) > 0) {
      Add(Source(Op::kMark, LengthField::kBytes), "length told by the framework mark");
    }
  }

  // What each of the studied micro-steps was told.
  void Framework() {
    std::vector<uint32_t> names;
    for (const MicroStep& m : Studied()) {
      std::vector<uint32_t> told;
      for (uint32_t i = m.begin; i < m.end; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op == static_cast<uint8_t>(Op::kFeature)) told.push_back(call.name_id);
      }
      if (&m == &Studied()[0]) names = told;
      std::erase_if(names, [&](uint32_t name) {
        return std::find(told.begin(), told.end(), name) == told.end();
      });
    }
    for (uint32_t id : names) {
      LengthSource source = Source(Op::kFeature, LengthField::kNamePayload);
      source.pattern.match = abi::kMatchName;
      source.pattern.name_hash = stream_.names().Get(id).hash;
      Add(source, stream_.names().Get(id).text);
    }
  }

  void Nvtx() {
    for (Op op : {Op::kNvtxPush, Op::kNvtxMark}) {
      std::vector<uint64_t> seen;
      if (micro_steps_.empty()) return;
      const MicroStep& last = micro_steps_.back();
      for (uint32_t i = last.begin; i < last.end; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op != static_cast<uint8_t>(op)) continue;
        const Name& name = stream_.names().Get(call.name_id);
        if (std::find(seen.begin(), seen.end(), name.shape.hash) != seen.end()) continue;
        seen.push_back(name.shape.hash);
        if (seen.size() > 16) break;
        LengthSource source = Source(op, LengthField::kNamePayload);
        source.pattern.match = abi::kMatchName;
        source.pattern.name_hash = name.shape.hash;
        if ((call.flags & abi::kCallHasPayload) != 0) {
          Add(source, absl::StrCat("payload of NVTX \"", name.text, "\""));
        }
        source.field = static_cast<uint8_t>(LengthField::kNameDigits);
        for (uint32_t run = 0; run < name.shape.digit_runs; ++run) {
          source.digit_run = static_cast<uint8_t>(run);
          Add(source, absl::StrCat(Ordinal(run + 1), " number in NVTX \"", name.text, "\""));
        }
      }
    }
  }

  // Copies behind the step belong to the micro-step before, as the matcher counts; copies on a
  // stream of their own are the next batch's.
  uint8_t LikelyLag() const {
    const MicroStep& last = micro_steps_.back();
    uint64_t compute = 0;
    for (uint32_t i = last.begin; i < last.end; ++i) {
      if (IsLaunch(stream_.calls()[i].op)) compute = stream_.calls()[i].stream;
    }
    for (uint32_t i = last.begin; i < last.end; ++i) {
      const CallRecord& call = stream_.calls()[i];
      if (call.op != static_cast<uint8_t>(Op::kCopyH2D)) continue;
      const bool next_batch = call.stream != compute && i != last.begin;
      return static_cast<uint8_t>((i > last.step ? 1 : 0) + (next_batch ? 1 : 0));
    }
    return 0;
  }

  void Copies(uint8_t lag) {
    const uint32_t copies = std::min(FewestCalls(Op::kCopyH2D), kMaxCopies);
    for (uint32_t i = 0; i < copies; ++i) {
      LengthSource source = Source(Op::kCopyH2D, LengthField::kBytes);
      source.ordinal = i;
      source.lag = lag;
      const std::string which = copies == 1 ? "the" : absl::StrCat("the ", Ordinal(i + 1));
      Add(source, absl::StrCat("bytes of ", which, " host-to-device copy", kLagWords[lag]));
    }
  }

  void Grids() {
    const uint32_t launches = std::min(FewestCalls(Op::kLaunch), kMaxLaunches);
    for (uint32_t i = 0; i < launches; ++i) {
      constexpr LengthField kFields[] = {LengthField::kGridX, LengthField::kGridY,
                                         LengthField::kGridZ};
      constexpr const char* kNames[] = {"x", "y", "z"};
      for (size_t f = 0; f < 3; ++f) {
        LengthSource source = Source(Op::kLaunch, kFields[f]);
        source.ordinal = i;
        Add(source, absl::StrCat("grid ", kNames[f], " of the ", Ordinal(i + 1), " launch"));
      }
    }
  }

  // Kernels whose number of launches varies; known when the iteration ends, so the last resort.
  void Counts() {
    absl::flat_hash_map<uint32_t, std::pair<uint32_t, uint32_t>> range;  // name id -> least, most
    bool first = true;
    for (const MicroStep& m : Studied()) {
      absl::flat_hash_map<uint32_t, uint32_t> counts;
      for (uint32_t i = m.begin; i < m.step; ++i) {
        const CallRecord& call = stream_.calls()[i];
        if (call.op == static_cast<uint8_t>(Op::kLaunch)) ++counts[call.name_id];
      }
      if (first) {
        for (const auto& [id, n] : counts) range[id] = {n, n};
      }
      first = false;
      for (auto& [id, r] : range) {
        const auto it = counts.find(id);
        const uint32_t n = it == counts.end() ? 0 : it->second;
        r = {std::min(r.first, n), std::max(r.second, n)};
      }
    }
    std::vector<std::pair<uint32_t, uint32_t>> varying;  // most, name id
    for (const auto& [id, r] : range) {
      if (r.first > 0 && r.second > r.first) varying.push_back({r.second, id});
    }
    std::sort(varying.rbegin(), varying.rend());
    if (varying.size() > kMaxCounted) varying.resize(kMaxCounted);
    for (const auto& [most, id] : varying) {
      LengthSource source = Source(Op::kLaunch, LengthField::kCallCount);
      source.pattern.match = abi::kMatchName;
      source.pattern.name_hash = stream_.names().Get(id).hash;
      Add(source, absl::StrCat("launches of ", ShortName(stream_.names().Get(id).text)));
    }
    if (FewestCalls(Op::kLaunch) > 0) {
      Add(Source(Op::kLaunch, LengthField::kCallCount), "number of launches");
    }
  }

  const LaunchLog& stream_;
  const std::vector<MicroStep>& micro_steps_;
  bool accumulates_;
  FeatureTable* table_;
};

bool HostWaited(const LaunchLog& stream, const ReplayedIteration& it) {
  for (uint32_t i = it.begin; i < it.end; ++i) {
    const auto op = static_cast<Op>(stream.calls()[i].op);
    if ((stream.calls()[i].flags & abi::kCallHostTime) != 0) return true;
    if ((op == Op::kStreamSync || op == Op::kEventSync || op == Op::kContextSync) &&
        stream.calls()[i].bytes > 0) {
      return true;
    }
  }
  return false;
}

void MakeTimes(const LaunchLog& stream, absl::Span<const ReplayedIteration> iterations,
               const GpuStarts& gpu_starts, FeatureTable* table) {
  const std::vector<CallRecord>& calls = stream.calls();
  size_t timed = 0, waited = 0;
  std::vector<double> gpu(iterations.size(), 0), host(iterations.size(), 0);
  for (size_t row = 0; row < iterations.size(); ++row) {
    const ReplayedIteration& it = iterations[row];
    if (it.clock != kNoCall && it.end_clock != kNoCall) {
      const auto begin = gpu_starts.find(calls[it.clock].correlation_id);
      const auto end = gpu_starts.find(calls[it.end_clock].correlation_id);
      if (begin != gpu_starts.end() && end != gpu_starts.end() && end->second > begin->second) {
        gpu[row] = static_cast<double>(end->second - begin->second);
        ++timed;
      }
    }
    if (HostWaited(stream, it)) {
      ++waited;
      if (calls[it.end].api_ns > calls[it.begin].api_ns) {
        host[row] = static_cast<double>(calls[it.end].api_ns - calls[it.begin].api_ns);
      }
    }
  }
  if (timed * 10 >= iterations.size() * 6) {
    table->time_ns = std::move(gpu);
    table->time_source = "GPU stamps";
  } else if (waited * 10 >= iterations.size() * 9) {
    table->time_ns = std::move(host);
    table->time_source = "host waits";
  } else {
    table->time_ns.assign(iterations.size(), 0);
  }
}

}  // namespace

FeatureTable MakeFeatures(const LaunchLog& stream,
                          const std::vector<ReplayedIteration>& all_iterations,
                          uint32_t micro_steps_per_step, const GpuStarts& gpu_starts) {
  FeatureTable table;
  const size_t skip = all_iterations.size() > kMaxRows ? all_iterations.size() - kMaxRows : 0;
  const auto iterations = absl::Span<const ReplayedIteration>(all_iterations).subspan(skip);
  if (iterations.empty()) return table;
  std::vector<MicroStep> micro_steps;
  for (const ReplayedIteration& it : iterations) {
    for (size_t m = 0; m < it.micro_steps.size(); ++m) {
      const uint32_t end = m + 1 < it.micro_steps.size() ? it.micro_steps[m + 1] : it.end;
      micro_steps.push_back({it.micro_steps[m], end, std::min(it.step, end)});
    }
  }
  Proposer(stream, micro_steps, micro_steps_per_step > 1, &table).Propose();
  MakeTimes(stream, iterations, gpu_starts, &table);

  const Reader reader(stream, table.sources);
  const size_t columns = table.sources.size();
  table.values.reserve(iterations.size() * columns);
  std::vector<int64_t> before[2] = {std::vector<int64_t>(columns, -1),
                                    std::vector<int64_t>(columns, -1)};
  size_t next = 0;
  for (const ReplayedIteration& it : iterations) {
    std::vector<int64_t> folded(columns, -1);
    for (size_t m = 0; m < it.micro_steps.size(); ++m) {
      const MicroStep& micro_step = micro_steps[next++];
      std::vector<int64_t> now = reader.Read(micro_step.begin, micro_step.end, micro_step.step);
      for (size_t s = 0; s < columns; ++s) {
        const uint8_t lag = table.sources[s].lag;
        const int64_t value = lag == 0 ? now[s] : before[lag - 1][s];
        if (value < 0) continue;
        if (folded[s] < 0) {
          folded[s] = value;
        } else if (micro_steps_per_step > 1) {
          folded[s] += value;
        }
      }
      before[1] = std::move(before[0]);
      before[0] = std::move(now);
    }
    table.values.insert(table.values.end(), folded.begin(), folded.end());
    double threads = 0;
    uint32_t launches = 0;
    for (uint32_t i = it.begin; i < it.end; ++i) {
      const CallRecord& c = stream.calls()[i];
      if (c.op != static_cast<uint8_t>(Op::kLaunch)) continue;
      ++launches;
      threads +=
          static_cast<double>(c.grid_x) * c.grid_y * c.grid_z * c.block_x * c.block_y * c.block_z;
    }
    table.launched_threads.push_back(threads);
    table.launches.push_back(launches);
  }
  return table;
}

namespace {

// Share explained by a linear, or a quadratic, function of the keys.
double ExplainedBy(const std::vector<std::vector<double>>& keys, const std::vector<double>& y,
                   bool quadratic) {
  const size_t n = y.size();
  // Basis: constant, each key, and its square and the product.
  std::vector<std::vector<double>> basis(1, std::vector<double>(n, 1));
  std::vector<std::vector<double>> scaled;
  for (const std::vector<double>& key : keys) {
    const double mean = std::accumulate(key.begin(), key.end(), 0.0) / static_cast<double>(n);
    double square = 0;
    for (double value : key) square += (value - mean) * (value - mean);
    const double deviation = std::sqrt(square / static_cast<double>(n));
    if (deviation <= 0) continue;
    std::vector<double> column;
    for (double value : key) column.push_back((value - mean) / deviation);
    scaled.push_back(std::move(column));
  }
  for (const auto& column : scaled) basis.push_back(column);
  if (quadratic) {
    for (size_t a = 0; a < scaled.size(); ++a) {
      for (size_t b = a; b < scaled.size(); ++b) {
        std::vector<double> product(n);
        for (size_t i = 0; i < n; ++i) product[i] = scaled[a][i] * scaled[b][i];
        basis.push_back(std::move(product));
      }
    }
  }
  const size_t p = basis.size();
  if (n < p + 2) return 0;

  // Inverse of the Gram matrix by Gauss-Jordan; a trace of ridge keeps collinear keys solvable.
  std::vector<std::vector<double>> m(p, std::vector<double>(2 * p, 0));
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b < p; ++b) {
      m[a][b] = std::inner_product(basis[a].begin(), basis[a].end(), basis[b].begin(), 0.0);
    }
    m[a][a] *= 1 + 1e-9;
    m[a][a] += 1e-12;
    m[a][p + a] = 1;
  }
  for (size_t c = 0; c < p; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < p; ++r) {
      if (std::abs(m[r][c]) > std::abs(m[pivot][c])) pivot = r;
    }
    if (std::abs(m[pivot][c]) < 1e-14) return 0;
    std::swap(m[c], m[pivot]);
    const double scale = 1 / m[c][c];
    for (double& value : m[c]) value *= scale;
    for (size_t r = 0; r < p; ++r) {
      if (r == c) continue;
      const double factor = m[r][c];
      for (size_t k = 0; k < 2 * p; ++k) m[r][k] -= factor * m[c][k];
    }
  }
  std::vector<double> coefficients(p, 0);
  for (size_t a = 0; a < p; ++a) {
    for (size_t b = 0; b < p; ++b) {
      coefficients[a] +=
          m[a][p + b] * std::inner_product(basis[b].begin(), basis[b].end(), y.begin(), 0.0);
    }
  }
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / static_cast<double>(n);
  double residual = 0, total = 0;
  for (size_t i = 0; i < n; ++i) {
    double fitted = 0, leverage = 0;
    for (size_t a = 0; a < p; ++a) {
      fitted += coefficients[a] * basis[a][i];
      for (size_t b = 0; b < p; ++b) leverage += basis[a][i] * m[a][p + b] * basis[b][i];
    }
    const double left_out = (y[i] - fitted) / std::max(1e-3, 1 - leverage);
    const double without = static_cast<double>(n) / static_cast<double>(n - 1) * (y[i] - mean);
    residual += left_out * left_out;
    total += without * without;
  }
  return total > 0 ? std::clamp(1 - residual / total, 0.0, 1.0) : 0;
}

}  // namespace

double ExplainedShare(const std::vector<std::vector<double>>& keys, const std::vector<double>& y) {
  return std::max(ExplainedBy(keys, y, false), ExplainedBy(keys, y, true));
}

namespace {

int Rank(const LengthSource& source) {
  if (source.field == static_cast<uint8_t>(LengthField::kCallCount)) return 2;
  return source.pattern.op == static_cast<uint8_t>(Op::kLaunch) ? 1 : 0;
}

// MakeFeatures proposes copies with the likeliest lag first.
uint8_t LikelyLag(const FeatureTable& table) {
  for (const LengthSource& source : table.sources) {
    if (source.pattern.op == static_cast<uint8_t>(Op::kCopyH2D)) return source.lag;
  }
  return 0;
}

// What a length should explain, over some rows of the table.
struct Target {
  std::vector<size_t> rows;
  std::vector<double> values;
  double weight = 1;
};

void DropOutliers(Target* target) {
  const double median = Median(target->values);
  const double reach = 4 * std::max(MedianDeviation(target->values, median), 0.02 * median);
  Target kept;
  kept.weight = target->weight;
  for (size_t i = 0; i < target->rows.size(); ++i) {
    if (std::abs(target->values[i] - median) > reach) continue;
    kept.rows.push_back(target->rows[i]);
    kept.values.push_back(target->values[i]);
  }
  *target = std::move(kept);
}

// Share that the columns leave unexplained, over all targets.
double Unexplained(const FeatureTable& table, const std::vector<size_t>& columns,
                   const std::vector<Target>& targets) {
  double sum = 0, weights = 0;
  for (const Target& target : targets) {
    std::vector<std::vector<double>> keys(columns.size());
    for (size_t k = 0; k < columns.size(); ++k) {
      for (size_t row : target.rows) {
        keys[k].push_back(static_cast<double>(table.value(row, columns[k])));
      }
    }
    sum += target.weight * (1 - ExplainedShare(keys, target.values));
    weights += target.weight;
  }
  return sum / weights;
}

// The smallest subset of at most two columns that explains the targets. Columns come in the order
// of preference, which decides between near equals.
std::vector<size_t> SmallestSubset(const FeatureTable& table, std::vector<size_t> columns,
                                   const std::vector<Target>& targets) {
  constexpr double kNearAlone = 0.02;  // a label count follows the frames it was made from
  constexpr double kNear = 0.004;
  constexpr size_t kMaxPairColumns = 12;
  std::vector<std::pair<double, size_t>> alone;
  for (size_t column : columns) {
    alone.push_back({Unexplained(table, {column}, targets), column});
  }
  if (alone.empty()) return {};
  double best = 1;
  for (const auto& [unexplained, column] : alone) best = std::min(best, unexplained);
  const auto first = std::find_if(alone.begin(), alone.end(), [&](const auto& entry) {
    return entry.first <= best + kNearAlone;
  });
  const auto [single, preferred] = *first;  // `alone` is sorted below
  if (targets[0].rows.size() < kRowsForPairs) return {preferred};

  // Pairs of the columns that come first and of those that explain most.
  std::vector<size_t> paired;
  for (size_t i = 0; i < alone.size() && paired.size() < kMaxPairColumns / 2; ++i) {
    paired.push_back(alone[i].second);
  }
  std::stable_sort(alone.begin(), alone.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < alone.size() && paired.size() < kMaxPairColumns; ++i) {
    if (std::find(paired.begin(), paired.end(), alone[i].second) == paired.end()) {
      paired.push_back(alone[i].second);
    }
  }
  std::sort(paired.begin(), paired.end());
  double pair_best = 1;
  std::vector<std::pair<double, std::vector<size_t>>> pairs;
  for (size_t a = 0; a < paired.size(); ++a) {
    for (size_t b = a + 1; b < paired.size(); ++b) {
      const std::vector<size_t> pair = {paired[a], paired[b]};
      pairs.push_back({Unexplained(table, pair, targets), pair});
      pair_best = std::min(pair_best, pairs.back().first);
    }
  }
  // A second column must take away most of what is left, and be worth it.
  if (single - pair_best < 0.004 || pair_best > 0.6 * single) return {preferred};
  for (const auto& [unexplained, pair] : pairs) {
    if (unexplained <= pair_best + kNear / 4) return pair;
  }
  return {preferred};
}

// A number that grows by the same amount each time counts iterations.
bool Counts(const FeatureTable& table, size_t column) {
  for (size_t row = 2; row < table.rows(); ++row) {
    const int64_t step = table.value(row, column) - table.value(row - 1, column);
    if (step == 0 || step != table.value(row - 1, column) - table.value(row - 2, column)) {
      return false;
    }
  }
  return table.rows() >= 3;
}

}  // namespace

LengthChoice ChooseLengths(const FeatureTable& table) {
  LengthChoice choice;
  const size_t skip = table.rows() >= 12 ? kWarmUpRows : 0;
  // Usable: read in every row (a source with lag has nothing to read before the first).
  std::vector<size_t> usable, varying;
  const size_t first_row = std::max<size_t>(skip, std::min<size_t>(2, table.rows() / 3));
  std::vector<size_t> rows;
  for (size_t row = first_row; row < table.rows(); ++row) rows.push_back(row);
  for (size_t column = 0; column < table.sources.size(); ++column) {
    bool read = !rows.empty(), varies = false;
    for (size_t row : rows) {
      read &= table.value(row, column) >= 0;
      varies |= table.value(row, column) != table.value(rows[0], column);
    }
    // A length that the program itself tells is no counter, however evenly sorted batches grow.
    const bool told = table.sources[column].pattern.op == static_cast<uint8_t>(Op::kMark);
    if (!read || (!told && Counts(table, column))) continue;
    usable.push_back(column);
    if (!varies) continue;
    // The same values as an earlier column's: nothing new.
    const bool repeats = std::any_of(varying.begin(), varying.end(), [&](size_t other) {
      return std::all_of(rows.begin(), rows.end(), [&](size_t row) {
        return table.value(row, column) == table.value(row, other);
      });
    });
    if (!repeats) varying.push_back(column);
  }

  Target time, threads{.rows = rows}, launches{.rows = rows};
  for (size_t row : rows) {
    if (table.time_ns[row] > 0) {
      time.rows.push_back(row);
      time.values.push_back(table.time_ns[row]);
    }
    threads.values.push_back(table.launched_threads[row]);
    launches.values.push_back(table.launches[row]);
  }
  // A stall, or an evaluation phase at the end of an iteration, is not the length's doing.
  for (Target* target : {&time, &threads, &launches}) DropOutliers(target);

  // First occurrences pay for algorithm search and blur the times of a short stream. What was
  // launched is exact: a length that decides the time decides that, too.
  const bool times_known = time.rows.size() >= 6;
  const bool time_varies = times_known && RobustVariation(time.values) >= kHardlyVaries;
  std::vector<Target> targets;
  for (const Target* launched : {&threads, &launches}) {
    const double variation = RobustVariation(launched->values);
    if (variation < kExactVaries) continue;
    targets.push_back(*launched);
    targets.back().weight = variation;
  }
  const bool work_varies = !targets.empty();
  if (!work_varies && time_varies) targets.push_back(time);
  if (!varying.empty() && !targets.empty() && rows.size() >= kFewRows) {
    // What is told or copied is exact; grids are rounded up, and explain what was launched by
    // themselves; call counts do that, too, and come too late to choose what to measure.
    constexpr double kEnough[] = {0.1, 0.1, 0.5, 2};
    for (int rank = 0; rank < 4; ++rank) {
      std::vector<size_t> columns = varying;
      std::erase_if(columns, [&](size_t column) {
        const LengthSource& source = table.sources[column];
        // Sorted batches are like the ones before them: the likely lag first.
        const bool copy = source.pattern.op == static_cast<uint8_t>(Op::kCopyH2D);
        return rank == 0 ? Rank(source) > 0 || (copy && source.lag != LikelyLag(table))
                         : Rank(source) >= rank;
      });
      if (columns.empty()) continue;
      choice.sources = SmallestSubset(table, columns, targets);
      if (Unexplained(table, choice.sources, targets) <= kEnough[rank]) break;
    }
    choice.judged = !choice.sources.empty();
    const auto explained = [&](const Target& target) {
      return 1 - Unexplained(table, choice.sources, {target});
    };
    if (time_varies) {
      choice.explained = explained(time);
      choice.judged_by = table.time_source;
    }
    if (work_varies && (!times_known || (choice.explained < 0.9 && time.rows.size() < kManyRows))) {
      choice.explained = 1 - Unexplained(table, choice.sources, targets);
      choice.judged_by = "what was launched";
    }
    choice.depends = choice.explained >= 0.5;
  }
  if (choice.sources.empty()) {
    // Nothing to judge by (sorted batches hardly vary at first): what is told or copied is the best
    // guess, that which varies before that which does not.
    for (const std::vector<size_t>* columns : {&varying, &usable}) {
      for (size_t column : *columns) {
        const LengthSource& source = table.sources[column];
        if (Rank(source) != 0 || choice.sources.size() == 2) continue;
        if (!choice.sources.empty() && source.lag != table.sources[choice.sources[0]].lag) continue;
        choice.sources.push_back(column);
      }
      if (!choice.sources.empty()) break;
    }
    // Times that stay the same while what is copied varies.
    const bool copies_vary = std::any_of(varying.begin(), varying.end(), [&](size_t column) {
      std::vector<double> values;
      for (size_t row : rows) values.push_back(static_cast<double>(table.value(row, column)));
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      return Rank(table.sources[column]) == 0 && *most >= 1.4 * *least &&
             RobustVariation(values) >= 2 * kHardlyVaries;
    });
    choice.judged =
        rows.size() >= kFewRows && times_known && !time_varies && !work_varies && copies_vary;
  }

  std::vector<std::string> words;
  for (size_t column : choice.sources) {
    int64_t unit = 0;
    // What a framework tells is in units already, as a table of few rows may hide.
    if (table.sources[column].pattern.op == static_cast<uint8_t>(abi::Op::kFeature)) unit = 1;
    for (size_t row : rows) unit = std::gcd(unit, table.value(row, column));
    choice.unit.push_back(std::max<int64_t>(unit, 1));
    std::string text = table.words[column];
    if (unit > 1 && (choice.judged || !varying.empty())) absl::StrAppend(&text, " ÷ ", unit);
    words.push_back(std::move(text));
  }
  choice.words = absl::StrJoin(words, " and ");
  if (!choice.judged && !words.empty()) {
    absl::StrAppend(&choice.words, " (a guess: ",
                    varying.empty()          ? "nothing varied"
                    : rows.size() < kFewRows ? "too few iterations"
                                             : "nothing to judge it by",
                    " so far)");
  }
  if (words.empty()) {
    choice.words = choice.judged && !choice.depends
                       ? "none: the time of an iteration depends on nothing that can be read early"
                       : "none found";
  }
  return choice;
}

}  // namespace seqpoint::iterations
