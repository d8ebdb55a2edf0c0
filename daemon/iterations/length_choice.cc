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
constexpr uint32_t kMaxLaunches = 24;
constexpr uint32_t kMaxCounted = 6;
constexpr size_t kMaxRows = 256;
constexpr size_t kWarmUpRows = 2;
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
  Reader(const CallStream& stream, const std::vector<LengthSource>& sources)
      : stream_(stream), sources_(sources) {}

  // Values of [begin, end), as the matcher reads them.
  std::vector<int64_t> Read(uint32_t begin, uint32_t end, uint32_t step) const {
    std::vector<int64_t> values(sources_.size(), -1);
    std::vector<uint32_t> occurrences(sources_.size(), 0);
    for (size_t s = 0; s < sources_.size(); ++s) {
      if (sources_[s].field == static_cast<uint8_t>(LengthField::kCallCount)) values[s] = 0;
    }
    for (uint32_t i = begin; i < end; ++i) {
      const CallRecord& call = stream_.calls()[i];
      if ((ops_ >> (call.op & 31) & 1) == 0) continue;
      const abi::MatchEvent event = ToMatchEvent(call, stream_.names());
      for (size_t s = 0; s < sources_.size(); ++s) {
        const LengthSource& source = sources_[s];
        if (source.pattern.op != event.op) continue;
        if (source.pattern.match != 0 && source.pattern.name_hash != event.name_hash) continue;
        if (source.field == static_cast<uint8_t>(LengthField::kCallCount)) {
          if (i < step) ++values[s];
          continue;
        }
        if (occurrences[s]++ == source.ordinal) values[s] = Field(source, event);
      }
    }
    return values;
  }

 private:
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

  const CallStream& stream_;
  const std::vector<LengthSource>& sources_;
  const uint32_t ops_ = [this] {
    uint32_t ops = 0;
    for (const LengthSource& source : sources_) ops |= 1u << source.pattern.op;
    return ops;
  }();
};

struct MicroStep {
  uint32_t begin, end, step;
};

// Proposes sources by looking at a few iterations.
class Proposer {
 public:
  Proposer(const CallStream& stream, const std::vector<MicroStep>& micro_steps, bool accumulates,
           FeatureTable* table)
      : stream_(stream), micro_steps_(micro_steps), accumulates_(accumulates), table_(table) {}

  void Propose() {
    Marks();
    Nvtx();
    for (uint8_t lag : {0, 1}) Copies(lag);
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

  void Copies(uint8_t lag) {
    const uint32_t copies = std::min(FewestCalls(Op::kCopyH2D), kMaxCopies);
    for (uint32_t i = 0; i < copies; ++i) {
      LengthSource source = Source(Op::kCopyH2D, LengthField::kBytes);
      source.ordinal = i;
      source.lag = lag;
      const std::string which = copies == 1 ? "the" : absl::StrCat("the ", Ordinal(i + 1));
      Add(source, absl::StrCat("bytes of ", which, " host-to-device copy",
                               lag != 0 ? " of the iteration before" : ""));
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

  const CallStream& stream_;
  const std::vector<MicroStep>& micro_steps_;
  bool accumulates_;
  FeatureTable* table_;
};

bool HostWaited(const CallStream& stream, const ReplayedIteration& it) {
  for (uint32_t i = it.begin; i < it.end; ++i) {
    const auto op = static_cast<Op>(stream.calls()[i].op);
    if ((op == Op::kStreamSync || op == Op::kEventSync || op == Op::kContextSync) &&
        stream.calls()[i].bytes > 0) {
      return true;
    }
  }
  return false;
}

void MakeTimes(const CallStream& stream, absl::Span<const ReplayedIteration> iterations,
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

FeatureTable MakeFeatures(const CallStream& stream,
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
  std::vector<int64_t> before(columns, -1);
  size_t next = 0;
  for (const ReplayedIteration& it : iterations) {
    std::vector<int64_t> folded(columns, -1);
    for (size_t m = 0; m < it.micro_steps.size(); ++m) {
      const MicroStep& micro_step = micro_steps[next++];
      std::vector<int64_t> now = reader.Read(micro_step.begin, micro_step.end, micro_step.step);
      for (size_t s = 0; s < columns; ++s) {
        const int64_t value = table.sources[s].lag != 0 ? before[s] : now[s];
        if (value < 0) continue;
        if (folded[s] < 0) {
          folded[s] = value;
        } else if (micro_steps_per_step > 1) {
          folded[s] += value;
        }
      }
      before = std::move(now);
    }
    table.values.insert(table.values.end(), folded.begin(), folded.end());
    double threads = 0;
    for (uint32_t i = it.begin; i < it.end; ++i) {
      const CallRecord& c = stream.calls()[i];
      if (c.op != static_cast<uint8_t>(Op::kLaunch)) continue;
      threads +=
          static_cast<double>(c.grid_x) * c.grid_y * c.grid_z * c.block_x * c.block_y * c.block_z;
    }
    table.launched_threads.push_back(threads);
  }
  return table;
}

double ExplainedShare(const std::vector<std::vector<double>>& keys, const std::vector<double>& y) {
  const size_t n = y.size();
  // Basis: constant, each key, and with enough points its square and the product.
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
  const size_t quadratic_terms = scaled.size() == 2 ? 3 : 1;
  if (n >= 2 * (basis.size() + quadratic_terms) + 4) {
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

namespace {

struct Judged {
  std::vector<size_t> sources;
  double explained = 0;
};

// The smallest subset of at most two columns that explains `y`. Columns come in the order of
// preference, which decides between near equals.
Judged Judge(const FeatureTable& table, const std::vector<size_t>& columns,
             const std::vector<size_t>& rows, const std::vector<double>& y) {
  constexpr double kNear = 0.005;
  const auto key = [&](size_t column) {
    std::vector<double> values;
    for (size_t row : rows) values.push_back(static_cast<double>(table.value(row, column)));
    return values;
  };
  std::vector<std::vector<double>> keys;
  std::vector<double> alone;
  for (size_t column : columns) {
    keys.push_back(key(column));
    alone.push_back(ExplainedShare({keys.back()}, y));
  }
  if (columns.empty()) return {};
  const double best = *std::max_element(alone.begin(), alone.end());
  size_t first = 0;
  while (alone[first] < best - kNear) ++first;
  Judged judged{{columns[first]}, alone[first]};
  // A second one must take away most of what is left, and be worth it.
  if (rows.size() < 10) return judged;
  double pair_best = 0;
  std::vector<std::array<double, 3>> pairs;  // explained, a, b
  const size_t considered = std::min<size_t>(columns.size(), 24);
  for (size_t a = 0; a < considered; ++a) {
    for (size_t b = a + 1; b < considered; ++b) {
      const double explained = ExplainedShare({keys[a], keys[b]}, y);
      pairs.push_back({explained, static_cast<double>(a), static_cast<double>(b)});
      pair_best = std::max(pair_best, explained);
    }
  }
  if (pair_best - judged.explained < 0.003 || 1 - pair_best > 0.6 * (1 - judged.explained)) {
    return judged;
  }
  for (const auto& [explained, a, b] : pairs) {
    if (explained < pair_best - kNear / 5) continue;
    judged.sources = {columns[static_cast<size_t>(a)], columns[static_cast<size_t>(b)]};
    judged.explained = explained;
    break;
  }
  return judged;
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
  const size_t first_row = std::max<size_t>(skip, 1);
  std::vector<size_t> rows;
  for (size_t row = first_row; row < table.rows(); ++row) rows.push_back(row);
  for (size_t column = 0; column < table.sources.size(); ++column) {
    bool read = !rows.empty(), varies = false;
    for (size_t row : rows) {
      read &= table.value(row, column) >= 0;
      varies |= table.value(row, column) != table.value(rows[0], column);
    }
    if (!read || Counts(table, column)) continue;
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

  std::vector<size_t> timed_rows;
  std::vector<double> times, work;
  for (size_t row : rows) {
    if (table.time_ns[row] > 0) {
      timed_rows.push_back(row);
      times.push_back(table.time_ns[row]);
    }
    work.push_back(table.launched_threads[row]);
  }
  // A stall is not the length's doing.
  const double median = Median(times);
  const double reach = 4 * std::max(MedianDeviation(times, median), 0.02 * median);
  for (double& time : times) time = std::clamp(time, median - reach, median + reach);

  const bool times_known = times.size() >= 6;
  const bool time_varies = times_known && RobustVariation(times) >= kHardlyVaries;
  const bool work_varies = RobustVariation(work) >= kHardlyVaries;
  if (!varying.empty() && time_varies) {
    const Judged judged = Judge(table, varying, timed_rows, times);
    choice.sources = judged.sources;
    choice.explained = judged.explained;
    choice.judged = true;
    choice.depends = judged.explained >= 0.5;
    choice.judged_by = table.time_source;
  }
  // First occurrences pay for algorithm search and blur the times of a short stream; what was
  // launched is exact.
  if (!varying.empty() && work_varies && (!choice.judged || choice.explained < 0.97)) {
    const Judged judged = Judge(table, varying, rows, work);
    if (judged.explained > choice.explained && judged.explained >= 0.5) {
      choice.sources = judged.sources;
      choice.explained = judged.explained;
      choice.judged = true;
      choice.depends = true;
      choice.judged_by = "launched threads";
    }
  }
  if (choice.sources.empty()) {
    // Nothing to judge by (sorted batches hardly vary at first): the batch's copies are the best
    // guess, those that vary before those that do not.
    for (const std::vector<size_t>* columns : {&varying, &usable}) {
      for (size_t column : *columns) {
        const abi::LengthSource& source = table.sources[column];
        const bool guess = source.pattern.op != static_cast<uint8_t>(Op::kLaunch);
        if (guess && choice.sources.size() < (times_known ? 1 : 2)) {
          choice.sources.push_back(column);
        }
      }
      if (!choice.sources.empty()) break;
    }
    if (times_known && !time_varies && !work_varies) choice.judged = true;
  }

  std::vector<std::string> words;
  for (size_t column : choice.sources) {
    int64_t unit = 0;
    for (size_t row : rows) unit = std::gcd(unit, table.value(row, column));
    choice.unit.push_back(std::max<int64_t>(unit, 1));
    std::string text = table.words[column];
    if (unit > 1 && choice.judged) absl::StrAppend(&text, " ÷ ", unit);
    words.push_back(std::move(text));
  }
  choice.words = absl::StrJoin(words, " and ");
  if (!choice.judged && !words.empty()) choice.words += " (a guess: nothing varied so far)";
  if (choice.judged && !choice.depends) {
    choice.words = absl::StrCat("none: the time of an iteration does not depend on ",
                                words.empty() ? "anything that can be read early" : choice.words);
  } else if (words.empty()) {
    choice.words = "none found";
  }
  return choice;
}

}  // namespace seqpoint::iterations
